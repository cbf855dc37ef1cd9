"""Chooses a drafter by tokens per second, measured on this machine.

The best drafter depends on the target, the machine and the trained drafters. So the target writes
the first tokens of a few replies with each of them (`laps.py`), and a verdict is stored
(`verdict.py`). The drafters are measured again if the verdict depends on something that changed:
machine, libraries, target, weights, cache, or any of the trained drafters; if the laps were not
enough for a verdict; and if replies contradict it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from mlxspec.device.speed import is_busy, load_words, machine_key
from mlxspec.drafters.base import Drafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.table.seed_table import seed_text_digest
from mlxspec.drafting.laps import PLAIN, RunTrial, run_laps
from mlxspec.drafting.measured import load, store
from mlxspec.drafting.names import TRAINED
from mlxspec.drafting.registry import DrafterContext, build_drafter
from mlxspec.drafting.verdict import SAFE, DrafterVerdict, conclude
from mlxspec.engine.engine import Engine
from mlxspec.errors import MlxspecError
from mlxspec.loading.heads.file import DrafterFile
from mlxspec.measure.trial import PROMPTS, short_trial
from mlxspec.params import DraftLimits

_TOKENS_PER_PROMPT = 48
_SECONDS_FOR_SEED = 20.0  # an idle machine makes a seed table in 10
_WARM_UP_PROMPT = "Good morning!"


@dataclass(frozen=True)
class Choice:
    """The chosen drafter, and a description of the reason."""

    drafter: str
    reason: str
    speeds: Mapping[str, float] = field(default_factory=dict)  # measured tokens/s by drafter
    key: str = ""  # of the stored verdict; "" if the user named the drafter

    def as_dict(self) -> dict[str, object]:
        return {"drafter": self.drafter, "reason": self.reason, "tokens_per_s": dict(self.speeds)}


def choose_drafter(context: DrafterContext, now: Callable[[], float] = time.time) -> Choice:
    """Return the fastest drafter for a target; measure only if no settled verdict is stored.

    The target's cache does not change, and the drafters of the trials are discarded. The sampling
    params of the context apply to the trials. `now` returns seconds since 1970.
    """
    kind, limits = context.target.cache.describe(), context.options.limits
    key = verdict_key(context.fingerprint, context.loaded.weights, kind, limits, context.files)
    before = stored_verdict(key)
    if before and before.drafter in candidates(context.files) and not before.is_due(now()):
        return Choice(before.drafter, f"{before.words}, measured before", before.speeds, key)
    choice = measure(context, key, now=now)
    assert choice is not None, "nothing stops this measurement"
    return choice


def measure(
    context: DrafterContext,
    key: str,
    should_stop: Callable[[], bool] = lambda: False,
    now: Callable[[], float] = time.time,
) -> Choice | None:
    """Run the laps, store their verdict under a key, and return the choice; None if stopped.

    `should_stop` is called before each trial; `now` returns seconds since 1970.
    """
    before, at = stored_verdict(key), now()
    context = _apart(context)
    context.say("measuring which drafter is fastest here ...")
    built = _build_all(candidates(context.files), context)
    if context.seed_table is not None:
        context.seed_table.wait(_SECONDS_FOR_SEED)  # the verdict is about replies with it
    safe = SAFE if SAFE in built else PLAIN
    drafters = [name for name in built if name != PLAIN]
    evidence = run_laps(drafters, _trials(built, context, should_stop), safe=safe)
    if should_stop():
        return None
    load, is_sampled = load_words() if is_busy() else "", not context.sampling.is_greedy
    verdict = conclude(evidence, safe, at, before, is_sampled=is_sampled, load=load)
    store(key, asdict(verdict))
    return Choice(verdict.drafter, verdict.words, verdict.speeds, key)


def note_reply(choice: Choice, speedup: float, *, is_sampled: bool) -> str:
    """Store the speed-up of a reply with a chosen drafter; return what contradicts it, or "".

    If replies are slower than the measured speed of another drafter, the verdict is open again:
    the drafters should be measured again, now or at the next load. `speedup` is relative to plain
    decoding at the context of the reply. If the user named the drafter, nothing is stored.
    """
    before = stored_verdict(choice.key) if choice.key else None
    if before is None or before.drafter != choice.drafter:
        return ""
    verdict = before.after_reply(speedup, is_sampled=is_sampled)
    store(choice.key, asdict(verdict))
    return verdict.contradiction and f"drafter {verdict.drafter}: {verdict.contradiction}"


def verdict_key(
    fingerprint: str,
    weights: str,
    cache: str,
    limits: DraftLimits,
    files: Mapping[str, DrafterFile],
) -> str:
    """Return the key of a verdict: everything on which the speeds of drafters depend.

    `weights` and `cache` are descriptions; `files` are the trained drafters for the target on this
    disk.
    """
    own = {kind: file.digest for kind, file in files.items()}
    own.setdefault("table", f"seed {seed_text_digest()}")
    digests = ", ".join(f"{kind} {digest}" for kind, digest in sorted(own.items()))
    model = ", ".join(filter(None, (fingerprint, weights, cache, limits.describe())))
    # stored speeds are valid only for the same drafters, so their names and digests are in the key
    return " | ".join([machine_key(), model, " ".join(candidates(files)), digests])


def stored_verdict(key: str) -> DrafterVerdict | None:
    """Return the verdict under a key, or None."""
    return DrafterVerdict.from_dict(load(key) or {})


def candidates(files: Mapping[str, DrafterFile]) -> list[str]:
    """Return the drafters worth measuring for a target, given its trained drafters."""
    words = ["none", "pool", *(word for word, kind in TRAINED.items() if kind in files)]
    return [*words, "suffix,table,eagle3"] if "eagle3" in files else words


def _apart(context: DrafterContext) -> DrafterContext:
    """Give the trials a cache of their own, so that the target keeps the tokens of a chat."""
    own = context.engine
    engine = Engine(
        own.target.apart(),
        NoDrafter(),
        own.tokenizer,
        name=own.name,
        budget=own.budget,
        chain_rule=own.chain_rule,
        exact=own.exact,
    )
    return replace(context, engine=engine)


def _build_all(names: Sequence[str], context: DrafterContext) -> dict[str, Drafter]:
    built = {}
    for name in names:
        try:
            built[name] = build_drafter(name, context)
        except (MlxspecError, ValueError) as error:
            context.say(f"warning: the drafter {name!r} is skipped: {error}")
    return built


def _trials(
    built: Mapping[str, Drafter], context: DrafterContext, should_stop: Callable[[], bool]
) -> RunTrial:
    warm: set[str] = set()

    def run(name: str, number: int, max_seconds: float) -> float:
        if should_stop():
            return 0.0  # ends the laps
        if name not in warm:  # the first use compiles and loads, which a trial must not time
            short_trial(context.engine, _WARM_UP_PROMPT, built[name], max_tokens=2)
            warm.add(name)
        trial = short_trial(
            context.engine,
            PROMPTS[number],
            built[name],
            max_tokens=_TOKENS_PER_PROMPT,
            seconds=max_seconds,
            sampling=context.sampling,
        )
        return float(trial.stats["generation_tps"])

    return run
