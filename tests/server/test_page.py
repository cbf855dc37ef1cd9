"""The live page in a real browser, against a real server: asked, watched and raced by keys."""

import json
import re
from dataclasses import replace

import pytest

from mlxspec.trace.events import DraftProposed, GenerationFinished, TurnStarted
from mlxspec.trace.file import event_to_json
from mlxspec.trace.stats import GenerationStats
from mlxspec_app.export.looks import colours
from mlxspec_server.page.document import live_page
from tests.support import export_traces
from tests.support.browser import BROWSER, MISSING, browsing
from tests.support.served import MESSAGES, OTHER, listening, serving, shelf, true_text
from tests.support.truth import Target
from tests.traces import make_fake

HAS_BROWSER = pytest.mark.skipif(BROWSER is None, reason=MISSING)
CTRL = 2
NOTE_PROBLEMS = """
self.problems = [];
addEventListener("error", (event) => problems.push(String(event.message)));
addEventListener("unhandledrejection", (event) => problems.push(String(event.reason)));
addEventListener("securitypolicyviolation", (event) => problems.push(event.violatedDirective));
"""
CONTRASTS = """(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const levels = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const found = levels(getComputedStyle(e).backgroundColor);
      if (found[3] > 200) return found;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    const style = getComputedStyle(element);
    if (!walk.currentNode.textContent.trim() || !element.getClientRects().length) continue;
    if (element.closest(":disabled, script, style, .skip, .sign")) continue;
    const [a, b] = [light(levels(style.color)), light(behind(element))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), walk.currentNode.textContent.trim().slice(0, 30)]);
  }
  return found;
})()"""
UNNAMED = """[...document.querySelectorAll("button, input, select, textarea, [tabindex]")].filter(
  (element) => !(element.labels?.length || element.textContent.trim()
    || element.getAttribute("aria-label"))
).map((element) => element.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with browsing(tmp_path_factory.mktemp("browser")) as tab:
        tab.call("Page.addScriptToEvaluateOnNewDocument", source=NOTE_PROBLEMS)
        tab.see(1280)
        yield tab


@pytest.fixture(scope="module")
def server():
    with listening() as found:
        yield found


@pytest.fixture
def page(tab, server):
    """The page, which watches."""
    port, _ = server
    tab.see(1280)
    tab.open(f"http://127.0.0.1:{port}/")
    tab.until("by('state').textContent === 'watching'")
    yield tab
    assert tab.run("problems") == []


def publish(server, events, name="made-up"):
    for event in events:
        server[1].feed.publish("tiny", name, event)


def ask(page, text, most=10):
    page.run(f"by('most').value = {most}; by('prompt').value = ''; by('prompt').focus()")
    page.type(text)


def rgb(colour):
    return "rgb({}, {}, {})".format(*(int(colour[at : at + 2], 16) for at in (1, 3, 5)))


# ---- without a browser ----------------------------------------------------------------------


def test_the_page_is_one_file_that_allows_no_other_script():
    source = live_page()
    assert not re.search(r"(src|href)=[\"'](?!#|data:)", source.split("<script>")[0])
    assert "://" not in re.sub(r"http://www\.w3\.org/\S+", "", source)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', source)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    with serving(api_key="secret") as client:
        found = client.get("/")
    assert found.text == source
    assert found.headers["content-security-policy"] == "frame-ancestors 'none'"


# ---- in a browser ---------------------------------------------------------------------------


@HAS_BROWSER
def test_a_prompt_sent_by_keys_shows_the_text_of_the_target(page):
    ask(page, "Hi")
    page.press("Enter", 13, CTRL)
    page.until("replies.shown?.state === ENDED && !asking && painter.isOver")
    shown = page.run("by('text').textContent")
    assert shown == page.run(f"shownText({json.dumps(true_text(MESSAGES))})")
    assert page.run("by('about').textContent") == "tiny ◂ pool · 10 tokens"
    assert page.run("document.querySelectorAll('#replies .row').length") == 1
    loaded = page.run("performance.getEntriesByType('resource').map((one) => one.name)")
    assert {name.split("/", 3)[3] for name in loaded} <= {
        "v1/events",
        "v1/models",
        "v1/chat/completions",
    }


@HAS_BROWSER
def test_the_model_that_is_chosen_answers(page):
    names = "[...by('model').options].map((one) => one.value)"
    assert page.run(names) == ["tiny", "other"]
    assert not page.run("by('model-box').hidden")
    page.run("by('model').focus()")
    page.press("ArrowDown", 40)
    ask(page, "Hi")
    page.press("Enter", 13, CTRL)
    page.until("replies.shown?.state === ENDED && !asking && painter.isOver")
    page.until("by('about').textContent === 'other ◂ pool · 10 tokens'")
    own = true_text(MESSAGES, Target(OTHER))
    assert page.run("by('text').textContent") == page.run(f"shownText({json.dumps(own)})")


@HAS_BROWSER
def test_a_server_that_comes_back_is_watched_again(tab):
    with listening() as (port, server):
        tab.open(f"http://127.0.0.1:{port}/")
        tab.until("by('state').textContent === 'watching'")
        tab.run("{ const real = setTimeout; self.setTimeout = (act, ms) => real(act, ms / 20); }")
        events = [event for event in make_fake.tree() if not isinstance(event, TurnStarted)]
        publish((port, server), events[:9], "cut")
        tab.until("replies.shown?.rounds.length > 1")
        tab.run("by('model').value = 'other'")
    tab.until("by('state').textContent === 'the server does not answer; trying again …'")
    tab.until("by('end').textContent === 'failed: out of sight: the stream was cut off'")
    late = [event for event in events[:-1] if getattr(event, "r", 0) > 5]
    with listening(port=port) as (_, server):
        tab.until("by('state').textContent === 'watching'")
        publish((port, server), [events[0], *late], "cut")
        tab.until("by('end').textContent === 'being written'")
        assert "seen from the middle on" in tab.run("by('about').textContent")
        assert tab.run("by('model').value") == "other"


@HAS_BROWSER
def test_tokens_have_their_colours_and_figures_are_those_of_the_library(page, server):
    events = [event for event in make_fake.tree() if not isinstance(event, TurnStarted)]
    end = next(n for n, event in enumerate(events) if isinstance(event, GenerationFinished))
    publish(server, events[:end])
    emitted = [token for event in events[:end] for token in getattr(event, "emit", ())]
    page.until(f"replies.shown?.figures.tokens === {len(emitted)}")
    kinds = "[...document.querySelectorAll('#text .token')].map((one) => one.classList[1])"
    page.until(f"{kinds}.length === {len(emitted)}")
    assert page.run(kinds) == [token.kind for token in emitted]
    stats = GenerationStats()
    for event in events[:end]:
        stats.add(event)
    figures = page.run("(({tps, guessed, perForward}) => [tps, guessed, perForward])"
                       "(replies.shown.figures)")  # fmt: skip
    share = stats.kinds["accepted"] / stats.generated_tokens
    wanted = [stats.generation_tps, share, stats.generated_tokens / stats.target_forwards]
    assert figures == pytest.approx(wanted)
    assert page.run("by('guessed').textContent") == f"{round(100 * share)}\xa0%"
    draft = [event for event in events[:end] if isinstance(event, DraftProposed)][-1]
    marks = page.run("[...document.querySelectorAll('#tree li')].map((one) => one.className)")
    drawn = [mark for mark in marks if mark in ("accepted", "rejected", "skipped")]
    assert len(drawn) == len(draft.nodes)
    for scheme, is_dark in (("light", False), ("dark", True)):
        page.see(1280, scheme=scheme)
        for kind, tint in (("accepted", "guess"), ("corrected", "plain")):
            look = f"getComputedStyle(document.querySelector('#text .{kind}')).color"
            assert page.run(look) == rgb(colours(dark=is_dark)[tint])
    page.see(1280)
    page.run("by('theme-dark').click()")
    background = page.run("getComputedStyle(document.body).backgroundColor")
    assert background == rgb(colours(dark=True)["page"])
    publish(server, [replace(events[end], text=" the rest")])
    page.until("by('end').textContent.startsWith('ended')")
    assert page.run("by('text').textContent").endswith(" the rest")


@HAS_BROWSER
def test_text_of_a_reply_is_never_markup(page, server):
    publish(server, export_traces.events_saying(export_traces.HOSTILE, "break it")[1:], "hostile")
    page.until("replies.shown?.state === ENDED && painter.isOver")
    assert page.run("document.querySelectorAll('img, #text script').length") == 0
    assert page.run("/[\\u202e\\u2028\\x1b]/.test(by('text').textContent)") is False
    assert page.run("document.title") == "live · mlxspec"


@HAS_BROWSER
def test_a_race_says_which_came_first_and_whether_both_said_the_same(page):
    ask(page, "Hi")
    page.run("by('race').focus()")
    page.press("Enter", 13)
    assert page.until("by('verdict').textContent") == "identical: 10 of 10 tokens"
    assert "x the speed" in page.run("by('race-state').textContent")
    assert "one after the other" in page.run("by('race-note').textContent")
    texts = "[...document.querySelectorAll('.lane .text')].map((one) => one.textContent)"
    first, second = page.run(texts)
    assert first == second == page.run(f"shownText({json.dumps(true_text(MESSAGES))})")
    drafters = page.run("lanes.map((lane) => lane.painter.reply.drafter)")
    assert drafters == ["pool", "none"]
    page.run("by('again').click()")
    page.until("!asking")
    assert page.run(texts) == [first, second]
    page.run("by('race').click()")
    assert "was asked before" in page.until("by('race-note').textContent")


@HAS_BROWSER
def test_no_other_script_runs_and_no_other_server_is_reached(page):
    page.run("""
      const script = document.createElement("script");
      script.textContent = "self.ran = true";
      document.body.append(script);
      document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='self.ran = true'>");
      fetch("http://127.0.0.1:9/").catch(() => { self.refused = true; });
    """)
    page.until("self.refused && problems.length >= 3")
    assert page.run("self.ran") is None
    kinds = {"script-src-elem", "script-src-attr", "img-src", "connect-src"}
    assert set(page.run("problems.splice(0)")) <= kinds


@HAS_BROWSER
def test_a_race_that_differs_says_where(page):
    told = page.run("""
      (() => {
        const made = (name, tokens) => [name, { isWhole: true, tokens }];
        const seen = { all: new Map([made("a", [5, 6, 7]), made("b", [5, 6, 8, 9])]) };
        return verdictOf({ name: "a", tokens: 3 }, { name: "b", tokens: 4 }, seen).words;
      })()""")
    assert told.startswith("different from token 3 of 4 on")


@HAS_BROWSER
def test_where_there_is_a_key_the_page_asks_for_it(tab):
    with listening(shelf(list_offers=tuple), api_key="secret") as (port, _):
        tab.open(f"http://127.0.0.1:{port}/")
        tab.until("!by('key-form').hidden")
        for typed, note in (
            ("wrong", "this key is not the one of the server"),
            ("schlüssel", "a key has letters, digits and signs of ASCII, and no spaces"),
        ):
            tab.run("by('key').value = ''; by('key').focus()")
            tab.type(typed)
            tab.press("Enter", 13)
            tab.until(f"by('key-note').textContent === {json.dumps(note)}")
        tab.run("by('key').value = ''; by('key').focus()")
        tab.type("secret")
        tab.press("Enter", 13)
        tab.until("by('key-form').hidden && by('state').textContent === 'watching'")
        assert tab.run("by('model-box').hidden")  # one model is no choice
        ask(tab, "Hi")
        tab.press("Enter", 13, CTRL)
        tab.until("replies.shown?.state === ENDED")


@HAS_BROWSER
@pytest.mark.parametrize("width", [390, 1280])
def test_everything_is_readable_and_has_a_name_in_both_schemes(page, server, width):
    events = [event for event in make_fake.tree() if not isinstance(event, TurnStarted)]
    publish(server, events, f"seen at {width}")
    page.until(f"replies.all.has('seen at {width}') && painter.painted")
    page.run("for (const id of ['race-box', 'key-form', 'again', 'stop']) by(id).hidden = false")
    page.run("by('note').textContent = by('key-note').textContent = 'a note'")
    page.run("by('verdict').textContent = 'identical: 10 of 10 tokens'")
    assert page.run(UNNAMED) == []
    for scheme in ("light", "dark"):
        page.see(width, scheme=scheme)
        assert page.run("document.documentElement.scrollWidth") <= width
        contrasts = page.run(CONTRASTS)
        assert len(contrasts) > 40
        assert [found for found in contrasts if found[0] < 4.5] == []


@HAS_BROWSER
def test_lost_events_and_a_reply_seen_from_its_middle_are_said(page):
    events = [event for event in make_fake.tree() if not isinstance(event, TurnStarted)]
    begun, late = events[0], [event for event in events[:-1] if getattr(event, "r", 0) > 3]
    lines = ",".join(event_to_json(event) for event in (begun, *late))
    page.run(f"for (const event of [{lines}]) replies.add({{model: 'm', reply: 'late', event}})")
    page.run("replies.lose(7); changed()")
    page.until("by('about').textContent.includes('seen from the middle on')")
    assert "7 events of the server were lost" in page.run("by('about').textContent")
    assert page.run("by('text').textContent").startswith("… ")
