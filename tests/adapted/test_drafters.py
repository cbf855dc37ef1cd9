"""Every drafter serves models of mlx-lm; what they write is what mlx-lm writes without them.

A draft model may be of either door and of any kind, one with recurrent states too. Heads read the
states that enter layers of mlx-lm's model; an early exit runs some of its layers.
"""

import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.drafters.early_exit import EarlyExitDrafter
from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.drafts.tree import DraftTree
from mlxspec.engine.engine import Engine
from mlxspec.errors import UnsupportedOperationError
from mlxspec.kv.cache import Cache
from mlxspec.measure.chi_square import fit
from mlxspec.params import GenerationParams, SamplingParams
from tests.support.pairwise import each_value
from tests.support.tiny import ToyTokenizer, emitted, make_cache, tiny_model
from tests.support.tiny_adapted import VOCAB, adapted, greedy, joint_law, source, twin_of
from tests.support.tiny_heads_eagle import eagle3_drafter, eagle_drafter
from tests.support.tiny_heads_exit import exit_head, random_exit
from tests.support.tiny_heads_medusa import medusa_drafter
from tests.support.truth import Target
from tests.verify.test_joint_distribution import PROMPT as SAMPLED_PROMPT
from tests.verify.test_joint_distribution import draw

PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
KINDS = ("qwen3", "lfm2")
PORT = tiny_model(vocab_size=VOCAB)
LENGTH = 20


def engine_of(model, make_drafter):
    target = Decoder(model, Cache.for_model(model.config))
    return Engine(target, make_drafter(target), ToyTokenizer(VOCAB), name="tiny")


def drafted_by(model):
    return lambda target: DraftModelDrafter(Decoder(model), target.vocab_size)


def replies(engine, **settings):
    """Two turns, so that the second one goes back to the prompt."""
    params = GenerationParams(max_tokens=LENGTH, num_draft_tokens=6, **settings)
    first = list(engine.generate(PROMPT, params))
    second = list(engine.generate(PROMPT[:5], params))
    return emitted(first), emitted(second), first


def num_accepted(events):
    return sum(len(event.path) for event in events if event.t == "verify")


DRAFT_MODELS = {"port": lambda: tiny_model(vocab_size=VOCAB, seed=6)} | {
    kind: lambda kind=kind: adapted(kind, seed=6) for kind in KINDS
}


@pytest.mark.parametrize(
    ("draft", "target"),
    [("port", "qwen3"), ("qwen3", "lfm2"), ("lfm2", "port"), ("lfm2", "lfm2")],
)
def test_a_draft_model_of_either_door_leaves_the_greedy_text(draft, target):
    drafter = drafted_by(DRAFT_MODELS[draft]())
    engine = engine_of(PORT if target == "port" else adapted(target), drafter)
    if target == "port":
        true = [Target(PORT).greedy(prompt, LENGTH) for prompt in (PROMPT, PROMPT[:5])]
    else:
        true = [greedy(target, tuple(prompt), LENGTH) for prompt in (PROMPT, PROMPT[:5])]
    first, second, _ = replies(engine)
    assert [first, second] == true


@each_value(kind=KINDS, temperature=[0.0, 0.8])
def test_a_draft_model_that_is_the_target_is_always_right(kind, temperature):
    engine = engine_of(adapted(kind), drafted_by(adapted(kind)))
    sampling = SamplingParams(temperature=temperature)
    _, _, events = replies(engine, sampling=sampling)
    drafted = sum(len(event.nodes) for event in events if event.t == "draft")
    rounds = sum(event.t == "verify" for event in events)
    if not temperature:
        assert num_accepted(events) == drafted
    assert num_accepted(events) >= 3 * rounds


HEADS = {
    "medusa": medusa_drafter,
    "eagle": eagle_drafter,
    "eagle3": eagle3_drafter,
    "pool": lambda target: PoolDrafter(
        [SuffixDrafter(), medusa_drafter(target), eagle3_drafter(target)]
    ),
}


