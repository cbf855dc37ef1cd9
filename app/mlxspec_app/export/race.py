"""A race as an animated picture, a page and a film: two recorded runs side by side on one clock.

Each lane is the animation of one run; both last as long as the slower one, so that they restart
together. The page holds the same picture, the outcome, and both texts.
"""

from html import escape
from pathlib import Path

from mlxspec_app.export import film
from mlxspec_app.export.filing import stem_of, write_whole
from mlxspec_app.export.looks import colours
from mlxspec_app.export.recording import Recording, chat_title
from mlxspec_app.export.scene import Piece, Scene
from mlxspec_app.export.svg import (
    ASCENT,
    HEAD,
    LEGEND,
    MARGIN,
    PAUSE_S,
    ROW,
    Animation,
    document,
    page_width,
    shapes,
    style,
)
from mlxspec_app.playback.race import Race, Track, lead
from mlxspec_app.text.safe_text import safe_line, safe_text
from mlxspec_app.user.files import free_path

LANE = 54  # cells
HOW = "recorded in turn, played on one clock"


def outcome(race: Race) -> tuple[str, str]:
    """Return two lines: which run was faster, with the only ratio, and whether the texts agree."""
    race.go_to(race.duration)
    return lead(race.tracks), race.agreement.line


def title_of_race(race: Race) -> str:
    """Return the prompt of the race, shortened, else the name of its target."""
    return chat_title(race.tracks[0].events) or race.tracks[0].target


def animation(race: Race) -> str:
    """Return the race as SVG that plays by itself, A on the left."""
    runs = [Recording.of(track.name, track.timeline_events) for track in race.tracks]
    scenes = [Scene(run, LANE, has_figures=False) for run in runs]
    length = max(scene.duration for scene in scenes) + PAUSE_S
    lanes = [
        Animation(scene, length, track.lane)
        for scene, track in zip(scenes, race.tracks, strict=True)
    ]
    high = max(lane.num_rows for lane in lanes) * ROW
    top = MARGIN + HEAD - ASCENT + ROW
    below = top + high + ASCENT + ROW
    body = [_lane(race.tracks[n], lane, n, (top, high)) for n, lane in enumerate(lanes)]
    lines = [Piece(0, safe_line(line), "muted") for line in (*outcome(race), HOW)]
    drawn = [*([line] for line in lines), LEGEND]
    body += [s for n, row in enumerate(drawn, 1) for s in shapes(row, below + n * ROW)]
    size = (2 * page_width(LANE), below + (len(drawn) + 1) * ROW)
    return document(title_of_race(race), size, style(lanes), body)


def _lane(track: Track, lane: Animation, number: int, window: tuple[int, int]) -> str:
    top, high = window
    wide = page_width(LANE)
    head = "".join(shapes([Piece(0, track.name[:LANE], "said")], top - 4))
    figures = "".join(lane.figure_lines(top + high + ASCENT))
    return (
        f'<svg x="{number * wide}" width="{wide}" height="{top + high + ROW}">{head}'
        f"{lane.window(top, wide, high)}{figures}</svg>"
    )


def cast(race: Race) -> str:
    """Return the race as a screencast for the terminal, asciicast v2."""
    lanes = [Recording.of(track.name, track.timeline_events) for track in race.tracks]
    return film.race(title_of_race(race), lanes, [*outcome(race), HOW])


def page(race: Race) -> str:
    """Return the race as one HTML file: the picture, the outcome and both texts."""
    title = escape(safe_line(title_of_race(race)))
    faster, agreement = (escape(safe_line(line)) for line in outcome(race))
    texts = "".join(_text(track) for track in race.tracks)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title} · mlxspec</title>\n<style>{_css()}</style></head>\n<body><main>"
        f"<h1>{title}</h1>\n<p>{faster}<br>{agreement}<br><small>{HOW}</small></p>\n"
        f"{animation(race)}<section>{texts}</section></main></body></html>\n"
    )


def file_away(race: Race, folder: Path) -> list[Path]:
    """Write page, picture and film under free names; return their paths."""
    # A copy: `outcome` moves the clock, and the given race may be playing.
    race = Race([Track(track.lane, track.events) for track in race.tracks], lambda: 0.0)
    stem = f"race-{stem_of(title_of_race(race))}"
    written = []
    for suffix, render in ((".html", page), (".animation.svg", animation), (".cast", cast)):
        path = free_path(folder, stem, suffix)
        write_whole(path, render(race), replaces=False)
        written.append(path)
    return written


def _text(track: Track) -> str:
    written = "\n\n".join(safe_text(reply.text) for reply in track.replies)
    name = escape(safe_line(track.name))
    return f"<article><h2>{name}</h2><pre>{escape(written)}</pre></article>\n"


def _css() -> str:
    day, mint = colours(dark=False), colours(dark=True)
    page, text = (f"light-dark({day[name]},{mint[name]})" for name in ("page", "text"))
    return (
        f":root{{color-scheme:light dark}}body{{margin:0;background:{page};color:{text};"
        "font:15px/1.55 system-ui,sans-serif}main{max-width:1080px;margin:0 auto;padding:24px}"
        "svg[role=img]{max-width:100%;height:auto}pre{white-space:pre-wrap}"
        "section{display:grid;gap:24px;grid-template-columns:repeat(auto-fit,minmax(300px,1fr))}"
    )
