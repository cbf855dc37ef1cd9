"""The chat says which drafts the model verifies, and why not more."""

import pytest

from mlxspec.drafting.entries import ModelEntry
from mlxspec.trace.events import GenerationStarted, PrefillProgress
from mlxspec.trace.file import event_from_json, event_to_json
from mlxspec_app.conversation.fold import fold
from mlxspec_app.picker.model_rows import model_facts
from mlxspec_app.screens.dialogs import context_rows
from mlxspec_app.widgets.chat.status_bar import status_parts

CHAINS = "draft chains (draft trees: the draft is 3.0e-01 off)"


def state_of(drafts):
    started = GenerationStarted("t", "d", drafts=drafts)
    return fold([started, PrefillProgress(0.1, 500, 500)])


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
    assert ranks["draft chains only"] < ranks["● lossless greedy"] < ranks["draft trees"]


def test_the_context_screen_gives_the_reason():
    rows = "\n".join(row.plain for row in context_rows(state_of(CHAINS), 80))
    assert f"the model verifies {CHAINS}" in rows


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
