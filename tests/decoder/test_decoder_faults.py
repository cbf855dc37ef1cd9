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

FULL, ROTATING = ("llama", "full"), ("qwen2", "rotating")
N_READ = 15  # the ring of 12 has wrapped


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
    setup=[pytest.param(FULL, id="full"), pytest.param(ROTATING, id="rotating")],
    layer=[0, 1],
    is_after=[False, True],
)
def test_a_pass_that_breaks_off_leaves_the_decoder_as_it_was(name, layer, is_after, error, setup):
    decoder, truth = make(*setup)
    decoder.observe(TEXT[:N_READ])
    with Fault(error, layer=layer, is_after=is_after), pytest.raises(type(error)):
        CALLS[name](decoder)
    assert_goes_on(decoder, truth)


@pytest.mark.parametrize("error", [RuntimeError("no memory"), KeyboardInterrupt()], ids=type)
@pytest.mark.parametrize("passes", [0, 1, 2])
def test_a_ring_that_cannot_be_read_anew_stays_where_it_was(passes, error, monkeypatch):
    monkeypatch.setattr(mlxspec.decoder.decoder, "PREFILL_CHUNK", 4)
    decoder, truth = make(*ROTATING)
    decoder.observe(TEXT[:N_READ])
    with Fault(error, layer=1, is_after=True, passes=passes), pytest.raises(type(error)):
        decoder.rollback_to(N_READ - 4)
    assert_goes_on(decoder, truth)


@pytest.mark.parametrize("setup", [FULL, ROTATING], ids=["full", "rotating"])
def test_a_last_state_that_could_not_be_read_again_is_read_the_next_time(setup):
    decoder, truth = make(*setup)
    decoder.observe(TEXT[:N_READ])
    decoder.extend_chain(mx.array([1, 2]))
    decoder.commit_chain([1])
    for call in (decoder.next_logits, lambda: read_drafts(decoder, [5])):
        with Fault(RuntimeError(), layer=1, is_after=True), pytest.raises(RuntimeError):
            call()
        assert_is_as_if_read_from_nothing(decoder, [*TEXT[:N_READ], 1], truth)
        decoder.extend_chain(mx.array([1, 2]))
        decoder.commit_chain([])


@pytest.mark.parametrize("setup", [FULL, ROTATING], ids=["full", "rotating"])
@pytest.mark.parametrize("passes", [0, 1, 2])
def test_a_text_that_breaks_off_keeps_the_chunks_that_were_read(passes, setup, monkeypatch):
    monkeypatch.setattr(mlxspec.decoder.decoder, "PREFILL_CHUNK", 6)
    decoder, truth = make(*setup)
    with (
        Fault(KeyboardInterrupt(), layer=1, is_after=False, passes=passes),
        pytest.raises(KeyboardInterrupt),
    ):
        decoder.observe(TEXT[:N_READ])
    assert_is_as_if_read_from_nothing(decoder, TEXT[: 6 * passes], truth)
    decoder.observe(TEXT[6 * passes : N_READ])
    assert_goes_on(decoder, truth)


@pytest.mark.parametrize("name", ["observe", "tree_logits"])
@pytest.mark.parametrize("setup", [FULL, ROTATING], ids=["full", "rotating"])
def test_an_evaluation_that_fails_leaves_no_rows_for_a_chain_to_build_on(name, setup, monkeypatch):
    decoder, truth = make(*setup)
    decoder.observe(TEXT[:N_READ])
    with monkeypatch.context() as patch:

        def out_of_memory(*_):
            raise RuntimeError

        patch.setattr(mx, "eval", out_of_memory)
        with pytest.raises(RuntimeError):
            CALLS[name](decoder)
    logits = decoder.logits(decoder.extend_chain(mx.array([7, 8])))
    assert_close(logits[-1], truth([*TEXT[:N_READ], 7, 8]))
    decoder.commit_chain([7])
    assert_is_as_if_read_from_nothing(decoder, [*TEXT[:N_READ], 7], truth)


