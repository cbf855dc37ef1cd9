"""A checkpoint, and how a Hugging Face or MLX folder is read as one.

An error names the file that is missing, incomplete or not for MLX. The sampling params that
`generation_config.json` recommends are not applied: a reply without settings is greedy, and a chat
starts with them.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from transformers import PreTrainedTokenizerFast

from mlxspec.errors import WARNING, Say, UnsupportedModelError
from mlxspec.loading.ports import is_runnable, read_quantization
from mlxspec.loading.tensor_files import read_safetensors
from mlxspec.models.weights import Quantization
from mlxspec.params.table import SAMPLING
from mlxspec.text.tokenizer import MAX_TOKENS

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
_QUANTIZATION = "hf_quant_config.json"  # of NVIDIA's programs
_INDEX = "model.safetensors.index.json"
_PANIC = "PanicException"  # raised by Rust code; a BaseException whose class cannot be imported
_SHOWN = 200  # characters of a name in a message
_ANY_LENGTH = 10**30  # a tokenizer's own limit is not the model's, and may be no number at all
TOKENIZER = "tokenizer.json"
_HEADS = frozenset({"medusa_num_heads", "draft_vocab_size", "eagle_config"})  # settings of heads
_STATED = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
_RANGES = {row.name: row.range for row in SAMPLING if row.name in _STATED}


@dataclass(frozen=True)
class Sharing:
    """How one process loads a model that it shares with others."""

    size: int = 1  # number of processes
    # Removes the parts that other processes keep, while the weights are lazy; returns how the model
    # is shared, for display.
    cut: Callable[[nn.Module], str] = lambda module: ""
    # Returns the value of the first process in all of them; each calls it in the same order.
    agree: Callable[[Any], Any] = lambda value: value


ALONE = Sharing()


@dataclass(frozen=True)
class Checkpoint:
    """The content of a model's file or folder."""

    config: dict[str, Any] = field(repr=False)  # the content of `config.json`
    # By Hugging Face's name; a quantised one is `weight`, `scales` and usually `biases`.
    tensors: dict[str, mx.array] = field(repr=False)
    tokenizer: PreTrainedTokenizerFast = field(repr=False)
    quantization: Quantization | None = None  # None if no tensor is quantised


@dataclass(frozen=True)
class Changes:
    """Changes to a stored model, and which stored version is loaded."""

    config: Mapping[str, Any] = field(default_factory=dict)  # replaces entries of config.json
    tokenizer: Mapping[str, Any] = field(default_factory=dict)  # and of tokenizer_config.json
    revision: str | None = None  # branch, tag or commit; None for the cached or newest one


UNCHANGED = Changes()


def read_folder(folder: Path, changes: Changes = UNCHANGED) -> Checkpoint:
    """Return the checkpoint in a model folder."""
    config = read_config(folder, changes)
    quantization = read_quantization(config)
    tokenizer = read_tokenizer(folder, changes)
    tensors: dict[str, mx.array] = {}
    for path in weight_files(folder):
        tensors |= read_safetensors(path)[0]
    return Checkpoint(with_head(config, tensors), tensors, tokenizer, quantization)


def read_config(folder: Path, changes: Changes = UNCHANGED) -> dict[str, Any]:
    """Return `config.json` with the end tokens of `generation_config.json`, then the changes."""
    if not (folder / CONFIG).is_file():
        raise UnsupportedModelError(f"{folder} has no {CONFIG}: it is not a model folder")
    config = read_json(folder / CONFIG)
    ends = as_list(config.get("eos_token_id"))
    more = as_list(generation_config(folder).get("eos_token_id"))
    if "quantization_config" not in config and (folder / _QUANTIZATION).is_file():
        config["quantization_config"] = read_json(folder / _QUANTIZATION)
    if added := [token for token in more if type(token) is int and token not in ends]:
        config["eos_token_id"] = [*ends, *added]
    return config | dict(changes.config)


def generation_config(folder: Path, say: Say = lambda line: None) -> dict[str, Any]:
    """Return what `generation_config.json` states; {} if it is missing or damaged."""
    path = folder / GENERATION_CONFIG
    if not path.is_file():
        return {}
    try:
        return read_json(path)
    except UnsupportedModelError as error:
        say(f"{WARNING}{error}; the model runs without it")
        return {}


def recommended_sampling(path: Path, say: Say = lambda line: None) -> dict[str, float]:
    """Return the recommended sampling params of a model by name; {} if none are stated.

    Sampling turned off is temperature 0, filters alone are 1, as in Hugging Face.
    """
    stated = generation_config(path, say)
    if stated.get("do_sample") is False:
        return {"temperature": 0.0}
    given = {name: stated[name] for name in _STATED if stated.get(name) is not None}
    found = {name: value for name, value in given.items() if _RANGES[name].fits(value)}
    return {"temperature": 1.0, **found} if found else {}


