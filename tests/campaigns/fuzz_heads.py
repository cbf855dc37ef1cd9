"""Hostile trained drafters for `fuzz.py`: heads in every layout, own files, and PyTorch's."""

import io
import json
import pickletools
import shutil
import zipfile
from pathlib import Path
from random import Random

import mlx.core as mx

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafting.heads import head_drafters
from mlxspec.errors import UnsupportedModelError
from mlxspec.loading import load_head
from mlxspec.loading.heads.file import read_drafter_file, save_head
from mlxspec.loading.heads.torch_file import read_torch_file
from mlxspec.loading.load import load_draft_model_file
from mlxspec.loading.profile import tokenizer_of
from mlxspec.models import ModelConfig, build_model
from tests.campaigns.fuzz_damage import (
    COUNTS,
    Target,
    damaged,
    damaged_json,
    damaged_safetensors,
    hostile_value,
)
from tests.loading.test_heads import CARD, own_heads
from tests.loading.test_layouts import variants
from tests.support.head_folders import (
    LAYER,
    ORDERED_DICT,
    TOKENS,
    number,
    save_archive,
    save_head_folder,
    state_dict,
    tensor,
    text,
    tiny_target,
)
from tests.support.model_folders import random_model, random_weights, save_folder, tiny_config
from tests.support.paths import GOLDENS


def build(source: Path, config: ModelConfig, target: Decoder) -> None:
    """Load a head and build the drafter of every way that it may be meant."""
    read_drafter_file(source) if source.is_file() else None
    for drafter in head_drafters(load_head(source, config), target):
        assert drafter.name


class HeadTarget(Target):
    """Folders of other projects' heads: the config or the weights are damaged."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "sound"
        self._variants = {name: (stored, config) for name, _, stored, config, _ in variants()}
        for name, (tensors, config) in self._variants.items():
            save_head_folder(self._folder / name, tensors, config)
        self._config = tiny_target()
        self._decoder = Decoder(build_model(self._config))

    def make(self, draw: Random, folder: Path) -> str:
        name = draw.choice(list(self._variants))
        place = folder / "head"
        shutil.copytree(self._folder / name, place)
        what = [name]
        for _ in range(draw.choice([1, 1, 2])):
            path = place / draw.choice(["config.json", "config.json", "model.safetensors"])
            if path.suffix == ".safetensors":
                how, data = damaged_safetensors(path.read_bytes(), draw)
            elif draw.random() < 0.3 or not self._variants[name][1]:
                how, data = damaged_json(path.read_bytes(), draw)
            else:
                how, data = _other_config(self._variants[name][1], draw)
            path.write_bytes(data)
            what.append(f"{path.name} {how}")
            if path.suffix == ".safetensors":
                break
        return ", ".join(what)

    def read(self, folder: Path) -> None:
        build(folder / "head", self._config, self._decoder)


_KEYS = (
    *("eagle_aux_hidden_state_layer_ids", "eagle_config", "transformer_layer_config", "model"),
    *("speculators_config", "norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"),
    *("layernorms", "truncated_vocab_size", "original_lm_head", "base_model_name_or_path"),
    *("rope_scaling", "rope_parameters", "quantization", "hidden_act"),
)


def _other_config(config: dict, draw: Random) -> tuple[str, bytes]:
    key = draw.choice([*config, *_KEYS])
    value = hostile_value(draw)
    if draw.random() < 0.3:
        value = {draw.choice([*config, *_KEYS]): hostile_value(draw)}
    return f"{key} = {value!r:.60}", json.dumps(config | {key: value}).encode()


class OwnHeadTarget(Target):
    """Files of mlxspec's own: metadata and tensors damaged."""

    def __init__(self, folder: Path) -> None:
        self._heads = own_heads()
        for kind, (config, tensors) in self._heads.items():
            save_head(folder / f"{kind}.safetensors", kind, config, tensors, CARD)
        self._folder = folder
        self._config = tiny_target()
        self._decoder = Decoder(build_model(self._config))

    def make(self, draw: Random, folder: Path) -> str:
        kind = draw.choice(list(self._heads))
        place = folder / "head.safetensors"
        if draw.random() < 0.4:
            what, data = damaged_safetensors(
                (self._folder / f"{kind}.safetensors").read_bytes(), draw
            )
            place.write_bytes(data)
            return f"{kind}: {what}"
        config, tensors = self._heads[kind]
        keys = ("rope_scaling", "quantization", "capture_alternatives", "accuracies", "calibration")
        key = draw.choice([*config, *keys])
        values = [hostile_value(draw), [hostile_value(draw)], [[hostile_value(draw)]]]
        value = draw.choice(values)
        if key == "quantization":
            value = draw.choice([value, {"group_size": 4, "bits": hostile_value(draw)}])
        save_head(place, kind, config | {key: value}, _renamed(tensors, draw), CARD)
        return f"{kind}: {key} = {value!r:.60}"

    def read(self, folder: Path) -> None:
        build(folder / "head.safetensors", self._config, self._decoder)


def _renamed(tensors: dict, draw: Random) -> dict:
    if draw.random() < 0.7:
        return tensors
    old = draw.choice(list(tensors))
    new = draw.choice(["token_map", "target_ids", f"{old}.scales", old.replace("weight", "scales")])
    arrays = [mx.array(TOKENS), mx.array([2**31 - 1]), mx.array(-1), mx.zeros((0,)), tensors[old]]
    return tensors | {new: draw.choice(arrays)}


class DraftModelTarget(Target):
    """Draft models in one file, whose tokenizer is the target's."""

    def __init__(self, folder: Path) -> None:
        config = tiny_config()
        save_folder(folder / "target", config)
        self._tokenizer = tokenizer_of(folder / "target", ModelConfig.from_dict(config))
        self._config = config
        self._tensors = {name: mx.array(a) for name, a in random_weights(config).items()}
        save_head(folder / "m.safetensors", "draft-model", config, self._tensors, CARD)
        self._sound = (folder / "m.safetensors").read_bytes()
        assert random_model(config) is not None

    def make(self, draw: Random, folder: Path) -> str:
        place = folder / "m.safetensors"
        if draw.random() < 0.5:
            what, data = damaged_safetensors(self._sound, draw)
            place.write_bytes(data)
            return what
        key, value = draw.choice([*self._config, *_KEYS, *LAYER]), hostile_value(draw)
        save_head(place, "draft-model", self._config | {key: value}, self._tensors, CARD)
        return f"{key} = {value!r:.60}"

    def read(self, folder: Path) -> None:
        file = read_drafter_file(folder / "m.safetensors")
        if file is None:
            raise UnsupportedModelError("the damage is in what says that it is a drafter")
        loaded = load_draft_model_file(file, self._tokenizer)
        decoder = Decoder(loaded.model)
        decoder.observe([0, 1])
        mx.eval(decoder.next_logits())


# ---- `.bin` and `.pt` files: programs, sizes and archives that do not fit -----------------------

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


class PickleTarget(Target):
    """Archives whose program, records or directory are damaged."""

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
