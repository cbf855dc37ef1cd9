"""Drafters of every kind are trained for models of mlx-lm, and change nothing of what these say.

The trained file drafts for the same target, whose greedy text stays that of mlx-lm. A target that
lacks what a kind needs is refused with the reason, and so is a head that was trained for another.
"""

from dataclasses import replace
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

from mlxspec.adapted.model import AdaptedModel
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.drafters.eagle.networks import Eagle3Network
from mlxspec.drafting.heads import head_drafters
from mlxspec.engine.engine import Engine
from mlxspec.errors import UnsupportedModelError, UnsupportedOperationError
from mlxspec.kv.cache import Cache
from mlxspec.loading import LoadedModel, load_head
from mlxspec.loading.heads.file import read_drafter_file
from mlxspec.loading.load import load_draft_model_file
from mlxspec.params import GenerationParams
from mlxspec.train.data.corpus import GREEDY, DataSettings, load_corpus
from mlxspec.train.data.making import make_corpus
from mlxspec.train.features import compute_features, read_shard
from mlxspec.train.heads import build_objective, train_head
from mlxspec.train.methods.eagle3 import Eagle3Objective
from mlxspec.train.methods.last_layer import final_norm, last_layer
from mlxspec.train.objective import capture_layers, flat
from mlxspec.train.recipe import default_recipe
from mlxspec.train.reduced_head import reduced_head
from tests.support.tiny import ToyTokenizer, emitted, tiny_model
from tests.support.tiny_adapted import VOCAB, adapted, greedy, source, twin_of
from tests.support.toy_chat import BIAS, CHATML, ToyChat, byte_tokenizer
from tests.support.training import conversation, write_features
from tests.support.zoo import build

IDS = mx.array([1, 2, 5, 9, 20], mx.int32)
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
LENGTH = 16
LAYERS = 4
TARGETS = {  # what is special, and its settings
    "qwen3": {"num_hidden_layers": LAYERS},  # norms of queries and keys
    "gemma3_text": {"num_hidden_layers": LAYERS},  # windows, and norms of a class of its own
    "gemma2": {"num_hidden_layers": LAYERS, "final_logit_softcapping": 5.0},
    "lfm2": {"num_hidden_layers": LAYERS, "full_attn_idxs": [1]},  # recurrent states
}
OPTIONS = {
    "medusa": {"num_heads": 2},
    "eagle3": {"depths": 2},
    "exit": {},
    "draft-model": {"hidden_size": 32, "intermediate_size": 32, "num_layers": 1, "head_dim": 16},
}
TRAINED = {"exit": "qwen3", "eagle3": "gemma3_text", "medusa": "gemma2", "draft-model": "lfm2"}
PORT = tiny_model(vocab_size=VOCAB)


def loaded_from(model, name="tiny"):
    return LoadedModel(model, byte_tokenizer(CHATML), name, "float32")


def begin(loaded, kind, folder, **options):
    recipe = replace(default_recipe(kind), tokens=240, batch_tokens=60, draft_vocab_size=16)
    recipe = replace(
        recipe, learning_rate=6e-3, evaluate_every=100, options=OPTIONS[kind] | options
    )
    return recipe, build_objective(loaded, folder / "features", recipe, folder / "run")


def features_of(loaded, folder):
    layers = capture_layers(loaded.config.num_hidden_layers)
    return write_features(folder / "features", model=loaded.model, layers=layers, length=30)


def losses(objective, folder):
    shard = folder / "features" / "train-00000.safetensors"
    return sum(objective.loss(one).item() for one in read_shard(shard))


def trained(loaded, kind, folder):
    """The file, and the loss over all conversations before and after."""
    features_of(loaded, folder)
    recipe, objective = begin(loaded, kind, folder)
    before, out = losses(objective, folder), folder / f"{kind}.safetensors"
    train_head(loaded, objective, folder / "features", recipe, folder / "run", out)
    return out, before, losses(objective, folder)


def drafter_from(path, kind, loaded, target):
    if kind == "draft-model":
        small = load_draft_model_file(read_drafter_file(path), loaded.tokenizer)
        return DraftModelDrafter(Decoder(small.model), VOCAB)
    (drafter,) = head_drafters(load_head(path, loaded.config), target)
    return drafter


@pytest.mark.parametrize("kind", TRAINED)
def test_a_drafter_learns_and_leaves_the_greedy_text(kind, tmp_path):
    name = TRAINED[kind]
    loaded = loaded_from(adapted(name, **TARGETS[name]))
    out, before, after = trained(loaded, kind, tmp_path)
    assert after < 0.99 * before
    target = Decoder(loaded.model, Cache.for_model(loaded.config))
    drafter = drafter_from(out, kind, loaded, target)
    engine = Engine(target, drafter, ToyTokenizer(VOCAB))
    events = list(engine.generate(PROMPT, GenerationParams(max_tokens=LENGTH, num_draft_tokens=5)))
    settings = {key: tuple(v) if isinstance(v, list) else v for key, v in TARGETS[name].items()}
    assert emitted(events) == greedy(name, tuple(PROMPT), LENGTH, **settings)
    if kind != "exit":  # it may be too unsure to draft
        assert any(event.t == "draft" and event.nodes for event in events)


