"""The page in a real browser: opened once without a window, and clicked through by a script.

The script stands in a copy of the page, uses it as a reader would, and leaves a report in the
document, which the browser prints when its (virtual) time is over. The picture in motion is wound
to some times in the same way.
"""

import json
import os
import re
import subprocess
from html import unescape

import pytest

from mlxspec_app.conversation.views import CALM_INK, INKS
from mlxspec_app.export import html, svg
from mlxspec_app.export.looks import colours
from mlxspec_app.export.recording import Recording
from mlxspec_app.playback.timeline import Timeline
from tests.support import export_traces
from tests.support.browser import BROWSER, MISSING
from tests.traces import make_fake

pytestmark = pytest.mark.skipif(BROWSER is None, reason=MISSING)

WATCH = """<script>
const problems = [];
addEventListener("error", (event) => problems.push(String(event.message)));
addEventListener("securitypolicyviolation", (event) => problems.push(event.violatedDirective));
</script>"""

CLICK_THROUGH = """<pre id="report"></pre><script>
const report = {}, by = (id) => document.getElementById(id);
const click = (id) => { by(id).click(); return by("where").textContent; };
const press = (key, at = document.body) =>
  at.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const looks = (selector) => {
  const style = getComputedStyle(document.querySelector(selector));
  return [style.color, style.fontWeight, style.fontStyle, style.textDecorationLine].join(" ");
};
const point = (element) => {
  element.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
  return by("inspector").hidden ? "" : by("inspector").innerText;
};
async function clickThrough() {
  report.opened = by("where").textContent;
  report.previous = click("previous");
  report.later = document.querySelectorAll(".round.later").length;
  report.next = click("next");
  press("Home");
  report.rejections = [];
  for (let last = ""; last !== by("where").textContent;) {
    last = by("where").textContent;
    const now = click("next-rejection");
    if (now !== last) report.rejections.push(Number(now.split("/")[0]));
  }
  press("[");
  report.bracket = by("where").textContent;
  by("scrub").value = 2;
  by("scrub").dispatchEvent(new Event("input"));
  report.scrubbed = by("where").textContent;
  report.card = by("card").innerText;
  report.tree = [...document.querySelectorAll("#tree li:not(.heads):not(.lines)")]
    .map((row) => [row.className, row.querySelector(".label").textContent]);
  report.edges = document.querySelectorAll("#tree path").length;
  report.strip = document.querySelectorAll("#strip rect").length;
  press("End");
  report.inks = {};
  for (const ink of document.querySelectorAll("[name=ink]")) {
    ink.click();
    const legend = [...document.querySelectorAll(".legend")].filter((l) => l.offsetHeight > 0);
    report.inks[ink.value] = {
      corrected: looks(".token.provenance-corrected"),
      accepted: looks(".token.provenance-accepted"),
      band: getComputedStyle(document.querySelector(".round.band-a")).backgroundColor,
      legends: legend.map((l) => l.className),
    };
  }
  report.themes = {};
  for (const theme of ["light", "dark"]) {
    click(`theme-${theme}`);
    report.themes[theme] = getComputedStyle(document.body).backgroundColor;
  }
  const corrected = document.querySelector('.token.provenance-corrected:not([data-place="0"])');
  report.pointed = point(corrected);
  corrected.click();
  report.clicked = [by("where").textContent,
    corrected.closest(".round").classList.contains("now")];
  press("Escape");
  const first = document.querySelector("[data-round] .token");
  first.focus();
  report.focused = by("inspector").innerText;
  press("ArrowRight", first);
  report.walked = document.activeElement === document.querySelectorAll("[data-round] .token")[1];
  document.activeElement.blur();
  by("speed").value = "4";
  press("Home");
  const clock = performance.now();
  press(" ");
  report.playing = by("play").getAttribute("aria-label");
  await new Promise((done) => setTimeout(done, 150));
  report.played = Number(by("where").textContent.split("/")[0]);
  report.seconds = (performance.now() - clock) / 1000;
  click("play");
  report.paused = by("play").getAttribute("aria-label");
  report.hostile = [document.title, document.querySelectorAll("img").length];
  report.requests = performance.getEntriesByType("resource").map((entry) => entry.name);
}
clickThrough().catch((error) => problems.push(String(error))).finally(() => {
  report.problems = problems;
  by("report").textContent = JSON.stringify(report);
});
</script>"""

