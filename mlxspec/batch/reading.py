"""Reads the prompts of a batch, one after the other and a part at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlxspec.batch.sequence import BatchSequence
from mlxspec.drafters.base import Drafter, readers_of
from mlxspec.kv.prefixes import Planes, PrefixCache
from mlxspec.target.decoder import PREFILL_CHUNK, Decoder
from mlxspec.trace.difference import common_length


@dataclass(frozen=True, eq=False)
class Place:
    """What a sequence takes when its prompt is read, and gives back when it leaves.

    Attributes:
        reader: Reads the prompt. Sequences that share a forward share it too; each of the others
            has its own, and goes on with it.
        drafter: Drafts for the sequence, and has learned from those before.
    """

    reader: Decoder
    drafter: Drafter


class PromptReader:
    """Reads a prompt but for its last token, which is the first root.

    Attributes:
        sequence: Whose prompt is read now; None where none is.
        place: What that sequence has taken.
    """

    def __init__(self, prefixes: PrefixCache | None = None) -> None:
        """Begin with no prompt.

        Args:
            prefixes: Beginnings that need not be read again; they belong to a cache that can be
                cut anywhere.
        """
        self.sequence: BatchSequence | None = None
        self.place: Place | None = None
        self._prefixes = prefixes
        self._num_reused = 0

    def begin(self, sequence: BatchSequence, place: Place, drafter: Drafter) -> None:
        """Begin with the prompt of a sequence, after what is known of it.

        Args:
            sequence: The sequence.
            place: Its place.
            drafter: Its drafter; where that reads hidden states, it gets those of the prompt.
        """
        self.sequence, self.place = sequence, place
        reader, tokens, readers = (
            place.reader,
            sequence.continuation.tokens[:-1],
            readers_of(drafter),
        )
        reader.attach(readers)
        reused = reader.reusable(common_length(reader.history, tokens))
        # States of tokens that nobody reads now are not kept, so such a drafter reads all.
        if self._prefixes is not None and not readers:
            prefix = self._prefixes.find(tokens)
            if prefix.length > reused:
                reused = prefix.length
                reader.adopt(tokens[:reused], reader.cache.filled(reused, prefix.planes))
        reader.rollback_to(reused)
        self._num_reused = reused

    def read(self, most: int) -> int:
        """Read up to `most` more tokens; return how many.

        At the end of the prompt its rows are kept, and the place is the sequence's alone.
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
        """End the reading, early too: what was read is kept, unless it may be damaged."""
        if self.place is not None and keeps_rows:
            reader = self.place.reader
            self.keep(reader.history, reader.cache.rows)
        self.sequence = self.place = None

    def forget(self) -> None:
        """Forget all beginnings."""
        if self._prefixes is not None:
            self._prefixes.clear()

    def keep(self, tokens: Sequence[int], rows: Callable[[int, int], Planes]) -> None:
        """Keep the rows of a text; `rows` returns those from one index to another."""
        if self._prefixes is not None:
            self._prefixes.add(tokens, rows)
