"""The file of a table: compact safetensors with a description and a checksum.

Per length of context, "order": `contexts` (n, order) token ids in rising order, `counts` (n,)
occurrences up to 255, `sizes` (n,) entries per row; and for the entries of all rows in sequence,
`tokens` (entries,) and `roots` (entries,), the square root of the mean probability in 255ths.
Token ids have 16 bits if the vocabulary allows it, else 32. The metadata is that of every trained
drafter (`loading/heads/file.py`). Equal rows give equal files, byte for byte.
"""

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from mlxspec.drafters.table.rows import MAX_ORDER, StoredRows, pack, row_starts, unpack
from mlxspec.errors import MlxspecError, VocabularyMismatchError
from mlxspec.loading.heads.file import FORMAT, read_drafter_file

KIND = "table"
_LAYOUT = 2
_LENGTH_BYTES = 8  # of the number that precedes a safetensors header

Arrays = dict[str, NDArray[Any]]


def token_type(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
    """Return the type of a token id in a file."""
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


def row_bytes(order: int, sizes: NDArray[np.int64], vocab_size: int) -> NDArray[np.int64]:
    """Return the bytes of rows in a file, given their numbers of entries."""
    token = token_type(vocab_size)().itemsize
    return order * token + 2 + sizes * (token + 1)


def save_table(
    path: str | os.PathLike[str],
    rows: Sequence[StoredRows],
    vocab_size: int,
    *,
    tokenizer: str = "",
    card: Mapping[str, Any] | None = None,
    is_private: bool = False,
) -> None:
    """Write the rows of orders 1, 2 and 3; the file is replaced as a whole or not changed.

    `vocab_size` is the target's. `tokenizer` is the fingerprint of its tokenizer; "" if it is
    unknown. `card` describes how the table was made, as JSON values. Only its owner may read a
    private file. Raises MlxspecError if the file cannot be written.
    """
    arrays: Arrays = {}
    for order, rows_of_order in enumerate(rows, 1):
        arrays |= _to_arrays(rows_of_order, order, vocab_size)
    config = {
        "layout": _LAYOUT,
        "vocab_size": vocab_size,
        "tokenizer": tokenizer,
        "rows": [len(rows_of_order) for rows_of_order in rows],
    }
    card_text = json.dumps(card or {}, sort_keys=True)
    config["crc32"] = _checksum(arrays, config, card_text)
    path = Path(path)
    partial = path.with_name(path.name + ".part")
    try:
        partial.unlink(missing_ok=True)  # an old partial file would keep its own access mode
        # The mode is set when the file is created, so others can never read a private one.
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT, 0o600 if is_private else 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(_serialize(arrays, config, card_text))
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise MlxspecError(f"cannot write the table {path}: {error}") from error


def load_table(
    path: str | os.PathLike[str], vocab_size: int, *, tokenizer: str = ""
) -> list[StoredRows]:
    """Return the rows of orders 1, 2 and 3 of a file.

    `vocab_size` is the target's. `tokenizer` is the fingerprint of its tokenizer; "" to trust the
    file. Raises MlxspecError if the file cannot be read, is damaged, or is no table of this target.
    """
    try:
        with safe_open(path, framework="np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, TypeError, AttributeError) as error:
        # TypeError and AttributeError come from number types that NumPy does not have.
        raise MlxspecError(f"cannot read the table {path}: {error}") from error
    described = read_drafter_file(Path(path))
    if described is None or (described.kind, described.config.get("layout")) != (KIND, _LAYOUT):
        raise MlxspecError(
            f"{path} is not a table that this version can read: give the file of a table, or make "
            "it again with `mlxspec train table`"
        )
    config, card_text = described.config, json.dumps(described.card, sort_keys=True)
    own_tokenizer = config.get("tokenizer") or tokenizer
    if config.get("vocab_size") != vocab_size or (tokenizer and own_tokenizer != tokenizer):
        raise VocabularyMismatchError(
            f"the table {path} was made for a tokenizer of {config.get('vocab_size')} tokens, the "
            f"target has {vocab_size}, or others: use the table of this target, or none"
        )
    if config.pop("crc32", None) != _checksum(arrays, config, card_text):
        raise MlxspecError(f"the table {path} is damaged (checksum): get or make it again")
    for order in range(1, MAX_ORDER + 1):
        if not _are_sound(arrays, order, vocab_size):
            raise MlxspecError(
                f"the table {path} is damaged: its arrays of order {order} do not match each other "
                "or the vocabulary; get or make it again"
            )
    return [_from_arrays(arrays, order) for order in range(1, MAX_ORDER + 1)]


def _serialize(arrays: Arrays, config: Mapping[str, Any], card_text: str) -> bytes:
    """Return the bytes of a file, with metadata in a fixed order."""
    metadata = {
        "format": FORMAT,
        "kind": KIND,
        "config": json.dumps(config, sort_keys=True),
        "card": card_text,
    }
    content = save(arrays, metadata)
    end = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    header = json.dumps(json.loads(content[_LENGTH_BYTES:end]), sort_keys=True).encode()
    header += b" " * (-len(header) % 8)  # the arrays stay aligned
    return len(header).to_bytes(_LENGTH_BYTES, "little") + header + content[end:]


def _checksum(arrays: Arrays, config: Mapping[str, Any], card_text: str) -> int:
    """Return the CRC-32 of config, card and the arrays with their names, types and shapes."""
    value = zlib.crc32((json.dumps(config, sort_keys=True) + card_text).encode())
    for name, array in sorted(arrays.items()):
        value = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), value)
        value = zlib.crc32(array.tobytes(), value)
    return value


def _to_arrays(rows: StoredRows, order: int, vocab_size: int) -> Arrays:
    tokens = token_type(vocab_size)
    return {
        f"{order}.contexts": unpack(rows.contexts, order).astype(tokens),
        f"{order}.counts": rows.counts,
        f"{order}.sizes": np.diff(rows.starts).astype(np.uint8),
        f"{order}.tokens": rows.tokens.astype(tokens),
        f"{order}.roots": rows.roots,
    }


def _are_sound(arrays: Arrays, order: int, vocab_size: int) -> bool:
    """Return whether the arrays of an order can be the result of `_to_arrays`."""
    tokens, byte = np.dtype(token_type(vocab_size)), np.dtype(np.uint8)
    types = {"contexts": tokens, "counts": byte, "sizes": byte, "tokens": tokens, "roots": byte}
    found = {name: arrays.get(f"{order}.{name}") for name in types}
    rows = {name: array for name, array in found.items() if array is not None}
    if any(name not in rows or rows[name].dtype != dtype for name, dtype in types.items()):
        return False
    n, num_entries = (rows["counts"].size,), (rows["tokens"].size,)
    shapes = {"contexts": (*n, order), "counts": n, "sizes": n}
    shapes |= {"tokens": num_entries, "roots": num_entries}
    if any(rows[name].shape != shape for name, shape in shapes.items()):
        return False
    if rows["sizes"].sum() != rows["tokens"].size:
        return False
    is_known = all((rows[name] < vocab_size).all() for name in ("contexts", "tokens"))
    return is_known and bool((np.diff(pack(rows["contexts"])) > 0).all())


def _from_arrays(arrays: Arrays, order: int) -> StoredRows:
    sizes = arrays[f"{order}.sizes"]
    return StoredRows(
        contexts=pack(arrays[f"{order}.contexts"]),
        counts=arrays[f"{order}.counts"],
        starts=row_starts(sizes),
        tokens=arrays[f"{order}.tokens"],
        roots=arrays[f"{order}.roots"],
    )
