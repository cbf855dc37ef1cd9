"""The base class of drafters.

A drafter proposes; it cannot change the target's distribution. Its draft is a guess, or a sample
from a distribution q that it states exactly: see `Draft`. After each round it gets everything that
the target computed, so it can also learn from rejected nodes.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Self, cast
from weakref import WeakSet

import mlx.core as mx

from mlxspec.decoder.decoder import Decoder
from mlxspec.decoder.hidden import HiddenStateReader
from mlxspec.drafters.search.growth import Cursor, Estimator, StateCursor, grow
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.params import FREE, DraftLimits, SamplingParams
from mlxspec.params.checks import wrong_type
from mlxspec.verify.noise import Noise


class Drafter:
    """Proposes draft trees for one target; only `propose` has no default."""

    __slots__ = tuple[str, ...]()  # `as_drafter` adds this class to others, whatever their layout

    # The word that selects it; also the source of its nodes. By default, that of the class.
    name: str = ""
    # Number of the target's most probable next tokens per verified node that `update` must get.
    num_top_tokens: int = 0
    # Whether it draws above temperature 0, and would draft a function of the past if a pool set
    # this to False. `start` reads it.
    samples: bool = False
    # Limits on its drafts. Every round reads them, before any token is drawn.
    limits: DraftLimits = FREE
    # The layers of the target whose entering states it reads; it is a `HiddenStateReader` then.
    capture: tuple[int, ...] | None = None
    # Whether drafting leaves rows staged in the target, so that sequences cannot share a forward.
    stages_in_target: bool = False
    drafters: Sequence["Drafter"] = ()  # the drafters inside it
    guesses: bool = True  # whether it ever proposes tokens that no grammar forces

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = cls.name or cls.__name__.removesuffix("Drafter").lower()

    # ---- rounds ----------------------------------------------------------------------------

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
        are always allowed. Siblings must hold different tokens. The draft may depend only on the
        arguments of `start` and `update` and, if it is sampled, on the drafter's own random key, of
        which each part serves one draw. `Draft` lists what a sampled draft must state.
        """
        raise NotImplementedError(f"the drafter {self.name!r} has no method `propose`")

    def update(self, round: Round) -> None:
        """Learn what the target decided about the draft proposed last."""

    def couple(self, noise: Noise | None) -> None:
        """Draw with the target's noise in later replies; called before `start`.

        Such draws agree with the target's draw where p and q are similar. The draft is then a
        function of the past and the seed, so it states no q. With None, the drafter draws with the
        key of each `start`.
        """

    def cursor(self, root: int) -> Cursor | None:
        """Return the cursor after the history and `root`; None if no probabilities are on the host.

        A pool needs no draft of a drafter with cursors.
        """
        return None

    # ---- sequences of a batch ----------------------------------------------------------------

    def fresh(self) -> "Drafter":
        """Return a new drafter with the same settings and no text; see `fresh_for`."""
        raise ValueError(
            f"the drafter {self.name!r} can draft for one sequence only, as it has no copy: "
            "give it a method `fresh` (or `fresh_for`, if it needs more than the text), or set "
            "another drafter, such as 'pool'"
        )

    def fresh_for(self, target: Decoder) -> "Drafter":
        """Return a new drafter with the same settings and no text, for one more sequence.

        `target` is another decoder of the target's model; nothing is read from it here. A drafter
        that needs the text alone replaces `fresh` instead. Raises ValueError if it, or a drafter
        inside it, serves one sequence only.
        """
        return self.fresh()

    # ---- itself and the drafters inside it -----------------------------------------------------

    @property
    def readers(self) -> tuple[HiddenStateReader, ...]:
        """The readers of hidden states among the drafter and the drafters inside it."""
        if self.capture is not None:
            return (cast(HiddenStateReader, self),)
        return tuple(reader for part in self.drafters for reader in as_drafter(part).readers)

    def limit(self, limits: DraftLimits) -> None:
        """Set the limits of the drafter and of the drafters inside it."""
        self.limits = limits
        for part in self.drafters:
            as_drafter(part).limit(limits)

    # ---- under a grammar -------------------------------------------------------------------

    def num_certain(self, most: int) -> int:
        """Return how many of the next tokens, at most `most`, a grammar makes certain."""
        return 0

    def replaced_by(self, drafter: "Drafter") -> "Drafter":
        """Return what continues its reply with `drafter`, which has been started, in its place."""
        return drafter


class TextDrafter(Drafter, Estimator):
    """The common part of drafters that learn on the host, from the text alone."""

    def __init__(self) -> None:
        self._alike = WeakSet([self])

    def share_of(self, most: int) -> int:
        """Return the equal part of `most` for each drafter that `fresh` made from one another."""
        return most // len(self._alike)

    def anew(self) -> Self:
        """Return a drafter with the same settings that has learned nothing."""
        raise NotImplementedError

    def fresh(self) -> Self:
        new = self.anew()
        new._alike = self._alike
        self._alike.add(new)
        return new

    def state(self, root: int) -> Any:
        """Return the state after the history and `root`."""
        raise NotImplementedError

    def cursor(self, root: int) -> StateCursor:
        return StateCursor(self, self.state(root))

    def propose(self, root: int, budget: int) -> Draft:
        return grow(root, self.cursor(root), budget, self.limits)


class WrappingDrafter(Drafter):
    """The common part of drafters that serve one reply and wrap another drafter.

    `name` is that of the wrapped drafter, "+" and the word of this one.
    """

    def __init__(self, word: str, drafter: Drafter) -> None:
        self._beside = drafter = as_drafter(drafter)
        self.name = f"{drafter.name}+{word}" if drafter.guesses else word
        self.num_top_tokens = drafter.num_top_tokens
        self.stages_in_target = drafter.stages_in_target
        self.limits = drafter.limits
        self.drafters = (drafter,)

    def around(self, drafter: Drafter) -> Self:
        """Return a drafter of the same reply that wraps another drafter."""
        raise NotImplementedError

    def fresh(self) -> Self:
        return self.around(fresh_drafter(self._beside))

    def fresh_for(self, target: Decoder) -> Self:
        return self.around(fresh_drafter(self._beside, target))

    def couple(self, noise: Noise | None) -> None:
        self._beside.couple(noise)


_MEMBERS = [name for name in vars(Drafter) if not name.startswith("__")]


def as_drafter(drafter: Any) -> Drafter:
    """Return an object that has a method `propose` as a `Drafter`.

    The class of the object gets `Drafter` as its last base, so what it lacks has a default.
    """
    if isinstance(drafter, Drafter):
        return drafter
    if not hasattr(drafter, "propose"):
        raise wrong_type("drafter", "a drafter, which has a method `propose`", drafter)
    for name in _MEMBERS:  # a default of the class would hide what `__getattr__` finds
        if hasattr(drafter, name) and not hasattr(type(drafter), name):
            object.__setattr__(drafter, name, getattr(drafter, name))
    kind: type = type(drafter)
    object.__setattr__(drafter, "__class__", _derived(kind))
    return cast(Drafter, drafter)


@cache
def _derived(kind: type) -> type:
    return type(kind.__name__, (kind, Drafter), {"__slots__": (), "__module__": kind.__module__})


def fresh_drafter(drafter: Drafter, target: Decoder | None = None) -> Drafter:
    """Return `fresh_for(target)` of a drafter, or `fresh()` for no target, with its limits."""
    drafter = as_drafter(drafter)
    fresh = as_drafter(drafter.fresh() if target is None else drafter.fresh_for(target))
    if fresh.limits != drafter.limits:
        fresh.limits = drafter.limits
    return fresh
