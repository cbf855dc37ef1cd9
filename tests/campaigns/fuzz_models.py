"""Hostile models for `fuzz.py`: GGUF files, folders of safetensors, and their tokenizers.

Left out are chat templates that take what they like in one expression, such as `2 ** 2 ** 70`:
there is no line between which they could be stopped.
"""

import json
import shutil
import struct
from contextlib import suppress
from pathlib import Path
from random import Random

import mlx.core as mx

from mlxspec.decoder.decoder import Decoder
from mlxspec.errors import UnsupportedOperationError
from mlxspec.loading import LoadedModel, load_model
from mlxspec.loading.fetch.models import describe_model
from mlxspec.loading.profile import tokenizer_of
from mlxspec.models import ModelConfig
from mlxspec.text import chat_template
from tests.campaigns.fuzz_damage import (
    COUNTS,
    Target,
    damaged,
    damaged_json,
    damaged_safetensors,
    hostile_value,
)
from tests.support import gguf_files as gguf
from tests.support.gguf_files import Stored, Value, floats, gguf_bytes, gguf_name, tiny_metadata
from tests.support.model_folders import random_weights, save_folder, tiny_config


def use(loaded: LoadedModel) -> None:
    """Do with a model what a reply does, once: a text in, a token out."""
    tokenizer = loaded.tokenizer
    tokens = tokenizer.encode("abq a\n")
    tokenizer.decode(range(tokenizer.vocab_size + 2), keep_special=True)
    if tokenizer.has_chat_template:
        with suppress(UnsupportedOperationError):
            tokens = tokenizer.apply_chat_template([{"role": "user", "content": "ab"}]) or tokens
    config = loaded.config
    decoder = Decoder(loaded.model)
    decoder.observe([token for token in tokens if token < config.vocab_size][:8] or [0])
    mx.eval(decoder.next_logits())


class GgufTarget(Target):
    """Files written from hostile metadata and tensors, and sound ones damaged byte by byte."""

    def __init__(self, folder: Path) -> None:
        self._models = {}
        for family in ("llama", "qwen2"):
            config = tiny_config(family)
            tensors = {gguf_name(n): floats(array) for n, array in random_weights(config).items()}
            self._models[family] = tiny_metadata(config), tensors
        pieces = {
            **gguf.TOKENIZER,
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.scores": [-float(place) for place in range(24)],
            "tokenizer.ggml.unknown_token_id": 3,
            "tokenizer.ggml.bos_token_id": 2,
        }
        metadata, tensors = self._models["llama"]
        self._models["sentencepiece"] = metadata | pieces, tensors

    def make(self, draw: Random, folder: Path) -> str:
        metadata, tensors = self._models[draw.choice(list(self._models))]
        metadata, tensors = dict(metadata), dict(tensors)
        if draw.random() < 0.3:
            metadata["tokenizer.chat_template"] = TEMPLATES[0]
        what = []
        for _ in range(draw.choice([0, 1, 1, 2])):
            change = draw.choice([_change_value, _change_tensor])
            what.append(change(metadata, tensors, draw))
        data = gguf_bytes(metadata, tensors, alignment=draw.choice([32, 32, 8]))
        if not what or draw.random() < 0.2:
            how, data = damaged(data, draw)
            what.append(how)
        (folder / "m.gguf").write_bytes(data)
        return ", ".join(what)

    def read(self, folder: Path) -> None:
        _look_and_load(folder / "m.gguf")


class GgufPartsTarget(GgufTarget):
    """A model in two files, of which one or both are damaged, or state other parts."""

    def make(self, draw: Random, folder: Path) -> str:
        metadata, tensors = self._models[draw.choice(list(self._models))]
        names, what = list(tensors), []
        cut = draw.randrange(len(names) + 1)
        for number, held in enumerate((names[:cut], names[cut:]), 1):
            count = draw.choice([2] * 6 + [0, 1, 3, 2**40, -1, True, "2", 2.0, [2]])
            if type(count) is int:
                count = Value(11, struct.pack("<q", count))
            stated = {**(metadata if number == 1 else {}), "split.count": count}
            data = gguf_bytes(stated, {name: tensors[name] for name in held})
            if draw.random() < 0.4:
                how, data = damaged(data, draw)
                what.append(f"part {number}: {how}")
            (folder / f"m-{number:05}-of-00002.gguf").write_bytes(data)
        return ", ".join(what)

    def read(self, folder: Path) -> None:
        _look_and_load(folder / "m-00002-of-00002.gguf")


_OTHER_KEYS = (
    "llama.rope.scaling.type",
    "llama.rope.scaling.factor",
    "llama.rope.scaling.original_context_length",
    "llama.attention.key_length",
    "llama.attention.sliding_window",
    "llama.expert_count",
    "general.alignment",
    "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.add_bos_token",
    "tokenizer.ggml.add_space_prefix",
    "tokenizer.ggml.padding_token_id",
    "tokenizer.chat_template",
)


