"""Hostile files of what was kept, for `fuzz.py`: tables, costs, traces and recordings."""

import json
import math
import os
import zlib
from pathlib import Path
from random import Random

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from mlxspec.budget import MeasuredBudget
from mlxspec.budget.curve import CostBook, CostCurve
from mlxspec.drafters.table.drafter import TableDrafter
from mlxspec.drafters.table.file import load_table, save_table
from mlxspec.drafters.table.memory import TableMemory
from mlxspec.drafters.table.rows import extend
from mlxspec.drafting.measured import load, store
from mlxspec.errors import MlxspecError, TraceError
from mlxspec.trace.file import read_trace
from mlxspec.trace.stats import GenerationStats
from mlxspec_app.conversation.fold import fold
from mlxspec_app.export.filing import FORMATS, encoded
from mlxspec_app.export.recording import Recording
from mlxspec_app.playback.events_of import events_of
from mlxspec_app.playback.race import Track
from mlxspec_app.playback.replay import ReplaySession
from tests.campaigns.fuzz_damage import (
    Target,
    damaged,
    damaged_json,
    damaged_safetensors,
    hostile_value,
)
from tests.support.drafting import KEY, SAMPLING, assert_valid, stored_rows
from tests.support.paths import TRACES

VOCAB = 100
TABLE = stored_rows(
    {(9,): (3, {1: 0.3, 2: 0.2}), (8,): (2, {9: 1.0})},
    {(8, 9): (2, {1: 0.4})},
    {(7, 8, 9): (2, {5: 0.5})},
)


class TableTarget(Target):
    """Tables of rows: damaged bytes, and false rows under a sum that is right."""

    def __init__(self, folder: Path) -> None:
        path = folder / "sound.safetensors"
        save_table(path, TABLE, VOCAB)
        self._sound = path.read_bytes()
        with safe_open(path, framework="np") as file:
            self._arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            self._metadata = file.metadata()

    def make(self, draw: Random, folder: Path) -> str:
        path = folder / "t.safetensors"
        if draw.random() < 0.4:
            what, data = damaged_safetensors(self._sound, draw)
            path.write_bytes(data)
            return what
        arrays, config = dict(self._arrays), json.loads(self._metadata["config"])
        if draw.random() < 0.3:
            key, value = draw.choice([*config, "more"]), hostile_value(draw)
            config[key] = value
            what = f"{key} = {value!r:.60}"
        else:
            name = draw.choice(list(arrays))
            what, array = _other_array(arrays.pop(name), draw)
            what = f"{name} {what}"
            if array is not None:
                arrays[name] = array
        config.pop("crc32", None)
        card = self._metadata["card"]
        try:
            stated = {"config": json.dumps(config | {"crc32": _sum(arrays, config, card)})}
            save_file(arrays, path, self._metadata | stated)
        except UnicodeEncodeError:  # what the format itself cannot hold
            path.write_bytes(b"")
        return what

    def read(self, folder: Path) -> None:
        drafter = TableDrafter(load_table(folder / "t.safetensors", VOCAB))
        drafter.start([7, 8, 9], SAMPLING, KEY)
        assert_valid(drafter.propose(9, 12), 9, 12)
        for token in range(VOCAB):
            probs = drafter.next_probs(extend(0, token))
            assert all(0 <= known < VOCAB and 0 < prob <= 1 for known, prob in probs.items())


def _sum(arrays: dict, config: dict, card: str) -> int:
    """The sum over a table's file, from the description in `table_file`."""
    value = zlib.crc32((json.dumps(config, sort_keys=True) + card).encode())
    for name, array in sorted(arrays.items()):
        value = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), value)
        value = zlib.crc32(array.tobytes(), value)
    return value


def _other_array(array: np.ndarray, draw: Random) -> tuple[str, np.ndarray | None]:
    match draw.randrange(7):
        case 0:
            return "left out", None
        case 1:
            dtype = draw.choice(["f4", "f8", "i8", "u1", "u2", "?", "i1", "u8", "f2"])
            return f"as {dtype}", array.astype(dtype)
        case 2:
            number = draw.choice([0, 1, -1, 99, 100, 255, 2**16 - 1, 2**31 - 1, 2**62])
            return f"all {number}", np.full_like(array, number % (int(np.iinfo(array.dtype).max)))
        case 3:
            return "negative", np.full(array.shape, -draw.choice([1, 9, 2**40]), np.int64)
        case 4:
            return "shorter", array[:-1]
        case 5:
            shape = draw.choice([(-1,), (1, 1, -1), (0,), ()])
            return f"shape {shape}", np.zeros(3 if -1 in shape else 0, array.dtype).reshape(
                shape if -1 in shape else (0,)
            ) if shape != () else np.array(1, array.dtype)
        case _:
            return "longer", np.concatenate([array, array])


class LearnedTarget(TableTarget):
    """The same files where what was learned is kept: of no use, they cost a line."""

    def read(self, folder: Path) -> None:
        said: list[str] = []
        memory = TableMemory(folder / "t.safetensors", VOCAB, say=said.append)
        drafter = TableDrafter(memory=memory)
        drafter.start([7, 8, 9], SAMPLING, KEY)
        assert_valid(drafter.propose(9, 12), 9, 12)
        memory.learn([extend(0, 7, 8)], [[9]], [[0.5]])
        memory.save()
        assert len(TableMemory(folder / "t.safetensors", VOCAB).kept[0]) > 0
        if said:
            raise MlxspecError(said[0])


