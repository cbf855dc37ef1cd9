"""Reads the prompts of a batch, one after the other and a part at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlxspec.batch.sequence import BatchSequence
from mlxspec.decoder.decoder import PREFILL_CHUNK, Decoder
from mlxspec.drafters.base import Drafter
from mlxspec.kv.prefixes import Planes, PrefixCache
from mlxspec.trace.difference import common_length


@dataclass(frozen=True, eq=False)
class Place:
    """The reader and drafter that a sequence borrows.

    Attributes:
        reader: Reads the prompt. Sequences with a shared forward share it; each other sequence has
            its own, and continues with it.
        drafter: Drafts for the sequence, and has learned from earlier ones.
    """

    reader: Decoder
    drafter: Drafter


class PromptReader:
    """Reads a prompt except its last token, which is the first root.

    Attributes:
        sequence: The sequence whose prompt is read now, or None.
        place: The reader and drafter of that sequence.
    """

    def __init__(self, prefixes: PrefixCache | None = None) -> None:
        """Start without a prompt.

        `prefixes` stores rows of prefixes, which need not be computed again; they need a cache that
        can be cut anywhere.
        """
        self.sequence: BatchSequence | None = None
        self.place: Place | None = None
        self._prefixes = prefixes
        self._num_reused = 0

    def begin(self, sequence: BatchSequence, place: Place, drafter: Drafter) -> None:
        """Start with the prompt of a sequence, after its stored prefix.

        A drafter that reads hidden states gets those of the prompt.
        """
        self.sequence, self.place = sequence, place
        reader, readers = place.reader, drafter.readers
        tokens = sequence.continuation.tokens[:-1]
        reader.attach(readers)
        reused = reader.reusable(common_length(reader.history, tokens))
        # Hidden states are not stored, so a drafter that needs them reads the whole prompt.
        if self._prefixes is not None and not readers:
            prefix = self._prefixes.find(tokens)
            if prefix.length > reused:
                reused = prefix.length
                reader.adopt(tokens[:reused], reader.cache.filled(reused, prefix.planes))
        reader.rollback_to(reused)
        self._num_reused = reused

    def read(self, most: int) -> int:
        """Read up to `most` more tokens; return how many.

        At the end of the prompt its rows are stored, and `place` belongs only to the sequence.
        """
        assert self.sequence is not None, "a prompt is begun before it is read"
        assert self.place is not None
        sequence, reader = self.sequence, self.place.reader
        unread = sequence.continuation.tokens[len(reader) : -1]
        step = sequence.job.params.prefill_step_size or PREFILL_CHUNK
        chunk = unread[: min(step, most, PREFILL_CHUNK)]
        reader.observe(chunk)
        sequence.has_read(len(reader) + 1, self._num_reused)
        if len(chunk) == len(unread):
            self.stop()
        return len(chunk)

    def stop(self, *, keeps_rows: bool = True) -> None:
        """Stop reading, at the end or earlier; rows are stored unless they may be damaged."""
        if self.place is not None and keeps_rows:
            reader = self.place.reader
            self.keep(reader.history, reader.cache.rows)
        self.sequence = self.place = None

    def forget(self) -> None:
        """Forget all prefixes."""
        if self._prefixes is not None:
            self._prefixes.clear()

    def keep(self, tokens: Sequence[int], rows: Callable[[int, int], Planes]) -> None:
        """Store the rows of a text; `rows` returns those from one index to another."""
        if self._prefixes is not None:
            self._prefixes.add(tokens, rows)
