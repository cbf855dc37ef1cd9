"""The table drafter: the target's probabilities after the last one, two and three tokens.

Every verified node, even a rejected one, shows the target's most probable next tokens. The table
stores them per context of one, two and three tokens, as a decaying mean over the conversation. A
prediction gives the longest context a weight that grows with its occurrences, and the rest to
shorter contexts. Rows of a file are means over a corpus; they come after the learned row of the
same context. With such rows, the rows learned in one conversation would mislead the next, so they
are dropped. Rows of all conversations are counted like a corpus and added to those of the file.
Rows of other models' text (`seed_table.py`) come last: what the target itself says has more weight.
(With contexts of one token and the latest row only, this is Token Recycling, Luo et al. 2024,
https://arxiv.org/abs/2408.08696.) What no row predicts is left to the runners-up: the tokens that
the target found probable in place of the last one come next more often than others do.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxspec.drafters.base import TextDrafter
from mlxspec.drafters.search.calibration import HitRate
from mlxspec.drafters.table.memory import TableMemory
from mlxspec.drafters.table.rows import (
    MAX_ORDER,
    STORED_PRIOR,
    LearnedRows,
    Rows,
    StoredRows,
    extend,
    shorten,
)
from mlxspec.drafters.table.seed_table import SeedTable
from mlxspec.drafts.round import Round
from mlxspec.params import SamplingParams
from mlxspec.trace.difference import common_length

_MAX_ROWS = 30_000  # per length of context, about 1 kB each
_DECAY = 0.7
_LEARNED_PRIOR = 1.0  # a learned row gets c / (c + 1), more: it comes from this conversation
_RUNNER_UP_RATES = (0.07, 0.06, 0.04, 0.03, 0.02, 0.01, 0.01)  # that each is the next token
_MIN_PROB = 0.005  # less probable tokens would cost time and never enter a tree


class TableDrafter(TextDrafter):
    """Proposes the tokens that the target found probable after the same preceding tokens."""

    name = "table"
    num_top_tokens = 8

    def __init__(
        self,
        stored: Sequence[StoredRows] = (),
        *,
        memory: TableMemory | None = None,
        seed_table: SeedTable | None = None,
        max_rows: int = _MAX_ROWS,
        decay: float = _DECAY,
    ) -> None:
        """Make a drafter with the rows of a file, or with none.

        `stored` has the rows for contexts of one, two and three tokens; `memory` those learned in
        earlier conversations; `seed_table` those of other models' text, used from the first reply
        after they are ready. `max_rows` is the largest number of learned rows per length of
        context; drafters that `fresh` made from one another share them equally. `decay`, in [0, 1],
        is that of earlier occurrences at the next one of their context: below 1 follows a
        conversation, 1 gives the plain mean.
        """
        if max_rows < 1:
            raise ValueError(f"max_rows is a number of rows, 1 or more, not {max_rows}")
        if not 0 <= decay <= 1:
            raise ValueError(f"decay must be between 0 and 1; got {decay}")
        super().__init__()
        self._memory, self._seed_table, self._stored = memory, seed_table, tuple(stored)
        self._max_rows, self._decay = max_rows, decay
        self._prompt: Sequence[int] = ()
        self._context = 0
        self._runners_up: tuple[int, ...] = ()
        self._rates = [HitRate(prior) for prior in _RUNNER_UP_RATES]
        self._forget()

    def anew(self) -> "TableDrafter":
        return TableDrafter(
            self._stored,
            memory=self._memory,
            seed_table=self._seed_table,
            max_rows=self._max_rows,
            decay=self._decay,
        )

    def start(self, prompt: Sequence[int], sampling: SamplingParams, key: mx.array) -> None:
        """Set the context to the end of the prompt.

        With stored rows or a memory, a new conversation drops the rows of the last one.
        """
        if self._memory is not None:
            self._memory.save_if_due()
        goes_on = common_length(prompt, self._prompt) == len(self._prompt)
        if (self._stored or self._memory is not None) and not goes_on:
            self._forget()
        for rows in self._learned:
            rows.hold(max(1, self.share_of(self._max_rows)))
        self._rows = self._sources()
        self._prompt, self._runners_up = tuple(prompt), ()
        self._context = extend(0, *prompt[-MAX_ORDER:])

    def update(self, round: Round) -> None:
        """Learn a row from every verified node, rejected ones included."""
        emitted = (*round.accepted, round.bonus_token)
        for rate, runner_up in zip(self._rates, self._runners_up, strict=False):
            rate.record(runner_up == emitted[0])
        contexts = [self.state(round.tokens[0])]
        for token, parent in zip(round.tokens[1:], round.parents[1:], strict=True):
            contexts.append(extend(contexts[parent], token))
        self._context = extend(contexts[round.path[-1]], round.bonus_token)
        best = round.top_tokens[round.path[-1]] if round.top_tokens else ()
        self._runners_up = tuple(token for token in best if token != round.bonus_token)
        for context, best, probs in zip(contexts, round.top_tokens, round.top_probs, strict=True):
            for order, rows in enumerate(self._learned, 1):
                rows.learn(shorten(context, order), best, probs)
        if self._memory is not None:
            self._memory.learn(contexts, round.top_tokens, round.top_probs)

    def next_probs(self, state: int) -> dict[int, float]:
        probs: dict[int, float] = {}
        left = 1.0  # probability that is left for the next rows
        for order in range(MAX_ORDER, 0, -1):
            key = shorten(state, order)
            for parts, prior in self._rows[order - 1]:
                found = [row for rows in parts if (row := rows.get(key)) is not None]
                occurrences = sum([row.occurrences for row in found])
                share = left / (occurrences + prior)  # the prior counts as other occurrences
                for row in found:
                    for token, mass in row.masses.items():
                        probs[token] = probs.get(token, 0.0) + share * mass
                left = share * prior
        if state == self._context:
            left = max(0.0, 1 - sum(probs.values()))
            for rate, token in zip(self._rates, self._runners_up, strict=False):
                probs[token] = probs.get(token, 0.0) + left * rate.value
        return {token: prob for token, prob in probs.items() if prob >= _MIN_PROB}

    def after(self, state: int, token: int) -> int:
        return extend(state, token)

    def _forget(self) -> None:
        """Drop the rows of this conversation; stored rows and memory stay."""
        self._learned = [LearnedRows(self._max_rows, self._decay) for _ in range(MAX_ORDER)]
        self._rows = self._sources()

    def _sources(self) -> list[list[tuple[tuple[Rows, ...], float]]]:
        """Return per order the sources by priority, each as rows that are summed, and a prior."""
        memory, seed_table = self._memory, self._seed_table
        kept, new = (memory.kept, memory.new) if memory is not None else ((), ())
        seed = seed_table.rows if seed_table is not None else ()
        sources: list[list[tuple[tuple[Rows, ...], float]]] = []
        for order, learned in enumerate(self._learned):
            corpus = tuple(rows[order] for rows in (self._stored, kept, new) if rows)
            sources.append([((learned,), _LEARNED_PRIOR), (corpus, STORED_PRIOR)])
            if seed:
                sources[-1].append(((seed[order],), STORED_PRIOR))
        return sources

    def state(self, root: int) -> int:
        """Return the context that ends in `root`; append it unless it is already the last token."""
        if shorten(self._context, 1) == extend(0, root):
            return self._context
        return extend(self._context, root)
