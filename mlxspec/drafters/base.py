"""What the engine asks of a drafter.

A drafter proposes; it cannot change what the target says. What it proposes is a guess, or drawn
from a law that it states truly: see `Draft`. It is told everything the target computed in a round,
so that it can learn from rejected nodes too.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import mlx.core as mx

from mlxspec.drafts.draft import Draft, RoundOutcome
from mlxspec.params import DraftLimits, Law
from mlxspec.target.hidden import HiddenStateReader
from mlxspec.verify.noise import Noise

__all__ = [
    "CoupledDrafter",
    "Draft",
    "Drafter",
    "LimitedDrafter",
    "RoundOutcome",
    "SamplingDrafter",
    "TextDrafter",
    "fresh_drafter",
    "limit",
    "readers_of",
]


class Drafter(Protocol):
    """Proposes draft trees for one target.

    `propose` must not depend on anything but what `start` and `update` told it and, for sampled
    drafts, its own random key, every part of which is used for one draw. What it then must state
    is said at `Draft`.

    Attributes:
        name: The word that selects it, and the source it states.
        num_top_tokens: How many of the target's most probable next tokens per verified node it
            wants to be told in `update`; 0 for none.
    """

    name: str
    num_top_tokens: int

    def start(self, prompt: Sequence[int], law: Law, key: mx.array) -> None:
        """Begin a reply to `prompt`, all tokens of the conversation so far.

        What was learned in earlier replies of the session may be kept. The last token of the
        prompt is the first root.

        Args:
            prompt: Token ids, at least one.
            law: The target's law; a drafter that samples does well to draw from a like one.
            key: Random key of the drafter's own, independent of the engine's.
        """

    def propose(self, root: int, budget: int) -> Draft:
        """Return a draft of at most `budget` nodes, the root not counted, below `root`.

        The root is the last token emitted (or the last of the prompt); fewer nodes, or none,
        are always allowed. No two siblings may hold the same token.
        """

    def update(self, outcome: RoundOutcome) -> None:
        """Learn what the target decided about the draft proposed last."""


@runtime_checkable
class SamplingDrafter(Drafter, Protocol):
    """A drafter that draws its tokens at random where the target does, unless told not to.

    Attributes:
        samples: Whether it draws above temperature 0; False makes every draft a function of the
            past, as is needed inside a pool. Read at the start of a reply.
    """

    samples: bool


@runtime_checkable
class CoupledDrafter(SamplingDrafter, Protocol):
    """A drafter that can draw with the very noise that the target's tokens are drawn with.

    What is drawn so agrees with the target's draw where the two laws are alike, and the draft is
    a function of the past and the seed: it says nothing about a law it was drawn from.
    """

    def couple(self, noise: Noise | None) -> None:
        """Say what to draw with in the replies to come; called before `start`.

        Args:
            noise: The target's, at any position; None to draw with the key of each `start`.
        """


@runtime_checkable
class LimitedDrafter(Drafter, Protocol):
    """A drafter that can be told how wide and how deep its drafts may be.

    Attributes:
        limits: Settled before anything is drawn, and read in every round.
    """

    limits: DraftLimits


@runtime_checkable
class TextDrafter(Drafter, Protocol):
    """A drafter that needs nothing but the text: each sequence of a batch can have one."""

    def fresh(self) -> Drafter:
        """Return another one with the same settings that has read nothing yet.

        Raises:
            ValueError: It is made of drafters that need more than the text.
        """


def fresh_drafter(drafter: Drafter) -> Drafter:
    """Return another drafter like this one, for a sequence of its own.

    Raises:
        ValueError: It needs more than the text.
    """
    if not isinstance(drafter, TextDrafter):
        raise ValueError(
            f"the drafter {drafter.name!r} needs more than the text, so it drafts for one sequence "
            "alone; a batch takes 'none', 'suffix', 'table' and pools of these: load the engine "
            "with one of them, or set its drafter"
        )
    fresh: Drafter = drafter.fresh()
    if isinstance(drafter, LimitedDrafter) and isinstance(fresh, LimitedDrafter):
        fresh.limits = drafter.limits
    return fresh


def limit(drafter: Drafter, limits: DraftLimits) -> None:
    """Tell a drafter, and those it is made of, how wide and how deep drafts may be."""
    if isinstance(drafter, LimitedDrafter):
        drafter.limits = limits
    for part in getattr(drafter, "drafters", ()):
        limit(part, limits)


def readers_of(drafter: Drafter) -> tuple[HiddenStateReader, ...]:
    """Return what reads the target's hidden states: the drafter, or those it is made of."""
    if isinstance(drafter, HiddenStateReader):
        return (drafter,)
    parts: Sequence[Drafter] = getattr(drafter, "drafters", ())
    return tuple(reader for part in parts for reader in readers_of(part))
