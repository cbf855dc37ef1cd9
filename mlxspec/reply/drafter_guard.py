"""A drafter that breaks down costs its drafts, not the reply: the rounds that follow are plain."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from mlxspec.drafters.base import CoupledDrafter, Drafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.errors import MlxspecError
from mlxspec.params import GenerationParams
from mlxspec.verify.noise import Noise

_FAULTS = (MlxspecError, RuntimeError, ValueError, MemoryError)
"""What a drafter meets in the world: too little memory, too long a text, weights that do not fit.
Anything else is a mistake in its code, and is not hidden."""

T = TypeVar("T")


class Guard:
    """Lets a drafter act in one reply, and goes on without it once it broke down.

    Attributes:
        name: The drafter's, whether it still drafts or not.
        active: What drafts; nothing does once the drafter broke down.
        faults: What broke down, in words; whoever reads it may take it out.
    """

    def __init__(
        self, drafter: Drafter, vocab_size: int, on_fault: Callable[[], None] = lambda: None
    ) -> None:
        """Begin a reply.

        Args:
            drafter: What is to draft.
            vocab_size: Of the target.
            on_fault: Called when the drafter has been given up.
        """
        self.active = drafter
        self.faults: list[str] = []
        self.name, self._vocab_size = drafter.name, vocab_size
        self._on_fault = on_fault

    @property
    def is_plain(self) -> bool:
        """Whether nothing is going to be drafted."""
        return isinstance(self.active, NoDrafter)

    def start(self, prompt: Sequence[int], params: GenerationParams, noise: Noise) -> None:
        """Let it begin a reply; `noise` is the reply's, at its first position."""

        def begin() -> None:
            if isinstance(self.active, CoupledDrafter):
                self.active.couple(noise if params.exact_seed else None)
            law = replace(params.sampling)  # the drafter's own, with biases of its own
            self.active.start(prompt, law, noise.key_for("draft"))

        self._attempt(begin)

    def propose(self, root: int, asked: int) -> Draft:
        """Return a draft of at most `asked` nodes, the root not counted; 0 leaves it alone.

        Raises:
            ValueError: It proposed more, or what is no draft; see `Draft.check`.
        """
        empty = Draft.empty(root)
        if not asked:
            return empty
        draft = self._attempt(lambda: self.active.propose(root, asked)) or empty
        draft.check(self.name, asked, self._vocab_size)
        return draft if draft.tree.n_nodes > 1 else empty

    def check_nodes(
        self, draft: Draft, tokens: Sequence[int], parents: Sequence[int], root: int
    ) -> None:
        """Refuse what it proposed if that is no tree below `root`; see `Draft.check_nodes`."""
        draft.check_nodes(self.name, tokens, parents, root, self._vocab_size)

    def update(self, round: Round) -> None:
        """Tell it what became of its draft."""
        self._attempt(lambda: self.active.update(round))

    def _attempt(self, act: Callable[[], T]) -> T | None:
        try:
            return act()
        except _FAULTS as error:
            self.faults.append(str(error) or type(error).__name__)
            self.active = NoDrafter()
            self._on_fault()
            return None