def test_an_exit_is_refused_before_training_where_none_could_draft(tmp_path):
    loaded = loaded_from(adapted("lfm2", **TARGETS["lfm2"]))
    features_of(loaded, tmp_path)
    with pytest.raises(UnsupportedOperationError, match="run as a whole only, so no early exit"):
        begin(loaded, "exit", tmp_path)


def test_a_head_for_another_target_is_refused_with_the_name_of_its_own(tmp_path):
    loaded = loaded_from(adapted("qwen3", **TARGETS["qwen3"]), name="tiny-qwen3")
    features_of(loaded, tmp_path)
    recipe, objective = begin(loaded, "eagle3", tmp_path)
    out, short = tmp_path / "head.safetensors", replace(recipe, tokens=1)
    train_head(loaded, objective, tmp_path / "features", short, tmp_path / "run", out)
    other = adapted("qwen3", **TARGETS["qwen3"], hidden_size=48)
    head = load_head(out, other.config)
    with pytest.raises(UnsupportedModelError, match="tiny-qwen3"):
        Eagle3Network.of_head(head, other.config, other.dtype)


@pytest.mark.parametrize("name", ["gemma2", "lfm2"])
def test_the_text_to_train_on_is_what_mlx_lm_would_say(name, tmp_path):
    model = adapted(name, **TARGETS[name])
    model.supports_batches = name != "gemma2"  # as its examination says: mlx-lm's code cannot
    plain_logits = model.logits
    model.logits = lambda hidden: plain_logits(hidden) + mx.array(BIAS)  # makes short turns
    target = LoadedModel(model, ToyChat(), "toy", "float32")
    settings = DataSettings(num_tokens=100, batch_size=4, max_answer_tokens=8, max_prompt_tokens=10)
    make_corpus(target, tmp_path, replace(settings, tries_per_shard=16, temperatures=(1.5,)))
    truth, count = source(name, **TARGETS[name]), 0
    for one in load_corpus(tmp_path, VOCAB):
        logits = np.array(truth(mx.array(one.tokens)[None])[0]) + BIAS
        for start, end in one.spans(GREEDY):
            count += 1
            said = logits[start - 1 : end - 1].argmax(axis=1)
            assert one.tokens[start:end].tolist() == said.tolist()
    assert count > 2


# ---- how a head begins ----------------------------------------------------------------------


def test_a_head_begins_as_the_last_layer_where_that_is_llamas():
    text = conversation(length=12)
    mine, theirs = (Eagle3Objective(model, IDS, (0, 1)) for model in (PORT, twin_of(PORT)))
    expected = flat(mine.network.parameters())
    for name, array in flat(theirs.network.parameters()).items():
        np.testing.assert_allclose(array, expected[name], atol=1e-5, err_msg=name)
    given = compute_features(PORT, text, (0, 1))
    np.testing.assert_allclose(theirs.loss(given), mine.loss(given), rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "copied"),
    [
        ("starcoder2", {"self_attn"}),
        ("minicpm3", {"mlp"}),  # its attention is compressed
        ("mixtral", {"self_attn"}),
        ("mistral3", {"self_attn", "mlp"}),  # its own arguments name no sizes
        ("lfm2", set()),
        ("longcat_flash", set()),
    ],
)
def test_only_parts_in_the_form_of_llama_are_copied(name, copied):
    model = AdaptedModel(build(name))
    tensors = last_layer(model).tensors
    assert {path.split(".")[0] for path in tensors if "proj" in path} == copied
    network = Eagle3Objective(model, IDS, (0, 1)).network
    for part, last in (("self_attn", "o_proj"), ("mlp", "down_proj")):
        assert (part in copied) == bool(network.layer[part][last].weight.any())


class MadeUpLayer(nn.Module):
    """Names as in Llama's layer, with sizes that may be others."""

    def __init__(self, q, k, v, o, gate, up, down):
        super().__init__()
        self.self_attn, self.mlp = nn.Module(), nn.Module()
        for name, (size, width) in zip("qkvo", (q, k, v, o), strict=True):
            self.self_attn[f"{name}_proj"] = nn.Linear(width, size)
        for name, (size, width) in (("gate", gate), ("up", up), ("down", down)):
            self.mlp[f"{name}_proj"] = nn.Linear(width, size)


FITTING = {"q": (32, 32), "k": (16, 32), "v": (16, 32), "o": (32, 32)}
FITTING |= {"gate": (48, 32), "up": (48, 32), "down": (32, 48)}


