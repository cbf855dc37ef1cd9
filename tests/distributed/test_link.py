"""Rank 0's view of the others: messages, answers, and a rank that is lost."""

import socket
import threading

import mlx.core as mx
import pytest

from mlxspec.distributed import link as link_module
from mlxspec.distributed.link import Link
from mlxspec.distributed.orders import Kind, Order, packed
from mlxspec.distributed.wire import Wire
from mlxspec.errors import RankLostError


def connected():
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()
    return Wire(here), Wire(there)


@pytest.fixture
def ranks():
    """A link to two ranks, and their ends of the connections."""
    pairs = [connected() for _ in range(2)]
    ended = []
    link = Link([here for here, _ in pairs], lambda: ended.append(True))
    link.ended = ended
    yield link, [there for _, there in pairs]
    link.close()
    for _, there in pairs:
        there.close()


def test_orders_travel_with_the_next_forward_to_every_rank(ranks):
    link, others = ranks
    orders = [Order(Kind.COMMIT, 0, (0, 1)), Order(Kind.TREE, 0, (5, -1))]

    link.later(orders[0])
    link.now(orders[1])

    assert [other.receive(5) for other in others] == [packed(orders)] * 2
    assert link.num_messages == 1


def test_orders_for_a_model_that_is_gone_are_dropped_all_of_them(ranks):
    link, others = ranks
    for number in range(3):
        link.later(Order(Kind.COMMIT, number, (0,)))
    link.forget()
    link.now(Order(Kind.TREE, 7, (5, -1)))
    assert [other.receive(5) for other in others] == [packed([Order(Kind.TREE, 7, (5, -1))])] * 2


def test_answers_come_in_the_sequence_of_the_ranks(ranks):
    link, others = ranks
    others[1].send(nbytes=2)
    others[0].send(nbytes=1)

    assert link.answers() == [{"nbytes": 1}, {"nbytes": 2}]


def test_a_rank_that_ends_is_noticed_while_an_answer_is_awaited(ranks):
    link, others = ranks
    others[1].close()

    with pytest.raises(RankLostError, match=r"rank 2.*the chat is kept"):
        link.answers()
    assert link.ended == [True]


def test_a_rank_that_ends_is_noticed_while_a_collective_is_awaited(ranks):
    link, others = ranks
    never = threading.Event()
    threading.Timer(0.3, others[0].close).start()

    with pytest.raises(RankLostError, match="rank 1"):
        link.attend(never.wait)
    never.set()


def test_a_rank_that_says_nothing_counts_as_hung(monkeypatch):
    monkeypatch.setattr(link_module, "SILENCE_S", 0.3)
    here, there = connected()
    link = Link([here])

    with pytest.raises(RankLostError, match="no sign of life"):
        link.answers()
    there.close()


def test_a_fault_of_a_rank_is_the_reason(ranks):
    link, others = ranks
    others[0].send(fault="MemoryError: no room")

    with pytest.raises(RankLostError, match=r"rank 1: MemoryError: no room"):
        link.answers()


def test_all_other_ranks_end_with_a_lost_one(ranks):
    link, others = ranks
    link.lose("rank 1: gone")

    assert link.ended == [True]
    with pytest.raises(Exception, match="ended"):
        others[1].receive(5)


def test_nothing_is_sent_after_a_loss(ranks):
    link, _ = ranks
    link.lose("rank 2: gone")

    for act in (
        lambda: link.later(Order(Kind.RESET, 0)),
        lambda: link.now(Order(Kind.RESET, 0)),
        lambda: link.wait(mx.ones(1)),
        lambda: link.tell(free=True),
    ):
        with pytest.raises(RankLostError, match="rank 2: gone"):
            act()


def test_a_collective_that_raises_before_the_loss_is_noticed_is_a_loss(ranks):
    link, others = ranks

    def fail():
        threading.Timer(0.3, others[0].close).start()
        raise RuntimeError("connection to a peer was lost")

    with pytest.raises(RankLostError, match="rank 1"):
        link.attend(fail)


def test_an_error_of_what_is_awaited_is_passed_on(ranks):
    def fail():
        raise ValueError("of the forward")

    with pytest.raises(ValueError, match="of the forward"):
        ranks[0].attend(fail)
