"""One compact file for the rows of a table: safetensors with a checksum.

Per order: `contexts` (n, order) sorted token ids, `counts` (n,) occurrences up to 255, `sizes`
(n,) entries per row, and of all rows one after the other `tokens` (entries,) and `roots`
(entries,), the square root of the mean probability in 255ths. Token ids take 16 bits where the
vocabulary allows, 32 else. Longer contexts are kept only if they were seen twice, with fewer
entries: most of the file would be rows that never come again.
"""

import os
import zlib
from collections.abc import Mapping, Sequence
from heapq import nlargest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from mlxspec.drafters.table_rows import MAX_ORDER, Row, StoredRows, pack, unpack
from mlxspec.errors import MlxspecError, VocabularyMismatchError

TABLE_FORMAT = "mlxspec-table/1"

_WIDTHS = (16, 8, 8)  # per order: entries kept of a row
_NAMES = ("contexts", "counts", "sizes", "tokens", "roots")

Arrays = dict[str, NDArray[Any]]


def save_table(
    path: str | os.PathLike[str], rows: Sequence[Mapping[int, Row]], vocab_size: int
) -> None:
    """Write rows to a file, which is replaced whole or left as it was.

    Args:
        path: The file.
        rows: Per order, the rows by their keys.
        vocab_size: Number of tokens of the target.

    Raises:
        MlxspecError: The file cannot be written.
    """
    dtype = np.uint16 if vocab_size <= 1 << 16 else np.uint32
    arrays: Arrays = {}
    for order, of_order in enumerate(rows, 1):
        kept = {
            key: row for key, row in of_order.items() if row.occurrences >= _MIN_COUNTS[order - 1]
        }
        for name, array in _to_arrays(kept, order).items():
            is_token = name in ("contexts", "tokens")
            arrays[f"{order}.{name}"] = array.astype(dtype if is_token else np.uint8)
    metadata = {
        "format": TABLE_FORMAT,
        "vocab_size": str(vocab_size),
        "crc32": str(_checksum(arrays)),
    }
    path = Path(path)
    partial = path.with_name(path.name + ".part")
    try:
        save_file(arrays, partial, metadata)
        os.replace(partial, path)
    except (OSError, SafetensorError) as error:
        partial.unlink(missing_ok=True)
        raise MlxspecError(f"cannot write the table {path}: {error}") from error


def load_table(path: str | os.PathLike[str], vocab_size: int) -> list[StoredRows]:
    """Return the rows of orders 1, 2, ... that a file holds.

    Raises:
        VocabularyMismatchError: The table was made for a vocabulary of another size.
        MlxspecError: The file cannot be read, is damaged or is not a table.
    """
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise MlxspecError(f"cannot read the table {path}: {error}") from error
    if metadata.get("format") != TABLE_FORMAT:
        raise MlxspecError(
            f"{path} is not a table: its format is {metadata.get('format')!r}, "
            f"this version reads {TABLE_FORMAT!r}"
        )
    if metadata.get("vocab_size") != str(vocab_size):
        raise VocabularyMismatchError(
            f"the table {path} was made for {metadata.get('vocab_size')} tokens, the target has "
            f"{vocab_size}: use the table of this target, or none"
        )
    if metadata.get("crc32") != str(_checksum(arrays)):
        raise MlxspecError(f"the table {path} is damaged (checksum): get or make it again")
    return [_from_arrays(arrays, order) for order in range(1, MAX_ORDER + 1)]


def _checksum(arrays: Arrays) -> int:
    value = 0
    for name in sorted(arrays):
        value = zlib.crc32(np.ascontiguousarray(arrays[name]).tobytes(), value)
    return value


def _to_arrays(rows: Mapping[int, Row], order: int) -> Arrays:
    """Return the arrays of one order, in wide types; contexts from before a text are left out."""
    worth = (context for context, row in rows.items() if order == 1 or row.occurrences > 1)
    contexts = np.array(sorted(worth), np.int64)
    contexts = contexts[(unpack(contexts, order) >= 0).all(axis=1)]
    ordered = [rows[context] for context in contexts.tolist()]
    entries = [_entries(row, _WIDTHS[order - 1]) for row in ordered]
    return {
        "contexts": unpack(contexts, order),
        "counts": np.array([min(round(row.occurrences), 255) for row in ordered], np.int64),
        "sizes": np.array([len(row) for row in entries], np.int64),
        "tokens": np.array([token for row in entries for token, _ in row], np.int64),
        "roots": np.array([root for row in entries for _, root in row], np.int64),
    }


def _entries(row: Row, width: int) -> list[tuple[int, int]]:
    """Return tokens and 8-bit roots of the most probable tokens of a row, zeros left out."""
    best = nlargest(width, row.masses.items(), key=lambda item: item[1])
    roots = ((token, round(255 * min(mass / row.occurrences, 1.0) ** 0.5)) for token, mass in best)
    return [(token, root) for token, root in roots if root]


def _from_arrays(arrays: Arrays, order: int) -> StoredRows:
    contexts, counts, sizes, tokens, roots = (arrays[f"{order}.{name}"] for name in _NAMES)
    starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    return StoredRows(pack(contexts), counts, starts, tokens, roots)
