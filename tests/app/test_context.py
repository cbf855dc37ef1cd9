"""What fills the context."""

import pytest

from mlxspec.trace.events import GenerationStarted, PrefillProgress
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.screens.dialogs import ContextScreen, context_rows
from tests.support.app_driver import chat
from tests.traces import make_fake


def counts(state, width=64):
    """The figure at the end of each row, by its name."""
    rows = [row.plain for row in context_rows(state, width)]
    named = [row for row in rows[1:] if row[25:26] != "" and row.rstrip()[-1:].isdigit()]
    return {row[:26].strip(): int(row.split()[-1].replace(",", "")) for row in named}


def test_the_parts_add_up_to_the_context():
    state = fold(make_fake.chat())
    parts = counts(state)
    assert parts.pop("room left") == 8192 - state.context
    assert sum(parts.values()) == state.context
    written = [message.stats.generated_tokens for message in state.messages[1::2]]
    assert (parts["replies before it"], parts["the last reply"]) == tuple(written)


def test_it_says_what_was_read_again():
    state = fold(make_fake.chat())
    prefill = state.reply.prefill
    shown = "\n".join(row.plain for row in context_rows(state, 64))
    read = prefill.total - prefill.reused
    assert f"read {read} tokens; {prefill.reused} were still cached" in shown
    assert "cache: full" in shown


def test_a_rotating_cache_has_no_end():
    started = GenerationStarted("t", "d", cache="rotating 64 (4 kept)")
    state = fold([started, PrefillProgress(0.1, 500, 500)])
    shown = "\n".join(row.plain for row in context_rows(state, 64))
    assert "500 tokens" in shown
    assert "cache: rotating 64 (4 kept)" in shown
    assert "never fills" in shown
    assert "room left" not in shown


@pytest.mark.parametrize("width", [1, 20, 40, 64])
def test_bars_stay_within_the_width(width):
    rows = context_rows(fold(make_fake.chat()), width)[1:5]
    assert max(row.cell_length for row in rows) <= max(width, 36)


def test_an_empty_chat_has_an_empty_context():
    assert "empty: it fills" in context_rows(ChatState(), 64)[1].plain


async def test_the_command_shows_it_until_escape():
    async with chat() as driver:
        await driver.say("hello")
        await driver.say("/context")
        assert isinstance(driver.app.screen, ContextScreen)
        assert "Speculative decoding" in driver.shown  # the conversation shines through
        await driver.pilot.press("escape")
        assert not isinstance(driver.app.screen, ContextScreen)
