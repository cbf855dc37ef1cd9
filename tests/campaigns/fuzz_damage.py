"""Ways to damage a file for `fuzz.py`: cuts, flipped bits, false counts, JSON of the wrong kind.

All of them take their choices from a generator that is handed in, so that an input can be made
again from its seed.
"""

import json
import struct
from random import Random

from mlxspec.errors import MlxspecError

COUNTS = (0, 1, 2, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
"""What a length, a count or an offset is overwritten with; -1 is among them, unsigned."""

_NOT_UTF8 = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82")
_DEPTH = 100_000


class Target:
    """Makes hostile inputs with `make(draw, folder)`, and reads them with `read(folder)`."""

    refusals = (MlxspecError,)


def damaged(data: bytes, draw: Random) -> tuple[str, bytes]:
    """Return what finished to the bytes, and the result."""
    name, damage = draw.choice(_DAMAGES)
    return name, damage(data, draw)


def cut(data: bytes, draw: Random) -> bytes:
    """Cut short anywhere, one byte before the end included."""
    return data[: draw.choice([len(data) - 1, draw.randrange(len(data) + 1)])]


def _flip(data: bytes, draw: Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 8])):
        if damaged:
            damaged[_place(damaged, draw)] ^= 1 << draw.randrange(8)
    return bytes(damaged)


def _overwrite(data: bytes, draw: Random) -> bytes:
    """Write a hostile number, little-endian or big-endian, over 1 to 8 bytes."""
    size = draw.choice([1, 2, 4, 8])
    number = (draw.choice(COUNTS) & (1 << 8 * size) - 1).to_bytes(size, draw.choice(_ORDERS))
    place = _place(data, draw)
    return data[:place] + number + data[place + size :]


_ORDERS = ("little", "big")


def _remove(data: bytes, draw: Random) -> bytes:
    place = _place(data, draw)
    return data[:place] + data[place + draw.randint(1, 64) :]


def _repeat(data: bytes, draw: Random) -> bytes:
    start = _place(data, draw)
    end = start + draw.randint(1, 256)
    return data[:end] + data[start:end] * draw.choice([1, 2, 100]) + data[end:]


def _not_utf8(data: bytes, draw: Random) -> bytes:
    place = _place(data, draw)
    return data[:place] + draw.choice(_NOT_UTF8) + data[place:]


def _noise(data: bytes, draw: Random) -> bytes:
    return draw.randbytes(draw.choice([1, 7, 8, 24, 300, len(data)]))


def _place(data: bytes | bytearray, draw: Random) -> int:
    """Return a place, near the beginning as often as anywhere: headers are there."""
    return draw.randrange(max(1, draw.choice([min(64, len(data)), len(data)])))


_DAMAGES = (
    ("cut", cut),
    ("cut", cut),
    ("flipped", _flip),
    ("flipped", _flip),
    ("overwritten", _overwrite),
    ("overwritten", _overwrite),
    ("removed", _remove),
    ("repeated", _repeat),
    ("not UTF-8", _not_utf8),
    ("noise", _noise),
    ("empty", lambda data, draw: b""),
)

# ---- JSON ---------------------------------------------------------------------------------------

_VALUES = (
    *(None, True, False, 0, 1, -1, 3, 7, 2**31, 2**32, 2**63, 2**64, -(2**63), 10**12, 10**400),
    *(0.5, -0.0, 1e308, float("nan"), float("inf"), -float("inf"), 1e-320),
    *("", "a", "\0", "\ud800", "x" * 10_000, "../../etc/passwd", "[]"),
    *([], [[]], [None], ["a"], [1, 2], [-1], [1.5], [{}], {}, {"a": 1}, {"": []}),
)
_RAW = (
    b"[" * _DEPTH,
    b"[" * _DEPTH + b"]" * _DEPTH,
    b'{"a":' * _DEPTH,
    b"[" * 500 + b"]" * 500,
    b"9" * 5000,
    b"-1e999",
    b"tru",
    b'"\\ud800"',
    b'"\\u00"',
    b'{"a": 1, "a": [2]}',
    b"1 2",
)


