"""`load` with mlx-lm's signature."""

from collections.abc import Mapping
from dataclasses import asdict
from os import PathLike
from typing import Any

from mlxspec import api
from mlxspec.compat.engines import refuse
from mlxspec.compat.tokenizer import TokenizerWrapper
from mlxspec.engine.engine import Engine
from mlxspec.loading import UNCHANGED, Changes
from mlxspec.loading.fetch.sources import find_source
from mlxspec.loading.folder import read_config

_NO_CODE = "code that comes with a model never runs; leave it out"
_REFUSED = {
    "chat_template_type": "a template in Python is code of mlx-lm; give chat_template as text",
    "tool_parser_type": "tool calls are not parsed here; leave it out",
    "trust_remote_code": _NO_CODE,
}


def load(
    path_or_hf_repo: str | PathLike[str],
    tokenizer_config: Mapping[str, Any] | None = None,
    model_config: Mapping[str, Any] | None = None,
    adapter_path: str | PathLike[str] | None = None,
    lazy: bool = False,
    return_config: bool = False,
    revision: str | None = None,
    trust_remote_code: bool = False,
    **options: Any,
) -> tuple[Engine, TokenizerWrapper] | tuple[Engine, TokenizerWrapper, dict[str, Any]]:
    """Load an engine and its tokenizer.

    Args:
        path_or_hf_repo: A folder, a GGUF file or a hub id.
        tokenizer_config: Arguments of the tokenizer of transformers, such as `eos_token`.
        model_config: Entries that replace those of the model's config.json.
        adapter_path: A folder with adapters (LoRA), which mlx-lm applies.
        lazy: True is refused.
        return_config: Return a third value: config.json with its changes, or what is known of a
            GGUF file.
        revision: Branch, tag or commit of a hub id.
        trust_remote_code: True is refused.
        options: The options of `mlxspec.load`, such as `drafter`, `max_kv_size` and `kv_bits`.

    Raises:
        MlxspecError: There is no such model, or it cannot be run.
        TypeError: A config is not a mapping, or an option is unknown or refused.
    """
    refuse("lazy", lazy, "weights are converted for this machine on loading; leave it out")
    refuse("trust_remote_code", trust_remote_code, _NO_CODE)
    changes = Changes(
        _entries("model_config", model_config),
        _entries("tokenizer_config", tokenizer_config),
        revision,
    )
    for name, reason in _REFUSED.items():
        refuse(f"tokenizer_config[{name!r}]", changes.tokenizer.get(name), reason)
    is_slow = not changes.tokenizer.get("use_fast", True)
    refuse("tokenizer_config['use_fast']", is_slow, "all tokenizers here are fast; leave it out")
    if adapter_path is not None:
        options["adapter"] = adapter_path
    if changes != UNCHANGED:
        options["changes"] = changes
    engine = api.load(path_or_hf_repo, **options)
    tokenizer = TokenizerWrapper(engine.tokenizer)
    if not return_config:
        return engine, tokenizer
    path = find_source(path_or_hf_repo, revision=revision).path
    own: Any = engine.target.model.config
    return engine, tokenizer, read_config(path, changes) if path.is_dir() else asdict(own)


def _entries(name: str, value: Any) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"{name} is a {type(value).__name__}; give a dict of its entries")
    return dict(value or {})
