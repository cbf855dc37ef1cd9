"""Guards a reply against its drafter: failures, and trees that the target cannot verify.

If a drafter fails, all later rounds are plain. If the target verifies only chains, a chain is asked
for, and a tree becomes one; if it verifies no draft, the drafter is not called.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from mlxspec.drafters.base import Drafter, as_drafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.errors import MlxspecError
from mlxspec.models import DraftSupport
from mlxspec.params import GenerationParams
from mlxspec.verify.noise import Noise

_FAULTS = (MlxspecError, RuntimeError, ValueError, MemoryError)
"""Errors that a drafter can raise at run time: no memory, a long text, weights that do not fit.

Any other error is a defect of its code and must be visible, so it is raised.
"""

T = TypeVar("T")


class Guard:
    """Calls a drafter for one reply, and replaces it by `NoDrafter` when it fails.

    `active` is the drafter, or `NoDrafter` after a failure or if the target verifies no draft; the
    name stays. `faults` are messages of failures; a caller that reports one removes it.
    """

    def __init__(self, drafter: Drafter, vocab_size: int, support: DraftSupport) -> None:
        """Start a reply of a target with this vocabulary size and draft support."""
        self.active = NoDrafter() if support == "none" else as_drafter(drafter)
        self.faults: list[str] = []
        self.name, self._vocab_size = drafter.name, vocab_size
        self._support = support

    @property
    def is_plain(self) -> bool:
        """Whether no round will have a draft from a drafter; a grammar may still force tokens."""
        return not self.active.guesses

    def num_certain(self, most: int) -> int:
        """Return how many tokens, at most `most`, a grammar makes certain."""
        return self.active.num_certain(most)

    def start(self, prompt: Sequence[int], params: GenerationParams, noise: Noise) -> None:
        """Start the drafter on a reply; `noise` is the reply's, at its first position."""

        def begin() -> None:
            self.active.couple(noise if params.is_coupled else None)
            sampling = replace(params.sampling)  # a copy: a drafter may write into its biases
            self.active.start(prompt, sampling, noise.key_for("draft"))

        self._attempt(begin)

    def propose(self, root: int, num_allowed: int) -> Draft:
        """Return a draft of at most `num_allowed` nodes, without the root; 0 calls no drafter."""
        empty = Draft.empty(root)
        if not num_allowed:
            return empty
        draft = self._attempt(lambda: self._proposed(root, num_allowed)) or empty
        draft.check(self.name, num_allowed, self._vocab_size)
        if draft.tree.n_nodes == 1:
            return empty
        return self._chain_of(draft, root) if self._support == "chain" else draft

    def _proposed(self, root: int, num_allowed: int) -> Draft:
        drafter, limits = self.active, self.active.limits
        if self._support != "chain":
            return drafter.propose(root, num_allowed)
        drafter.limit(replace(limits, branching=1))  # the nodes of other branches would be lost
        try:
            return drafter.propose(root, num_allowed)
        finally:
            drafter.limit(limits)

    def _chain_of(self, draft: Draft, root: int) -> Draft:
        """Return the chain of a draft, for a target that verifies only chains."""
        if draft.sampled_from is not None and draft.branching is None:
            return draft
        # No later check would see a fault of the nodes that are cut off.
        self.check_nodes(draft, *draft.tree.lists(), root)
        return draft.first_path()

    def check_nodes(
        self, draft: Draft, tokens: Sequence[int], parents: Sequence[int], root: int
    ) -> None:
        """Raise ValueError unless its nodes are a tree below `root`; see `Draft.check_nodes`."""
        draft.check_nodes(self.name, tokens, parents, root, self._vocab_size)

    def update(self, round: Round) -> None:
        """Pass a verified round to the drafter."""
        self._attempt(lambda: self.active.update(round))

    def _attempt(self, act: Callable[[], T]) -> T | None:
        try:
            return act()
        except _FAULTS as error:
            self.faults.append(str(error) or type(error).__name__)
            self.active = self.active.replaced_by(NoDrafter())
            return None
