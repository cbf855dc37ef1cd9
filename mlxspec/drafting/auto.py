"""Choose a drafter by what counts: tokens per second, measured on this machine.

Which drafter pays depends on the target, the machine and the drafters at hand, so each candidate
lets the target write the beginnings of a few replies, and whoever is clearly slower drops out
after every prompt. The outcome is kept, and measured anew only when something it depends on has
changed: machine, libraries, target, weights, cache, or any of the trained drafters.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mlxspec.drafters.base import Drafter
from mlxspec.drafting.measured import keep, machine_key, recall
from mlxspec.drafting.registry import Site, build_drafter, candidates
from mlxspec.errors import MlxspecError
from mlxspec.kv.cache import Cache
from mlxspec.loading.shipped import DrafterFile
from mlxspec.measure.trial import PROMPTS, Trial, run_trial

MAX_SECONDS = 15.0
_TOKENS_PER_PROMPT = 48
_FULL_CACHE = Cache(0).describe()
_WARM_UP_PROMPT = "Good morning!"
_CLEARLY_SLOWER = 0.85  # of the fastest so far
_SHARE_OF_FIRST_PROMPT = 0.6  # of the time: everybody writes there

RunTrial = Callable[[str, int, float], Trial]
"""Lets a candidate write to the prompt of a number for so many seconds."""


@dataclass(frozen=True)
class Choice:
    """Which drafter drafts, and why.

    Attributes:
        drafter: What `--drafter` would name it.
        reason: Why, in words.
        speeds: Measured tokens/s by candidate; empty where nothing was measured.
    """

    drafter: str
    reason: str
    speeds: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        """Return it ready for JSON."""
        return {"drafter": self.drafter, "reason": self.reason, "tokens_per_s": dict(self.speeds)}


def choose_drafter(site: Site) -> Choice:
    """Return the fastest drafter for a target, measuring only what was not measured before.

    The target's history is empty afterwards, and nothing learned in a trial is kept.
    """
    names = candidates(site.files)
    kind = ", ".join(filter(None, (site.target.cache.describe(), site.limits.describe())))
    key = _key(site.fingerprint, site.loaded.weights, kind, site.files)
    known = _speeds_of(recall(key) or {})
    if known and fastest(known) in names:
        return Choice(fastest(known), f"{_reason(known)}, measured before", known)
    site.say(f"measuring once which drafter is fastest here: {', '.join(names)} ...")
    built = _build_all(names, site)
    speeds = measure(list(built), _trials(built, site))
    site.target.reset()
    keep(key, {"speeds": speeds})
    return Choice(fastest(speeds), _reason(speeds), speeds)


def known_speeds(
    fingerprint: str, weights: str, files: Mapping[str, DrafterFile]
) -> dict[str, float]:
    """Return the tokens/s that were measured for a target with a full cache, by candidate.

    Args:
        fingerprint: Of the target.
        weights: Its weight type in words.
        files: The trained drafters that are here for it.
    """
    return _speeds_of(recall(_key(fingerprint, weights, _FULL_CACHE, files)) or {})


def measure(
    names: Sequence[str],
    run: RunTrial,
    *,
    max_seconds: float = MAX_SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return tokens/s by candidate; those that dropped out keep what they reached.

    Candidates are compared on the same text, so a prompt counts when all that are in the race
    wrote to it. Whoever had no turn at the first prompt, because time was up, is left out.

    Args:
        names: The candidates, at least one; those named first have their turn first.
        run: Runs a trial.
        max_seconds: Time after which no trial begins.
        clock: Seconds.
    """
    end = clock() + max_seconds
    totals: dict[str, Trial] = {}
    racing = list(names)
    for number in range(len(PROMPTS)):
        left = end - clock()
        share = _SHARE_OF_FIRST_PROMPT if number == 0 else 1 / (len(PROMPTS) - number)
        trials = _run_all(racing, number, run, clock, min(clock() + share * left, end), end)
        if number and len(trials) < len(racing):
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
    """Give each candidate an equal part of the time until `round_end`; stop at `end`."""
    trials: dict[str, Trial] = {}
    for turn, name in enumerate(names):
        if trials and clock() >= end:
            break
        trials[name] = run(name, number, max(round_end - clock(), 0.0) / (len(names) - turn))
    return trials


def fastest(speeds: Mapping[str, float]) -> str:
    """Return the candidate with the most tokens/s, the first of equal ones."""
    return max(speeds, key=speeds.__getitem__)


def _speeds_of(kept: Mapping[str, object]) -> dict[str, float]:
    """Return the speeds that were kept, none where anything else stands there."""
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
    return " | ".join([machine_key(), model, " ".join(candidates(files)), digests])


def _build_all(names: Sequence[str], site: Site) -> dict[str, Drafter]:
    """Return the candidates that can be built; of the others a word is said."""
    built = {}
    for name in names:
        try:
            built[name] = build_drafter(name, site)
        except (MlxspecError, ValueError) as error:
            site.say(f"warning: the drafter {name!r} is left out: {error}")
    return built


def _trials(built: Mapping[str, Drafter], site: Site) -> RunTrial:
    warm: set[str] = set()

    def run(name: str, number: int, max_seconds: float) -> Trial:
        if name not in warm:  # first use compiles and loads
            run_trial(site.engine, built[name], _WARM_UP_PROMPT, max_tokens=2)
            warm.add(name)
        return run_trial(
            site.engine,
            built[name],
            PROMPTS[number],
            max_tokens=_TOKENS_PER_PROMPT,
            max_seconds=max_seconds,
        )

    return run
