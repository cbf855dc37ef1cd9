"""What fills the context, and which drafts the model verifies: in dialog, status bar and picker."""

import pytest

from mlxspec.drafting.entries import ModelEntry
from mlxspec.trace.events import GenerationStarted, PrefillProgress
from mlxspec.trace.file import event_from_json, event_to_json
from mlxspec_app.conversation.figures import fitting
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.picker.model_rows import model_facts
from mlxspec_app.screens.dialogs import ContextScreen, context_rows
from mlxspec_app.widgets.chat.status_bar import status_parts
from tests.support.app_driver import chat
from tests.traces import make_fake

CHAINS = "draft chains (draft trees: the draft is 3.0e-01 off)"


def state_of(drafts="", **facts):
    started = GenerationStarted("t", "d", drafts=drafts, **facts)
    return fold([started, PrefillProgress(0.1, 500, 500)])


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


def test_it_says_what_was_read_again_and_which_drafts_the_model_verifies():
    state = fold(make_fake.chat())
    prefill = state.reply.prefill
    shown = "\n".join(row.plain for row in context_rows(state, 64))
    read = prefill.total - prefill.reused
    assert f"read {read} tokens; {prefill.reused} were still cached" in shown
    assert "cache: full" in shown
    rows = "\n".join(row.plain for row in context_rows(state_of(CHAINS), 80))
    assert f"the model verifies {CHAINS}" in rows


def test_a_rotating_cache_has_no_end():
    state = state_of(cache="rotating 64 (4 kept)")
    shown = "\n".join(row.plain for row in context_rows(state, 64))
    for words in ("500 tokens", "cache: rotating 64 (4 kept)", "never fills"):
        assert words in shown
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


@pytest.mark.parametrize(
    ("drafts", "words"),
    [
        ("draft trees", "draft trees"),
        (CHAINS, "draft chains only"),
        ("plain decoding (draft trees: no; draft chains: no)", "plain decoding only"),
    ],
)
def test_the_status_bar_names_the_drafts(drafts, words):
    assert words in [part.text for part in status_parts(state_of(drafts))]


def test_the_status_bar_keeps_a_limit_longer_than_what_is_usual():
    ranks = {part.text: part.rank for drafts in ("draft trees", CHAINS)
             for part in status_parts(state_of(drafts))}  # fmt: skip
    assert ranks["draft chains only"] < ranks["● lossless"] < ranks["draft trees"]


def test_the_status_bar_promises_an_exact_reply_in_every_view_and_within_80_columns():
    state = state_of("draft chains", context_length=32768, exact=True)
    state.target, state.drafter, state.phase = "SmolLM2-135M-Instruct", "pool", "ready"
    state.reply.stats.generated_tokens, state.reply.stats.total_s = 700, 10.1
    parts = [part for part in status_parts(state) if part.rank < 5]  # those outside the X-ray
    shown = [part.text for part in fitting(parts, 80 - len(" mlxspec   "), 3)]
    assert shown == ["SmolLM2-135M-Instruct ◂ pool", "● exact", "70.0 tokens/s"]
    assert not [part for part in status_parts(state) if "lossless" in part.text]
    assert "● exact" not in [part.text for part in status_parts(state_of())]


def test_recordings_from_before_open_and_say_nothing_of_drafts():
    line = event_to_json(GenerationStarted("t", "d")).replace(',"drafts":""', "")
    assert '"drafts"' not in line
    event = event_from_json(line)
    assert event.drafts == ""
    texts = [part.text for part in status_parts(state_of(event.drafts))]
    assert not any("draft" in text for text in texts)


def test_the_picker_says_drafts_and_that_memory_is_a_bound():
    model = ModelEntry(
        "org/m", "org/m", 1.0, True, "4-bit", "qwen3", 0, 2.0, 4096,
        drafts="drafts not examined yet", is_bound=True,
    )  # fmt: skip
    text = model_facts(model, 16.0).plain
    assert text.startswith("qwen3, 4-bit. Takes at most 2.0 GB at 4.1k tokens, of 16.0 GB: fits")
    assert text.endswith("drafts not examined yet")
