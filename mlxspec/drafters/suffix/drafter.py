"""The suffix drafter: propose what followed the longest earlier match of the latest tokens.

A suffix automaton over prompt, reply and earlier turns finds the longest suffix of the text that
occurred before, and all tokens that followed it. A match of each length has a hit rate, learned
from every verdict, separately for greedy and for sampled text. The hit rate is split among the
tokens that followed, by their counts; the rest of the probability goes to the next shorter match.
So long matches give long chains, and short matches branch early or give nothing. (Prompt lookup,
Saxena 2023, https://github.com/apoorvumang/prompt-lookup-decoding, has one fixed match length; SAM
decoding, Hu et al. 2024, https://arxiv.org/abs/2411.10666; SuffixDecoding, Oliaro et al. 2024,
https://arxiv.org/abs/2411.04975)
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakSet

import mlx.core as mx

from mlxspec.drafters.base import Drafter
from mlxspec.drafters.search.calibration import HitRate
from mlxspec.drafters.search.growth import grow
from mlxspec.drafters.suffix.automaton import ROOT, SuffixAutomaton
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.params import SamplingParams
from mlxspec.trace.difference import common_length

_NUM_MATCHES = 2  # a third, shorter match adds nothing measurable
_MAX_FAN = 128  # a match with more different next tokens predicts nothing
_NUM_RANKED = 8
_LENGTH_BOUNDS = (1, 2, 3, 4, 6, 9, 15)
_GREEDY_RATES = (
    (0.25, 0.45, 0.57, 0.69, 0.77, 0.87, 0.94, 0.98),  # per length bin: always one token followed
    (0.32, 0.40, 0.42, 0.50, 0.52, 0.62, 0.68, 0.70),  # different tokens followed: one of them
)
_SAMPLED_RATES = (
    (0.19, 0.36, 0.56, 0.65, 0.65, 0.80, 0.80, 0.88),
    (0.24, 0.29, 0.36, 0.45, 0.50, 0.52, 0.56, 0.60),
)


class SuffixDrafter(Drafter):
    """Proposes what followed the longest earlier matches of the latest tokens.

    It stores all text of a session, including replies that an edit replaced. When that exceeds its
    share of `max_tokens`, the next reply keeps only its own conversation.
    """

    name = "suffix"

    def __init__(self, max_tokens: int = 100_000) -> None:
        """Make a drafter without text.

        `max_tokens` is the number of tokens to store beyond the conversation, about 0.5 kB each.
        All drafters that `fresh` made from one another share it equally.

        Raises:
            ValueError: `max_tokens` is negative.
        """
        if max_tokens < 0:
            raise ValueError(f"max_tokens is a number of tokens, 0 or more, not {max_tokens}")
        self._max_tokens = max_tokens
        self._alike = WeakSet([self])
        self._rates_of = {True: _hit_rates(_GREEDY_RATES), False: _hit_rates(_SAMPLED_RATES)}
        self._rates = self._rates_of[True]
        self._forget()

    def fresh(self) -> "SuffixDrafter":
        new = SuffixDrafter(self._max_tokens)
        new._alike = self._alike
        self._alike.add(new)
        return new

    def start(self, prompt: Sequence[int], sampling: SamplingParams, key: mx.array) -> None:
        """Append the part of the prompt that is new since the last reply."""
        self._rates = self._rates_of[sampling.is_greedy]
        most = self._max_tokens // len(self._alike) + len(prompt)
        if self._is_torn or self._num_read > most:
            self._forget()
        shared = common_length(prompt, self._tokens)
        del self._tokens[shared:], self._states[shared + 1 :]
        self._read(prompt[shared:])

    def propose(self, root: int, budget: int) -> Draft:
        return grow(root, self.cursor(root), budget, self.limits)

    def update(self, round: Round) -> None:
        """Update the hit rates of the matches, and append the emitted tokens to the index."""
        for token in (*round.accepted, round.bonus_token):
            self._learn(token)
            self._read((token,))

    def cursor(self, root: int) -> "SuffixCursor":
        """Return the cursor after `root`, which is appended unless it is already the last token."""
        if self._tokens[-1:] != [root]:
            self._read((root,))
        state = self._states[-1]
        return SuffixCursor(self, state, self._automaton.lengths[state])

    def _forget(self) -> None:
        self._automaton = SuffixAutomaton()
        self._tokens: list[int] = []
        self._states = [ROOT]  # of every prefix of the conversation, to continue from after an edit
        self._num_read = 0
        self._is_torn = False

    def _read(self, tokens: Sequence[int]) -> None:
        self._is_torn = True  # an interrupt would leave the automaton half linked
        for token in tokens:
            self._states.append(self._automaton.read(self._states[-1], token))
            self._tokens.append(token)
        self._num_read += len(tokens)
        self._is_torn = False

    def _matches(self, state: int, length: int) -> Iterator[tuple[HitRate, dict[int, int]]]:
        """Yield hit rate and children of the longest suffixes of a match that have a next token."""
        lengths, links = self._automaton.lengths, self._automaton.links
        for _ in range(_NUM_MATCHES):
            while state > ROOT and not self._automaton.children[state]:
                state, length = links[state], lengths[links[state]]
            children = self._automaton.children[state]
            if state <= ROOT or len(children) > _MAX_FAN:
                return
            rates = self._rates[len(children) > 1]
            yield rates[bisect_left(_LENGTH_BOUNDS, length)], children
            state, length = links[state], lengths[links[state]]

    def _learn(self, token: int) -> None:
        state = self._states[-1]
        for rate, children in self._matches(state, self._automaton.lengths[state]):
            rate.record(token in children)
            if token in children:
                return

    def next_probs(self, state: int, length: int) -> dict[int, float]:
        counts = self._automaton.counts
        probs: dict[int, float] = {}
        left = 1.0  # probability that all longer matches miss
        for rate, children in self._matches(state, length):
            followed = [(counts[child], token) for token, child in children.items()]
            share = left * rate.value / sum(count for count, _ in followed)
            if len(followed) > _NUM_RANKED:
                followed = sorted(followed, reverse=True)[:_NUM_RANKED]
            for count, token in followed:
                probs[token] = probs.get(token, 0.0) + share * count
            left *= 1 - rate.value
        return probs

    def after(self, state: int, length: int, token: int) -> "SuffixCursor":
        """Return the cursor after `token`, which may be one that never followed the match."""
        return SuffixCursor(self, *self._automaton.follow(state, length, token))


def _hit_rates(priors: Sequence[Sequence[float]]) -> list[list[HitRate]]:
    return [[HitRate(prior) for prior in row] for row in priors]


@dataclass(slots=True)
class SuffixCursor:
    """A node, given by the longest suffix of its text that occurred before.

    `length` is that of the suffix; its state may have longer substrings.
    """

    drafter: SuffixDrafter
    state: int
    length: int

    def next_probs(self) -> dict[int, float]:
        return self.drafter.next_probs(self.state, self.length)

    def source_of(self, token: int) -> str:
        return self.drafter.name

    def child(self, token: int) -> "SuffixCursor":
        return self.drafter.after(self.state, self.length, token)
