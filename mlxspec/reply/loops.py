"""Detects that a reply repeats the same tokens in the same order without end.

Small models fall into loops that only the token limit ends. A loop is exact: its last tokens are
copies of one period. So text with different items, such as a numbered list, code or a table of
numbers, is no loop, however similar the items are. A token costs one step for each of its earlier
occurrences within the longest period.
"""

from collections import defaultdict, deque

LONGEST_PERIOD = 256
"""Tokens in the longest detected period."""
LEAST_COPIES = 4
"""Copies of the period in a loop; a song repeats its refrain three times, too."""
LEAST_TOKENS = 128
"""Tokens in a loop; a ruler or a row of zeros is shorter, and intended."""


class LoopFinder:
    """Follows the tokens of one reply."""

    def __init__(self) -> None:
        self._num_tokens = 0
        self._seen: defaultdict[int, deque[int]] = defaultdict(deque)  # positions, by token
        # By period: number of tokens that equal those one period before.
        self._runs: dict[int, int] = {}

    def push(self, token: int) -> bool:
        """Add the next token; return whether the text ends with a loop."""
        here, seen = self._num_tokens, self._seen[token]
        while seen and here - seen[0] > LONGEST_PERIOD:
            seen.popleft()
        runs = self._runs
        self._runs = {here - before: runs.get(here - before, 0) + 1 for before in reversed(seen)}
        seen.append(here)
        self._num_tokens += 1
        return any(
            period + run >= max(LEAST_TOKENS, LEAST_COPIES * period)
            for period, run in self._runs.items()
        )
