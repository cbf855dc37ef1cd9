"""Branches: a reply written again, a fork, and the versions of what was said."""

import pytest

from mlxspec_app.conversation.session import ReplyDiscarded
from tests.support.store_files import exchange, reply_events

AGAIN = [ReplyDiscarded(), *reply_events("1b")]


async def test_a_reply_is_written_again_with_the_same_seed_or_a_new_one(talk):
    await talk.begin(exchange("One", "1"))
    talk.branches.regenerate("same")
    assert talk.session.orders == ["regenerate"]
    assert talk.feed.state.phase == "busy"
    talk.branches.regenerate("new")
    (_, name, _), again = talk.session.orders[1:]
    assert (name, again) == ("seed", "regenerate")


async def test_a_reply_that_chance_wrote_is_written_again_with_another_seed(talk):
    await talk.begin(exchange("One", "1"))
    talk.session.adjustable = lambda: {"temp": "0.7", "seed": "7"}
    talk.branches.regenerate()
    (_, name, _), again = talk.session.orders
    assert (name, again) == ("seed", "regenerate")


async def test_a_number_is_the_seed_to_write_again_with(talk):
    await talk.begin(exchange("One", "1"))
    talk.branches.regenerate("8")
    assert talk.session.orders == [("adjust", "seed", "8"), "regenerate"]


async def test_where_no_other_seed_can_be_had_nothing_is_written_again(talk):
    def refuse(name, value):
        raise ValueError("this is a recording")

    await talk.begin(exchange("One", "1"))
    talk.session.adjust = refuse
    talk.branches.regenerate("new")
    assert (talk.session.orders, talk.page.told) == ([], ["this is a recording"])
    assert talk.feed.state.phase == "ready"


async def test_a_fork_holds_the_chat_up_to_the_message_that_is_pointed_at(talk):
    await talk.begin(exchange("One", "1"), exchange("Two", "2"))
    talk.page.transcript.pointed_message = talk.feed.state.messages[1]
    talk.branches.fork()
    assert await talk.opened() == ["One", "1"]
    assert talk.page.prompt.chat == "One · fork"
    assert talk.page.prompt.has_focus


async def test_messages_with_versions_are_marked_and_lead_to_each_other(talk):
    await talk.begin(exchange("One", "1"), AGAIN)
    (number, version), *others = talk.page.transcript.versions.items()
    assert (number, others) == (talk.feed.state.messages[1].number, [])
    assert (version.number, version.count) == (2, 2)
    talk.branches.step_at(number, -1)
    assert await talk.opened() == ["One", "1"]
    talk.branches.step(1)
    assert await talk.opened() == ["One", "1b"]


@pytest.mark.parametrize("step", [1, 2, -2])
async def test_there_is_no_version_beyond_the_last_or_before_the_first(talk, step):
    await talk.begin(exchange("One", "1"), AGAIN)
    talk.branches.step(step)
    await talk.page.settle()
    assert talk.session.orders == []
    assert talk.page.num_orders == 0  # the store is not even asked


async def test_only_versions_at_or_above_the_message_at_hand_are_switched(talk):
    await talk.begin(exchange("One", "1"), AGAIN, exchange("Two", "2"))
    talk.page.transcript.pointed_message = talk.feed.state.messages[0]
    talk.branches.step(-1)
    talk.branches.step_at(-7, -1)  # a message that is gone
    await talk.page.settle()
    assert talk.session.orders == []
    talk.page.transcript.pointed_message = None
    talk.branches.step(-1)
    assert await talk.opened() == ["One", "1"]
