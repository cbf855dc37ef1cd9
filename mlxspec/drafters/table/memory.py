"""The table's memory: what it learned in all conversations, in a file of the user.

The file has the layout of a trained table: counts and probabilities of short token sequences, and
nothing else. Only its owner may read it, since it shows parts of conversations. Two processes that
learn at the same time lose nothing: a writer takes a lock, reads the file again and adds its new
rows. A file that cannot be used is replaced at the next save.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

from mlxspec.drafters.table.counts import CountedRows, add_up
from mlxspec.drafters.table.file import load_table, save_table
from mlxspec.drafters.table.rows import MAX_ORDER, StoredRows, shorten
from mlxspec.errors import MlxspecError
from mlxspec.file_lock import locked

_SECONDS_BETWEEN = 300.0  # between saves: a killed process loses at most about this much


class TableMemory:
    """The rows of one target, read from a file and added to it.

    `rows` are those for contexts of one, two and three tokens.
    """

    def __init__(
        self,
        path: Path,
        vocab_size: int,
        *,
        tokenizer: str = "",
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Load the file if it exists; start empty if it cannot be used.

        The file and its folder need not exist. `vocab_size` is the target's. `tokenizer` is the
        fingerprint of its tokenizer; "" to trust the file. An error of the file is reported as one
        line to `say`.
        """
        self.path = path
        self.rows = tuple(CountedRows() for _ in range(MAX_ORDER))
        self._vocab_size, self._tokenizer, self._say = vocab_size, tokenizer, say
        self._guard = Lock()  # the end of a process may save while a reply is still learning
        self._saved_at = time.monotonic()
        try:
            self._keep(self._read())
        except MlxspecError as error:
            say(f"warning: what the table learned before is not used: {error}")

    def learn(
        self,
        contexts: Sequence[int],
        tokens: Sequence[Sequence[int]],
        probs: Sequence[Sequence[float]],
    ) -> None:
        """Add one occurrence of each context, with the target's most probable tokens after it."""
        with self._guard:
            for order, rows in enumerate(self.rows, 1):
                for context, best, their in zip(contexts, tokens, probs, strict=True):
                    rows.new.learn(shorten(context, order), best, their)

    def save_if_due(self) -> None:
        """Save if the last save is more than five minutes ago."""
        if time.monotonic() - self._saved_at > _SECONDS_BETWEEN:
            self.save()

    def save(self) -> None:
        """Add the new rows to the file; report an error to `say` and continue."""
        with self._guard:
            self._saved_at = time.monotonic()
            if not any(len(rows.new) for rows in self.rows):
                return
            try:
                with locked(self.path.with_suffix(".lock")):
                    self._keep(self._write())
            except (OSError, MlxspecError) as error:
                self._say(f"warning: what the table learned cannot be kept: {error}")

    def _write(self) -> list[StoredRows]:
        try:
            kept = self._read()
        except MlxspecError:
            kept = [CountedRows().kept for _ in self.rows]
        total = [
            add_up(of_order, rows.new, order)
            for order, (of_order, rows) in enumerate(zip(kept, self.rows, strict=True), 1)
        ]
        save_table(self.path, total, self._vocab_size, tokenizer=self._tokenizer, is_private=True)
        return total

    def _read(self) -> list[StoredRows]:
        if not self.path.exists():
            return [CountedRows().kept for _ in self.rows]
        return load_table(self.path, self._vocab_size, tokenizer=self._tokenizer)

    def _keep(self, kept: Sequence[StoredRows]) -> None:
        for rows, of_order in zip(self.rows, kept, strict=True):
            rows.keep(of_order)
