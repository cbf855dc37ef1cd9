"""The drafter of a trained head, and the probe that shows whether the head fits this target.

A head that is loaded with a wrong layer convention, or was trained for another model of the same
sizes, runs without an error and drafts nonsense. Replies stay correct and are only slower, so a
user would not see it. The acceptance rate of its first draft tokens shows it at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from mlxspec.budget import FixedBudget
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.base import Drafter
from mlxspec.drafters.eagle.drafter import EagleDrafter
from mlxspec.drafters.eagle.networks import Eagle3Network, EagleNetwork
from mlxspec.drafters.early_exit import EarlyExitDrafter, ExitHead
from mlxspec.drafters.medusa import MedusaDrafter, MedusaHeads
from mlxspec.engine.engine import Engine
from mlxspec.errors import Say
from mlxspec.loading.heads.file import HeadCheckpoint
from mlxspec.measure.trial import PROMPTS, short_trial

HEADS: dict[str, tuple[Any, Callable[..., Drafter]]] = {
    "medusa": (MedusaHeads, MedusaDrafter),
    "eagle": (EagleNetwork, EagleDrafter),
    "eagle3": (Eagle3Network, EagleDrafter),
    "exit": (ExitHead, EarlyExitDrafter),
}
"""Network and drafter of a trained head, by the kind that its checkpoint declares."""

_MIN_ACCEPTANCE_RATE = 0.05
"""Of first draft tokens: a head after minutes of training reaches 0.25, one loaded with the wrong
layers 0.01."""

_MAX_SECONDS = 3.0
_TOKENS_PER_PROMPT = 64
_NUM_PROMPTS = 2


class Probe(NamedTuple):
    """The share of first draft tokens that the target accepted, over a number of rounds."""

    acceptance_rate: float
    rounds: int


def head_drafters(head: HeadCheckpoint, target: Decoder) -> list[Drafter]:
    """Return the drafter of a head, and one more for every other layer convention it may have.

    The config of a format that counts layers in several ways has `capture_alternatives`.
    """
    network, drafter = HEADS[head.kind]
    config = target.model.config
    dtype = target.model.dtype
    networks = [network.of_head(head, config, dtype)]  # checks the config that is read next
    if head.kind == "eagle3":
        others = head.config.get("capture_alternatives") or ()
        ways = [replace(head, config={**head.config, "capture": capture}) for capture in others]
        networks += [network.of_head(way, config, dtype) for way in ways]
    return [drafter(one, target) for one in networks]


def best_way(
    source: str, head: HeadCheckpoint, drafters: Sequence[Drafter], engine: Engine, say: Say
) -> int:
    """Return the index of the layer convention that drafts best; warn of problems of the head.

    Tools that write EAGLE-3 heads count layers in two ways: then both are tried.
    """
    seconds = _MAX_SECONDS / len(drafters)
    probes = [probe(engine, drafter, seconds) for drafter in drafters]
    best = max(range(len(probes)), key=lambda number: probes[number].acceptance_rate)
    rate, rounds = probes[best]
    engine.target.reset()
    if head.unknown:
        say(f"warning: {source} runs without its {', '.join(head.unknown)}: not known here")
    if head.card.get("note"):
        say(f"warning: {source}: {head.card['note']}")
    if rate < _MIN_ACCEPTANCE_RATE:
        say(
            f"warning: {source} fits {engine.name} badly ({rate:.0%} of {rounds} first draft "
            f"tokens accepted; a working head reaches {_MIN_ACCEPTANCE_RATE:.0%} or much more): "
            "replies stay correct, but are slow. Check that the head was trained for exactly this "
            "model"
        )
    return best


def probe(engine: Engine, drafter: Drafter, max_seconds: float = _MAX_SECONDS) -> Probe:
    """Return how often the target accepts the first draft token of a head.

    `max_seconds` is for all prompts; each prompt has at least one round. The content of the
    target's cache changes.
    """
    rounds = hits = 0
    for prompt in PROMPTS[:_NUM_PROMPTS]:
        trial = short_trial(
            engine,
            prompt,
            drafter,
            max_tokens=_TOKENS_PER_PROMPT,
            seconds=max_seconds / _NUM_PROMPTS,
            budget=FixedBudget(),
            num_draft_tokens=1,  # for top-1 acceptance
        )
        rounds += trial.stats["rounds"]
        hits += trial.stats["accepted"]
    return Probe(hits / rounds if rounds else 0.0, rounds)
