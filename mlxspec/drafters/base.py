"""The interface of a drafter.

A drafter proposes; it cannot change the target's distribution. Its draft is a guess, or a sample
from a distribution q that it states exactly: see `Draft`. After each round it gets everything that
the target computed, so it can also learn from rejected nodes.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import mlx.core as mx

from mlxspec.decoder.decoder import Decoder
from mlxspec.decoder.hidden import HiddenStateReader
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.params import FREE, DraftLimits, SamplingParams
from mlxspec.verify.noise import Noise

__all__ = [
    "CoupledDrafter",
    "Draft",
    "Drafter",
    "LimitedDrafter",
    "Round",
    "SamplingDrafter",
    "TargetDrafter",
    "TextDrafter",
    "WrappingDrafter",
    "fresh_drafter",
    "limit",
    "readers_of",
]


class Drafter(Protocol):
    """Proposes draft trees for one target.

    `propose` may depend only on the arguments of `start` and `update` and, for sampled drafts, on
    its own random key, of which each part serves one draw. `Draft` lists what a sampled draft must
    state.

    Attributes:
        name: The word that selects it; also the source of its nodes.
        num_top_tokens: Number of the target's most probable next tokens per verified node that
            `update` must get; 0 for none.
    """

    name: str
    num_top_tokens: int

    def start(self, prompt: Sequence[int], sampling: SamplingParams, key: mx.array) -> None:
        """Start a reply to `prompt`, all tokens of the conversation so far, at least one.

        The last token of the prompt is the first root. The drafter may use what it learned in
        earlier replies of the session. More sampled tokens are accepted if it applies `sampling`,
        the target's sampling params, to its own logits. `key` is independent of the engine's random
        key.
        """

    def propose(self, root: int, budget: int) -> Draft:
        """Return a draft of at most `budget` nodes, the root not counted, below `root`.

        The root is the last emitted token, or the last token of the prompt. Fewer nodes, or none,
        are always allowed. Siblings must hold different tokens.
        """

    def update(self, round: Round) -> None:
        """Learn what the target decided about the draft proposed last."""


@runtime_checkable
class SamplingDrafter(Drafter, Protocol):
    """A drafter that can sample its tokens above temperature 0.

    Attributes:
        samples: Whether it does. False makes every draft a function of the past, as a pool
            requires. `start` reads it.
    """

    samples: bool


@runtime_checkable
class CoupledDrafter(SamplingDrafter, Protocol):
    """A drafter that can draw with the same noise as the target.

    Such draws agree with the target's draw where p and q are similar. The draft is then a function
    of the past and the seed, so it states no q.
    """

    def couple(self, noise: Noise | None) -> None:
        """Set the noise of later replies; called before `start`.

        With None, the drafter draws with the key of each `start`.
        """


@runtime_checkable
class LimitedDrafter(Drafter, Protocol):
    """A drafter with limits on the width and depth of its drafts.

    It reads `limits` in every round, before any token is drawn.
    """

    limits: DraftLimits


@runtime_checkable
class TextDrafter(Drafter, Protocol):
    """A drafter that needs only the text, so each sequence of a batch can have its own."""

    def fresh(self) -> Drafter:
        """Return a new drafter with the same settings and no text.

        Raises:
            ValueError: A drafter inside it needs more than the text.
        """


@runtime_checkable
class TargetDrafter(Drafter, Protocol):
    """A drafter that needs more than the text; each sequence of a batch can have its own.

    Attributes:
        stages_in_target: Whether drafting leaves rows staged in the target, so that sequences
            cannot share a forward.
    """

    stages_in_target: bool

    def fresh_for(self, target: Decoder) -> Drafter:
        """Return a new drafter with the same settings and no text.

        `target` is another decoder of the target's model; nothing is read from it here.

        Raises:
            ValueError: A drafter inside it serves one sequence only.
        """


def stages_in_target(drafter: Drafter) -> bool:
    """Return whether drafting leaves rows staged in the target."""
    return isinstance(drafter, TargetDrafter) and drafter.stages_in_target


class WrappingDrafter:
    """The common part of drafters that serve one reply and wrap another drafter.

    Attributes:
        name: The name of the wrapped drafter, "+" and the word of this one.
        drafters: The wrapped drafter, in a tuple.
    """

    limits = FREE

    def __init__(self, word: str, drafter: Drafter) -> None:
        self.name = word if drafter.name == "none" else f"{drafter.name}+{word}"
        self.num_top_tokens = drafter.num_top_tokens
        self.drafters = (drafter,)
        self._beside = drafter

    @property
    def samples(self) -> bool:
        """Whether the wrapped drafter samples; see `SamplingDrafter`."""
        return getattr(self._beside, "samples", False)

    @samples.setter
    def samples(self, samples: bool) -> None:
        if hasattr(self._beside, "samples"):
            self._beside.samples = samples

    @property
    def stages_in_target(self) -> bool:
        return stages_in_target(self._beside)

    def couple(self, noise: Noise | None) -> None:
        """Set the noise of the wrapped drafter, if it is a `CoupledDrafter`."""
        if isinstance(self._beside, CoupledDrafter):
            self._beside.couple(noise)


def fresh_drafter(drafter: Drafter, target: Decoder | None = None) -> Drafter:
    """Return a new drafter with the same settings, for one more sequence.

    `target` is the decoder of that sequence; None if the new drafter gets only the text.

    Raises:
        ValueError: The drafter needs more than that, or cannot be copied.
    """
    if target is not None and isinstance(drafter, TargetDrafter):
        fresh: Drafter = drafter.fresh_for(target)
    elif isinstance(drafter, TextDrafter):
        fresh = drafter.fresh()
    else:
        raise ValueError(
            f"the drafter {drafter.name!r} drafts for one sequence alone, as it cannot be made "
            "anew: give it a method `fresh` (or `fresh_for`, with `stages_in_target`), or set "
            "another drafter, such as 'pool'"
        )
    if isinstance(drafter, LimitedDrafter) and isinstance(fresh, LimitedDrafter):
        fresh.limits = drafter.limits
    return fresh


def limit(drafter: Drafter, limits: DraftLimits) -> None:
    """Set the limits of a drafter and of the drafters inside it."""
    if isinstance(drafter, LimitedDrafter):
        drafter.limits = limits
    for part in getattr(drafter, "drafters", ()):
        limit(part, limits)


def readers_of(drafter: Drafter) -> tuple[HiddenStateReader, ...]:
    """Return the readers of hidden states among the drafter and the drafters inside it."""
    if isinstance(drafter, HiddenStateReader):
        return (drafter,)
    parts: Sequence[Drafter] = getattr(drafter, "drafters", ())
    return tuple(reader for part in parts for reader in readers_of(part))
