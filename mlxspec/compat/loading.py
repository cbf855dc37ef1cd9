"""`load` with mlx-lm's signature."""

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from os import PathLike
from typing import Any

from mlxspec import api
from mlxspec.compat.refusals import refuse
from mlxspec.compat.tokenizer import TokenizerWrapper
from mlxspec.engine.engine import Engine


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
        tokenizer_config: Refused.
        model_config: Refused.
        adapter_path: Refused.
        lazy: True is refused.
        return_config: Return the config of the model as a third value.
        revision: Refused.
        trust_remote_code: Ignored: code that comes with a model never runs.
        options: The options of `mlxspec.load`, such as `drafter`, `max_kv_size` and `kv_bits`.

    Raises:
        MlxspecError: There is no such model, or it cannot be run; `UnsupportedOperationError` for
            a refused argument.
    """
    refuse(
        "tokenizer_config",
        tokenizer_config,
        "the tokenizer is loaded as it is stored; change it afterwards, as with add_eos_token",
    )
    refuse(
        "model_config", model_config, "a model is loaded as it is stored; change its config.json"
    )
    refuse("adapter_path", adapter_path, "adapters are not loaded; fuse the adapter with mlx-lm")
    refuse("lazy", lazy, "weights are converted for this machine on loading; leave it out")
    refuse(
        "revision",
        revision,
        "a hub model is used as it is in the cache; download the revision and give its folder",
    )
    engine = api.load(path_or_hf_repo, **options)
    tokenizer = TokenizerWrapper(engine.tokenizer)
    if return_config:
        return engine, tokenizer, _fields(engine.target.model.config)
    return engine, tokenizer


def _fields(config: object) -> dict[str, Any]:
    assert is_dataclass(config)
    assert not isinstance(config, type)
    return asdict(config)
