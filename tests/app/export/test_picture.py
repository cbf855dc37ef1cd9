"""The picture: well-formed, complete, coloured with twins, and asking nothing of the network."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec_app.export.recording import Recording
from mlxspec_app.export.svg import picture
from tests.support import export_traces, hostile_traces
from tests.traces import make_fake

SVG = "{http://www.w3.org/2000/svg}"


def texts_of(source):
    return [
        (node.get("class"), node.text) for node in ElementTree.fromstring(source).iter(f"{SVG}text")
    ]


def words(text):
    return [word for word in re.split(r"\s+", text) if word]


def test_shows_every_character_of_the_chat():
    recording = export_traces.chat()
    shown = "".join(word for _, text in texts_of(picture(recording)) for word in words(text))
    for message in recording.messages:
        assert "".join(words(message.text)) in shown


def test_a_token_has_the_class_of_its_kind_and_each_class_its_twin():
    source = picture(export_traces.saying("kept"))
    assert ("accepted", "kept") in texts_of(source)
    assert ("bonus", "!") in texts_of(source)
    rules = re.search(r"<style>(.*?)</style>", source, re.DOTALL)[1]
    assert ".corrected{font-weight:700;text-decoration:underline;}" in rules
    assert ".bonus{font-style:italic;}" in rules


def test_follows_the_scheme_of_its_reader():
    source = picture(export_traces.chat())
    dark, light = source.split("@media (prefers-color-scheme:light)")
    assert ".accepted{fill:#AFFFAF}" in dark
    assert ".accepted{fill:#005F5F}" in light


def test_asks_nothing_of_the_network():
    source = picture(export_traces.chat()).replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|url\(|@import|@font-face|href", source)


def test_holds_a_legend_and_the_figures():
    recording = export_traces.chat()
    shown = [text for _, text in texts_of(picture(recording))]
    assert {"✓ accepted", "→ corrected", "✚ bonus", "· plain"} <= set(shown)
    assert sum("tokens/s" in text for text in shown) == len(recording.replies)


@pytest.mark.parametrize("width", [24, 60, 100])
def test_nothing_lies_outside_the_picture(width):
    for trace in make_fake.TRACES:
        root = ElementTree.fromstring(
            picture(Recording.of(trace, make_fake.TRACES[trace]()), width)
        )
        wide, high = float(root.get("width")), float(root.get("height"))
        for node in root.iter(f"{SVG}text"):
            assert float(node.get("x")) + float(node.get("textLength", 0)) <= wide
            assert float(node.get("y")) < high


def test_runs_of_a_row_do_not_overlap():
    root = ElementTree.fromstring(picture(Recording.of("wide", make_fake.wide())))
    runs = [n for n in root.iter(f"{SVG}text") if n.get("textLength")]
    runs.sort(key=lambda node: (float(node.get("y")), float(node.get("x"))))
    for left, right in pairwise(runs):
        if left.get("y") == right.get("y"):
            end = float(left.get("x")) + float(left.get("textLength"))
            assert end <= float(right.get("x")) + 0.02


def test_hostile_text_stays_text():
    recording = export_traces.saying(*export_traces.HOSTILE, asked="".join(export_traces.HOSTILE))
    root = ElementTree.fromstring(picture(recording))
    assert {node.tag for node in root.iter()} == {
        SVG + name for name in ("svg", "title", "style", "rect", "path", "text")
    }


def test_a_hostile_recording_is_text_alone():
    source = picture(Recording.of(hostile_traces.MARKUP, hostile_traces.events()))
    root = ElementTree.fromstring(source)
    assert {node.tag for node in root.iter()} == {
        SVG + name for name in ("svg", "title", "style", "rect", "path", "text")
    }
    assert not any(
        name.startswith("on") or "href" in name for node in root.iter() for name in node.attrib
    )
    assert "alert" not in root.find(f"{SVG}style").text


@settings(max_examples=60)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=4))
def test_any_text_gives_a_well_formed_picture(texts):
    ElementTree.fromstring(picture(export_traces.saying(*texts, asked="".join(texts))))
