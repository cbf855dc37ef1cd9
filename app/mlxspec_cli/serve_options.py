"""The options of `mlxspec serve`: those of mlx-lm's server, and additional ones."""

import argparse
import json
from typing import Any

from mlxspec_cli.arguments import add_flags, option

_UNITS = {"": 1, "B": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KB": 10**3, "MB": 10**6, "GB": 10**9}
REFUSED = {
    "trust_remote_code": "no code of a model is run",
    "chat_template": "the model's own template is used",
    "use_default_chat_template": "the model's own template is used",
    "kv_group_size": "the size of a group follows from the model",
    "quantized_kv_start": "rows are quantised from the first one on",
    "pipeline": "--hosts names machines, and how they share a model follows from the model",
}
"""Flags of mlx-lm's server that are refused, and why."""


def add_serve_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("words", nargs="*", metavar="MODEL", help="folder, GGUF file or hub id")
    group = parser.add_argument_group("model")
    add_flags(group, ("model", "drafter", "draft_model", "lookahead", "max_kv_size", "keep"))
    add_flags(group, ("kv_bits", "dtype", "hosts"))
    option(group, "--adapter-path FOLDER", "a folder with adapters (LoRA)", dest="adapter")
    group = parser.add_argument_group("replies, unless a request says otherwise")
    names = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "num_draft_tokens", "exact")
    add_flags(group, (*names, "think_tokens"))
    text = 'variables of the chat template as JSON, such as {"enable_thinking": false}'
    option(group, "--chat-template-args JSON", text, type=_object, default={})
    option(group, "--prefill-step-size COUNT", "at most 512", type=int)
    _add_network(parser.add_argument_group("network"))
    _add_limits(parser.add_argument_group("limits"))
    levels = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
    text = f"{', '.join(levels[:-1])} or {levels[-1]}"
    option(parser, "--log-level LEVEL", text, "INFO", choices=levels)
    group = parser.add_argument_group("flags of mlx-lm's server that are refused")
    for name, why in REFUSED.items():
        is_switch = name in ("trust_remote_code", "use_default_chat_template", "pipeline")
        option(group, f"--{name.replace('_', '-')}{'' if is_switch else ' VALUE'}", why)


def _add_network(group: argparse._ActionsContainer) -> None:
    group.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    # A separate name: `port` is a setting of `load`, the code that computes a model.
    how: dict[str, Any] = {"dest": "listen_port", "type": int, "default": 8080}
    option(group, "--port PORT", "port to listen on (8080); 0 takes a free one", **how)
    option(group, "--api-key KEY", "requests must send it", default="")
    option(group, "--insecure", "let other machines ask without a key")
    text = "more names by which requests may call this machine, such as host.docker.internal"
    option(group, "--allowed-hosts LIST", text, default="")
    text = "web origins that may read replies, separated by commas; defaults to none"
    option(group, "--allowed-origins LIST", text, default="")


def _add_limits(group: argparse._ActionsContainer) -> None:
    option(group, "--decode-concurrency COUNT", "replies written together", 32)
    text = "has no effect: prompts are read one after the other, between rounds"
    option(group, "--prompt-concurrency COUNT", text, type=int)
    text = "0 keeps no beginnings of texts; any other count has no effect, as bytes count"
    option(group, "--prompt-cache-size COUNT", text, type=int)
    text = "memory for beginnings of texts, such as 2GB (1GB)"
    option(group, "--prompt-cache-bytes SIZE", text, type=_bytes, default=10**9)
    text = "keep rows of the last texts on this disk too, for you alone, 2 GB at most"
    option(group, "--prefixes", f"{text}; the texts can be reconstructed from them")
    option(group, "--max-waiting COUNT", "requests that may wait, beyond those being answered", 64)
    text = "largest size of a request (16MB)"
    option(group, "--max-body-bytes SIZE", text, type=_bytes, default=16 * 10**6)


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"a JSON object is needed; got {text!r}")
    return found


def _bytes(text: str) -> int:
    number = text.rstrip("BKMGbkmg")
    try:
        return int(float(number) * _UNITS[text[len(number) :].upper()])
    except (KeyError, ValueError, OverflowError) as error:
        allowed = "a size is a number with B, KB, MB or GB"
        raise argparse.ArgumentTypeError(f"{allowed}; got {text!r}") from error