def with_head(config: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return a config that states a tied head if it states none and no tensor of `names` is one."""
    is_open = config.get("tie_word_embeddings") is None
    if not is_open or any(name.startswith("lm_head.") for name in names):
        return config
    return {**config, "tie_word_embeddings": True}


def is_model_folder(folder: Path) -> bool:
    """Return whether a folder holds a model that can be run, not a head."""
    if not (folder / TOKENIZER).is_file():
        return False
    config = read_config(folder)
    return is_runnable(config.get("model_type")) and not _HEADS.intersection(config)


def weight_files(folder: Path) -> list[Path]:
    """Return the paths of a folder's safetensors: one whole file, those of the index, or all."""
    whole = folder / "model.safetensors"
    if whole.is_file():
        return [whole]
    if (folder / _INDEX).is_file():
        return _parts(folder)
    paths = sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("*.safetensors"))
    if not paths:
        raise UnsupportedModelError(
            f"{folder} holds no *.safetensors: other weight files, such as PyTorch's, must be "
            "converted first"
        )
    return paths


def _parts(folder: Path) -> list[Path]:
    paths = indexed_files(folder, _INDEX)
    if not all(map(is_there, paths)):
        sets: dict[str, list[Path]] = {}
        for path in sorted(folder.glob("model-*-of-*.safetensors")):
            sets.setdefault(path.stem.rpartition("-")[2], []).append(path)
        for count, parts in sets.items():
            if count == f"{len(parts):05}":
                return parts
    check_there(folder, paths)
    return paths


def indexed_files(
    folder: Path, index: str, choose: Callable[[Collection[str]], Collection[str]] = list
) -> list[Path]:
    """Return the paths of the files in which an index has the tensors that `choose` selects."""
    weight_map = read_json(folder / index).get("weight_map")
    files = weight_map if isinstance(weight_map, dict) else {}
    are_own = [isinstance(name, str) and name == Path(name).name for name in files.values()]
    if not files or not all(are_own):
        raise UnsupportedModelError(f"{folder / index} does not list files of its own folder")
    return [folder / name for name in sorted({files[name] for name in choose(files)})]


def check_there(folder: Path, paths: Collection[Path]) -> None:
    """Raise UnsupportedModelError with the names of the weight files that are missing."""
    missing = [path.name[:_SHOWN] for path in paths if not is_there(path)]
    if missing:
        raise UnsupportedModelError(
            f"{folder} lacks {', '.join(missing[:4])} ({len(missing)} of {len(paths)} weight "
            "files): download it again"
        )


def is_there(path: Path) -> bool:
    """Return whether a file exists; False also if its name is too long for the system."""
    try:
        return path.is_file()
    except OSError:
        return False


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UnsupportedModelError(
            f"{path} cannot be read ({error}): download it again"
        ) from error
    if not isinstance(content, dict):
        raise UnsupportedModelError(f"{path} holds {type(content).__name__}, not a JSON object")
    return content


def as_list(value: Any) -> list[Any]:
    """Return the end tokens of a config, which states none, one or a list of them."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def read_tokenizer(folder: Path, changes: Changes = UNCHANGED) -> PreTrainedTokenizerFast:
    """Return the tokenizer of a folder, with changes of its arguments."""
    if not (folder / TOKENIZER).is_file():
        raise UnsupportedModelError(
            f"{folder} has no {TOKENIZER}, the format of fast tokenizers: download the model "
            "again, or convert its tokenizer with transformers"
        )
    _check_token_numbers(folder / TOKENIZER, read_json(folder / TOKENIZER))
    if (folder / "tokenizer_config.json").is_file():
        read_json(folder / "tokenizer_config.json")
    try:
        tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(
            folder,
            **{"model_max_length": _ANY_LENGTH, **changes.tokenizer, "local_files_only": True},
        )
    except BaseException as error:  # panics of tokenizers, and errors from values of wrong types
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        raise UnsupportedModelError(f"the tokenizer of {folder} cannot be read: {error}") from error
    return tokenizer


def _check_token_numbers(path: Path, content: dict[str, Any]) -> None:
    """Refuse huge token ids: tokenizers would count up to them. It checks other errors itself."""
    model, added = content.get("model"), content.get("added_tokens")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    numbers = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    if isinstance(added, list):
        numbers += [token.get("id") for token in added if isinstance(token, dict)]
    last = max((number for number in numbers if isinstance(number, int)), default=0)
    if last >= MAX_TOKENS:
        raise UnsupportedModelError(
            f"{path} has a token of the number {last}; at most {MAX_TOKENS} tokens can be used: "
            "download the model again"
        )
