"""The draft model: tokens that it does not know, and that it has read every token before."""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.params import GenerationParams, SamplingParams
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.truth import Target

VOCAB = 24
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
MODEL = tiny_model(vocab_size=VOCAB)


def drafter_of(*, vocab_size=VOCAB, **settings):
    small = tiny_model(vocab_size=vocab_size, seed=7)
    return DraftModelDrafter(Decoder(small), VOCAB, **settings)


@pytest.mark.parametrize("place", [0, 4, 6])
def test_a_token_that_it_does_not_know_ends_its_drafts_and_nothing_else(place):
    drafter = drafter_of(vocab_size=20)
    prompt = [*PROMPT[:place], 22, *PROMPT[place + 1 :]]
    engine = make_engine(MODEL, drafter)
    params = GenerationParams(max_tokens=8, num_draft_tokens=4)
    events = list(engine.generate(prompt, params))
    assert emitted(events) == Target(MODEL).greedy(prompt, 8)
    assert all(event.t != "draft" for event in events)
    assert drafter.decoder.history == tuple(prompt[:place])
    known = list(engine.generate(PROMPT, params))
    assert any(event.t == "draft" for event in known)


def test_a_round_without_a_draft_may_follow_a_tree():
    """The last token of a reply is the target's own: nothing is drafted for it."""
    engine = make_engine(MODEL, drafter_of(lookahead=1))
    for seed in range(6):
        sampling = SamplingParams(temperature=1.0)
        params = GenerationParams(max_tokens=3, num_draft_tokens=3, sampling=sampling, seed=seed)
        assert len(emitted(engine.generate(PROMPT, params))) == 3


@pytest.mark.parametrize("budget", [4, 12])
def test_what_was_drawn_cannot_be_cut_by_how_probable_it_is(budget):
    """A cut that looks at what was drawn would bend the law."""
    drafter = drafter_of()
    drafter.start(PROMPT, SamplingParams(temperature=1.0), mx.random.key(0))
    draft = drafter.propose(PROMPT[-1], budget)
    assert draft.tree.n_nodes == budget + 1
    assert draft.sampled_from is not None
    assert draft.path_probs is None


class Kept(DraftModelDrafter):
    """Keeps the drafts that it proposes."""

    def __init__(self, *given):
        super().__init__(*given)
        self.drafts = []

    def propose(self, root, budget):
        self.drafts.append(super().propose(root, budget))
        return self.drafts[-1]


@pytest.mark.parametrize("budget", [3, 6])  # a chain; a tree
def test_a_draft_model_has_read_every_token_when_it_drafts_again(budget):
    drafter = Kept(Decoder(MODEL), VOCAB, 3)
    truth, tokens, depths = Target(MODEL), list(PROMPT), set()
    sampling = SamplingParams(temperature=1.0)
    params = GenerationParams(max_tokens=24, num_draft_tokens=budget, sampling=sampling, seed=1)
    for event in make_engine(MODEL, drafter).generate(PROMPT, params):
        if event.t == "draft":
            exact = truth.distribution(tuple(tokens), sampling, len(PROMPT))
            np.testing.assert_allclose(drafter.drafts[-1].sampled_from[0], exact, atol=2e-4)
        if event.t in ("verify", "plain"):
            tokens += [token.token for token in event.emit]
            depths.add(len(getattr(event, "path", ())))
    assert max(depths) == 3
