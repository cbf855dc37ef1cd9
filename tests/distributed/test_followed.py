"""What rank 0 does, another rank does: its texts and rows are those of the reply.

Texts are compared with the target computed anew in NumPy, rows with a decoder that reads the text.
"""

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.distributed.decoder import ShardedDecoder
from mlxspec.drafters.early_exit import EarlyExitDrafter
from mlxspec.errors import UnsupportedOperationError
from mlxspec.models import Model
from mlxspec.params import GenerationParams
from tests.support.batches import DRAFTERS, MODEL, PROMPTS, REPLIES
from tests.support.decoded_text import Reader
from tests.support.followed import Followed
from tests.support.shadow import committed_rows
from tests.support.tiny import emitted, make_cache
from tests.support.tiny_heads_exit import exit_head
from tests.support.truth import Target

LENGTH = 9
PARAMS = GenerationParams(max_tokens=LENGTH, num_draft_tokens=5)


def check_rows(decoder, kind="full"):
    """Fail if the rows of a follower are not those of its text."""
    alone = Decoder(MODEL, make_cache(MODEL, kind))
    alone.observe(decoder.history)
    own, true = committed_rows(decoder), committed_rows(alone)
    assert own.keys() == true.keys()
    assert all(np.allclose(own[at], true[at], atol=1e-4) for at in own)


@pytest.mark.parametrize(("drafter", "kind"), [("pool", "full"), ("random trees", "rotating")])
def test_a_follower_has_the_text_and_the_rows_of_the_reply(drafter, kind):
    followed, prompt = Followed(MODEL, DRAFTERS[drafter](), kind), PROMPTS[5]

    reply = emitted(followed.engine.generate(prompt, PARAMS))
    followed.flush()

    assert reply == Target(MODEL, kind).greedy(prompt, LENGTH)
    (decoder,) = followed.theirs.values()
    assert decoder.history == followed.engine.target.history
    assert list(decoder.history) == [*prompt, *reply][: len(decoder.history)]
    assert len(decoder.history) >= len(prompt) + LENGTH - 1
    if kind == "full":
        check_rows(decoder)


def test_an_exact_reply_is_followed_to_the_bit(tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path))
    followed, params = Followed(MODEL, DRAFTERS["pool"]()), replace(PARAMS, exact=True)
    list(followed.engine.generate(PROMPTS[5], params))
    followed.flush()
    (decoder,), target = followed.theirs.values(), followed.engine.target
    assert decoder.form == target.form is not None
    assert decoder.history == target.history
    own, true = committed_rows(decoder), committed_rows(target)
    assert all(np.array_equal(own[at], true[at]) for at in true)
    list(followed.engine.generate(PROMPTS[5], PARAMS))
    followed.flush()
    assert decoder.form is target.form is None
    assert decoder.history == target.history


@pytest.fixture
def forwards_of(monkeypatch):
    """The rows, layers and first position of each forward that a decoder runs."""
    seen, run = [], Model.run_layers

    def noted(self, x, cache, positions, masks, layers, **more):
        seen.append((cache, (x.shape[1], layers, int(mx.min(mx.array(positions))))))
        return run(self, x, cache, positions, masks, layers, **more)

    monkeypatch.setattr(Model, "run_layers", noted)
    return lambda decoder: [what for cache, what in seen if cache is decoder.cache]


def test_a_draft_of_the_lower_layers_is_followed(forwards_of):
    """With the same forwards: a rank would wait for ever for one that another leaves out."""
    followed, prompt = Followed(MODEL), PROMPTS[5]
    target = followed.engine.target
    drafter = EarlyExitDrafter(exit_head(MODEL), target, threshold=0.05, lookahead=4, samples=True)

    events = list(followed.engine.generate(prompt, PARAMS, drafter=drafter))
    followed.flush()

    assert emitted(events) == Target(MODEL).greedy(prompt, LENGTH)
    assert sum(len(getattr(event, "path", ())) for event in events) > 0  # drafted, and accepted
    (decoder,) = followed.theirs.values()
    assert decoder.history == target.history
    assert forwards_of(decoder) == forwards_of(target)
    assert (1, range(1)) in [(rows, layers) for rows, layers, _ in forwards_of(decoder)]
    check_rows(decoder)


