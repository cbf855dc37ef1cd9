"""EAGLE-3 checkpoints for Qwen3, in the layouts that are published, draft for a model of mlx-lm."""

import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafting.heads import head_drafters
from mlxspec.engine.engine import Engine
from mlxspec.errors import UnsupportedModelError
from mlxspec.kv.cache import Cache
from mlxspec.loading import load_head
from mlxspec.params import GenerationParams
from tests.support.head_folders import LAYER, TOKENS, D, V, eagle3, maps, renamed, save_head_folder
from tests.support.tiny import ToyTokenizer, emitted
from tests.support.tiny_adapted import adapted, greedy

PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
SIZES = {"vocab_size": V, "num_hidden_layers": 6}
QWEN3 = {
    **LAYER,
    "architectures": ["LlamaForCausalLMEagle3"],
    "draft_vocab_size": len(TOKENS),
    "hidden_size": D,
    "target_hidden_size": 32,
}
LAYOUTS = {
    "AngelSlim, a flat config": ({**QWEN3}, ()),
    "speculators with the flags of EAGLE-3.1": (
        {
            "speculators_model_type": "eagle3",
            "transformer_layer_config": LAYER,
            "draft_vocab_size": len(TOKENS),
            "eagle_aux_hidden_state_layer_ids": [1, 3, 5],
            "fc_norm": True,
            "norm_output": True,
        },
        ("fc_norm",),
    ),
}


def target_of(**settings):
    model = adapted("qwen3", **SIZES, **settings)
    return Decoder(model, Cache.for_model(model.config))


def folder_of(tmp_path, layout, width):
    config, extra = LAYOUTS[layout]
    tensors = {**eagle3(extra=extra, width=width, embedding=True), **maps()}
    prefix = "layers.0." if "speculators" in layout else "midlayer."
    return save_head_folder(tmp_path / "h", renamed(tensors, ("layer.", prefix)), config)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_checkpoint_drafts_and_leaves_the_greedy_text(tmp_path, layout):
    target = target_of()
    head = load_head(folder_of(tmp_path, layout, 32), target.model.config)
    if "3.1" in layout:
        assert head.config["fc_norm"]
        assert head.config["norm_output"]
    drafter = head_drafters(head, target)[0]
    engine = Engine(target, drafter, ToyTokenizer(V))
    events = list(engine.generate(PROMPT, GenerationParams(max_tokens=12, num_draft_tokens=5)))
    assert emitted(events) == greedy("qwen3", tuple(PROMPT), 12, **SIZES)
    assert np.mean([len(event.nodes) for event in events if event.t == "draft"]) > 1


def test_a_checkpoint_for_another_width_is_refused(tmp_path):
    target = target_of()
    head = load_head(folder_of(tmp_path, "AngelSlim, a flat config", 16), target.model.config)
    with pytest.raises(UnsupportedModelError, match=r"fc.weight \(8, 48\), not \(8, 96\)"):
        head_drafters(head, target)
