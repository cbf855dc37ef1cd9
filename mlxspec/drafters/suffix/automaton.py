"""A suffix automaton that grows token by token and knows every substring it has read.

A state stands for all substrings that end at the same places of the text. Reading a token costs
amortised constant time, finding the longest suffix of the text that occurred before costs
nothing: it is the link of the last state (Blumer et al. 1985,
https://doi.org/10.1016/0304-3975(85)90157-4). Texts that share a beginning, such as a
conversation and its continuation after an edit, form a tree: reading goes on from any state
reached before, so the shared part is kept once, and no match runs over the end of a text.
"""

ROOT = 0
"""The state of the empty string, where every text begins."""

_MAX_COUNTED = 64  # links followed to count one token: a text that loops has thousands


class SuffixAutomaton:
    """All substrings of the texts read so far, with the number of their occurrences.

    States are numbers, and per state a list each holds what is known of it; all are for reading.

    Attributes:
        lengths: Length of the longest substring of the state.
        links: State of the longest suffix of it that ends at more places; -1 at the root.
        children: Per token read after it, the state of the longer substring.
        counts: How often it was read (exact unless it repeats itself over and over).
    """

    def __init__(self) -> None:
        self.lengths = [0]
        self.links = [-1]
        self.children: list[dict[int, int]] = [{}]
        self.counts = [0]

    def __len__(self) -> int:
        """Number of states: at most twice the number of tokens read."""
        return len(self.lengths)

    def read(self, state: int, token: int) -> int:
        """Return the state of the text that ends in `state` once `token` is appended to it.

        Args:
            state: `ROOT`, or what `read` returned for the text so far.
            token: The next token of the text.
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
        """Return state and length of the longest suffix of a match plus `token` that was read.

        Args:
            state: State of the match.
            length: Length of the match; the state also holds longer substrings.
            token: The token that follows the match.
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
        """Lead every suffix that `token` never followed to the new state, and link that."""
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
        """Give the shorter substrings of `known`, which now end at more places, their own state."""
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