@pytest.mark.parametrize(
    ("changes", "copied"),
    [
        ({}, {"self_attn", "mlp"}),
        ({"q": (64, 32)}, {"mlp"}),  # queries with a gate
        ({"k": (8, 32), "v": (8, 32)}, {"mlp"}),
        ({"v": (32, 32)}, {"mlp"}),
        ({"o": (16, 32)}, {"mlp"}),
        ({"up": (96, 32)}, {"self_attn"}),
        ({"down": (32, 96)}, {"self_attn"}),
    ],
)
@pytest.mark.parametrize("num_heads", [2, 0])
def test_a_part_of_other_sizes_is_not_copied(changes, copied, num_heads):
    layer = MadeUpLayer(**FITTING | changes)
    config = SimpleNamespace(hidden_size=32, num_attention_heads=num_heads, intermediate_size=0)
    last = last_layer(SimpleNamespace(layers=[layer], config=config))
    copied = copied if num_heads else copied - {"self_attn"}
    assert {path.split(".")[0] for path in last.tensors} == copied
    expected = (2, 1, 16) if "self_attn" in copied else (1, 1, 64)
    assert (last.num_attention_heads, last.num_key_value_heads, last.head_dim) == expected
    assert last.intermediate_size == (48 if "mlp" in copied else 128)


def test_norms_of_a_class_of_its_own_are_not_copied():
    assert not any("norm" in name for name in last_layer(adapted("gemma3_text")).tensors)


@pytest.mark.parametrize("name", ["qwen3", "gemma3_text", "lfm2", "mamba2"])
def test_the_final_norm_is_found_without_a_name(name):
    model = adapted(name)
    end = model.config.num_hidden_layers
    given = compute_features(model, conversation(length=12, seed=8), (end,))
    expected = mx.fast.rms_norm(given.entering[end], final_norm(model), 1e-5)
    np.testing.assert_allclose(given.final, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("seed", "kept"), [(14, (1, 1)), (1, (1, 0)), (2, (0, 1)), (0, (0, 0))])
def test_a_copied_part_stays_only_where_the_loss_is_lower_with_it(seed, kept):
    model = adapted("qwen3", seed=seed, **TARGETS["qwen3"])
    layers = capture_layers(LAYERS)
    objective = Eagle3Objective(model, mx.arange(VOCAB), layers)
    given = compute_features(model, conversation(length=30), layers)
    lasts = objective.network.layer.self_attn.o_proj, objective.network.layer.mlp.down_proj
    copied = [last.weight for last in lasts]
    found = {}
    for shares in ((1, 1), (1, 0), (0, 1), (0, 0)):
        for last, weight, share in zip(lasts, copied, shares, strict=True):
            last.weight = share * weight
        found[objective.loss(given).item()] = shares
    for last, weight in zip(lasts, copied, strict=True):
        last.weight = weight
    objective.drop_what_misleads(given)
    assert found[min(found)] == kept
    for last, weight, share in zip(lasts, copied, kept, strict=True):
        assert mx.array_equal(last.weight, share * weight)


# ---- features and the output head ---------------------------------------------------------------


@pytest.mark.parametrize("kind", ["qwen3", "gemma3_text", "lfm2"])
def test_features_are_what_mlx_lm_computes(kind):
    text = conversation(length=12)
    found = compute_features(adapted(kind), text, (0, 1))
    logits = source(kind)(mx.array(text.tokens)[None])[0]
    probs = np.array(mx.softmax(logits[-2].astype(mx.float32)))
    assert found.top_tokens[-2][0] == probs.argmax()
    assert found.top_probs[-2][0] == pytest.approx(probs.max(), abs=2e-3)
    assert found.entering[1].shape == (12, 32)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("gpt_neox", r"states of the shape \(12, 32\)"), ("iquestloopcoder", "cannot be read")],
)
def test_a_model_whose_states_no_head_could_read_says_so(name, reason):
    with pytest.raises(UnsupportedOperationError, match=f"{reason}.*train a table"):
        compute_features(AdaptedModel(build(name)), conversation(length=12), (1,))


def test_the_matrix_of_a_head_that_names_none_is_found():
    head = source("qwen3").lm_head.weight
    found = reduced_head(adapted("qwen3"), IDS)
    np.testing.assert_allclose(np.array(found.weight), np.array(head[IDS]), atol=1e-5)
    assert found.is_plain


@pytest.mark.parametrize("cap", [5.0, 30.0])
def test_the_cap_of_a_head_is_found(cap):
    model = adapted("gemma2", final_logit_softcapping=cap)
    found = reduced_head(model, IDS)
    assert found.cap == pytest.approx(cap, rel=1e-3)
    states = 8 * mx.random.normal((6, 32), key=mx.random.key(1))
    np.testing.assert_allclose(found.logits(states), model.logits(states)[:, IDS], atol=0.05)


def test_the_bias_of_a_head_is_found():
    model = AdaptedModel(build("phi"))
    found = reduced_head(model, IDS)
    np.testing.assert_allclose(found.bias, model.source.lm_head.bias[IDS], atol=1e-6)
    assert found.cap is None
    states = mx.random.normal((6, model.config.hidden_size), key=mx.random.key(1))
    np.testing.assert_allclose(found.logits(states), model.logits(states)[:, IDS], atol=1e-4)


def test_a_head_that_is_another_function_is_refused():
    model = adapted("qwen3")
    model.logits = lambda hidden: hidden[..., :24] ** 3
    with pytest.raises(UnsupportedOperationError, match="does more than multiply"):
        reduced_head(model, IDS)
