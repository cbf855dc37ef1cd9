"""The pictures, still and in motion: whole, in their place and time, and nothing but drawn text."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec.trace.events import CostMeasured, EmittedToken, GenerationStarted, PlainDecoded
from mlxspec_app.conversation.figures import quiet_figures
from mlxspec_app.export.recording import Recording
from mlxspec_app.export.svg import HEIGHT, PAUSE_S, ROW, animation, picture
from mlxspec_app.playback.timeline import PAUSE_BETWEEN_REPLIES_S
from tests.support import export_traces, hostile_traces
from tests.traces import make_fake

SVG = "{http://www.w3.org/2000/svg}"
RECORDINGS = [Recording.of(name, make()) for name, make in make_fake.TRACES.items()]
BOTH = pytest.mark.parametrize("render", [picture, animation])


class Played:
    """An animation as a browser plays it: which words are seen at a time."""

    def __init__(self, recording, width=80):
        self.root = ElementTree.fromstring(animation(recording, width))
        style = self.root.find(f"{SVG}style").text
        self.length = float(re.search(r"g\{animation:([\d.]+)s step-end infinite\}", style)[1])
        frame = r"([\d.]+)%\{([^}]*)\}"
        self.keyframes = {
            name: [(float(at) * self.length / 100, look) for at, look in re.findall(frame, steps)]
            for name, steps in re.findall(r"@keyframes (k\d+)\{((?:[\d.]+%\{[^}]*\})+)\}", style)
        }
        self.groups = list(self.root.iter(f"{SVG}g"))

    def frames_of(self, group):
        """The times of a group, and its looks from then on."""
        name = group.get("style").removeprefix("animation-name:")
        return tuple(zip(*self.keyframes[name], strict=True))

    def appearing(self, look):
        """When each group that stays, and has words of a look, appears."""
        return [
            self.frames_of(group)[0][1]
            for group in self.groups
            if group.get("transform") is None and group.get("class") is None
            if any((node.get("class") or "").startswith(look) for node in group)
        ]

    def at_rest(self):
        """The classes and words that are seen where nothing moves, in their order."""
        return [
            (node.get("class"), node.text)
            for group in self.groups
            if group.get("transform") is None and group.get("class") is None
            for node in group.iter(f"{SVG}text")
        ]


def texts_of(source):
    """The classes and words of a picture."""
    root = ElementTree.fromstring(source)
    return [(node.get("class"), node.text) for node in root.iter(f"{SVG}text")]


def squeezed(text):
    return re.sub(r"\s+", "", text)


def said(recording):
    """All that was said, without spaces."""
    return "".join(
        ("\u276f" if message.role != "assistant" else "") + squeezed(message.text)
        for message in recording.messages
    )


# ---- both ----------------------------------------------------------------------------------


@BOTH
def test_follows_the_scheme_of_its_reader(render):
    dark, _, light = render(export_traces.chat()).partition("@media (prefers-color-scheme:light)")
    assert ".guess{fill:#AFFFAF}" in dark
    assert ".guess{fill:#005F87}" in light


@BOTH
def test_asks_nothing_of_the_network_and_runs_nothing(render):
    source = render(export_traces.chat()).replace('"http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|url\(|@import|@font-face|href|<script|<set|<animate", source)


@BOTH
@pytest.mark.parametrize("width", [24, 60, 100])
def test_nothing_lies_outside_the_picture(render, width):
    for recording in RECORDINGS:
        root = ElementTree.fromstring(render(recording, width))
        nodes = list(root.iter(f"{SVG}text"))
        for node in nodes:
            end = float(node.get("x")) + float(node.get("textLength", 0))
            assert end <= float(root.get("width"))
        assert float(nodes[-1].get("y")) < float(root.get("height"))


@BOTH
@pytest.mark.parametrize(
    "recording",
    [
        export_traces.saying(*export_traces.HOSTILE, asked="".join(export_traces.HOSTILE)),
        Recording.of(hostile_traces.MARKUP, hostile_traces.events()),
    ],
    ids=["texts", "names"],
)
def test_hostile_text_stays_text(render, recording):
    nodes = list(ElementTree.fromstring(render(recording)).iter())
    names = ("svg", "title", "style", "rect", "path", "text", "g")
    assert {node.tag for node in nodes} <= {SVG + name for name in names}
    assert not [n for node in nodes for n in node.attrib if n.startswith("on") or "href" in n]
    (style,) = (node.text for node in nodes if node.tag == f"{SVG}style")
    assert "alert" not in style
    groups = sum(node.tag == f"{SVG}g" for node in nodes)
    assert style.count("@keyframes") == groups


@settings(max_examples=60)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=4), st.integers(1, 90))
def test_any_text_in_any_width_gives_well_formed_pictures(texts, width):
    recording = export_traces.saying(*texts, asked="".join(texts))
    ElementTree.fromstring(picture(recording, width))
    ElementTree.fromstring(animation(recording, width))


# ---- the one that stands still -------------------------------------------------------------


def test_shows_all_that_was_said_a_legend_and_the_figures():
    recording = export_traces.chat()
    texts = [text for _, text in texts_of(picture(recording))]
    shown = "".join(map(squeezed, texts))
    assert all(squeezed(message.text) in shown for message in recording.messages)
    assert texts[-2:] == ["guessed", "the model's own"]
    assert sum("tokens/s" in text for text in texts) == len(recording.replies)


def test_a_guessed_word_has_the_tint_and_the_models_own_has_not():
    source = picture(export_traces.saying("kept"))
    assert {("guess", "kept"), ("plain", "!")} <= set(texts_of(source))


def test_runs_of_a_row_do_not_overlap():
    root = ElementTree.fromstring(picture(Recording.of("wide", make_fake.wide())))
    runs = [n for n in root.iter(f"{SVG}text") if n.get("textLength")]
    runs.sort(key=lambda node: (float(node.get("y")), float(node.get("x"))))
    for left, right in pairwise(runs):
        if left.get("y") == right.get("y"):
            end = float(left.get("x")) + float(left.get("textLength"))
            assert end <= float(right.get("x")) + 0.02


# ---- the one in motion ---------------------------------------------------------------------


@pytest.mark.parametrize("width", [24, 80])
@pytest.mark.parametrize("recording", RECORDINGS, ids=make_fake.TRACES)
def test_at_rest_every_word_of_the_chat_stands_there_in_order(recording, width):
    at_rest = Played(recording, width).at_rest()
    assert "".join(squeezed(text) for look, text in at_rest if look != "muted") == said(recording)


def test_a_round_appears_at_its_recorded_time_and_what_is_said_from_the_start():
    played = Played(export_traces.saying("one", "two", "three"))
    assert played.length == 3.5 + PAUSE_S
    assert played.appearing("said") == [0]
    assert played.appearing("guess") == pytest.approx([1.5, 2.5, 3.5], abs=1e-4)


def test_a_second_reply_comes_a_pause_after_the_first_and_begins_its_own_clock():
    recording = export_traces.chat()
    first, second = recording.replies
    start = first.stats.total_s + PAUSE_BETWEEN_REPLIES_S
    own = [round_.verdict.ts for round_ in first.rounds]
    own += [start + round_.verdict.ts for round_ in second.rounds]
    found = Played(recording)
    appearing = {*found.appearing("guess"), *found.appearing("plain")}
    assert sorted(appearing) == pytest.approx(own, abs=1e-3)


def test_one_line_of_figures_is_seen_at_a_time_and_the_last_one_is_the_replys():
    recording = export_traces.saying("one", "two", "three")
    played = Played(recording)
    lines = [group for group in played.groups if [n.get("class") for n in group] == ["muted"]]
    spans = [played.frames_of(group)[0][1:] for group in lines]
    assert [end for _, end in spans[:-1]] == [start for start, *_ in spans[1:]]
    assert [group.get("class") for group in lines] == ["ghost"] * (len(lines) - 1) + [None]
    told = ["".join(node.text for node in group.iter(f"{SVG}text")) for group in lines]
    words = [text.split() for text in told]
    assert words[-1][:2] == quiet_figures(recording.replies[0])[0].text.split()


def test_the_gain_over_plain_decoding_is_among_the_figures():
    events = [*export_traces.events_saying(["a", "b"], "?"), CostMeasured(9.0, 9, (1,), (1000.0,))]
    assert "1.3x the speed" in Played(Recording.of("x", events)).at_rest()[-1][1]


def test_a_long_chat_scrolls_so_that_the_row_being_written_is_in_the_window():
    played = Played(export_traces.saying(*["line\n"] * 30))
    assert float(played.root.find(f"{SVG}svg").get("height")) == HEIGHT * ROW
    (column,) = (group for group in played.groups if group.get("transform"))
    times, looks = played.frames_of(column)
    scrolled = [-int(look[len("transform:translateY(") : -3]) for look in looks]
    assert column.get("transform") == f"translate(0 {-scrolled[-1]})"
    assert (times[0], scrolled[0]) == (0, 0)
    for group in played.groups:
        if group.get("transform") is None and group.get("class") is None:
            at = played.frames_of(group)[0][1]
            gone = max(y for time, y in zip(times, scrolled, strict=True) if time <= at + 1e-9)
            for node in group.iter(f"{SVG}text"):
                if node.get("class") == "guess":
                    assert gone <= int(node.get("y")) <= gone + HEIGHT * ROW
    short = Played(export_traces.saying("short")).root.find(f"{SVG}svg")
    assert float(short.get("height")) < HEIGHT * ROW / 2


def test_nothing_moves_where_stillness_was_asked_for():
    style = Played(export_traces.chat()).root.find(f"{SVG}style").text
    still, moving = style.split("@media (prefers-reduced-motion:no-preference)")
    assert "animation:" not in still
    assert moving.startswith("{g{animation:")
    assert ".ghost{visibility:hidden}" in still


def test_a_round_without_text_of_its_own_draws_nothing():
    events = [
        GenerationStarted("target", "drafter"),
        PlainDecoded(1, 0.5, (EmittedToken(5, "", "plain", 0.5),), 40.0, 11),
        PlainDecoded(2, 1.0, (EmittedToken(6, "\u00e9", "plain", 0.5),), 40.0, 12),
    ]
    played = Played(Recording.of("x", events))
    assert played.appearing("plain") == pytest.approx([1.0], abs=1e-4)
    assert all(len(group) for group in played.groups)
