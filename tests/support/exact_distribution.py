"""The exact joint distribution of the next tokens: of a round, then of plain decoding.

A rule is lossless if this is the product of the target's own probabilities, for every
sequence.
"""

import random
from fractions import Fraction
from itertools import product
from math import prod


class ContextDistributions:
    """A random distribution in fractions for every context, made at first use.

    With `zeros`, some tokens have no mass, so the supports of two of them differ.
    """

    def __init__(self, seed: int, vocab_size: int = 3, *, zeros: bool = False):
        self.vocab_size = vocab_size
        self._random = random.Random(seed)
        self._least = 0 if zeros else 1
        self._distributions: dict[tuple[int, ...], list[Fraction]] = {}

    def __call__(self, context: tuple[int, ...]) -> list[Fraction]:
        if context not in self._distributions:
            weights = [self._random.randint(self._least, 6) for _ in range(self.vocab_size)]
            weights = weights if sum(weights) else [1] * self.vocab_size
            self._distributions[context] = [Fraction(weight, sum(weights)) for weight in weights]
        return self._distributions[context]

    def prob(self, tokens: tuple[int, ...]) -> Fraction:
        """The probability that plain decoding begins with these tokens."""
        return prod((self(tokens[:i])[token] for i, token in enumerate(tokens)), start=Fraction(1))

    def joint(self, length: int) -> dict[tuple[int, ...], Fraction]:
        return {tokens: self.prob(tokens) for tokens in self.sequences(length)}

    def sequences(self, length: int):
        return product(range(self.vocab_size), repeat=length)

    def continued(self, emitted, length: int) -> dict[tuple[int, ...], float]:
        """Sum {emitted tokens: probability} up to `length` tokens by plain decoding."""
        distribution = dict.fromkeys(self.sequences(length), 0)
        for said, weight in emitted.items():
            for rest in self.sequences(length - len(said)):
                whole = said + rest
                steps = (self(whole[:i])[whole[i]] for i in range(len(said), length))
                distribution[whole] += weight * prod(steps, start=Fraction(1))
        return distribution


def paths_of(tokens, parents):
    """Return the tokens from the root down to each node of a tree, the root left out."""
    paths = []
    for token, parent in zip(tokens, parents, strict=True):
        paths.append(() if parent < 0 else (*paths[parent], token))
    return paths


DISTRIBUTION_PAIRS = {  # distributions of target and draft
    "full supports": (ContextDistributions(1), ContextDistributions(2)),
    "zeros in the target": (ContextDistributions(5, zeros=True), ContextDistributions(6)),
    "zeros in the draft": (ContextDistributions(7), ContextDistributions(8, zeros=True)),
    "zeros in both": (ContextDistributions(9, zeros=True), ContextDistributions(10, zeros=True)),
    "zeros in both again": (
        ContextDistributions(11, zeros=True),
        ContextDistributions(12, zeros=True),
    ),
    "equal distributions": (ContextDistributions(13), ContextDistributions(13)),
}
