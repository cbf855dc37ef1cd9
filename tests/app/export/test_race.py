"""A race as a page, a moving picture and a film for the terminal."""

import json
import re
from xml.etree import ElementTree

import pytest

from mlxspec.trace.file import TraceWriter
from mlxspec_app.export import race as export
from mlxspec_app.playback.race import Race, Track
from mlxspec_cli.main import main
from tests.support import export_traces, hostile_traces
from tests.support.race_driver import NUM_TOKENS, PLAIN, TREE, racing
from tests.traces import make_fake


def race(a=PLAIN, b=TREE):
    return Race([Track("A", a), Track("B", b)], lambda: 0.0)


@pytest.mark.parametrize("render", [export.page, export.animation, export.cast])
def test_it_says_the_outcome_with_one_ratio_and_how_it_was_recorded(render):
    text = render(race())
    assert f"identical: {NUM_TOKENS} of {NUM_TOKENS} tokens" in text
    assert "recorded in turn, played on one clock" in text
    assert len(set(re.findall("[0-9.]+x the speed|\u00d7[0-9.]+", text))) == 1
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_both_lanes_move_by_keyframes_of_their_own_and_restart_together():
    text = export.animation(race())
    names = re.findall(r"@keyframes (\w+)", text)
    assert len(names) == len(set(names))
    assert {name[0] for name in names} == {"A", "B"}
    assert set(re.findall(r"animation-name:(\w+)", text)) <= set(names)
    assert len(re.findall(r"step-end infinite", text)) == 1


def screen_of(film, until=float("inf")):
    """The rows of a terminal that has shown a film up to a time."""
    header, *frames = map(json.loads, film.splitlines())
    screen = [[" "] * header["width"] for _ in range(header["height"])]
    row = column = 0
    for at, _, text in frames:
        for move, where, written in re.findall(
            r"(\x1b\[([\d;]*)[HJm])?([^\x1b]*)", text if at <= until else ""
        ):
            if move.endswith("H"):
                row, column = (int(part) - 1 for part in where.split(";"))
            for character in written:
                screen[row][column] = character
                column += 1
    return ["".join(cells) for cells in screen]


def test_the_film_has_both_texts_side_by_side_at_their_own_pace():
    film = export.cast(race())
    at = [json.loads(line)[0] for line in film.splitlines()[1:]]
    assert at == sorted(at)
    end = screen_of(film)
    for n in (0, 52):
        lane = [row[n : n + 48].rstrip() for row in end[3:19]]
        assert " ".join(" ".join(lane).split()) == " ".join(make_fake.PROSE.split())
    assert re.fullmatch("model alone +with guesses *", end[1])
    assert end[19].strip() == ""
    half = screen_of(film, until=0.6)
    plain, drafted = ("".join(row[n : n + 48] for row in half[3:19]).split() for n in (0, 52))
    assert len(drafted) > len(plain) > 0
    assert "identical" not in "".join(half)


def test_a_lane_that_scrolls_keeps_nothing_of_a_longer_row():
    events = export_traces.events_saying([f"{'x' * (n * 7 % 40)}\n" for n in range(40)], "?")
    runs = race(events, events)
    rows = runs.tracks[0].replies[0].text.split("\n")[-16:]
    assert [row[:48].rstrip() for row in screen_of(export.cast(runs))[3:19]] == rows


def test_text_of_a_model_stays_text():
    events = list(hostile_traces.events())
    runs = race(events, events)
    ElementTree.fromstring(export.animation(runs))
    assert "<script" not in export.page(runs)
    assert {len(row) for row in screen_of(export.cast(runs))} == {100}


def test_the_command_writes_both_and_keeps_what_is_there(tmp_path, capsys):
    traces = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path, events in zip(traces, (PLAIN, TREE), strict=True):
        with TraceWriter(path) as writer:
            for event in events:
                writer.write(event)
    page, picture, film = (tmp_path / f"race.{end}" for end in ("html", "svg", "cast"))
    words = ["race", *map(str, traces), "--html", str(page), "--animation", str(picture)]
    words += ["--cast", str(film)]
    assert main(words) == 0
    assert json.loads(film.read_text(encoding="utf-8").splitlines()[0])["version"] == 2
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    assert main(words) == 2
    assert "already exists" in capsys.readouterr().err


async def test_a_key_writes_the_race_from_its_screen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with racing() as driver:
        now = driver.race.playhead.now
        await driver.press("e")
        await driver.pilot.app.workers.wait_for_complete()
        assert driver.race.playhead.now == now
    assert sorted("".join(path.suffixes) for path in tmp_path.iterdir()) == [
        ".animation.svg",
        ".cast",
        ".html",
    ]