def test_what_is_forgotten_or_kept_in_part_is_so_on_all_ranks():
    followed = Followed(MODEL)
    target = followed.engine.target
    target.observe([1, 2, 3])
    target.reset()
    followed.flush()
    (decoder,) = followed.theirs.values()
    assert (decoder.history, decoder.cache.offset) == ((), 0)

    target.observe([1, 2])
    target.extend_chain(mx.array([4, 5], mx.int32))
    target.commit([])
    target.extend_chain(mx.array([6, 7], mx.int32))
    target.extend_chain(mx.array([8, 9], mx.int32))
    target.commit_chain([6, 7, 8])
    followed.flush()
    assert decoder.history == (1, 2, 6, 7, 8)
    check_rows(decoder)


def test_what_is_read_anew_after_going_back_is_read_by_all_ranks(forwards_of):
    """The last hidden state, which only the last forward had, and a text after an interrupt."""
    followed, reader = Followed(MODEL), Interrupts()
    target = followed.engine.target
    target.attach([reader])
    target.observe([1, 2, 3, 4])
    target.rollback_to(3)
    logits = np.array(target.next_logits())
    assert np.allclose(logits, Target(MODEL).logits((1, 2, 3)), atol=1e-4)
    (decoder,) = followed.theirs.values()
    assert forwards_of(decoder) == forwards_of(target)

    reader.is_hit = True
    with pytest.raises(KeyboardInterrupt):
        target.observe([5])
    reader.is_hit = False
    before = len(forwards_of(target))
    target.rollback_to(len(target))
    followed.flush()
    assert forwards_of(decoder)[before:] == forwards_of(target)[before:]
    assert decoder.history == target.history == (1, 2, 3, 5)
    check_rows(target)
    check_rows(decoder)


class Interrupts(Reader):
    """A reader of hidden states that can be interrupted in the middle of a commit."""

    name, capture, is_hit = "interrupts", (), False

    def read(self, tokens, states):
        self.tokens += tokens
        if self.is_hit:
            raise KeyboardInterrupt


def test_replies_that_join_and_leave_are_followed():
    """A text that was read before is read again: the other rank has no rows but its own."""
    joins = ((0, 0), (2, 1), (3, 5), (6, 5))
    followed = Followed(MODEL, DRAFTERS["pool"]())
    batch = followed.engine.open_batch(batch_size=2, prefix_bytes=1 << 20)
    replies, events, step = {}, {}, 0
    while len(replies) < len(joins) or batch.num_replies:
        for at, index in joins:
            if at == step:
                replies[batch.join(PROMPTS[index], PARAMS)] = index
        for reply, event in batch.step():
            events.setdefault(reply, []).append(event)
        step += 1
    followed.flush()

    for reply, index in replies.items():
        assert emitted(events[reply]) == REPLIES["llama"][index][:LENGTH]
    texts = [[*PROMPTS[index], *REPLIES["llama"][index]] for index in replies.values()]
    read = [list(decoder.history) for decoder in followed.theirs.values() if decoder.history]
    assert len(read) > 1
    assert all(any(text[: len(one)] == one for text in texts) for one in read)
    for decoder in followed.theirs.values():
        if decoder.history:
            check_rows(decoder)


def test_the_other_ranks_free_the_cache_of_a_decoder_that_is_gone():
    followed = Followed(MODEL)
    other = followed.engine.target.apart()
    other.observe([1, 2])
    assert len(followed.theirs) == 2

    del other
    followed.flush()

    assert len(followed.theirs) == 1


def test_refuses_rows_that_the_other_ranks_do_not_have():
    target = Followed(MODEL).engine.target
    assert isinstance(target, ShardedDecoder)
    assert not target.can_adopt
    with pytest.raises(UnsupportedOperationError, match="not supported with --hosts"):
        target.adopt([1], target.cache.empty_like())