@pytest.mark.parametrize(
    ("head", "kind"),
    [("medusa", "lfm2"), ("eagle", "qwen3"), ("eagle3", "lfm2"), ("pool", "qwen3")],
)
def test_a_head_leaves_the_greedy_text(head, kind):
    first, second, events = replies(engine_of(adapted(kind), HEADS[head]))
    assert first == greedy(kind, tuple(PROMPT), LENGTH)
    assert second == greedy(kind, tuple(PROMPT[:5]), LENGTH)
    assert any(event.t == "draft" for event in events)


# ---- the law of sampled text -----------------------------------------------------------------

DRAWS, LEAST_P = 60, 1e-4
SAMPLING = SamplingParams(temperature=1.2, top_p=0.97, presence_penalty=0.5)
SAMPLED = {
    "a draft model, a tree, over recurrent states": (
        "lfm2",
        4,
        lambda target: DraftModelDrafter(Decoder(adapted("lfm2", vocab_size=4, seed=6)), 4, 2),
    ),
    "eagle3, a tree": (
        "qwen3",
        4,
        lambda target: eagle3_drafter(target, is_reduced=False, lookahead=2),
    ),
}


@pytest.mark.parametrize("case", SAMPLED)
def test_the_first_tokens_follow_the_joint_law_of_the_target(case):
    kind, num_nodes, make_drafter = SAMPLED[case]
    law = joint_law(source(kind, vocab_size=4), SAMPLED_PROMPT, SAMPLING, 3, 4)
    engine = engine_of(adapted(kind, vocab_size=4), make_drafter)
    texts, kept = [], 0
    for seed in range(DRAWS):
        params = GenerationParams(
            max_tokens=3 + num_nodes, sampling=SAMPLING, seed=seed, num_draft_tokens=num_nodes
        )
        text, num_kept = draw(engine, params)
        texts.append(text)
        kept += num_kept
    assert fit(texts, law).p_value > LEAST_P
    assert kept > DRAWS / 10


def reply(target, head):
    drafter = EarlyExitDrafter(head, target, threshold=0.01)
    engine = Engine(target, drafter, ToyTokenizer(VOCAB))
    params = GenerationParams(max_tokens=LENGTH, num_draft_tokens=4)
    return list(engine.generate(PROMPT, params))


def accepted(events):
    return [event.path for event in events if event.t == "verify"]


@pytest.mark.parametrize("kind", ["full", "rotating"])
def test_an_exit_drafts_and_replies_as_on_the_port(kind):
    head = exit_head(PORT)
    model = twin_of(PORT)
    events = reply(Decoder(model, make_cache(PORT, kind)), head)
    assert emitted(events) == Target(PORT, kind).greedy(PROMPT, LENGTH)
    assert accepted(events) == accepted(reply(Decoder(PORT, make_cache(PORT, kind)), head))
    assert any(accepted(events))


def test_a_forward_that_is_continued_gives_the_states_of_a_whole_one():
    tree = DraftTree.from_lists([4, 9, 2, 11, 5], [-1, 0, 1, 1, 0])
    model = adapted("qwen3")
    whole, parts = Decoder(model), Decoder(model)
    for decoder in (whole, parts):
        decoder.observe(PROMPT)
    for token in (4, 9):
        parts.extend_lower(token, 1)
    found, true = parts.forward_tree(tree), whole.forward_tree(tree)
    np.testing.assert_allclose(np.array(found), np.array(true), rtol=1e-4, atol=1e-4)
    parts.commit([0, 1, 3])
    whole.commit([0, 1, 3])
    after = [np.array(decoder.next_logits()) for decoder in (parts, whole)]
    np.testing.assert_allclose(*after, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["lfm2", "gemma2"])  # a state; embeddings that are scaled
def test_an_exit_is_refused_where_the_parts_are_not_the_whole(kind):
    model = adapted(kind)
    with pytest.raises(UnsupportedOperationError, match="run as a whole only"):
        EarlyExitDrafter(random_exit(model), Decoder(model))