PLAY_TO = """<pre id="report"></pre><script>
const isSeen = (node) => getComputedStyle(node).visibility === "visible"
  && Number(getComputedStyle(node.parentElement).opacity) > 0;
const seen = (at) => {
  for (const animation of document.getAnimations()) {
    animation.pause();
    animation.currentTime = 1000 * at;
  }
  return [...document.querySelectorAll("svg svg text")].filter(isSeen)
    .map((text) => [text.getAttribute("class"), text.textContent]);
};
document.getElementById("report").textContent = JSON.stringify(%s.map(seen));
</script>"""


MEASURE = """<pre id="report"></pre><script>
const box = (label) => {
  const { left, right, top, bottom } = label.getBoundingClientRect();
  return { name: label.textContent, left, right, top, bottom };
};
document.getElementById("report").textContent = JSON.stringify({
  width: innerWidth,
  page: document.documentElement.scrollWidth,
  labels: [...document.querySelectorAll(".top label")].map(box),
});
</script>"""


@pytest.fixture(scope="module")
def recording():
    """A drafted tree, and then a reply that tries to break out of the page."""
    hostile = export_traces.events_saying(export_traces.HOSTILE, "now break it")
    return Recording.of("mixed", [*make_fake.tree(), *hostile])


@pytest.fixture(scope="module")
def report(recording, tmp_path_factory):
    source = html.render(recording).replace("<title>", WATCH + "<title>", 1)
    head, end = source.rsplit("</body>", 1)
    return reported(f"{head}{CLICK_THROUGH}</body>{end}", tmp_path_factory.mktemp("browser"))


def reported(source, folder, width=1400):
    """What the script of a page has left in it, in a window of some width."""
    page = folder / "page.html"
    page.write_text(source, encoding="utf-8")
    command = [
        BROWSER,
        "--headless",
        "--disable-gpu",
        "--no-zygote",
        f"--window-size={width},900",
        f"--user-data-dir={folder / 'profile'}",
        "--virtual-time-budget=4000",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
        "--dump-dom",
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, timeout=200)
    found = re.search(r'<pre id="report">(.*?)</pre>', done.stdout.decode(), re.DOTALL)
    assert found, done.stderr.decode()[-2000:]
    return json.loads(unescape(found[1]))


def rounds_of(recording):
    return [round_ for reply in recording.replies for round_ in reply.rounds]


def test_nothing_fails_and_nothing_is_fetched(report):
    assert report["problems"] == []
    assert report["requests"] == []
    assert report["hostile"] == ["mixed · mlxspec", 0]


def test_opens_with_everything_shown_and_steps_by_round(report, recording):
    total = len(rounds_of(recording))
    assert report["opened"].startswith(f"{total}/{total} ")
    assert report["strip"] == total
    assert report["previous"].startswith(f"{total - 1}/")
    assert report["later"] == 1
    assert report["next"] == report["opened"]


def test_steps_to_the_rejections_that_the_app_steps_to(report, recording):
    marks = Timeline(recording.events).rounds
    wanted = [number for number, mark in enumerate(marks, 1) if mark.is_rejection]
    assert report["rejections"] == wanted
    assert report["bracket"].startswith(f"{wanted[-1] - 1}/")


