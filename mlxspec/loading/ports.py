"""Which code runs a model, our own port of its type or mlx-lm's, and what its config states.

For types that are not ours only common names can be read, because mlx-lm's code decides the rest:
sizes that are not stated are 0, and the size of keys and values is an upper bound. The source of
mlx-lm is read, not imported: an import takes a second in every thread that lists models.
"""

import ast
import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mlxspec.adapted.config import context_length, named_sizes
from mlxspec.errors import OtherPortError, UnsupportedModelError
from mlxspec.models import ModelConfig, TargetConfig
from mlxspec.models.config import FAMILIES
from mlxspec.models.fields import MAX_INTEGER
from mlxspec.models.weights import Quantization

_MODEL = re.compile(r"^class Model\(|^from \S+ import .*\bModel\b", re.MULTILINE)
_RENAMED = re.compile(r"^MODEL_REMAPPING = (\{.*?\})", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,99}")  # strict, because the type also becomes a file name


def is_runnable(kind: object) -> bool:
    """Return whether a `model_type` of a config.json can be run, by our ports or by mlx-lm."""
    return isinstance(kind, str) and (kind in FAMILIES or is_in_mlx_lm(kind))


@cache
def is_in_mlx_lm(kind: str) -> bool:
    """Return whether mlx-lm has a model file for a type."""
    folder = _folder()
    if folder is None or not _NAME.fullmatch(kind):
        return False
    file = folder / "models" / f"{kind}.py"
    if file.is_file():
        return _MODEL.search(file.read_text(encoding="utf-8")) is not None
    return kind in _renamed(folder)


def _folder() -> Path | None:
    spec = find_spec("mlx_lm")
    places = spec.submodule_search_locations if spec is not None else None
    return Path(places[0]) if places else None


@cache
def _renamed(folder: Path) -> frozenset[str]:
    """Return the types that mlx-lm's files cover under another name."""
    found = _RENAMED.search((folder / "utils.py").read_text(encoding="utf-8"))
    return frozenset(ast.literal_eval(found[1])) if found else frozenset()


def is_ours(config: Mapping[str, Any]) -> bool:
    """Return whether our own port handles a model, even if only to refuse it."""
    kind = config.get("model_type")
    return not isinstance(kind, str) or (kind in FAMILIES and not why_not_ours(config))


def why_not_ours(config: Mapping[str, Any]) -> str:
    """Return why our port of a type cannot run a model that mlx-lm's code may run, or ""."""
    # mlx-lm's files do not know `rope_parameters`, and drop a head that is not stated to be there.
    is_clear = config.get("tie_word_embeddings") is not None and not config.get("rope_parameters")
    if not is_clear or not is_in_mlx_lm(config["model_type"]):
        return ""
    try:
        ModelConfig.from_dict(config)
        read_quantization(config)
    except OtherPortError as error:
        return str(error)
    except UnsupportedModelError:
        pass
    return ""


def read_quantization(config: Mapping[str, Any]) -> Quantization | None:
    """Return the quantisation settings of a config; None if its weights are not quantised."""
    own = config.get("quantization")
    if isinstance(own, dict):
        return own
    other = config.get("quantization_config")
    if other:
        method = other.get("quant_method", "unknown") if isinstance(other, dict) else other
        raise OtherPortError(
            f"the weights are quantised by the method {method!r:.200}; those quantised by MLX can "
            "be read, or plain ones: choose such a version of the model"
        )
    return None


def stated_config(config: Mapping[str, Any]) -> TargetConfig:
    """Return the facts of a model from its config.json."""
    if is_ours(config):
        return ModelConfig.from_dict(config)
    kind = config["model_type"]
    if not is_in_mlx_lm(kind):
        raise UnsupportedModelError(
            f"model_type {kind!r} is not supported: mlx-lm has no such type, and those of our own "
            f"are {', '.join(FAMILIES)}"
        )
    return _adapted(kind, config)


def _adapted(kind: str, config: Mapping[str, Any]) -> TargetConfig:
    inner = config.get("text_config")  # of models that also read images
    sizes = {**(inner if isinstance(inner, dict) else {}), **config}
    named = SimpleNamespace(**sizes)
    heads, stores = _count(sizes, "num_attention_heads"), _num_row_layers(sizes)
    head_dim = _count(sizes, "head_dim") or _count(sizes, "hidden_size") // max(1, heads)
    # Mlx-lm's code of the type decides in which form rows are kept.
    is_latent = sizes.get("kv_lora_rank") is not None
    stated = config.get("eos_token_id")
    ends = stated if isinstance(stated, list) else [stated]
    return TargetConfig(
        model_type=kind,
        vocab_size=_count(sizes, "vocab_size"),
        hidden_size=_count(sizes, "hidden_size"),
        num_hidden_layers=_count(sizes, "num_hidden_layers"),
        head_dim=head_dim,
        row_numbers=(0 if is_latent else 2 * stores * _widest_row(sizes, heads, head_dim),),
        max_position_embeddings=context_length(named),
        layer_windows=(),
        eos_token_ids=tuple(token for token in ends if isinstance(token, int)),
        **named_sizes(named),
    )


def _widest_row(sizes: Mapping[str, Any], heads: int, head_dim: int) -> int:
    """Return the most numbers in a key or value: two kinds of layers can differ in it."""
    named = [name for name in sizes if not name.startswith(("linear_", "mamba_"))]
    kv_heads = [_count(sizes, name) for name in named if name.endswith("num_key_value_heads")]
    widths = [_count(sizes, name) for name in named if name.endswith("head_dim")]
    return max(kv_heads or [heads]) * max([head_dim, *widths])


def _num_row_layers(sizes: Mapping[str, Any]) -> int:
    """Return how many layers keep keys and values: recurrent ones keep none, loops repeat them."""
    loops = max(1, _count(sizes, "loop_num"), _count(sizes, "num_loops"))
    kinds = sizes.get("layer_types")
    if not isinstance(kinds, list):
        return loops * _count(sizes, "num_hidden_layers")
    return loops * sum("attention" in str(kind) and "linear" not in str(kind) for kind in kinds)


def _count(sizes: Mapping[str, Any], name: str) -> int:
    value = sizes.get(name)
    return value if isinstance(value, int) and 0 < value <= MAX_INTEGER else 0