@pytest.mark.parametrize("setup", [FULL, ROTATING], ids=["full", "rotating"])
def test_a_staged_tree_is_gone_after_a_pass_that_broke_off(setup):
    decoder, truth = make(*setup)
    decoder.observe(TEXT[:N_READ])
    decoder.forward_tree(TREE)
    with Fault(RuntimeError(), layer=0, is_after=True), pytest.raises(RuntimeError):
        decoder.forward_tree(TREE)
    with pytest.raises(ValueError, match="no tree is staged"):
        decoder.commit(PATH)
    assert_goes_on(decoder, truth)


def broken_commit(decoder, n_placed, monkeypatch):
    """Commit a branch, interrupted after `n_placed` of the four stores of rows."""
    place, placed = RowStore.place, []

    def failing(self, *args):
        if len(placed) == n_placed:
            raise KeyboardInterrupt
        placed.append(self)
        place(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(RowStore, "place", failing)
        with pytest.raises(KeyboardInterrupt):
            decoder.commit(PATH)


@pytest.mark.parametrize("n_placed", [0, 1, 3])
def test_a_commit_that_breaks_off_between_layers_has_committed_nothing(n_placed, monkeypatch):
    decoder, truth = make(*FULL)
    decoder.observe(TEXT[:N_READ])
    decoder.forward_tree(TREE)
    broken_commit(decoder, n_placed, monkeypatch)
    decoder.commit([])
    assert_goes_on(decoder, truth)


@pytest.mark.parametrize("setup", [FULL, ROTATING], ids=["full", "rotating"])
@pytest.mark.parametrize("n_placed", [0, 1, 3])
def test_a_commit_that_broke_off_may_be_made_again(n_placed, setup, monkeypatch):
    decoder, truth = make(*setup)
    decoder.observe(TEXT[:N_READ])
    decoder.forward_tree(TREE)
    broken_commit(decoder, n_placed, monkeypatch)
    decoder.commit(PATH)
    assert_is_as_if_read_from_nothing(decoder, TEXT[:N_READ] + PATH_TOKENS, truth)


@contextmanager
def interrupt_after(owner, name, monkeypatch):
    """Let a method do its work once, and interrupt it then."""
    method = getattr(owner, name)

    def interrupted(self, *args):
        method(self, *args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            yield


@pytest.mark.parametrize("setup", [FULL, ROTATING], ids=["full", "rotating"])
@pytest.mark.parametrize(("owner", "name"), [(RowStore, "place"), (Cache, "commit")])
def test_going_back_mends_a_commit_that_an_interrupt_tore(owner, name, setup, monkeypatch):
    decoder, truth = make(*setup)
    decoder.observe(TEXT[:N_READ])
    decoder.forward_tree(TREE)
    with interrupt_after(owner, name, monkeypatch):
        decoder.commit(PATH)
    decoder.rollback_to(N_READ)
    assert_goes_on(decoder, truth)


def test_going_back_again_mends_a_rollback_that_an_interrupt_tore(monkeypatch):
    decoder, truth = make(*FULL)
    decoder.observe(TEXT[:N_READ])
    with interrupt_after(Cache, "truncate", monkeypatch):
        decoder.rollback_to(5)
    decoder.rollback_to(N_READ)
    assert_goes_on(decoder, truth)


@pytest.mark.parametrize("broken_pass", [0, 1])
def test_what_is_torn_stays_so_until_it_was_read_anew(broken_pass, monkeypatch):
    monkeypatch.setattr(mlxspec.decoder.decoder, "PREFILL_CHUNK", 8)
    decoder, truth = make(*FULL)
    decoder.observe(TEXT[:N_READ])
    decoder.forward_tree(TREE)
    with interrupt_after(Cache, "commit", monkeypatch):
        decoder.commit(PATH)
    with (
        Fault(KeyboardInterrupt(), layer=1, is_after=False, passes=broken_pass),
        pytest.raises(KeyboardInterrupt),
    ):
        decoder.rollback_to(N_READ)
    decoder.rollback_to(N_READ)
    assert_goes_on(decoder, truth)
