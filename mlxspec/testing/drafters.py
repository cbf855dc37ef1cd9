"""Drafters with predictable drafts: for tests, and as the shortest examples of a drafter."""

from collections.abc import Sequence

import mlx.core as mx

from mlxspec.drafters.base import Drafter
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.drafts.tree import DraftTree
from mlxspec.params import SamplingParams


class ScriptedDrafter(Drafter):
    """Proposes the chains of a script below the root, one per round, then nothing.

    The budget of a round cuts its chain. `rounds` records the results in this reply.
    """

    def __init__(self, chains: Sequence[Sequence[int]]) -> None:
        self._chains = [list(chain) for chain in chains]
        self.rounds: list[Round] = []

    def start(self, prompt: Sequence[int], sampling: SamplingParams, key: mx.array) -> None:
        self.rounds = []

    def propose(self, root: int, budget: int) -> Draft:
        number = len(self.rounds)
        chain = self._chains[number][:budget] if number < len(self._chains) else []
        return _chain(self.name, root, chain)

    def update(self, round: Round) -> None:
        self.rounds.append(round)


class OracleDrafter(Drafter):
    """Knows the tokens of the whole text, prompt included, and proposes the next ones."""

    def __init__(self, text: Sequence[int]) -> None:
        self._text = list(text)
        self._num_read = 0

    def start(self, prompt: Sequence[int], sampling: SamplingParams, key: mx.array) -> None:
        self._num_read = len(prompt)  # including the root

    def propose(self, root: int, budget: int) -> Draft:
        return _chain(self.name, root, self._text[self._num_read :][:budget])

    def update(self, round: Round) -> None:
        self._num_read += len(round.path)


class UniformDrafter(Drafter):
    """Samples chains from the uniform distribution: the shortest drafter that samples."""

    def __init__(self, vocab_size: int, length: int = 3) -> None:
        self._vocab_size, self._length = vocab_size, length
        self._key = mx.random.key(0)

    def start(self, prompt: Sequence[int], sampling: SamplingParams, key: mx.array) -> None:
        self._key = key

    def propose(self, root: int, budget: int) -> Draft:
        """Return a chain; each round of a reply uses a new key."""
        length = min(budget, self._length)
        self._key, key = mx.random.split(self._key)
        drawn = mx.random.randint(0, self._vocab_size, (length,), dtype=mx.int32, key=key)
        return Draft(
            tree=DraftTree.chain(mx.concatenate([mx.array([root], mx.int32), drawn])),
            sources=(self.name,) * length,
            sampled_from=mx.full((length, self._vocab_size), 1 / self._vocab_size),
        )


def _chain(name: str, root: int, tokens: Sequence[int]) -> Draft:
    parents = range(-1, len(tokens))
    return Draft.from_lists([root, *tokens], parents, [name] * len(tokens))