def hostile_value(draw: Random):
    """Return a JSON value that is likely to be out of place."""
    return draw.choice(_VALUES)


def damaged_json(data: bytes, draw: Random) -> tuple[str, bytes]:
    """Return what finished to a JSON document, and the result."""
    if draw.random() < 0.2:
        return damaged(data, draw)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):  # damaged before
        return damaged(data, draw)
    place = draw.choice(list(_places(content)))
    if draw.random() < 0.15:
        mark = "\ue000"
        return f"raw JSON at {place}", json.dumps(_with(content, place, mark)).encode().replace(
            json.dumps(mark).encode(), draw.choice(_RAW)
        )
    if draw.random() < 0.15 and place:
        return f"twice {place}", _doubled(content, place, hostile_value(draw))
    if draw.random() < 0.15 and place:
        return f"without {place}", json.dumps(_without(content, place)).encode()
    value = hostile_value(draw)
    return f"{place} = {value!r:.30}", json.dumps(_with(content, place, value)).encode()


def _places(value, place=()):
    yield place
    if isinstance(value, list):
        value = dict(enumerate(value))
    for key, item in value.items() if isinstance(value, dict) else ():
        yield from _places(item, (*place, key))


def _with(content, place, value):
    if not place:
        return value
    copy = content.copy()
    copy[place[0]] = _with(content[place[0]], place[1:], value)
    return copy


def _without(content, place):
    copy = content.copy()
    if len(place) == 1:
        del copy[place[0]]
    else:
        copy[place[0]] = _without(content[place[0]], place[1:])
    return copy


def _doubled(content, place, value) -> bytes:
    """Return the document with a key that stands twice, the second time with another value."""
    if not isinstance(place[0], str):
        return json.dumps(_with(content, place, value)).encode()
    text = json.dumps(content)
    return f"{text[:-1]}, {json.dumps(place[0])}: {json.dumps(value)}}}".encode()


# ---- safetensors --------------------------------------------------------------------------------


def damaged_safetensors(data: bytes, draw: Random) -> tuple[str, bytes]:
    """Return what finished to a safetensors file, and the result.

    The header is damaged as JSON more often than the bytes at large, and the length in front of
    it fits again afterwards.
    """
    if draw.random() < 0.3:
        return damaged(data, draw)
    end = 8 + struct.unpack("<Q", data[:8])[0]
    if draw.random() < 0.5:
        what, header = damaged_json(data[8:end], draw)
    else:
        what, header = _misfit_tensor(json.loads(data[8:end]), draw)
    return f"header: {what}", struct.pack("<Q", len(header)) + header + data[end:]


_TYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "I8", "U8", "U64", "BOOL", "F8_E4M3", "X9")


def _misfit_tensor(header: dict, draw: Random) -> tuple[str, bytes]:
    """Change type, shape or place of one tensor, sometimes so that they fit each other still."""
    name = draw.choice([name for name in header if name != "__metadata__"])
    entry = dict(header[name])
    start, end = entry["data_offsets"]
    match draw.randrange(6):
        case 0:
            entry["dtype"] = draw.choice(_TYPES)
        case 1:
            entry["shape"] = draw.choice([[], [0], [1], [2**31], [2**62, 4], [-1], [0, 2**40]])
        case 2:
            entry["data_offsets"] = draw.choice([[end, start], [0, 2**63], [start, start], [-1, 4]])
        case 3:  # as many bytes, of one axis
            entry |= {"dtype": "U8", "shape": [end - start]}
        case 4:
            return f"{name} again", json.dumps(header | {f"{name}s": entry}).encode()
        case 5:
            other = draw.choice(["", "a" * 5000, "layers." + "9" * 5000, name.upper(), "\0"])
            renamed = {other if key == name else key: value for key, value in header.items()}
            return f"{name} named {other:.20}", json.dumps(renamed).encode()
    return f"{name} {entry}", json.dumps(header | {name: entry}).encode()
