"""Medusa: what the heads say, where it hangs in the tree, and which nodes are chosen."""

import itertools
from functools import partial

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.decoder.hidden import HiddenStates
from mlxspec.device import backend
from mlxspec.drafters.medusa.drafter import MedusaDrafter, MedusaHeads
from mlxspec.drafters.medusa.rank_tree import RankTree
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.suffix.drafter import SuffixDrafter
from mlxspec.errors import UnsupportedModelError, VocabularyMismatchError
from mlxspec.params import GenerationParams, SamplingParams
from tests.support.drafting import assert_valid, path_probs, shape_of
from tests.support.tiny import emitted, make_cache, make_engine, tiny_model
from tests.support.tiny_heads_medusa import (
    TARGET_IDS,
    knowing_drafter,
    medusa_config,
    medusa_drafter,
    medusa_tensors,
)
from tests.support.truth import Target

FAMILIES = ("llama", "qwen2")
CACHES = ("full", "rotating", "int8")
MODELS = {family: tiny_model(family) for family in FAMILIES}
MODEL = MODELS["llama"]
TARGETS = {(family, kind): Target(MODELS[family], kind) for family in FAMILIES for kind in CACHES}
PROMPT, LENGTH = [3, 7, 1, 3, 7, 1, 4, 3], 20
STATE = mx.random.normal((1, 64), key=mx.random.key(8))
ACCURACIES = [[0.5, 0.2, 0.1], [0.4, 0.25, 0.1], [0.3, 0.1, 0.2]]  # ranks need not fall
KNOWN_TREES = {
    "dynamic": lambda: RankTree(),
    "dynamic, measured": lambda: RankTree(ACCURACIES),
}


def reading(drafter, state=STATE):
    """The drafter after a token with this state."""
    drafter.read([5], HiddenStates(state, {}))
    return drafter


def numpy_logits(tensors, num_heads, state, head_weight):
    """(H, V') float64 logits, from the formula."""
    tensors = {name: np.array(array, np.float64) for name, array in tensors.items()}
    rows = []
    for head in range(num_heads):
        x = np.array(state, np.float64)[0]
        for block in range(2):
            name = f"heads.{head}.blocks.{block}"
            if f"{name}.weight" in tensors:
                y = tensors[f"{name}.weight"] @ x + tensors[f"{name}.bias"]
                x = x + y / (1 + np.exp(-y))
        rows.append(tensors.get(f"heads.{head}.out.weight", head_weight) @ x)
    return np.array(rows)


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def said_by(drafter, budget):
    """{path of tokens below the root: probability stated for its end}."""
    tokens, parents, probs = shape_of(drafter.propose(9, budget))
    paths = [()]
    for token, parent in zip(tokens[1:], parents[1:], strict=True):
        paths.append((*paths[parent], token))
    return dict(zip(paths[1:], probs, strict=True))


# ---- the heads ---------------------------------------------------------------------------------


@pytest.mark.parametrize("num_blocks", [1, 2])
@pytest.mark.parametrize(
    "settings",
    [{}, {"reduced": True}, {"own": 24}, {"own": 14, "reduced": True}, {"own": 10}],
    ids=["tied", "tied, reduced", "own", "own, reduced", "own, the first tokens"],
)
def test_heads_say_what_the_formula_says(settings, num_blocks):
    tensors = medusa_tensors(MODEL, num_blocks=num_blocks, **settings)
    heads = MedusaHeads.from_checkpoint(medusa_config(MODEL), tensors)
    drafter = reading(MedusaDrafter(heads, Decoder(MODEL)))
    weight = np.array(MODEL.lm_head.weight)
    ids = np.arange(24)
    if settings.get("reduced"):
        ids, weight = np.array(TARGET_IDS), weight[list(TARGET_IDS)]
    expected = log_softmax(numpy_logits(tensors, 3, STATE, weight))
    said = said_by(drafter, 30)
    assert len(said) == 30
    for path, prob in said.items():
        [index] = np.flatnonzero(ids == path[-1])
        assert prob == pytest.approx(np.exp(expected[len(path) - 1, index]), abs=2e-5)


