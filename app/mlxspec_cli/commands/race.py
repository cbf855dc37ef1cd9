"""`mlxspec race`: play two recordings side by side; needs neither MLX nor a model.

With `--plain`, or without a terminal, it prints the result instead. The exit code is then 1 if the
texts differ or cannot be compared, for use in scripts.
"""

import time
from argparse import Namespace
from collections.abc import Iterator

from mlxspec_app.playback.compare import Verdict, compare
from mlxspec_app.playback.race import Race, acceptance, lead, open_race
from mlxspec_cli.output import can_draw


def run(args: Namespace) -> int:
    """Open the app on two traces, or print the result of the race.

    Raises:
        TraceError: A file cannot be read, is no trace, or has no reply.
    """
    race = open_race((args.a, args.b), clock=time.monotonic)
    if not args.plain and can_draw():
        from mlxspec_app.run import open_user_data, run_race

        return run_race(race, user_data=open_user_data())
    verdict = compare(*(track.events for track in race.tracks))
    for line in outcome_lines(race, verdict):
        print(line)
    return 0 if verdict.kind in ("identical", "sampled") else 1


def outcome_lines(race: Race, verdict: Verdict) -> Iterator[str]:
    """Yield the figures of both runs, which was faster, and the verdict."""
    race.go_to(race.duration)
    for track, progress in zip(race.tracks, race.progress(), strict=True):
        parts = [
            f"{progress.tokens} tokens",
            f"{progress.generation_tps:.1f} tok/s",
            acceptance(progress),
            f"{progress.at:.2f} s",
        ]
        yield f"{track.lane}: {track.target}, {track.name}: {' · '.join(parts)}"
    yield lead(race.progress())
    yield verdict.line
