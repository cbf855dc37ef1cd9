"""Hostile `.bin` and `.pt` files for `fuzz.py`: programs, sizes and archives that do not fit."""

import io
import pickletools
import zipfile
from pathlib import Path
from random import Random

import mlx.core as mx

from mlxspec.errors import MlxspecError
from mlxspec.loading.heads.torch_file import read_torch_file
from tests.campaigns.fuzz_damage import COUNTS, damaged
from tests.support.head_folders import ORDERED_DICT, number, save_archive, state_dict, tensor, text
from tests.support.paths import GOLDENS

_STOLEN = "stolen"
_CALLS = (
    b"cos\nsystem\n(Vtouch stolen\ntR",
    b"cbuiltins\nexec\n(Vopen('stolen','w')\ntR",
    b"\x8c\x05posix\x8c\x06system\x93(Vtouch stolen\ntR",
    b"cbuiltins\ngetattr\n(ccollections\nOrderedDict\nV__class__\ntR",
    b"ctorch._utils\n_rebuild_tensor_v2\n(tR",
    b"ctorch._utils\n_rebuild_parameter\n(NtR",
    b"ccollections\nOrderedDict\n(](X\x01\0\0\0aX\x01\0\0\0bee)tR",
    b"ctorch\nDoubleStorage\n",
    b"cos\nsystem\n\x81",
    b"ios\nsystem\n",
    b"P1\n",
    b"\x82\x01",
)
_STEPS = (
    *(b"(", b")", b"t", b"0", b"1", b"2", b"R", b"Q", b"b", b"s", b"u", b"e", b"a", b"l", b"d"),
    *(b"\x85", b"\x86", b"\x87", b"\x94", b"N", b"}", b"]", b".", b"h\x00", b"q\x00", b"\x93"),
    *(b"I999999999999\n", b"\x8b" + b"\xff\xff\xff\x7f", b"j\xff\xff\xff\xff", b"p-1\n", b"gx\n"),
    *(b"\x8d" + b"\xff" * 8, b"L" + b"9" * 5000 + b"L\n", b"V\\ud800\n", b"S'\\x'\n", b"\x80\xff"),
    *(b"(" * 50_000, b"\x85" * 50_000, b"]" + b"2" * 20 + b"a" * 19, b"T\xff\xff\xff\x7f"),
)


class PickleTarget:
    """Archives whose program, records or directory are damaged."""

    refusals = (MlxspecError,)

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        golden = GOLDENS / "torch_state_dict.pt"
        with zipfile.ZipFile(golden) as archive:
            names = {name.partition("/")[2]: name for name in archive.namelist()}
            self._torch = {name: archive.read(path) for name, path in names.items()}

    def make(self, draw: Random, folder: Path) -> str:
        records = dict(self._torch)
        if draw.random() < 0.5:
            what, program, data = _hostile_tensor(draw)
            records = {"data.pkl": program, "data/0": data}
        else:
            what, records["data.pkl"] = _other_program(records["data.pkl"], draw)
        how = draw.choice([zipfile.ZIP_STORED] * 6 + [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
        if draw.random() < 0.15:
            name = draw.choice(list(records))
            what, records[name] = f"{name} damaged", damaged(records[name], draw)[1]
        path = save_archive(folder / "m.bin", records, how)
        if draw.random() < 0.35:
            done, data = _other_archive(path.read_bytes(), draw)
            path.write_bytes(data)
            what += f", archive {done}"
        return what

    def read(self, folder: Path) -> None:
        tensors = read_torch_file(folder / "m.bin")
        mx.eval(list(tensors.values()))
        assert not Path(_STOLEN).exists()


def _other_program(program: bytes, draw: Random) -> tuple[str, bytes]:
    if draw.random() < 0.3:
        return damaged(program, draw)
    places = [place for _, _, place in pickletools.genops(program)]
    start = draw.choice(places)
    end = draw.choice([start, start, draw.choice(places)])
    wedge = draw.choice([*_CALLS, *_STEPS, *_STEPS, number(draw.choice(COUNTS))])
    return f"{wedge[:30]!r} at {start}", program[:start] + wedge + program[max(start, end) :]


def _hostile_tensor(draw: Random) -> tuple[str, bytes, bytes]:
    sizes = [0, 1, 2, 3, 6, -1, *COUNTS]
    kind = draw.choice(["FloatStorage", "HalfStorage", "BoolStorage", "ByteStorage", "LongStorage"])
    axes = draw.choice([0, 1, 1, 2, 2, 3, 9, 30])
    shape = [draw.choice(sizes) for _ in range(axes)]
    strides = [draw.choice(sizes) for _ in range(draw.choice([axes, axes, axes, axes + 1]))]
    num_items, offset = draw.choice([6, 6, 6, *sizes]), draw.choice([0, 0, 0, *sizes])
    value = tensor(kind, draw.choice(["0", "0", "1", "../0"]), num_items, shape, strides, offset)
    items = {draw.choice(["w", "", "\0", "w" * 9000]): value}
    if draw.random() < 0.2:
        items = {f"w{place}": value for place in range(500)}
    if draw.random() < 0.1:
        items["x"] = draw.choice([b"N", b"]", b"}", ORDERED_DICT, text("a"), b"G" + b"\x7f" * 8])
    what = f"{kind} {shape[:3]} by {strides[:3]} of {num_items} from {offset}"
    return what[:150], state_dict(items), b"\1" * draw.choice([24, 24, 6, 0])


def _other_archive(data: bytes, draw: Random) -> tuple[str, bytes]:
    if draw.random() < 0.6:
        tail = len(data) - draw.randint(1, 200)  # the directory is at the end
        what, end = damaged(data[tail:], draw)
        return what, data[:tail] + end
    if draw.random() < 0.5:
        return damaged(data, draw)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in records.items():
            other = draw.choice(
                [name, name, name, "../" + name, "/" + name, name + "/", "data.pkl"]
            )
            archive.writestr(other, content)
    return "other names", made.getvalue()
