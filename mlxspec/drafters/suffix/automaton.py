"""A suffix automaton of the texts read so far: it grows token by token and has every substring.

A state represents all substrings that end at the same positions. Appending a token takes amortised
constant time. The longest suffix of the text that occurred before takes no search: it is the link
of the last state (Blumer et al. 1985, https://doi.org/10.1016/0304-3975(85)90157-4). Texts with a
common prefix, such as a conversation and its continuation after an edit, form a tree: a text can
continue from any earlier state. So the prefix is stored once, and no match crosses the end of a
text.
"""

ROOT = 0
"""The state of the empty string, where every text starts."""

_MAX_COUNTED = 64  # links to follow when a token is counted: a text that loops has thousands


class SuffixAutomaton:
    """All substrings of the texts so far, with the number of their occurrences.

    States are indices into the lists below, which callers must not change.

    Attributes:
        lengths: Length of the longest substring of the state.
        links: State of its longest suffix that ends at more positions; -1 at the root.
        children: Per token that followed it, the state of the longer substring.
        counts: Number of occurrences; too low only in texts that loop.
    """

    def __init__(self) -> None:
        self.lengths = [0]
        self.links = [-1]
        self.children: list[dict[int, int]] = [{}]
        self.counts = [0]

    def __len__(self) -> int:
        """Number of states: at most twice the number of tokens."""
        return len(self.lengths)

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