def test_a_tied_head_reads_the_embedding_where_the_target_does():
    model = tiny_model(tie_word_embeddings=True)
    tensors = medusa_tensors(model, reduced=True)
    drafter = reading(medusa_drafter(Decoder(model), reduced=True))
    weight = np.array(model.model.embed_tokens.weight)[list(TARGET_IDS)]
    best = np.array(TARGET_IDS)[numpy_logits(tensors, 3, STATE, weight).argmax(axis=1)]
    assert drafter.propose(9, 1).tree.tokens.tolist() == [9, best[0]]


@pytest.mark.parametrize("is_cpu", [True, False])
def test_quantised_heads_say_nearly_the_same(is_cpu, monkeypatch):
    monkeypatch.setattr(backend, "is_cpu", lambda: is_cpu)
    tensors = medusa_tensors(MODEL, own=24)
    packed = {}
    for name, array in tensors.items():
        if name.endswith("weight"):
            parts = mx.quantize(array, group_size=32, bits=8)
            names = (name, f"{name[:-6]}scales", f"{name[:-6]}biases")
            packed |= dict(zip(names, parts, strict=True))
            tensors[name] = mx.dequantize(*parts, group_size=32, bits=8)
        else:
            packed[name] = array
    config = medusa_config(MODEL, quantization={"group_size": 32, "bits": 8})
    drafters = [
        reading(MedusaDrafter(MedusaHeads.from_checkpoint(config, each), Decoder(MODEL)))
        for each in (packed, tensors)
    ]
    stored = mx.float32 if is_cpu else mx.uint32  # packed weights are slow on a CPU
    assert drafters[0].heads.heads[1].blocks[0].weight.dtype == stored
    assert said_by(drafters[0], 8) == pytest.approx(said_by(drafters[1], 8), abs=1e-4)


def test_heads_without_blocks_are_output_layers():
    tensors = medusa_tensors(MODEL, num_blocks=0, own=24)
    heads = MedusaHeads.from_checkpoint(medusa_config(MODEL), tensors)
    best = numpy_logits(tensors, 3, STATE, None).argmax(axis=1)
    drafter = reading(MedusaDrafter(heads, Decoder(MODEL)))
    assert [max(row, key=row.get) for row in drafter.cursor(9).rows] == best.tolist()


def test_tensors_are_those_of_the_checkpoint():
    for settings in ({"reduced": True}, {"own": 24, "num_blocks": 2}):
        tensors = medusa_tensors(MODEL, **settings)
        again = MedusaHeads.from_checkpoint(medusa_config(MODEL), tensors).tensors
        assert again.keys() == tensors.keys()
        assert all(mx.array_equal(again[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("heads.1.blocks.0.bias"), "heads.1.blocks.0.bias"),
        (lambda tensors: tensors.update({"heads.0.gate": mx.zeros(1)}), "heads.0.gate"),
        (lambda tensors: tensors.update({"heads.2.blocks.0.bias": mx.zeros(3)}), "heads.2"),
        (lambda tensors: tensors.clear(), "has no Medusa heads"),
        (lambda tensors: tensors.pop("heads.0.blocks.0.weight"), "heads.0.blocks.0.weight"),
        (lambda tensors: tensors.update(token_map=mx.array([1, 2, 1])), "different tokens"),
        (lambda tensors: tensors.update(token_map=mx.array([-1, 2])), "none negative"),
        (lambda tensors: tensors.update({"heads.0.blocks.0.scales": mx.zeros(2)}), "quantization"),
    ],
)
def test_says_what_is_wrong_with_a_checkpoint(change, message):
    tensors = medusa_tensors(MODEL)
    change(tensors)
    with pytest.raises(UnsupportedModelError, match=message):
        MedusaHeads.from_checkpoint(medusa_config(MODEL), tensors)


def test_refuses_a_token_map_of_another_length_than_the_output_layers():
    tensors = medusa_tensors(MODEL, own=20, reduced=True)
    with pytest.raises(UnsupportedModelError, match="14 tokens, but the heads have 20"):
        MedusaHeads.from_checkpoint(medusa_config(MODEL), tensors)