class CostsTarget(Target):
    """The file of measured costs; of no use, they are measured again."""

    def __init__(self, folder: Path) -> None:
        os.environ["MLXSPEC_HOME"] = str(folder)
        store("one", {"0": {"1": 50.0, "4": 60.0, "16": 80.0}, "3": {"1": 70.0, "8": 90.5}})
        store("two", {"drafter": "pool", "tps": 12.5})
        self._sound = (folder / "measured.json").read_bytes()

    def make(self, draw: Random, folder: Path) -> str:
        if draw.random() < 0.5:
            what, data = damaged_json(self._sound, draw)
        else:
            content = json.loads(self._sound)
            width = draw.choice(["1", "0", "-1", "1e3", "9" * 30, "9" * 5000, " 4", "٣", "1_0"])
            bucket = draw.choice(["0", "-5", "9" * 4000, "1.5", "0"])
            content["one"][bucket] = {"1": 5.0, width: hostile_value(draw)}
            what, data = f"{bucket[:9]} {content['one'][bucket]}"[:80], json.dumps(content).encode()
        (folder / "measured.json").write_bytes(data)
        return what

    def read(self, folder: Path) -> None:
        os.environ["MLXSPEC_HOME"] = str(folder)
        kept = [load("one"), load("two")]
        costs = CostBook()
        costs.read(kept[0] or {})
        budget = MeasuredBudget(costs)
        for context in (0, 3000, 10**6):
            budget.begin("pool", 0.0, context, lambda: CostCurve({1: 50.0}))
            assert 0 <= budget.ask(12) <= 12
            assert all(n <= budget.rows(n) <= 4096 for n in range(1, 33))
            curve = costs.at(context)
            assert curve is None or all(math.isfinite(curve.cost(n)) for n in range(1, 33))
        store("one", costs.as_dict())
        assert load("one") == costs.as_dict()
        if None in kept:
            raise MlxspecError("measured again")


class TraceTarget:
    """Traces, read event by event and folded to figures."""

    refusals = (TraceError,)

    def __init__(self, folder: Path) -> None:
        traces = TRACES
        self._traces = [path.read_bytes() for path in sorted(traces.glob("*.jsonl"))]
        self._traces.append(b"".join(line + b"\n" for line in _MORE_LINES))

    def make(self, draw: Random, folder: Path) -> str:
        data = draw.choice(self._traces)
        path = folder / "t.jsonl"
        if draw.random() < 0.2:
            what, data = damaged(data, draw)
            path.write_bytes(data)
            return what
        lines = data.splitlines()[: draw.choice([6, 30, 10_000])]
        what = []
        for _ in range(draw.choice([1, 1, 3])):
            place = draw.randrange(len(lines))
            match draw.randrange(6):
                case 0:
                    lines.insert(draw.randrange(len(lines)), lines[place])
                    what.append(f"line {place + 1} twice")
                case 1:
                    del lines[place]
                    lines = lines or [b"{}"]
                    what.append(f"without line {place + 1}")
                case 2:
                    draw.shuffle(lines)
                    what.append("shuffled")
                case _:
                    how, lines[place] = damaged_json(lines[place], draw)
                    what.append(f"line {place + 1} {how}")
        path.write_bytes(b"\n".join(lines) + draw.choice([b"\n", b"\n", b"\n", b"", b"\r\n"]))
        return ", ".join(what)

    def read(self, folder: Path) -> None:
        stats = GenerationStats()
        for event in read_trace(folder / "t.jsonl"):
            stats.add(event)
        json.dumps(stats.as_dict())


_MORE_LINES = (
    b'{"t":"meta","target":"m","drafter":"pool","sampling":{"temperature":0.5},"seed":3}',
    b'{"t":"plain","r":1,"ts":0.1,"emit":[[5,"a","plain",0.5,null]],"ms":1.0,"context":3}',
    b'{"t":"nodraft","ts":0.2,"drafter":"pool","message":"gone"}',
    b'{"t":"plain","r":2,"ts":0.3,"emit":[[6,"b","plain",0.5,null]],"ms":1.0,"context":4}',
    b'{"t":"failed","ts":0.4,"message":"no memory","traceback":"at"}',
    b'{"t":"cost","ts":0.5,"context":4,"widths":[1,4],"ms":[1.0,2.0]}',
)


class RecordingTarget(TraceTarget):
    """The same files where they are played, raced and exported."""

    def read(self, folder: Path) -> None:
        path = folder / "t.jsonl"
        session = ReplaySession.from_file(path)
        state = fold(session.drain())
        for unit in ("phase", "round", "rejection"):
            session.move(unit, 1)
            state = fold(session.drain(), state)
            assert session.view is None or session.view.r
        session.move("round", -1)
        session.drain()
        fold(events_of(fold(read_trace(path))))
        recording = Recording.read(path)
        for each in FORMATS.values():
            encoded(each.render(recording))
        track = Track.from_file("A", path)
        track.show(track.timeline.duration)
