"""The picture in motion: when what is seen, what is seen at rest, and that it is only a file."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec.trace.events import (
    CostMeasured,
    DraftVerified,
    EmittedToken,
    GenerationStarted,
    PlainDecoded,
)
from mlxspec_app.conversation.figures import reply_figures
from mlxspec_app.export.recording import Recording
from mlxspec_app.export.svg import HEIGHT, PAUSE_S, animation
from mlxspec_app.playback.timeline import PAUSE_BETWEEN_REPLIES_S
from tests.support import export_traces, hostile_traces
from tests.traces import make_fake

SVG = "{http://www.w3.org/2000/svg}"
ROW = 21


class Played:
    """An animation as a browser plays it: which words are seen at a time."""

    def __init__(self, recording, width=80):
        self.source = animation(recording, width)
        self.root = ElementTree.fromstring(self.source)
        style = self.root.find(f"{SVG}style").text
        self.length = float(re.search(r"g\{animation:([\d.]+)s step-end infinite\}", style)[1])
        self.keyframes = {
            name: [(float(at) * self.length / 100, looks) for at, looks in frames(steps)]
            for name, steps in re.findall(r"@keyframes (k\d+)\{((?:[\d.]+%\{[^}]*\})+)\}", style)
        }
        self.groups = list(self.root.iter(f"{SVG}g"))

    def frames_of(self, group):
        return self.keyframes[group.get("style").removeprefix("animation-name:")]

    def times(self, look):
        """When each group that holds words of a look appears."""
        return [
            self.frames_of(group)[1][0]
            for group in self.groups
            if group.get("transform") is None and look in (n.get("class") for n in group)
        ]

    def at_rest(self):
        """The classes and words that are seen where nothing moves, in their order."""
        return [
            (node.get("class"), node.text)
            for group in self.groups
            if group.get("transform") is None and group.get("class") is None
            for node in group.iter(f"{SVG}text")
        ]

    def scrolled(self):
        """Rows that have left the window, by time."""
        (group,) = (group for group in self.groups if group.get("transform"))
        shift = {
            at: int(looks[len("transform:translateY(") : -3]) for at, looks in self.frames_of(group)
        }
        assert group.get("transform") == f"translate(0 {shift[max(shift)]})"
        return {at: -pixels // ROW for at, pixels in shift.items()}


def frames(steps):
    return re.findall(r"([\d.]+)%\{([^}]*)\}", steps)


def squeezed(text):
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize("width", [24, 80])
@pytest.mark.parametrize("trace", sorted(make_fake.TRACES))
def test_at_rest_every_word_of_the_chat_stands_there_in_order(trace, width):
    recording = Recording.of(trace, make_fake.TRACES[trace]())
    shown = "".join(
        squeezed(text) for look, text in Played(recording, width).at_rest() if look != "muted"
    )
    said = "".join(
        ("\u276f" if message.role != "assistant" else "") + squeezed(message.text)
        for message in recording.messages
    )
    assert shown == said


def test_a_round_appears_at_its_recorded_time():
    played = Played(export_traces.saying("one", "two", "three"))
    assert played.length == 3.5 + PAUSE_S
    assert played.times("accepted") == pytest.approx([1.5, 2.5, 3.5], abs=1e-4)


def test_a_second_reply_comes_a_pause_after_the_first_and_begins_its_own_clock():
    recording = export_traces.chat()
    first, second = recording.replies
    start = first.stats.total_s + PAUSE_BETWEEN_REPLIES_S
    own = [round_.verdict.ts for round_ in first.rounds]
    own += [start + round_.verdict.ts for round_ in second.rounds]
    played = Played(recording)
    seen = sorted(
        played.frames_of(group)[1][0]
        for group in played.groups
        if any((n.get("class") or "").startswith("band") for n in group)
        and group.get("class") is None
    )
    assert seen == pytest.approx(own, abs=1e-3)


def test_what_is_said_is_there_from_the_start():
    played = Played(export_traces.saying("one"))
    assert played.times("said") == [0]


def test_a_draft_stands_there_in_grey_until_its_verdict():
    played = Played(export_traces.saying("kept"))
    (group,) = (g for g in played.groups if "pending" in [n.get("class") for n in g])
    assert [node.text for node in group.iter(f"{SVG}text")] == ["kept"]
    times, looks = zip(*played.frames_of(group), strict=True)
    assert times == pytest.approx((0, 1.0, 1.5), abs=1e-4)
    assert looks == ("visibility:hidden", "visibility:visible", "visibility:hidden")


def test_a_rejected_token_falls_below_its_place_and_fades():
    played = Played(export_traces.saying("kept"))
    (group,) = (g for g in played.groups if g.get("class") == "fallen")
    (lost,) = group.iter(f"{SVG}text")
    (kept,) = (n for g in played.groups for n in g if n.get("class") == "accepted")
    assert (lost.get("class"), lost.text) == ("rejected", "kept")
    assert lost.get("x") == kept.get("x")
    assert int(lost.get("y")) == int(kept.get("y")) + ROW
    times, looks = zip(*played.frames_of(group), strict=True)
    assert times == pytest.approx((0, 1.5, 2.0), abs=1e-4)
    assert looks[0] == looks[2] == "opacity:0"
    assert looks[1].startswith("opacity:1")


def test_one_line_of_figures_is_seen_at_a_time_and_the_last_one_is_the_replys():
    recording = export_traces.saying("one", "two", "three")
    played = Played(recording)
    lines = [
        (group, "".join(n.text for n in group.iter(f"{SVG}text")))
        for group in played.groups
        if [n.get("class") for n in group] == ["muted"]
    ]
    spans = [[at for at, _ in played.frames_of(group)][1:] for group, _ in lines]
    assert [end for _, end in spans[:-1]] == [start for start, *_ in spans[1:]]
    assert [group.get("class") for group, _ in lines] == ["ghost"] * (len(lines) - 1) + [None]
    told = [text.split() for _, text in lines]
    assert [words[words.index("tok") - 1] for words in told] == ["2", "4", "6", "6"]
    assert all(
        ("2.00 tok/round" in text, "100 % accepted" in text) == (True, True) for _, text in lines
    )
    assert told[-1][:2] == reply_figures(recording.replies[0])[0].text.split()


def test_the_gain_over_plain_decoding_is_among_the_figures():
    events = [*export_traces.events_saying(["a", "b"], "?"), CostMeasured(9.0, 9, (1,), (1000.0,))]
    assert "\u00d71.33 plain" in Played(Recording.of("x", events)).at_rest()[-1][1]


def test_a_long_chat_scrolls_so_that_the_row_being_written_is_in_the_window():
    played = Played(export_traces.saying(*["line\n"] * 30))
    window = played.root.find(f"{SVG}svg")
    assert float(window.get("height")) == HEIGHT * ROW
    scrolled = played.scrolled()
    assert scrolled[0] == 0
    for group in played.groups:
        if group.get("transform") is None and group.get("class") is None:
            at = played.frames_of(group)[1][0]
            gone = max(rows for time, rows in scrolled.items() if time <= at + 1e-9)
            for node in group.iter(f"{SVG}text"):
                if node.get("class") == "accepted":
                    assert gone * ROW <= int(node.get("y")) <= (gone + HEIGHT) * ROW


def test_a_short_one_has_a_window_of_its_size():
    window = Played(export_traces.saying("short")).root.find(f"{SVG}svg")
    assert float(window.get("height")) < HEIGHT * ROW / 2


def test_nothing_moves_where_stillness_was_asked_for():
    style = Played(export_traces.chat()).root.find(f"{SVG}style").text
    still, moving = style.split("@media (prefers-reduced-motion:no-preference)")
    assert "animation:" not in still
    assert moving.startswith("{g{animation:")
    assert ".ghost{visibility:hidden}" in still
    assert ".fallen{opacity:0" in still


def test_follows_the_scheme_of_its_reader():
    source = animation(export_traces.chat())
    assert ".rejected{fill:#FF5F5F}" in source
    light = re.findall(r"@media \(prefers-color-scheme:light\)\{(.*)\}", source)
    assert any(".rejected{fill:#" in rules for rules in light)
    assert any(".accepted{fill:#005F5F}" in rules for rules in light)


def test_asks_nothing_of_the_network_and_runs_nothing():
    source = animation(export_traces.chat()).replace('"http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|url\(|@import|@font-face|href|<script|<set|<animate", source)


@pytest.mark.parametrize(
    "recording",
    [
        export_traces.saying(*export_traces.HOSTILE, asked="".join(export_traces.HOSTILE)),
        Recording.of(hostile_traces.MARKUP, hostile_traces.events()),
    ],
    ids=["texts", "names"],
)
def test_hostile_text_stays_text(recording):
    played = Played(recording)
    assert {node.tag for node in played.root.iter()} == {
        SVG + name for name in ("svg", "title", "style", "rect", "path", "text", "g")
    }
    assert not any(name.startswith("on") for node in played.root.iter() for name in node.attrib)
    style = played.root.find(f"{SVG}style").text
    assert "alert" not in style
    assert len(played.keyframes) == style.count("@keyframes") == len(played.groups)


@settings(max_examples=60)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=4), st.integers(1, 90))
def test_any_text_in_any_width_gives_a_well_formed_picture(texts, width):
    source = animation(export_traces.saying(*texts, asked="".join(texts)), width)
    ElementTree.fromstring(source)


@pytest.mark.parametrize("width", [24, 60, 100])
@pytest.mark.parametrize("trace", sorted(make_fake.TRACES))
def test_nothing_is_wider_than_the_picture(trace, width):
    root = Played(Recording.of(trace, make_fake.TRACES[trace]()), width).root
    for node in root.iter(f"{SVG}text"):
        assert float(node.get("x")) + float(node.get("textLength", 0)) <= float(root.get("width"))


def test_a_trace_without_its_drafts_plays_its_text():
    verdicts = [event for event in make_fake.tree() if isinstance(event, DraftVerified)]
    played = Played(Recording.of("torn", verdicts))
    assert not any(g.get("class") == "fallen" for g in played.groups)
    assert any(look == "accepted" for look, _ in played.at_rest())


def test_a_round_without_text_of_its_own_draws_nothing():
    events = [
        GenerationStarted("target", "drafter"),
        PlainDecoded(1, 0.5, (EmittedToken(5, "", "plain", 0.5),), 40.0, 11),
        PlainDecoded(2, 1.0, (EmittedToken(6, "\u00e9", "plain", 0.5),), 40.0, 12),
    ]
    played = Played(Recording.of("x", events))
    assert played.times("plain") == pytest.approx([1.0], abs=1e-4)
    assert all(len(group) for group in played.groups)
