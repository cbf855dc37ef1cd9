"""One compact file for the rows of a table: safetensors with a checksum.

Per length of context, "order": `contexts` (n, order) token ids in rising order, `counts` (n,)
occurrences up to 255, `sizes` (n,) entries per row, and of all rows one after the other `tokens`
(entries,) and `roots` (entries,), the square root of the mean probability in 255ths. Token ids
take 16 bits where the vocabulary allows, 32 else. Contexts of several tokens are kept only if
they were seen again, with fewer entries: most of the file would be rows that never come back.
"""

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from heapq import nlargest
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from mlxspec.drafters.table_rows import MAX_ORDER, Row, StoredRows, pack, unpack
from mlxspec.errors import MlxspecError, VocabularyMismatchError

TABLE_FORMAT = "mlxspec-table/1"

_FACTS = "table"  # one entry of metadata: the order of several would change from file to file
_WIDTHS = (16, 4, 4)  # per order: entries kept of a row

Arrays = dict[str, NDArray[Any]]


def save_table(
    path: str | os.PathLike[str], rows: Sequence[Mapping[int, Row]], vocab_size: int
) -> None:
    """Write rows to a file, which is replaced whole or left as it was.

    Args:
        path: The file.
        rows: Per order, the rows by their contexts.
        vocab_size: Number of tokens of the target.

    Raises:
        MlxspecError: The file cannot be written.
    """
    arrays: Arrays = {}
    for order, rows_of_order in enumerate(rows, 1):
        arrays |= _to_arrays(rows_of_order, order, vocab_size)
    facts = {"format": TABLE_FORMAT, "vocab_size": vocab_size, "crc32": _checksum(arrays)}
    path = Path(path)
    partial = path.with_name(path.name + ".part")
    try:
        save_file(arrays, partial, {_FACTS: json.dumps(facts)})
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
            facts = _parse((file.metadata() or {}).get(_FACTS, ""))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise MlxspecError(f"cannot read the table {path}: {error}") from error
    if facts.get("format") != TABLE_FORMAT:
        raise MlxspecError(
            f"{path} is not a table: its format is {facts.get('format')!r}, "
            f"this version reads {TABLE_FORMAT!r}"
        )
    if facts.get("vocab_size") != vocab_size:
        raise VocabularyMismatchError(
            f"the table {path} was made for {facts.get('vocab_size')} tokens, the target has "
            f"{vocab_size}: use the table of this target, or none"
        )
    if facts.get("crc32") != _checksum(arrays):
        raise MlxspecError(f"the table {path} is damaged (checksum): get or make it again")
    return [_from_arrays(arrays, order) for order in range(1, MAX_ORDER + 1)]


def _parse(text: str) -> dict[str, Any]:
    try:
        facts = json.loads(text)
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def _checksum(arrays: Arrays) -> int:
    """Return the CRC-32 of names, types, shapes and contents."""
    value = 0
    for name, array in sorted(arrays.items()):
        value = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), value)
        value = zlib.crc32(array.tobytes(), value)
    return value


def _to_arrays(rows: Mapping[int, Row], order: int, vocab_size: int) -> Arrays:
    """Return the arrays of the rows worth keeping."""
    worth = [context for context, row in rows.items() if order == 1 or row.occurrences > 1]
    packed = np.array(sorted(worth), np.int64)
    packed = packed[(unpack(packed, order) >= 0).all(axis=1)]  # not those at the start of a text
    ordered = [rows[context] for context in packed.tolist()]
    entries = [_entries(row, _WIDTHS[order - 1]) for row in ordered]
    token_type = np.uint16 if vocab_size <= 1 << 16 else np.uint32
    return {
        f"{order}.contexts": unpack(packed, order).astype(token_type),
        f"{order}.counts": np.array([min(round(row.occurrences), 255) for row in ordered], "u1"),
        f"{order}.sizes": np.array([len(row) for row in entries], "u1"),
        f"{order}.tokens": np.array([token for row in entries for token, _ in row], token_type),
        f"{order}.roots": np.array([root for row in entries for _, root in row], "u1"),
    }


def _entries(row: Row, width: int) -> list[tuple[int, int]]:
    """Return tokens and 8-bit roots of the most probable tokens of a row, zeros left out."""
    best = nlargest(width, row.masses.items(), key=itemgetter(1))
    roots = ((token, round(255 * min(mass / row.occurrences, 1.0) ** 0.5)) for token, mass in best)
    return [(token, root) for token, root in roots if root]


def _from_arrays(arrays: Arrays, order: int) -> StoredRows:
    sizes = arrays[f"{order}.sizes"]
    return StoredRows(
        contexts=pack(arrays[f"{order}.contexts"]),
        counts=arrays[f"{order}.counts"],
        starts=np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]),
        tokens=arrays[f"{order}.tokens"],
        roots=arrays[f"{order}.roots"],
    )