def _change_value(metadata: dict, tensors: dict, draw: Random) -> str:
    key = draw.choice([*metadata, *_OTHER_KEYS])
    match draw.randrange(4):
        case 0:
            value = draw.choice(["", "llama", "qwen2", "yarn", "linear", "llama3", "{{ x.y }}", []])
        case 1:
            value = Value(10, struct.pack("<Q", draw.choice(COUNTS)))
        case 2:
            number = draw.choice([0.0, -1.0, 1e-40, 1e308, float("nan"), float("inf"), 0.5])
            value = Value(12, struct.pack("<d", number))
        case _:
            value = draw.choice([*_hostile_lists(draw), True, 1, 7, 12, 48])
    old = metadata.get(key)
    if isinstance(old, list) and draw.random() < 0.5:
        value = [*old[:-1], draw.choice(["", "\0", "\u2581" * 300, old[0]])]
        value = value if isinstance(old[0], str) else old[:-1]
    metadata[key] = value
    return f"{key} = {value!r:.40}"


def _hostile_lists(draw: Random):
    yield Value(9, struct.pack("<IQ", 8, draw.choice(COUNTS)))
    yield Value(9, struct.pack("<IQ", 5, draw.choice(COUNTS)))
    yield Value(9, struct.pack("<IQ", 9, 2))
    yield Value(8, struct.pack("<Q", draw.choice(COUNTS)) + b"abc")
    yield Value(8, struct.pack("<Q", 2) + b"\xff\xfe")
    yield Value(draw.choice([13, 255, 2**31]), b"\0" * 8)
    yield ["a"] * 24
    yield [-1, 2, 3]
    yield [float("nan")] * 24


