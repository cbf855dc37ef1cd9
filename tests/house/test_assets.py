"""The recordings that come with the project, and the pictures drawn from them."""

import importlib.util

import pytest

from mlxspec.trace.events import CostMeasured, GenerationFinished
from mlxspec.trace.file import read_trace
from mlxspec_app.playback.compare import compare
from mlxspec_app.playback.race import Track
from tests.support.paths import ROOT

ASSETS = ROOT / "assets"
MOST_BYTES = 150_000


def script(name):
    """A program of the folder, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ASSETS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NAMES = list(script("record").CHATS)


def test_every_recording_can_be_made_anew():
    assert {path.stem for path in ASSETS.glob("*.jsonl")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_small_and_whole(name):
    path = ASSETS / f"{name}.jsonl"
    assert path.stat().st_size < MOST_BYTES
    events = [event for event in read_trace(path) if not isinstance(event, CostMeasured)]
    assert isinstance(events[-1], GenerationFinished)


def kinds(name):
    emitted = (getattr(e, "emit", ()) for e in read_trace(ASSETS / f"{name}.jsonl"))
    return {token.kind for tokens in emitted for token in tokens}


def test_the_sampled_one_shows_every_kind_of_token_and_the_rotating_one_more_than_its_cache_holds():
    sampled, rotating = (
        Track.from_file("A", ASSETS / f"{n}.jsonl") for n in ("sampling", "rotating")
    )
    assert sampled.replies[0].started.sampling["temperature"] > 0
    assert kinds("sampling") >= {"accepted", "corrected", "bonus"}
    assert rotating.replies[0].started.cache.startswith("rotating 128")
    assert rotating.total > 128


def test_the_code_was_written_with_and_without_drafts_and_is_the_same():
    drafted, plain = (list(read_trace(ASSETS / f"{n}.jsonl")) for n in ("code", "code-plain"))
    assert compare(drafted, plain).kind == "identical"
    assert kinds("code-plain") == {"plain"}


async def test_a_picture_shows_the_app_and_loads_nothing():
    svg = await script("make_screenshot").PICTURES["race"]()
    assert "recorded in turn" in svg.replace("&#160;", " ")
    assert "url(http" not in svg
    assert "@import" not in svg


async def test_the_readme_begins_with_the_race_as_it_is_drawn_today():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first = readme.split("![", 1)[1].split("(", 1)[1].split(")")[0]
    assert first == "assets/race.animation.svg"
    drawn = (ROOT / first).read_text(encoding="utf-8")
    is_current = drawn == await script("make_screenshot").PICTURES["race.animation"]()
    assert is_current, "draw it anew: python assets/make_screenshot.py race.animation"
    assert len(drawn.encode()) < MOST_BYTES


def test_every_picture_is_drawn_by_the_script_and_shown_on_a_page():
    pages = "".join(
        path.read_text("utf-8") for path in (ROOT / "README.md", *ROOT.glob("docs/*.md"))
    )
    names = {path.stem for path in ASSETS.glob("*.svg")}
    assert names == set(script("make_screenshot").PICTURES)
    assert [name for name in names if f"assets/{name}.svg)" not in pages] == []