def test_draws_the_tree_of_the_round_that_is_scrubbed_to(report, recording):
    round_ = rounds_of(recording)[1]
    assert report["scrubbed"].startswith("2/")
    assert f"{len(round_.nodes)} drafted · kept {round_.accepted} +1" in report["card"]
    marks = [name for name, _ in report["tree"]]
    assert marks[0] == "root"
    assert marks.count("accepted") == round_.accepted
    assert len(marks) == len(round_.nodes) + 2  # and the root, and the model's own token
    assert report["edges"] == len(marks) - 1
    own = round_.verdict.emit[-1]
    assert report["tree"][-1] == [own.kind, own.text.strip()]


def test_every_ink_shows_its_colours_twins_and_legend(report):
    inks = report["inks"]
    assert list(inks) == [ink.name for ink in (CALM_INK, *INKS)]
    for ink in (CALM_INK, *INKS):
        assert inks[ink.name]["legends"] == [f"legend {ink.name}"]
    assert inks["provenance"]["corrected"].endswith("400 italic underline")
    assert inks["provenance"]["accepted"] != inks["exceptions"]["accepted"]
    assert inks["exceptions"]["corrected"] == inks["provenance"]["corrected"]
    assert inks["off"]["corrected"] == inks["off"]["accepted"] == inks["calm"]["corrected"]
    assert inks["calm"]["accepted"] != inks["calm"]["corrected"]
    assert inks["calm"]["band"] == inks["off"]["band"]
    assert inks["off"]["band"] == "rgba(0, 0, 0, 0)" != inks["provenance"]["band"]


def test_the_theme_can_be_chosen(report):
    pages = {"light": colours(dark=False)["page"], "dark": colours(dark=True)["page"]}
    assert report["themes"] == {
        theme: "rgb({}, {}, {})".format(*bytes.fromhex(page[1:])) for theme, page in pages.items()
    }


def test_a_token_under_the_pointer_is_explained_and_the_others_reached_by_keys(report, recording):
    number, round_ = next(
        (number, round_)
        for number, round_ in enumerate(rounds_of(recording), 1)
        if round_.accepted and round_.verdict.emit[-1].kind == "corrected"
    )
    said = report["pointed"]
    assert round_.verdict.emit[-1].text.strip() in said
    assert "corrected the model's own" in said
    assert f"{round_.verdict.emit[-1].target_prob:.3f}".lstrip("0") in said
    assert "in place of" in said
    assert "eagle" in said
    assert f"reply 1 · round {round_.verdict.r} · depth {round_.accepted + 1}" in said
    assert report["clicked"] == [report["clicked"][0], True]
    assert report["clicked"][0].startswith(f"{number}/")
    assert "round 1" in report["focused"]
    assert report["walked"]


def test_plays_in_recorded_time_and_pauses(report, recording):
    times = [round_.verdict.ts for round_ in recording.replies[0].rounds]
    reached = sum(ts <= report["seconds"] * 4 for ts in times)
    assert report["playing"] == "pause"
    assert report["paused"] == "play"
    assert 1 <= report["played"] <= reached


def test_the_picture_in_motion_shows_each_round_at_its_time(tmp_path):
    source = svg.animation(export_traces.saying("one", "two"))
    said, first, second = ["said", "\u276f a question"], ["guess", "one"], ["guess", "two"]
    own = ["plain", "!"]
    assert reported(source + PLAY_TO % [1.2, 1.7, 2.2, 6.0], tmp_path) == [
        [said],
        [said, first, own],
        [said, first, own],
        [said, first, own, second, own],
    ]


@pytest.mark.parametrize("width", [600, 768, 900, 1400])
def test_no_choice_of_an_ink_or_a_theme_lies_on_another_one(recording, tmp_path, width):
    head, end = html.render(recording).rsplit("</body>", 1)
    report = reported(f"{head}{MEASURE}</body>{end}", tmp_path, width)
    assert report["width"] == width
    assert report["page"] <= width
    labels = report["labels"]
    assert len(labels) == 1 + len(INKS) + len(("auto", "light", "dark"))
    for index, one in enumerate(labels):
        for other in labels[:index]:
            across = min(one["right"], other["right"]) - max(one["left"], other["left"])
            down = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
            assert min(across, down) <= 1, (one, other)
