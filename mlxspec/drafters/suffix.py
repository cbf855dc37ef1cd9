"""The suffix drafter: propose what followed the longest earlier match of the latest tokens.

A suffix automaton over prompt, reply and earlier turns finds the longest suffix of the text that
occurred before, and all tokens that followed it. A match of each length has a hit rate, learned
from every verdict, separately for greedy and for sampled text. The hit rate is split among the
tokens that followed, by their counts; the rest of the probability goes to the next shorter match.
So long matches give long chains, and short matches branch early or give nothing. Texts of other
sessions (`search/earlier.py`) come first where they agree with more of the latest tokens. (Prompt
lookup, Saxena 2023, https://github.com/apoorvumang/prompt-lookup-decoding, has one fixed match
length; SAM decoding, Hu et al. 2024, https://arxiv.org/abs/2411.10666; SuffixDecoding, Oliaro et
al. 2024, https://arxiv.org/abs/2411.04975)
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import mlx.core as mx

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.base import TextDrafter
from mlxspec.drafters.search.calibration import HitRate
from mlxspec.drafters.search.earlier import Copying, EarlierTexts, Match
from mlxspec.drafts.round import Round
from mlxspec.params import SamplingParams
from mlxspec.trace.difference import common_length

ROOT = 0
"""The state of the empty string, where every text starts."""

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
_MAX_COUNTED = 64  # links to follow when a token is counted: a text that loops has thousands

_Match = tuple[int, int, Match | None]
"""The longest suffix of a text that occurred before: its state, which may have longer substrings,
and its length; then its match in earlier texts."""


class SuffixDrafter(TextDrafter):
    """Proposes what followed the longest earlier matches of the latest tokens.

    It stores all text of a session, including replies that an edit replaced. When that exceeds its
    share of `max_tokens`, the next reply keeps only its own conversation.
    """

    name = "suffix"

    def __init__(self, max_tokens: int = 100_000, *, earlier: EarlierTexts | None = None) -> None:
        """Make a drafter without text; `earlier` has those of other sessions.

        `max_tokens` is the number of tokens to store beyond the conversation, about 0.5 kB each.
        All drafters that `fresh` made from one another share it equally.
        """
        if max_tokens < 0:
            raise ValueError(f"max_tokens is a number of tokens, 0 or more, not {max_tokens}")
        super().__init__()
        self._max_tokens = max_tokens
        self._earlier = EarlierTexts() if earlier is None else earlier
        self._copying = Copying(self._earlier)
        self._rates_of = {True: _hit_rates(_GREEDY_RATES), False: _hit_rates(_SAMPLED_RATES)}
        self._rates = self._rates_of[True]
        self._forget()

    def anew(self) -> "SuffixDrafter":
        return SuffixDrafter(self._max_tokens)

    def fresh_for(self, target: Decoder) -> "SuffixDrafter":
        """Return a drafter for one more sequence; it has the earlier texts, too."""
        new = self.fresh()
        new._earlier, new._copying = self._earlier, Copying(self._earlier)
        return new

    def start(self, prompt: Sequence[int], sampling: SamplingParams, key: mx.array) -> None:
        """Append the part of the prompt that is new since the last reply."""
        self._rates = self._rates_of[sampling.is_greedy]
        if self._is_torn or self._num_read > self.share_of(self._max_tokens) + len(prompt):
            self._forget()
        shared = common_length(prompt, self._tokens)
        del self._tokens[shared:], self._states[shared + 1 :]
        self._read(prompt[shared:])
        self._copying.start(prompt)

    def update(self, round: Round) -> None:
        """Update the hit rates of the matches, and append the emitted tokens to the index."""
        for token in (*round.accepted, round.bonus_token):
            for _, rate, children in self._matches(self._last()):
                rate.record(token in children)
                if token in children:
                    break
            self._copying.learn(token)
            self._append(token)

    def state(self, root: int) -> _Match:
        """Return the state after `root`, which is appended unless it is already the last token."""
        if self._tokens[-1:] != [root]:
            self._append(root)
        return self._last()

    def next_probs(self, state: _Match) -> dict[int, float]:
        counts = self._automaton.counts
        probs: dict[int, float] = {}
        left = 1.0  # probability that all longer matches miss
        matches, copied = list(self._matches(state)), state[2]
        longest = matches[0][0] if matches else 0
        if copied is not None and copied.length > longest and copied.next_token is not None:
            probs[copied.next_token] = self._copying.prob(copied)
            left -= probs[copied.next_token]
        for _, rate, children in matches:
            followed = [(counts[child], token) for token, child in children.items()]
            share = left * rate.value / sum(count for count, _ in followed)
            if len(followed) > _NUM_RANKED:
                followed = sorted(followed, reverse=True)[:_NUM_RANKED]
            for count, token in followed:
                probs[token] = probs.get(token, 0.0) + share * count
            left *= 1 - rate.value
        return probs

    def after(self, state: _Match, token: int) -> _Match:
        node, length, copied = state
        followed = self._automaton.follow(node, length, token)
        return *followed, copied and copied.after(token)

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

    def _append(self, token: int) -> None:
        self._read((token,))
        self._copying.append(token)

    def _last(self) -> _Match:
        last = self._states[-1]
        return last, self._automaton.lengths[last], self._copying.match

    def _matches(self, match: _Match) -> Iterator[tuple[int, HitRate, dict[int, int]]]:
        """Yield length, hit rate and children of the longest suffixes that have a next token."""
        lengths, links = self._automaton.lengths, self._automaton.links
        state, length, _ = match
        for _ in range(_NUM_MATCHES):
            while state > ROOT and not self._automaton.children[state]:
                state, length = links[state], lengths[links[state]]
            children = self._automaton.children[state]
            if state <= ROOT or len(children) > _MAX_FAN:
                return
            rates = self._rates[len(children) > 1]
            yield length, rates[bisect_left(_LENGTH_BOUNDS, length)], children
            state, length = links[state], lengths[links[state]]


def _hit_rates(priors: Sequence[Sequence[float]]) -> list[list[HitRate]]:
    return [[HitRate(prior) for prior in row] for row in priors]


class SuffixAutomaton:
    """All substrings of the texts so far, with the number of their occurrences.

    It grows token by token. A state represents all substrings that end at the same positions.
    Appending a token takes amortised constant time, and the longest suffix of the text that
    occurred before takes no search: it is the link of the last state (Blumer et al. 1985,
    https://doi.org/10.1016/0304-3975(85)90157-4). Texts with a common prefix, such as a
    conversation and its continuation after an edit, form a tree: a text can continue from any
    earlier state, so the prefix is stored once, and no match crosses the end of a text.

    States, at most twice the number of tokens, are indices into its lists.
    """

    def __init__(self) -> None:
        self.lengths = [0]  # of the longest substring of the state
        self.links = [-1]  # state of its longest suffix that ends at more positions; -1 at the root
        # Per token that followed it, the state of the longer substring.
        self.children: list[dict[int, int]] = [{}]
        self.counts = [0]  # number of occurrences; too low only in texts that loop

    def read(self, state: int, token: int) -> int:
        """Append `token` to the text that ends in `state`; return its new state.

        `state` is `ROOT`, or the result of `read` for the text so far.
        """
        known = self.children[state].get(token)
        if known is None:
            new = self._add(self.lengths[state] + 1, {})
            self._link(state, token, new)
        elif self.lengths[known] == self.lengths[state] + 1:
            new = known
        else:
            new = self._split(state, token, known)
        self._count(new)
        return new

    def follow(self, state: int, length: int, token: int) -> tuple[int, int]:
        """Return state and length of the longest suffix of match + `token` that occurred before.

        `length` is that of the match; its state may have longer substrings.
        """
        while state >= 0 and token not in self.children[state]:
            state = self.links[state]
            length = self.lengths[state] if state >= 0 else 0
        return (self.children[state][token], length + 1) if state >= 0 else (ROOT, 0)

    def _add(self, length: int, children: dict[int, int]) -> int:
        self.lengths.append(length)
        self.links.append(ROOT)
        self.children.append(children)
        self.counts.append(0)
        return len(self.lengths) - 1

    def _link(self, state: int, token: int, new: int) -> None:
        """Connect every suffix that `token` never followed to the new state, and set its link."""
        while state >= 0 and token not in self.children[state]:
            self.children[state][token] = new
            state = self.links[state]
        if state < 0:
            return
        known = self.children[state][token]
        if self.lengths[known] != self.lengths[state] + 1:
            known = self._split(state, token, known)
        self.links[new] = known

    def _split(self, state: int, token: int, known: int) -> int:
        """Move the shorter substrings of `known`, which now end at more positions, to a state."""
        short = self._add(self.lengths[state] + 1, dict(self.children[known]))
        self.counts[short] = self.counts[known]
        self.links[short] = self.links[known]
        self.links[known] = short
        while state >= 0 and self.children[state].get(token) == known:
            self.children[state][token] = short
            state = self.links[state]
        return short

    def _count(self, state: int) -> None:
        for _ in range(_MAX_COUNTED):
            if state <= ROOT:
                return
            self.counts[state] += 1
            state = self.links[state]
