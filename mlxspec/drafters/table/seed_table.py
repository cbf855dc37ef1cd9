"""The seed table: the seed text as a table of one tokenizer, which needs no training.

Language is language: what one model says often, another one says too. So every target whose drafter
reads a table begins with one of this text, until a table of much text is trained for it. The
tokenizer reads the text once on a machine, in a thread of its own; the table is kept in the cache
folder by the hash of the tokenizer. Nothing of the user is in it.

Most tokenizers give a word the same tokens after any other word. So the text is split before words,
and each different piece is read once: a tenth of the work.
"""

import os
import re
import sys
import zlib
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from threading import Lock, Thread, get_native_id
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Encoder

from mlxspec.drafters.table.building import Occurrences, build_table
from mlxspec.drafters.table.file import load_table, save_table
from mlxspec.drafters.table.rows import MAX_ORDER, StoredRows, pack
from mlxspec.errors import MlxspecError, Say
from mlxspec.files import locked
from mlxspec.loading.heads.file import DrafterFile
from mlxspec.loading.records import cache_folder
from mlxspec.text.seed_text import read_seed, shipped_seed
from mlxspec.text.tokenizer import Tokenizer

MAX_BYTES = 12_000_000
FEWEST_TOKENS = 2_000
"""A smaller vocabulary is one of characters: three of them say little about a text."""

BESIDE_SEED = "beside_seed"
"""In the card of a table of little text: the seed table predicts where its rows do not."""

_MOST_TOKENS = 4_000_000  # of the text: bounds time and memory
_NICE = 10  # on a busy machine 19 gave a hundredth of a core: ten minutes for a table
_BEFORE = "\n"  # stands before each piece: some tokenizers read the start of a text otherwise
_PIECES = re.compile(r"(?<=\S)(?= \S)|(?<=[^\W\d_])(?=[.,;:!?])")
_GAP = [-1] * (MAX_ORDER - 1)  # before the start of a text


class SeedTable:
    """The seed table of one tokenizer."""

    def __init__(
        self, tokenizer: Tokenizer, vocab_size: int, folder: Path, say: Say = lambda line: None
    ) -> None:
        """Load the table, or make and store it, in a thread; errors are reported to `say`.

        `vocab_size` is the target's: a table of tokens that it lacks is not used.
        """
        self.rows: Sequence[StoredRows] = ()  # per order; none until they are ready
        name = f"{tokenizer.fingerprint[:16]}-{seed_text_digest()}.safetensors"
        self._tokenizer, self._path, self._say = tokenizer, folder / name, say
        self._vocab_size = vocab_size
        self._thread = Thread(target=self._run, name="seed table", daemon=True)
        self._thread.start()

    def wait(self, most_seconds: float | None = None) -> None:
        """Wait until the rows are ready, or cannot be had; None waits for as long as it takes."""
        self._thread.join(most_seconds)

    def _run(self) -> None:
        if sys.platform == "linux":  # elsewhere the number of a thread is not that of a process
            os.setpriority(os.PRIO_PROCESS, get_native_id(), _NICE)
        try:
            rows = self._load() or self._make()
            if all((one.tokens < self._vocab_size).all() for one in rows):
                self.rows = rows
        except Exception as error:  # whatever it is, replies must not end by it
            self._say(f"warning: the seed text is not used: {error}")

    def _load(self) -> Sequence[StoredRows]:
        """Return the rows of the file; none if there is no file that can be used."""
        tokenizer = self._tokenizer
        try:
            return load_table(self._path, tokenizer.vocab_size, tokenizer=tokenizer.fingerprint)
        except MlxspecError:
            return ()

    def _make(self) -> Sequence[StoredRows]:
        try:
            with locked(self._path.with_suffix(".lock")):  # two processes make it once
                return self._load() or self._made()
        except OSError:  # of the lock: nothing can be stored here
            return self._made()

    def _made(self) -> Sequence[StoredRows]:
        vocab_size, name = self._tokenizer.vocab_size, self._tokenizer.fingerprint
        occurrences = observe_texts(self._tokenizer, read_seed(shipped_seed()))
        rows = build_table([occurrences], vocab_size, max_bytes=MAX_BYTES)
        with suppress(MlxspecError, OSError):  # it would only save time
            save_table(self._path, rows, vocab_size, tokenizer=name)
            for path in self._path.parent.glob(f"{name[:16]}-*.safetensors"):
                if path != self._path:  # of another text
                    path.unlink()
        return rows


_tables = WeakValueDictionary[tuple[str, int, Path], SeedTable]()
_guard = Lock()


def find_seed_table(tokenizer: Tokenizer, vocab_size: int, say: Say) -> SeedTable | None:
    """Return the seed table of a tokenizer, the same one while it is in use.

    `vocab_size` is the target's. None if the vocabulary is too small for it to help.
    """
    if tokenizer.vocab_size < FEWEST_TOKENS:
        return None
    folder = seed_folder()
    with _guard:
        key = (tokenizer.fingerprint, vocab_size, folder)
        found = _tables.get(key)
        if found is None:
            found = _tables[key] = SeedTable(tokenizer, vocab_size, folder, say)
        return found


def is_used_with(trained: DrafterFile | None) -> bool:
    """Return whether the seed table is used with the table that was trained for a target."""
    return trained is None or bool(trained.card.get(BESIDE_SEED))


def seed_folder() -> Path:
    """Return the folder of the seed tables of this machine."""
    return cache_folder() / "seed"


@cache
def seed_text_digest() -> str:
    """Return the checksum of the seed text: tables of another text are made anew."""
    return f"{zlib.crc32(shipped_seed().read_bytes()):08x}"


def observe_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> Occurrences:
    """Return the occurrences in texts: each token follows its context with probability 1."""
    tokens = _tokens_of(tokenizer, texts)
    windows = np.lib.stride_tricks.sliding_window_view(tokens, MAX_ORDER + 1)
    windows = windows[(windows[:, -2:] >= 0).all(axis=1)]  # one token at least, and one after it
    contexts, following = pack(windows[:, :-1]), windows[:, -1:]
    return Occurrences(contexts, following, np.ones(following.shape, np.float32))


def _tokens_of(tokenizer: Tokenizer, texts: Sequence[str]) -> NDArray[np.int32]:
    """Return the tokens of all texts, with a gap before each."""
    # A copy, because the tokenizer is in use; in it, the name of a special token is plain text.
    encoder = Encoder.from_str(tokenizer.wrapped.backend_tokenizer.to_str())
    encoder.encode_special_tokens = True
    pieces_of = [_PIECES.split(text) for text in texts]
    pieces = list(dict.fromkeys(chain.from_iterable(pieces_of)))
    encoded = encoder.encode_batch_fast([_BEFORE + p for p in pieces], add_special_tokens=False)
    start = encoder.encode(_BEFORE, add_special_tokens=False).ids
    tokens_of: dict[str, list[int]] = {}
    for piece, found in zip(pieces, encoded, strict=True):
        ids = found.ids
        tokens_of[piece] = ids[len(start) :] if ids[: len(start)] == start else _GAP
    tokens = list(_GAP)
    for own in pieces_of:
        tokens += chain.from_iterable(map(tokens_of.__getitem__, own))
        tokens += _GAP
        if len(tokens) > _MOST_TOKENS:
            break
    return np.array(tokens, np.int32)
