"""Reasoning in the transcript: none of it is lost, and it does not look like the answer."""

import pytest
from textual.screen import Screen

from mlxspec.trace.events import EmittedToken, GenerationFinished, GenerationStarted, PlainDecoded
from mlxspec_app.app import MlxspecApp
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.views import INKS, XRAY
from mlxspec_app.widgets.chat.token_message import TokenMessage
from mlxspec_app.widgets.chat.transcript import Transcript

PIECES = [
    ("<think>\n", "mark"),
    ("hm, two\n", "reasoning"),
    ("</think>\n", "mark"),
    ("yes", "answer"),
]
EVENTS = [
    GenerationStarted("t", "none"),
    *(
        PlainDecoded(n, 0.1 * n, (EmittedToken(n, text, "plain", 0.9, None, channel),), 1.0, n)
        for n, (text, channel) in enumerate(PIECES, 1)
    ),
]


class Page(Screen):
    """Nothing but a transcript."""

    def compose(self):
        yield Transcript()


def reply(*events):
    return fold([*EVENTS, *events]).reply


def test_all_text_is_kept_with_its_channel():
    found = reply(GenerationFinished(1.0, "stop", "!"))
    assert found.text == "<think>\nhm, two\n</think>\nyes!"
    assert [span.channel for span in found.spans] == [*(name for _, name in PIECES), "answer"]
    assert found.stats.reasoning_tokens == 1


def test_text_that_comes_with_the_end_of_cut_off_reasoning_belongs_to_it():
    found = fold([*EVENTS[:3], GenerationFinished(1.0, "cancelled", "...")]).reply
    assert [span.channel for span in found.spans] == ["mark", "reasoning", "reasoning"]


@pytest.mark.parametrize("ink", INKS, ids=lambda ink: ink.name)
async def test_rows_of_reasoning_are_dim_and_have_a_bar(ink):
    app = MlxspecApp(Page)
    async with app.run_test(size=(60, 20)) as pilot:
        widget = TokenMessage(view=XRAY)
        await app.screen.query_one(Transcript).mount(widget)
        widget.set_ink(ink)
        widget.extend(reply().spans)
        await pilot.pause()
        rows = [widget.render_line(y) for y in range(4)]
        assert [row.text[2:].rstrip() for row in rows] == ["<think>", "hm, two", "</think>", "yes"]
        assert ["\u2502" in row.text[:2] for row in rows] == [True, True, True, False]
        words = [next(s for s in row if s.text.strip(" \u2502")) for row in rows]
        assert [bool(word.style.italic) for word in words] == [True, True, True, False]
        looks = [(word.style.color, word.style.dim) for word in words]
        assert looks[1] != looks[3]
