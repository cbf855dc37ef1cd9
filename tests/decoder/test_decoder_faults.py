"""A call that fails half-way leaves a decoder that goes on as if it had not been made."""

from contextlib import contextmanager

import mlx.core as mx
import pytest

import mlxspec.decoder.decoder
from mlxspec.kv.cache import Cache
from mlxspec.kv.storage import RowStore
from tests.support.decoders import (
    PATH,
    PATH_TOKENS,
    TEXT,
    TREE,
    assert_close,
    assert_is_as_if_read_from_nothing,
    make,
    read_drafts,
)
from tests.support.layer_faults import Fault
from tests.support.pairwise import pairwise

SETUPS = [
    pytest.param(("llama", "full"), id="full"),
    pytest.param(("qwen2", "rotating"), id="ring"),
]
N_READ = 15  # the ring of 12 has wrapped


def having_read(setup=("llama", "full"), *, is_staged=False):
    """A decoder that has read a text, perhaps with a staged tree, and the truth about it."""
    decoder, truth = make(*setup)
    decoder.observe(TEXT[:N_READ])
    if is_staged:
        decoder.forward_tree(TREE)
    return decoder, truth


CALLS = {
    "observe": lambda decoder: decoder.observe(TEXT[20:25]),
    "forward_tree": lambda decoder: decoder.forward_tree(TREE),
    "tree_logits": lambda decoder: decoder.tree_logits(TREE),
    "drafts": lambda decoder: read_drafts(decoder, [1, 2, 3]),
    "extend_chain": lambda decoder: decoder.extend_chain(mx.array([1, 2])),
    "hidden_states": lambda decoder: decoder.hidden_states([1]),
}


def assert_goes_on(decoder, truth):
    """Nothing has changed, and a round and a text follow as they should."""
    assert_is_as_if_read_from_nothing(decoder, TEXT[:N_READ], truth)
    logits = decoder.logits(decoder.forward_tree(TREE))
    assert_close(logits[5], truth(TEXT[:N_READ] + PATH_TOKENS))
    decoder.commit(PATH)
    decoder.observe([3, 4])
    assert_is_as_if_read_from_nothing(decoder, [*TEXT[:N_READ], *PATH_TOKENS, 3, 4], truth)


@pairwise(
    name=CALLS,
    error=[RuntimeError("no memory"), KeyboardInterrupt()],
    setup=SETUPS,
    layer=[0, 1],
    is_after=[False, True],
)
def test_a_pass_that_breaks_off_leaves_the_decoder_as_it_was(name, layer, is_after, error, setup):
    decoder, truth = having_read(setup)
    with Fault(error, layer=layer, is_after=is_after), pytest.raises(type(error)):
        CALLS[name](decoder)
    assert_goes_on(decoder, truth)


@pytest.mark.parametrize("passes", [0, 1, 2])
def test_a_ring_that_cannot_be_read_anew_stays_where_it_was(passes, monkeypatch):
    monkeypatch.setattr(mlxspec.decoder.decoder, "PREFILL_CHUNK", 4)
    decoder, truth = having_read(("qwen2", "rotating"))
    error = KeyboardInterrupt()
    with Fault(error, layer=1, is_after=True, passes=passes), pytest.raises(KeyboardInterrupt):
        decoder.rollback_to(N_READ - 4)
    assert_goes_on(decoder, truth)


@pytest.mark.parametrize("setup", SETUPS)
def test_a_last_state_that_could_not_be_read_again_is_read_the_next_time(setup):
    decoder, truth = having_read(setup)
    decoder.extend_chain(mx.array([1, 2]))
    decoder.commit_chain([1])
    for call in (decoder.next_logits, lambda: read_drafts(decoder, [5])):
        with Fault(RuntimeError(), layer=1, is_after=True), pytest.raises(RuntimeError):
            call()
        assert_is_as_if_read_from_nothing(decoder, [*TEXT[:N_READ], 1], truth)
        decoder.extend_chain(mx.array([1, 2]))
        decoder.commit_chain([])


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize("passes", [0, 2])
def test_a_text_that_breaks_off_keeps_the_chunks_that_were_read(passes, setup, monkeypatch):
    monkeypatch.setattr(mlxspec.decoder.decoder, "PREFILL_CHUNK", 6)
    decoder, truth = make(*setup)
    error = KeyboardInterrupt()
    with Fault(error, layer=1, is_after=False, passes=passes), pytest.raises(KeyboardInterrupt):
        decoder.observe(TEXT[:N_READ])
    assert_is_as_if_read_from_nothing(decoder, TEXT[: 6 * passes], truth)
    decoder.observe(TEXT[6 * passes : N_READ])
    assert_goes_on(decoder, truth)


@contextmanager
def interrupted(owner, name, monkeypatch, *, num_done=0, is_after=False):
    """Let a method do its work some times, and interrupt it then, before or after its work."""
    method, calls = getattr(owner, name), []

    def interrupted(self, *args):
        calls.append(self)
        if len(calls) > num_done and not is_after:
            raise KeyboardInterrupt
        method(self, *args)
        if len(calls) > num_done:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            yield


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize(("owner", "name"), [(RowStore, "place"), (Cache, "commit")])
def test_going_back_mends_a_commit_that_an_interrupt_tore(owner, name, setup, monkeypatch):
    decoder, truth = having_read(setup, is_staged=True)
    with interrupted(owner, name, monkeypatch, is_after=True):
        decoder.commit(PATH)
    decoder.rollback_to(N_READ)
    assert_goes_on(decoder, truth)


def test_going_back_again_mends_a_rollback_that_an_interrupt_tore(monkeypatch):
    decoder, truth = having_read()
    with interrupted(Cache, "truncate", monkeypatch, is_after=True):
        decoder.rollback_to(5)
    decoder.rollback_to(N_READ)
    assert_goes_on(decoder, truth)


@pytest.mark.parametrize("broken_pass", [0, 1])
def test_what_is_torn_stays_so_until_it_was_read_anew(broken_pass, monkeypatch):
    monkeypatch.setattr(mlxspec.decoder.decoder, "PREFILL_CHUNK", 8)
    decoder, truth = having_read(is_staged=True)
    with interrupted(Cache, "commit", monkeypatch, is_after=True):
        decoder.commit(PATH)
    fault = Fault(KeyboardInterrupt(), layer=1, is_after=False, passes=broken_pass)
    with fault, pytest.raises(KeyboardInterrupt):
        decoder.rollback_to(N_READ)
    decoder.rollback_to(N_READ)
    assert_goes_on(decoder, truth)
