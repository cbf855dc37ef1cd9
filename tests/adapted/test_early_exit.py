"""An early exit runs some layers of a model of mlx-lm, where its parts are the whole."""

import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.early_exit import EarlyExitDrafter
from mlxspec.drafts.tree import DraftTree
from mlxspec.engine.engine import Engine
from mlxspec.errors import UnsupportedOperationError
from mlxspec.params import GenerationParams
from tests.support.tiny import ToyTokenizer, emitted, make_cache, tiny_model
from tests.support.tiny_adapted import VOCAB, adapted, twin_of
from tests.support.tiny_heads_exit import exit_head, random_exit
from tests.support.truth import Target

PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
LENGTH = 20
PORT = tiny_model(vocab_size=VOCAB)


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