def test_refuses_heads_of_another_width():
    tensors = medusa_tensors(tiny_model(hidden_size=32))
    heads = MedusaHeads.from_checkpoint({"hidden_size": 32}, tensors)
    with pytest.raises(UnsupportedModelError, match="hidden size 32; that of the target is 64"):
        MedusaDrafter(heads, Decoder(MODEL))


def test_refuses_heads_that_name_tokens_the_target_does_not_have():
    with pytest.raises(
        VocabularyMismatchError, match="token 23; the target's vocabulary ends at 1"
    ):
        medusa_drafter(Decoder(tiny_model(vocab_size=20)), reduced=True)


def test_never_drafts_a_token_beyond_the_vocabulary():
    model = tiny_model(vocab_size=20)
    drafter = reading(medusa_drafter(Decoder(model), own=32, num_heads=2))
    said = said_by(drafter, 40)
    assert len(said) == 40
    assert max(path[-1] for path in said) < 20


# ---- where what they say hangs -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "family", "kind"),
    [
        *itertools.product(["dynamic"], FAMILIES, CACHES),
        ("dynamic, measured", "llama", "full"),
    ],
)
def test_head_i_stands_i_plus_1_below_the_root(tree, family, kind):
    # Heads that know the target's greedy text are accepted whole, in every round, only if they
    # read the state just before the root and each speaks for its own depth.
    text = PROMPT + TARGETS[family, kind].greedy(PROMPT, LENGTH + 4)
    knowing = partial(knowing_drafter, text=text, tree=KNOWN_TREES[tree]())
    engine = make_engine(MODELS[family], None, kind, make_drafter=knowing)
    params = GenerationParams(max_tokens=LENGTH, num_draft_tokens=8)
    events = list(engine.generate(PROMPT, params))
    *rounds, _ = [event for event in events if event.t == "verify"]  # the last one is cut short
    assert emitted(events) == text[len(PROMPT) :][:LENGTH]
    assert [len(event.emit) for event in rounds] == [4] * (LENGTH // 4 - 1)


def test_drafts_nothing_before_anything_was_read():
    drafter = medusa_drafter(Decoder(MODEL))
    assert drafter.propose(9, 5).tree.tokens.tolist() == [9]
    assert drafter.cursor(9).next_probs() == {}


def test_drafts_nothing_where_the_last_state_was_forgotten():
    drafter = medusa_drafter(Decoder(MODEL))
    drafter.read([5, 6, 7], HiddenStates(mx.ones((3, 64)), {}))
    drafter.forget(3)
    assert drafter.propose(9, 5).tree.n_nodes == 6
    drafter.forget(2)
    assert drafter.num_read == 2
    assert drafter.propose(9, 5).tree.n_nodes == 1


def test_beginning_anew_forgets_what_an_interrupted_read_left():
    drafter = reading(medusa_drafter(Decoder(MODEL)))
    drafter.num_read = 0  # counted last
    drafter.forget(0)
    assert drafter.propose(9, 5).tree.n_nodes == 1


def test_looks_at_the_last_state_read():
    first, second = reading(medusa_drafter(Decoder(MODEL))), medusa_drafter(Decoder(MODEL))
    second.read([4, 5], HiddenStates(mx.concatenate([mx.ones((1, 64)), STATE]), {}))
    assert shape_of(first.propose(9, 8)) == shape_of(second.propose(9, 8))


def test_propose_waits_for_nothing():
    drafter = reading(medusa_drafter(Decoder(MODEL)))
    before = backend.host_syncs()
    drafter.propose(9, 8)
    assert backend.host_syncs() == before
    drafter.cursor(9)
    assert backend.host_syncs() == before + 1


def test_a_pool_gets_a_depth_s_guesses_below_every_path():
    drafter = reading(medusa_drafter(Decoder(MODEL)))
    place = drafter.cursor(9)
    said = said_by(drafter, 30)
    for depth in range(3):
        expected = {path[-1]: prob for path, prob in said.items() if len(path) == depth + 1}
        for token, prob in expected.items():
            assert place.next_probs()[token] == pytest.approx(prob, abs=1e-5)
        assert place.source_of(next(iter(expected))) == "medusa"
        place = place.child(23 - depth)  # any token at all
    assert place.next_probs() == {}


# ---- which nodes are chosen --------------------------------------------------------------------


def test_refuses_a_tree_deeper_than_the_heads():
    with pytest.raises(ValueError, match="depth 4, but there are 3 heads"):
        medusa_drafter(Decoder(MODEL), tree=RankTree([[0.5, 0.2]] * 4))


def test_measured_accuracies_choose_the_tree_too():
    config = medusa_config(MODEL, accuracies=ACCURACIES)
    heads = MedusaHeads.from_checkpoint(config, medusa_tensors(MODEL))
    weighed, plain = MedusaDrafter(heads, Decoder(MODEL)).tree, medusa_drafter(Decoder(MODEL)).tree
    logits = mx.array(np.random.default_rng(0).normal(size=(3, 24)), mx.float32)
    expected = RankTree(ACCURACIES).nodes(logits, None, 8).probs.tolist()
    assert weighed.nodes(logits, None, 8).probs.tolist() == expected
    assert plain.nodes(logits, None, 8).probs.tolist() != expected


@pytest.mark.parametrize("tree", KNOWN_TREES)
@pytest.mark.parametrize("budget", [1, 4, 16])
def test_drafts_keep_the_budget_and_the_rules_of_a_tree(tree, budget):
    drafter = reading(medusa_drafter(Decoder(MODEL), reduced=True, tree=KNOWN_TREES[tree]()))
    draft = drafter.propose(9, budget)
    if draft.node_probs is None:
        draft = type(draft)(draft.tree, draft.sources, mx.ones(draft.tree.n_nodes - 1))
    assert_valid(draft, 9, budget)


def test_nodes_stand_in_order_of_path_probability():
    probs = path_probs(reading(medusa_drafter(Decoder(MODEL))).propose(9, 16))
    assert probs == sorted(probs, reverse=True)


# ---- with a target -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CACHES)
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_are_those_of_the_target(family, kind):
    reduced = partial(medusa_drafter, reduced=True)
    engine = make_engine(MODELS[family], None, kind, make_drafter=reduced)
    params = GenerationParams(max_tokens=LENGTH, num_draft_tokens=6)
    expected = TARGETS[family, kind].greedy(PROMPT, LENGTH)
    assert emitted(engine.generate(PROMPT, params)) == expected


@pytest.mark.parametrize("kind", CACHES)
def test_a_sampled_reply_runs_to_its_end(kind):
    engine = make_engine(MODEL, None, kind, make_drafter=medusa_drafter)
    sampling = SamplingParams(temperature=1.0, top_p=0.9, repetition_penalty=1.2)
    params = GenerationParams(max_tokens=LENGTH, num_draft_tokens=6, sampling=sampling, seed=2)
    assert len(emitted(engine.generate(PROMPT, params))) == LENGTH


def test_a_second_reply_goes_on_from_the_first():
    engine = make_engine(MODEL, None, make_drafter=medusa_drafter)
    params = GenerationParams(max_tokens=8, num_draft_tokens=6)
    first = emitted(engine.generate(PROMPT, params))
    for prompt in ([*PROMPT, *first, 2, 5], [*PROMPT, *first[:3]], PROMPT):
        expected = TARGETS["llama", "full"].greedy(prompt, 8)
        assert emitted(engine.generate(prompt, params)) == expected


def test_a_pool_takes_it_with_others():
    decoder = Decoder(MODEL, make_cache(MODEL, "full"))
    engine = make_engine(MODEL, PoolDrafter([SuffixDrafter(), medusa_drafter(decoder)]))
    params = GenerationParams(max_tokens=LENGTH, num_draft_tokens=6)
    events = list(engine.generate(PROMPT, params))
    assert emitted(events) == TARGETS["llama", "full"].greedy(PROMPT, LENGTH)
    sources = {node.source for event in events for node in getattr(event, "nodes", ())}
    assert "medusa" in sources
