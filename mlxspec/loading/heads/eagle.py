"""Convert the layouts of EAGLE-1 and EAGLE-2 heads (their weights are the same) to ours.

One decoder layer over fc([embedding of token t+1; final state of token t]), without a norm before
its attention (Li et al. 2024, https://arxiv.org/abs/2401.15077).

    fc.*, layers.{i}.*                    the authors; fc.bias and q/k/v biases if present
    model.*, lm_head, token_map           vLLM's copy
    fusion_fc.*, transformer.*            speculators, with norms after the embedding, before the
                                          attention and before the head if `layernorms` is true
"""

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.heads.checkpoint import HeadCheckpoint
from mlxspec.loading.heads.layer import IS_SPECULATORS, layer_fields, named_target, read_layer
from mlxspec.loading.heads.names import ParsedHead, rename, without_none
from mlxspec.loading.heads.source import HeadFiles
from mlxspec.loading.heads.vocabulary import reduce_vocabulary
from mlxspec.models import TargetConfig

_MODEL = r"(?:model\.){0,2}"
_PARTS = (
    r"((?:self_attn\.[qkvo]|mlp\.(?:gate|up|down))_proj\.(?:weight|bias)"
    r"|(?:post_attention|input)_layernorm\.weight)"
)
_RULES = [
    (_MODEL + r"(?:fusion_)?fc\.(weight|bias)", r"fc.\1"),
    (_MODEL + r"layers\.(\d+)\." + _PARTS, r"layers.\1.\2"),
    (_MODEL + r"transformer\." + _PARTS, r"layers.0.\1"),
    (_MODEL + r"hidden_layernorm\.weight", "layers.0.input_layernorm.weight"),
    (_MODEL + r"embed(?:ding)?_layernorm\.weight", "embedding_layernorm.weight"),
    (_MODEL + r"(?:pre_)?lm_head_layernorm\.weight", "pre_lm_head_layernorm.weight"),
    (_MODEL + r"(embed_tokens|lm_head)\.weight", r"\1.weight"),
    (r"token_map", "target_ids"),
    (r".*rotary_emb\.inv_freq", ""),
]


def is_eagle(files: HeadFiles) -> bool:
    """Return whether a checkpoint has a layer that fuses embeddings and states."""
    return "fc.weight" in rename(files.tensors, _RULES)


def read_eagle(files: HeadFiles, target: TargetConfig) -> ParsedHead:
    """Return the head of a checkpoint with normalised names.

    Raises:
        UnsupportedModelError: A number of its config is missing or impossible.
    """
    renamed = rename(files.tensors, _RULES)
    fields = layer_fields(files.config, str(files.place))
    has_norms = fields.flag("layernorms", "embedding_layernorm.weight" in renamed)
    if "target_ids" in renamed:
        reduce_vocabulary(renamed, "target_ids", fields, target, _is_output)
    layers = renamed.indices(r"layers\.(\d+)\.")
    if layers and max(layers) + 1 != len(layers):
        raise UnsupportedModelError(
            f"{files.place} holds the layers {', '.join(map(str, sorted(layers)[:8]))} alone: it "
            "is incomplete"
        )
    config = read_layer(fields, renamed, "layers.0") | {
        "num_layers": len(layers),
        "input_norm": has_norms,
        "vocab_size": target.vocab_size,
        "draft_vocab_size": renamed.size("target_ids") or target.vocab_size,
    }
    card = without_none(
        layout="EAGLE of speculators" if IS_SPECULATORS in files.config else "EAGLE",
        target=named_target(files.config),
    )
    head = HeadCheckpoint(
        "eagle", config, renamed.tensors, files.name, card, tuple(renamed.unknown)
    )
    return ParsedHead(head, renamed.origins)


def _is_output(name: str) -> bool:
    return name == "lm_head.weight"
