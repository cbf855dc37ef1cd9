"""Detects that a reply repeats a passage without end, word for word or nearly so.

Small models fall into loops that only the token limit ends. A reply is compared with itself, one
period further up: a token that is copied counts one, and one that is not takes some away. A list,
a table or code has something new in each item, and a poem between its refrains, so little is left
of their count. The tokens alone decide, not how they were drafted.
"""

LONGEST_PERIOD = 256
"""Tokens in the longest detected period."""
LEAST_COPIES = 4
"""Copies of the period in a loop; a song repeats its refrain three times, too."""
LEAST_TOKENS = 128
"""Tokens in a loop; a ruler or a row of zeros is shorter, and intended."""
RUN = 4
"""Tokens in a run; where the last such run stood, the copied passage is."""
OTHER_COST = 20
"""Copied tokens that one takes away which ends a run seen before: another word from a few."""
NEW_COST = 48
"""The same for one that ends a new run, such as the number of an item."""


class LoopFinder:
    """Follows the tokens of one reply."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._ends: dict[tuple[int, ...], int] = {}  # positions of the latest runs, oldest first
        self._period = 0  # 0 while nothing is copied
        self._num_copied = 0

    def push(self, token: int) -> bool:
        """Add the next token; return whether the text ends with a loop."""
        here, run = len(self._tokens), (*self._tokens[1 - RUN :], token)
        before = self._ends.pop(run, None)
        is_copied = self._period > 0 and self._tokens[-self._period] == token
        if is_copied:
            self._num_copied += 1
        elif before is None:
            self._num_copied = max(0, self._num_copied - NEW_COST)
        else:
            self._num_copied = max(RUN, self._num_copied - OTHER_COST)
            self._period = here - before
        self._tokens.append(token)
        self._ends[run] = here
        if len(self._ends) > LONGEST_PERIOD:
            del self._ends[next(iter(self._ends))]
        length = self._period + self._num_copied
        return is_copied and length >= max(LEAST_TOKENS, LEAST_COPIES * self._period)
