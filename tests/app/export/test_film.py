"""The film: its format, its times, and what a terminal shows at its end."""

import json
import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from mlxspec_app.export import film
from mlxspec_app.export.looks import colours, xterm
from mlxspec_app.export.recording import Recording
from mlxspec_app.playback.timeline import PAUSE_BETWEEN_REPLIES_S
from mlxspec_app.text.rendering.document import Document
from tests.support import export_traces, hostile_traces
from tests.traces import make_fake

SGR = re.compile(r"\x1b\[[\d;]*m")


def frames_of(recording, width=80):
    header, *frames = (json.loads(line) for line in film.render(recording, width).splitlines())
    return header, frames


def screen_after(frames):
    """The rows that a terminal of endless height shows: text, line breaks, and a row begun anew."""
    written = SGR.sub("", "".join(text for _, _, text in frames))
    rows = [""]
    for piece in re.split(r"(\r\n|\r\x1b\[K)", written):
        if piece == "\r\n":
            rows.append("")
        elif piece == "\r\x1b[K":
            rows[-1] = ""
        else:
            rows[-1] += piece
    return rows


def test_begins_with_a_header_and_every_round_comes_at_its_recorded_time():
    recording = export_traces.chat()
    header, frames = frames_of(recording, width=72)
    assert (header["version"], header["width"], header["height"]) == (2, 72, film.HEIGHT)
    assert header["title"] == "chat"
    assert len(header["theme"]["palette"].split(":")) == 8
    times = [at for at, _, _ in frames]
    first, second = recording.replies
    assert times == sorted(times)
    assert times[0] == 0
    assert times[1 : 1 + len(first.rounds)] == [round_.verdict.ts for round_ in first.rounds]
    start = first.stats.total_s + PAUSE_BETWEEN_REPLIES_S
    assert times[-2] == pytest.approx(start + second.rounds[-1].verdict.ts, abs=0.01)


@pytest.mark.parametrize("width", [20, 41, 80])
@pytest.mark.parametrize("trace", sorted(make_fake.TRACES))
def test_at_the_end_the_terminal_shows_every_row_as_the_app_wraps_it(trace, width):
    recording = Recording.of(trace, make_fake.TRACES[trace]())
    _, frames = frames_of(recording, width)
    shown = [row.rstrip() for row in screen_after(frames)]
    for reply in recording.replies:
        document = Document(width, markup="plain")
        document.extend([reply.text])
        rows = ["".join(piece.text for piece in row.pieces).rstrip() for row in document.rows]
        assert rows in [shown[at : at + len(rows)] for at in range(len(shown))]


@settings(max_examples=60)
@given(st.lists(st.text("ab \n世🙂é", min_size=1, max_size=9), min_size=1, max_size=6))
def test_no_row_is_wider_than_the_terminal(texts):
    _, frames = frames_of(export_traces.saying(*texts), width=12)
    assert max(cell_len(row) for row in screen_after(frames)) <= 12


def test_guessed_words_have_the_tint_and_the_others_do_not():
    recording = export_traces.saying("kept")
    written = "".join(text for _, _, text in frames_of(recording)[1])
    mint = colours(dark=True)
    assert f"\x1b[0;38;5;{xterm(mint['guess'])};48;5;232mkept" in written
    assert f"\x1b[0;38;5;{xterm(mint['plain'])};48;5;232m!" in written


@pytest.mark.parametrize(
    ("colour", "code"),
    [("#AFFFAF", 157), ("#D7AF00", 178), ("#8787D7", 104), ("#FF5F5F", 203), ("#005F87", 24)],
)
def test_the_colours_of_the_palette_are_in_the_256(colour, code):
    assert xterm(colour) == code


@pytest.mark.parametrize(
    "recording",
    [
        export_traces.saying(*export_traces.HOSTILE, asked=export_traces.HOSTILE[2]),
        Recording.of(hostile_traces.CONTROLS, hostile_traces.events()),
    ],
    ids=["texts", "names"],
)
def test_a_hostile_recording_writes_nothing_but_colours_and_rows(recording):
    assert film.render(recording).isascii()
    header, frames = frames_of(recording)
    written = SGR.sub("", "".join(text for _, _, text in frames))
    left = written.replace("\r\x1b[K", "").replace("\r\n", "") + header["title"]
    assert not {char for char in left if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")}
    assert "\u202e" not in left
