"""`mlxspec race`: play two recordings side by side; needs neither MLX nor a model.

Without a terminal the exit code is 1 if the texts differ or cannot be compared.
"""

import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from mlxspec_app.playback.race import Race, acceptance, lead, open_race
from mlxspec_cli.output import can_draw


def run(args: Namespace) -> int:
    """Open the app on two traces, or print the result of the race."""
    race = open_race((args.a, args.b), clock=time.monotonic)
    wanted = {"page": args.html, "animation": args.animation, "cast": args.cast}
    for name, out in wanted.items():
        if out is not None:
            _write(out, race, name, replaces=args.force)
    if any(wanted.values()):
        return 0
    return show_race(race, is_plain=args.plain)


def show_race(race: Race, *, is_plain: bool) -> int:
    """Play a race on the screen, or print its result; return the exit code."""
    if not is_plain and can_draw():
        from mlxspec_app.run import run_race
        from mlxspec_app.user_data import find_user_data

        return run_race(race, user_data=find_user_data())
    for line in outcome_lines(race):
        print(line)
    return 0 if race.agreement.kind in ("identical", "sampled") else 1


def _write(out: str, race: Race, name: str, *, replaces: bool) -> None:
    from mlxspec_app.export import race as export
    from mlxspec_app.export.filing import taken, write_whole

    text: str = getattr(export, name)(race)
    try:
        write_whole(Path(out), text, replaces=replaces)
    except FileExistsError as error:
        raise ValueError(taken(out)) from error


def outcome_lines(race: Race) -> Iterator[str]:
    """Yield the figures of both runs, which was faster, and the agreement."""
    race.go_to(race.duration)
    for track in race.tracks:
        figures = f"{track.tokens} tokens · {track.stats.generation_tps:.1f} tokens/s"
        rest = f"{acceptance(track.stats)} · {track.at:.2f} s"
        yield f"{track.name}: {track.target}, {track.drafter}: {figures} · {rest}"
    yield lead(race.tracks)
    yield race.agreement.line
