"""Chooses a drafter by tokens per second, measured on this machine.

The best drafter depends on the target, the machine and the trained drafters. So the target writes
the beginnings of a few replies with each of them, and after every prompt those that are clearly
slower drop out. The speeds are stored, and measured again only when something changes on which
they depend: machine, libraries, target, weights, cache, or any of the trained drafters.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mlxspec.drafters.base import Drafter
from mlxspec.drafting.measured import load, machine_key, store
from mlxspec.drafting.registry import DrafterContext, build_drafter, candidates
from mlxspec.errors import MlxspecError
from mlxspec.kv.cache import Cache
from mlxspec.loading.shipped import DrafterFile
from mlxspec.measure.trial import PROMPTS, Trial, run_trial

MAX_SECONDS = 15.0
_TOKENS_PER_PROMPT = 48
_FULL_CACHE = Cache(0).describe()
_WARM_UP_PROMPT = "Good morning!"
_CLEARLY_SLOWER = 0.85  # of the fastest so far
_SHARE_OF_FIRST_PROMPT = 0.6  # of the time: all drafters take part there

RunTrial = Callable[[str, int, float], Trial]
"""Runs a trial, given a drafter's name, the index of a prompt and the most seconds."""


@dataclass(frozen=True)
class Choice:
    """The chosen drafter, and the reason.

    Attributes:
        drafter: Its name for `--drafter`.
        reason: The reason, in words.
        speeds: Measured tokens/s by drafter; empty where nothing was measured.
    """

    drafter: str
    reason: str
    speeds: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        """Return the choice as values for JSON."""
        return {"drafter": self.drafter, "reason": self.reason, "tokens_per_s": dict(self.speeds)}


def choose_drafter(context: DrafterContext) -> Choice:
    """Return the fastest drafter for a target; measure only where no stored speeds apply.

    After a measurement the target's cache is empty; what drafters learned in trials is dropped.
    """
    names = candidates(context.files)
    kind = ", ".join(filter(None, (context.target.cache.describe(), context.limits.describe())))
    key = _key(context.fingerprint, context.loaded.weights, kind, context.files)
    speeds = _speeds_of(load(key) or {})
    if speeds and fastest(speeds) in names:
        return Choice(fastest(speeds), f"{_reason(speeds)}, measured before", speeds)
    context.say(f"measuring once which drafter is fastest here: {', '.join(names)} ...")
    built = _build_all(names, context)
    speeds = measure(list(built), _trials(built, context))
    context.target.reset()
    store(key, {"speeds": speeds})
    return Choice(fastest(speeds), _reason(speeds), speeds)


def stored_speeds(
    fingerprint: str, weights: str, files: Mapping[str, DrafterFile]
) -> dict[str, float]:
    """Return the stored tokens/s for a target with a full cache, by drafter.

    Args:
        fingerprint: Fingerprint of the target.
        weights: Its weight type in words.
        files: The trained drafters for it on this disk.
    """
    return _speeds_of(load(_key(fingerprint, weights, _FULL_CACHE, files)) or {})


def measure(
    names: Sequence[str],
    run: RunTrial,
    *,
    max_seconds: float = MAX_SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return tokens/s by drafter; one that dropped out has its speed up to then.

    Drafters are compared on the same prompts, so a prompt counts only if every remaining drafter
    had a trial on it. A drafter without a trial on the first prompt, as time was up, is left out.

    Args:
        names: The drafters, at least one, in the order of their trials.
        run: Runs a trial.
        max_seconds: Seconds after which no trial begins.
        clock: Returns the time in seconds.
    """
    end = clock() + max_seconds
    totals: dict[str, Trial] = {}
    racing = list(names)
    for number in range(len(PROMPTS)):
        left = end - clock()
        share = _SHARE_OF_FIRST_PROMPT if number == 0 else 1 / (len(PROMPTS) - number)
        trials = _run_all(racing, number, run, clock, min(clock() + share * left, end), end)
        if number and len(trials) < len(racing):  # the first prompt counts in any case
            break
        totals |= {name: totals.get(name, Trial()) + trial for name, trial in trials.items()}
        most = max(totals[name].tokens_per_s for name in trials)
        racing = [name for name in trials if totals[name].tokens_per_s >= _CLEARLY_SLOWER * most]
        if len(racing) == 1:
            break
    return {name: round(total.tokens_per_s, 2) for name, total in totals.items()}


def _run_all(
    names: Sequence[str],
    number: int,
    run: RunTrial,
    clock: Callable[[], float],
    round_end: float,
    end: float,
) -> dict[str, Trial]:
    """Give each drafter an equal part of the time until `round_end`; stop at `end`."""
    trials: dict[str, Trial] = {}
    for turn, name in enumerate(names):
        if trials and clock() >= end:
            break
        trials[name] = run(name, number, max(round_end - clock(), 0.0) / (len(names) - turn))
    return trials


def fastest(speeds: Mapping[str, float]) -> str:
    """Return the drafter with the most tokens/s, the first of equal ones."""
    return max(speeds, key=speeds.__getitem__)


def _speeds_of(kept: Mapping[str, object]) -> dict[str, float]:
    """Return the stored speeds; none where the stored value is anything else."""
    speeds = kept.get("speeds")
    if not isinstance(speeds, dict) or not all(isinstance(v, float) for v in speeds.values()):
        return {}
    return speeds


def _reason(speeds: Mapping[str, float]) -> str:
    ranked = sorted(speeds, key=speeds.__getitem__, reverse=True)
    figures = ", ".join(f"{name} {speeds[name]:.1f}" for name in ranked)
    return f"fastest of {len(ranked)} on this machine (tokens/s: {figures})"


def _key(fingerprint: str, weights: str, cache: str, files: Mapping[str, DrafterFile]) -> str:
    digests = ", ".join(f"{kind} {file.digest}" for kind, file in sorted(files.items()))
    model = f"{fingerprint}, {weights}, {cache}"
    # Stored speeds are valid for the same drafters only, so their names and digests are in the key.
    return " | ".join([machine_key(), model, " ".join(candidates(files)), digests])


def _build_all(names: Sequence[str], context: DrafterContext) -> dict[str, Drafter]:
    """Return the drafters that can be built, by name; report the others with a warning."""
    built = {}
    for name in names:
        try:
            built[name] = build_drafter(name, context)
        except (MlxspecError, ValueError) as error:
            context.say(f"warning: the drafter {name!r} is left out: {error}")
    return built


def _trials(built: Mapping[str, Drafter], context: DrafterContext) -> RunTrial:
    warm: set[str] = set()

    def run(name: str, number: int, max_seconds: float) -> Trial:
        if name not in warm:  # the first use compiles and loads, which a trial must not time
            run_trial(context.engine, built[name], _WARM_UP_PROMPT, max_tokens=2)
            warm.add(name)
        return run_trial(
            context.engine,
            built[name],
            PROMPTS[number],
            max_tokens=_TOKENS_PER_PROMPT,
            max_seconds=max_seconds,
        )

    return run
