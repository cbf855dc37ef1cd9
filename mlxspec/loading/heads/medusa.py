"""Convert the layouts of Medusa heads to ours.

Each head predicts one token further ahead: residual blocks x + SiLU(W x + b), then an output
layer of its own or the target's (Cai et al. 2024, https://arxiv.org/abs/2401.10774).

    {i}.{j}.linear.*, {i}.{L}.weight     the authors' file; heads and layers are counted by names,
                                         because published configs state too few
    {i}.{j}.linear.* alone               their newer file, with the target's output layer
    medusa_head.{i}...                   bundled with a target that was fine-tuned with the heads
    blocks.{i}.layers.{j}.*, lm_heads    vLLM's file, usually with a reduced vocabulary
"""

from typing import Any

import mlx.core as mx

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.heads.checkpoint import HeadCheckpoint
from mlxspec.loading.heads.names import ParsedHead, Renamed, rename, without_none
from mlxspec.loading.heads.source import BUNDLED, HeadFiles
from mlxspec.loading.heads.vocabulary import reduce_vocabulary
from mlxspec.models import TargetConfig
from mlxspec.models.fields import Fields

_RULES = [
    (r"(?:medusa_heads?\.)?(\d+)\.(\d+)\.linear\.(weight|bias)", r"heads.\1.blocks.\2.\3"),
    (r"(?:medusa_heads?\.)?(\d+)\.\d+\.weight", r"heads.\1.out.weight"),
    (
        r"(?:medusa_heads\.)?blocks\.(\d+)\.layers\.(\d+)\.(weight|bias)",
        r"heads.\1.blocks.\2.\3",
    ),
    (r"(?:medusa_heads\.)?lm_heads\.(\d+)\.weight", r"heads.\1.out.weight"),
    (r"(?:medusa_heads\.)?(lm_head\.weight|token_map)", r"\1"),
]
_NOTE = (
    "these heads were trained together with their target, whose weights changed: the target must "
    "be this very checkpoint, not the model it was made from"
)


def is_medusa(files: HeadFiles) -> bool:
    """Return whether a checkpoint holds the blocks or outputs of Medusa heads."""
    renamed = rename(_own_tensors(files), _RULES)
    return any(name.startswith("heads.") for name in renamed.tensors)


def read_medusa(files: HeadFiles, target: TargetConfig) -> ParsedHead:
    """Return the heads of a checkpoint with normalised names.

    Raises:
        UnsupportedModelError: The numbers of heads or layers have a gap.
    """
    fields = Fields(files.config, str(files.place))
    renamed = rename(_own_tensors(files), _RULES)
    num_heads = _count(renamed, r"heads\.(\d+)\.", "head", files)
    num_layers = _count(renamed, r"heads\.\d+\.blocks\.(\d+)\.", "layer", files)
    _share_output(renamed, num_heads, fields)
    if "token_map" in renamed:
        reduce_vocabulary(renamed, "token_map", fields, target, _is_output)
    config = {
        "hidden_size": target.hidden_size,
        "vocab_size": target.vocab_size,
        "num_heads": num_heads,
        "num_layers": num_layers,
    }
    head = HeadCheckpoint(
        "medusa", config, renamed.tensors, files.name, _card(files), tuple(renamed.unknown)
    )
    return ParsedHead(head, renamed.origins)


def _own_tensors(files: HeadFiles) -> dict[str, mx.array]:
    """Return the tensors of the heads, without those of a bundled target."""
    own = {name: array for name, array in files.tensors.items() if name.startswith(BUNDLED)}
    return own or files.tensors


def _card(files: HeadFiles) -> dict[str, Any]:
    base = files.config.get("base_model_name_or_path")
    is_bundled = any(name.startswith(BUNDLED) for name in files.tensors)
    return without_none(
        layout="Medusa-2, bundled" if is_bundled else "Medusa",
        target={"name": base} if isinstance(base, str) else {},
        note=_NOTE if is_bundled else "",
    )


def _count(renamed: Renamed, pattern: str, what: str, files: HeadFiles) -> int:
    indices = renamed.indices(pattern)
    if indices and max(indices) + 1 != len(indices):
        missing = next(index for index in range(len(indices)) if index not in indices)
        raise UnsupportedModelError(
            f"{files.place} holds a Medusa {what} {max(indices)}, but no {what} {missing}: it is "
            "incomplete"
        )
    return len(indices)


def _is_output(name: str) -> bool:
    return name.endswith(".out.weight")


def _share_output(renamed: Renamed, num_heads: int, fields: Fields) -> None:
    """Give every head the output layer that vLLM's file stores once."""
    if "lm_head.weight" in renamed:
        renamed.move("lm_head.weight", "heads.0.out.weight")
    elif not fields.flag("original_lm_head", False) or "heads.0.out.weight" not in renamed:
        return
    for head in range(1, num_heads):
        renamed.tensors[f"heads.{head}.out.weight"] = renamed.tensors["heads.0.out.weight"]
        renamed.origins[f"heads.{head}.out.weight"] = renamed.origins["heads.0.out.weight"]
