"""`load` with mlx-lm's signature."""

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from os import PathLike
from typing import Any

from mlxspec import api
from mlxspec.compat.refusals import refuse
from mlxspec.compat.tokenizer import TokenizerWrapper
from mlxspec.engine.engine import Engine
from mlxspec.loading import UNCHANGED, Changes

_REFUSED_OF_TOKENIZER = {
    "chat_template_type": "a template in Python is code of mlx-lm; give chat_template as text",
    "tool_parser_type": "tool calls are not parsed here; leave it out",
    "trust_remote_code": "code that comes with a model never runs; leave it out",
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
        tokenizer_config: Arguments of the tokenizer of transformers, such as `eos_token`; True for
            `trust_remote_code` is refused, and so are the types of templates and tool parsers.
        model_config: Entries that replace those of the model's config.json.
        adapter_path: A folder with adapters (LoRA), which mlx-lm applies.
        lazy: True is refused.
        return_config: Return the config of the model as a third value.
        revision: Branch, tag or commit of a hub id.
        trust_remote_code: True is refused.
        options: The options of `mlxspec.load`, such as `drafter`, `max_kv_size` and `kv_bits`.

    Raises:
        MlxspecError: There is no such model, or it cannot be run; `UnsupportedOperationError` for
            a refused argument.
        TypeError: A config is not a mapping, or an option is unknown.
    """
    refuse("lazy", lazy, "weights are converted for this machine on loading; leave it out")
    refuse(
        "trust_remote_code",
        trust_remote_code,
        "code that comes with a model never runs; leave it out",
    )
    changes = Changes(
        _entries("model_config", model_config),
        _entries("tokenizer_config", tokenizer_config),
        revision,
    )
    for name, reason in _REFUSED_OF_TOKENIZER.items():
        refuse(f"tokenizer_config[{name!r}]", changes.tokenizer.get(name), reason)
    if adapter_path is not None:
        options["adapter"] = adapter_path
    if changes != UNCHANGED:
        options["changes"] = changes
    engine = api.load(path_or_hf_repo, **options)
    tokenizer = TokenizerWrapper(engine.tokenizer)
    if return_config:
        return engine, tokenizer, _fields(engine.target.model.config)
    return engine, tokenizer


def _entries(name: str, value: Any) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"{name} is a {type(value).__name__}; give a dict of its entries")
    return dict(value or {})


def _fields(config: object) -> dict[str, Any]:
    assert is_dataclass(config)
    assert not isinstance(config, type)
    return asdict(config)
