"""The page, read as text: what it says, what it embeds, and that nothing can break out of it."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec.trace.events import GenerationFailed, GenerationStarted
from mlxspec.trace.file import event_from_json
from mlxspec_app.conversation.views import CALM_INK, INKS
from mlxspec_app.export import html
from mlxspec_app.export.recording import Recording
from mlxspec_app.text.safe_text import safe_text
from tests.support import export_traces
from tests.traces import make_fake

HARMFUL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


class Page(HTMLParser):
    """The elements of a page: tags with attributes, and the text of articles and scripts."""

    def __init__(self, source):
        super().__init__()
        self.tags = []
        self.texts = {"tokens": [], "said": [], "trace": []}
        self._inside = None
        self._depth = 0
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        classes = (dict(attrs).get("class") or "").split()
        if tag == "div" and "text" in classes:
            self._inside = "tokens" if "tokens" in classes else "said"
            self.texts[self._inside].append("")
        elif dict(attrs).get("id") == "trace":
            self._inside = "trace"
            self.texts["trace"].append("")

    def handle_endtag(self, tag):
        if tag in ("div", "script"):
            self._inside = None

    def handle_data(self, data):
        if self._inside is not None:
            self.texts[self._inside][-1] += data

    @property
    def trace(self):
        return [event_from_json(line) for line in self.texts["trace"][0].split("\n") if line]


def page_of(recording):
    return Page(html.render(recording))


def test_holds_the_text_of_every_reply_and_question_in_order():
    page = page_of(export_traces.chat())
    assert page.texts["tokens"] == [make_fake.PROSE, make_fake.CODE]
    assert [text.split()[0] for text in page.texts["said"]] == ["Explain", "Write"]


def test_every_token_names_its_style_in_every_ink_and_its_place():
    recording = export_traces.saying("one")
    spans = [attrs for tag, attrs in page_of(recording).tags if tag == "span"]
    tokens = [attrs for attrs in spans if (attrs.get("class") or "").startswith("token")]
    assert [attrs["data-place"] for attrs in tokens] == ["0", "1"]
    for span, attrs in zip(recording.replies[0].spans, tokens, strict=True):
        styles = {f"{ink.name}-{ink.style_of(span)}" for ink in (CALM_INK, *INKS)}
        shown = set(attrs["class"].split()) - {"token"}
        assert shown == {style for style in styles if not style.endswith("-plain")}


def test_rounds_are_numbered_through_all_replies_and_have_a_row_in_a_table():
    recording = export_traces.chat()
    total = sum(len(reply.rounds) for reply in recording.replies)
    source = html.render(recording)
    numbers = [attrs["data-round"] for _, attrs in Page(source).tags if "data-round" in attrs]
    assert numbers == [str(number) for number in range(total)]
    bars = re.findall(r'<th scope="row">[^<]*</th><td class="bar">', source)
    assert source.count('<th scope="row">') - len(bars) == total


def test_long_fractions_of_the_embedded_trace_are_rounded():
    events = export_traces.events_saying(["x"], "?")
    events[3] = replace(events[3], ms=1 / 3)
    kept = page_of(Recording.of("t", events)).trace[3].ms
    assert kept != 1 / 3
    assert kept == pytest.approx(1 / 3)


def test_asks_nothing_of_the_network():
    source = html.render(export_traces.chat())
    reaching = ("@import", "url(", "fetch(", "XMLHttpRequest", "sendBeacon", "WebSocket", "import(")
    assert [sign for sign in reaching if sign in source] == []
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", source)
    page = Page(source)
    assert not [tag for tag, _ in page.tags if tag in ("img", "link", "iframe", "audio", "base")]
    assert not [attrs for _, attrs in page.tags if "src" in attrs]
    policy = [attrs["content"] for _, attrs in page.tags if "http-equiv" in attrs]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"]


def test_hostile_text_stays_text():
    recording = export_traces.saying(*export_traces.HOSTILE, asked="".join(export_traces.HOSTILE))
    plain = page_of(export_traces.saying(*["x"] * len(export_traces.HOSTILE)))
    source = html.render(recording)
    page = Page(source)
    assert page.texts["tokens"] == [safe_text(recording.replies[0].text)]
    assert page.texts["said"] == [safe_text("".join(export_traces.HOSTILE))]
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert HARMFUL.findall(source) == []
    assert tuple(page.trace) == recording.events


@pytest.mark.parametrize("text", ["</script x", "</SCRIPT/", "<!--<script ", "a & b \x7f"])
def test_no_drafted_token_ends_the_script_that_holds_the_trace(text):
    """A browser ends a script at its name and a space, where this file's parser wants a bracket."""
    recording = export_traces.saying(text)
    source = html.render(recording)
    begun = source[source.index(">", source.index('id="trace"')) + 1 :]
    inside = re.split(r"</script[\s/>]", begun, maxsplit=1, flags=re.IGNORECASE)[0]
    assert not set("<>&\x7f") & set(inside)
    lines = [line for line in inside.split("\n") if line]
    assert tuple(map(event_from_json, lines)) == recording.events


def test_hostile_names_and_titles_stay_text():
    bad = "<blink>&\x1b[2J\u202e"
    started = GenerationStarted(bad, bad, device=bad, lossless=bad, weights=bad, cache=bad)
    events = [started if isinstance(e, GenerationStarted) else e for e in make_fake.tree()]
    source = html.render(Recording.of(bad, events))
    assert HARMFUL.findall(source) == []
    assert "blink" not in {tag for tag, _ in Page(source).tags}


@settings(max_examples=25)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=4))
def test_any_text_comes_out_as_the_app_shows_it_with_the_whole_trace(texts):
    recording = export_traces.saying(*texts)
    page = page_of(recording)
    spans = recording.replies[0].spans
    assert "".join(page.texts["tokens"]) == "".join(safe_text(span.text) for span in spans)
    assert tuple(page.trace) == recording.events


def test_figures_are_those_of_the_statistics():
    recording = export_traces.chat()
    source = html.render(recording)
    stats = recording.replies[0].stats
    for reached, of_all in zip(
        stats.acceptance_given_reached, stats.acceptance_by_depth, strict=True
    ):
        assert f"<td>{of_all:.0%}</td><td>{reached:.0%}</td>" in source
    assert f"{stats.generation_tps:.0f} tokens/s" in source


def test_a_loop_is_left_out_of_the_average_of_a_session():
    good = export_traces.events_saying(["a", "b"], "well?")
    loop = export_traces.events_saying(["c"] * 50, "and?")
    loop[-1] = replace(loop[-1], reason="repeating")
    alone = html.render(Recording.of("one", good))
    both = html.render(Recording.of("two", [*good, *loop]))
    tiles = re.compile(r'<dl class="tiles">.*?</dl>', re.DOTALL)
    assert tiles.search(both)[0] == tiles.search(alone)[0]
    assert "All replies except loops" in both
    assert "but loops" not in alone
    assert "100 tokens" in html.render(Recording.of("three", loop))  # a session of loops alone


def test_a_reply_that_broke_off_says_so():
    *events, _ = export_traces.events_saying(["x"], "why?")
    source = html.render(Recording.of("t", [*events, GenerationFailed(0.2, "<out of memory>")]))
    assert "the reply was cut off: &lt;out of memory&gt;" in source


def test_every_style_of_every_ink_has_a_rule():
    source = html.render(export_traces.chat())
    classes = [(attrs.get("class") or "").split() for _, attrs in Page(source).tags]
    used = {name for names in classes if names[:1] == ["token"] for name in names[1:]}
    assert used
    assert [name for name in used if f".{name}{{" not in source] == []