def _change_tensor(metadata: dict, tensors: dict, draw: Random) -> str:
    name = draw.choice(list(tensors))
    tensor = tensors[name]
    match draw.randrange(7):
        case 0:
            tensor = Stored(_hostile_shape(tensor.shape, draw), tensor.type_id, tensor.raw)
        case 1:
            type_id = draw.choice(
                [gguf.F16, gguf.BF16, gguf.Q4_0, gguf.Q4_1, gguf.Q5_K, gguf.Q8_0, 255, 2**31]
            )
            tensor = Stored(tensor.shape, type_id, tensor.raw)
        case 2:
            tensor = Stored(tensor.shape, gguf.F32, tensor.raw[: len(tensor.raw) // 2])
        case 3:
            del tensors[name]
            return f"without {name}"
        case 4:
            other = draw.choice(
                [
                    *("", "rope_freqs.weight", "token_embd.scales", "blk.0.attn_q.biases"),
                    *("blk.0.attn_v.scales", "blk.7.attn_q.scales", "output.scales"),
                    *("blk." + "9" * 5000 + ".attn_q.weight", "output.weight.weight", "\u0661.a"),
                ]
            )
            tensors[other] = draw.choice([tensor, floats([1.0] * 4), floats([0.0, 1e38, 2, -1])])
            return f"{other[:30]} as {name}"
        case 5:  # sound, and quantised
            sizes = {gguf.Q4_0: 18, gguf.Q4_1: 20, gguf.Q5_1: 24, gguf.Q8_0: 34}
            kind = draw.choice(list(sizes))
            blocks = len(tensor.raw) // 4 // 32
            tensor = Stored(tensor.shape, kind, draw.randbytes(blocks * sizes[kind]))
        case 6:
            tensor = Stored(tensor.shape, gguf.F32, draw.randbytes(len(tensor.raw)))
    tensors[name] = tensor
    return f"{name} {tensor.shape} of type {tensor.type_id}"


def _hostile_shape(shape: tuple, draw: Random) -> tuple:
    replaced = list(shape)
    replaced[draw.randrange(len(shape))] = draw.choice([*COUNTS, 31, 33])
    return draw.choice(
        [tuple(replaced), (), (1,) * 4, (1,) * 5, shape[::-1], (*shape, 1), (2**16,) * 4]
    )


class FolderTarget(Target):
    """Folders whose config, weights or index are damaged; plain, in shards, and quantised."""

    def __init__(self, folder: Path) -> None:
        self._models = {}
        for family in ("llama", "mistral", "qwen2"):
            save_folder(folder / family, tiny_config(family))
        save_folder(folder / "shards", shards=2, generation_config={"eos_token_id": [1, 23]})
        config = tiny_config(quantization={"group_size": 32, "bits": 4})
        save_folder(folder / "4-bit", config, _quantised(config))
        self._kinds = ("llama", "mistral", "qwen2", "shards", "4-bit")
        self._sound = folder

    def make(self, draw: Random, folder: Path) -> str:
        kind = draw.choice(self._kinds)
        place = folder / "model"
        shutil.copytree(self._sound / kind, place)
        names = ["config.json"] * 3 + [
            path.name for path in place.iterdir() if "tokenizer" not in path.name
        ]
        path = place / draw.choice(names)
        if path.name == "config.json" and draw.random() < 0.75:
            what = _change_config(path, draw)
        elif path.suffix == ".json":
            what, data = damaged_json(path.read_bytes(), draw)
            path.write_bytes(data)
        else:
            what, data = damaged_safetensors(path.read_bytes(), draw)
            path.write_bytes(data)
        return f"{kind}, {path.name}: {what}"

    def read(self, folder: Path) -> None:
        _look_and_load(folder / "model")


def _look_and_load(place: Path) -> None:
    profile = describe_model(place, str(place), "m").profile
    if profile is not None:
        profile.memory_bytes(1000)
    use(load_model(place))


def _quantised(config: dict) -> dict[str, mx.array]:
    weights = {}
    for name, array in random_weights(config).items():
        if array.ndim == 1:
            weights[name] = mx.array(array)
            continue
        path = name.removesuffix(".weight")
        parts = mx.quantize(mx.array(array), group_size=32, bits=4)
        weights |= dict(
            zip((f"{path}.weight", f"{path}.scales", f"{path}.biases"), parts, strict=True)
        )
    return weights


_ROPES = ("linear", "llama3", "yarn", "default", "dynamic")
_CONFIG_KEYS = (
    *("rope_scaling", "rope_parameters", "layer_types", "sliding_window", "use_sliding_window"),
    *("max_window_layers", "quantization", "quantization_config", "hidden_act", "mlp_bias"),
    *("attention_bias", "rope_traditional", "partial_rotary_factor", "torch_dtype"),
)


def _change_config(path: Path, draw: Random) -> str:
    config = json.loads(path.read_text())
    what = []
    for _ in range(draw.choice([1, 1, 2])):
        key = draw.choice([*config, *_CONFIG_KEYS])
        value = draw.choice([hostile_value(draw), hostile_value(draw), _scaling(draw)])
        if key == "quantization":
            numbers = {"group_size": hostile_value(draw), "bits": hostile_value(draw)}
            value = draw.choice([value, numbers, {"group_size": 32, "bits": 4, "mode": "mxfp4"}])
        config[key] = value
        what.append(f"{key} = {value!r:.60}")
    path.write_text(json.dumps(config))
    return ", ".join(what)


def _scaling(draw: Random) -> dict:
    scaling = {"rope_type": draw.choice(_ROPES), "factor": draw.choice([2.0, hostile_value(draw)])}
    numbers = ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    more = ("beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor", "rope_theta")
    for name in draw.sample([*numbers, *more], draw.randrange(6)):
        scaling[name] = draw.choice([1, 4.0, 64, hostile_value(draw)])
    return scaling


# ---- tokenizers ----------------------------------------------------------------------------------

chat_template.TIME_S = 0.5  # of the many that run on


class TokenizerTarget(Target):
    """Folders whose tokenizer files are damaged; templates that mean harm among them."""

    def __init__(self, folder: Path) -> None:
        self._sound = save_folder(folder / "sound")
        self._config = ModelConfig.from_dict(tiny_config())

    def make(self, draw: Random, folder: Path) -> str:
        place = folder / "model"
        shutil.copytree(self._sound, place, ignore=shutil.ignore_patterns("*.safetensors"))
        path = place / draw.choice(["tokenizer.json", "tokenizer.json", "tokenizer_config.json"])
        if draw.random() < 0.25:
            content = {"eos_token": "<|end|>", draw.choice(_TOKENIZER_KEYS): hostile_value(draw)}
            path, what = place / "tokenizer_config.json", str(content)[:60]
            path.write_text(json.dumps(content))
        elif draw.random() < 0.3:
            what = draw.choice(TEMPLATES)
            (place / "chat_template.jinja").write_text(what)
        else:
            what, data = damaged_json(path.read_bytes(), draw)
            path.write_bytes(data)
        return f"{path.name}: {what}"

    def read(self, folder: Path) -> None:
        tokenizer = tokenizer_of(folder / "model", self._config)
        tokens = tokenizer.encode("abq a\n")
        tokenizer.decode([*tokens, *range(tokenizer.vocab_size + 2)], keep_special=True)
        tokenizer.decode(tokens)
        assert tokenizer.same_as(tokenizer)
        assert tokenizer.fingerprint
        if tokenizer.has_chat_template:
            tokenizer.apply_chat_template([{"role": "user", "content": "ab"}])


TEMPLATES = (
    "{% for message in messages %}{{ message['content'] }}<|end|>{% endfor %}",
    "",
    "{{ messages.nothing.at.all }}",
    "{{ ''.__class__.__mro__ }}",
    "{{ messages.append(1) }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{{ raise_exception('no') }}",
    "{{ 1 // 0 }}",
    "{{ [] | first | length }}",
    "{% if %}",
    "{{ 'x' * (10 ** 12) }}",
    "{{ range(10 ** 15) | list }}",
    "{{ '%*d' | format(10 ** 12, 1) }}",
    "{{ ('{:' ~ 10 ** 12 ~ '}').format(1) }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
    "\ufeff{{ messages }}",
    "{{ messages | tojson(indent=10 ** 11) }}",
    "{{ 'a' | center(10 ** 12) }}",
    "{{ messages | map(attribute='__class__') | list }}",
)
_TOKENIZER_KEYS = (
    *("chat_template", "eos_token", "bos_token", "additional_special_tokens", "model_max_length"),
    *("tokenizer_class", "added_tokens_decoder", "auto_map", "extra_special_tokens", "pad_token"),
    *("clean_up_tokenization_spaces", "padding_side"),
)
