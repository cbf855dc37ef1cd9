"""Rows that outlive the process: another one goes on with them, and says what a fresh one says."""

import json
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256

import mlx.core as mx
import pytest

import mlxspec
from mlxspec.chat.conversation import Conversation
from mlxspec.drafting.engines import prepare_loaded
from mlxspec.kv.steady import CHUNK
from mlxspec.params import GenerationParams, Options
from tests.support.model_folders import random_weights, save_folder, tiny_config
from tests.support.paths import ROOT
from tests.support.tiny import emitted
from tests.support.told_bits import ToldBits
from tests.support.toy_chat import toy_target

PROMPT = [(7 * i * i + 3 * i + 5) % 24 for i in range(2 * CHUNK + 40)]
CONFIG = tiny_config(max_position_embeddings=1024, hidden_size=128, head_dim=32)
USUAL = GenerationParams(max_tokens=24, ignore_eos=True)
EXACT = replace(USUAL, exact=True)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return save_folder(tmp_path_factory.mktemp("target") / "tiny", CONFIG)


@pytest.fixture(autouse=True)
def rows(tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    return tmp_path / "rows"


def engine_for(target, rows=None, drafter="suffix", **settings):
    return mlxspec.load(target, drafter=drafter, prefixes=rows, say=pytest.fail, **settings)


def reply(engine, prompt=PROMPT, params=USUAL):
    """Tokens and bits of a reply, and how many tokens of its prompt were not read."""
    told = ToldBits(params)
    events = list(engine.generate(prompt, told.params))
    bits = sha256(repr(told.bits).encode()).hexdigest()
    return emitted(events), bits, events[-1].stats["reused_tokens"]


def in_another_process(target, rows, params, **settings):
    """What `reply` returns there, for a text whose rows it then keeps."""
    code = (
        "import json, sys\nfrom pathlib import Path\n"
        "from mlxspec.params import GenerationParams\n"
        "from tests.engine.test_kept_rows import PROMPT, engine_for, reply\n"
        "target, rows, params, settings = map(json.loads, sys.argv[1:])\n"
        "engine = engine_for(target, rows, **settings)\n"
        "params = GenerationParams(**params)\n"
        "print(json.dumps(reply(engine, params=params)))\nengine.keep_rows()"
    )
    fields = {name: getattr(params, name) for name in ("max_tokens", "ignore_eos", "exact")}
    given = map(json.dumps, (str(target), str(rows), fields, settings))
    told = subprocess.run(
        [sys.executable, "-c", code, *given], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return tuple(json.loads(told.stdout))


@pytest.mark.parametrize("bits", [None, 8])
@pytest.mark.parametrize("params", [USUAL, EXACT], ids=["usual", "exact"])
def test_another_process_goes_on_with_the_rows_to_the_same_reply(target, rows, params, bits):
    tokens, first, reused = in_another_process(target, rows, params, kv_bits=bits)
    assert reused == 0
    again = reply(engine_for(target, rows, kv_bits=bits), params=params)
    assert again[0] == tokens
    assert again[2] == 2 * CHUNK
    if params.exact:
        assert again[1] == first
    chat = [*PROMPT, *tokens, 1, 2]
    resumed = reply(engine_for(target, rows, kv_bits=bits), chat, params)
    fresh = reply(engine_for(target, kv_bits=bits), chat, params)
    assert resumed[2] == (2 * CHUNK if params.exact else len(PROMPT) + len(tokens) - 1)
    assert resumed[0] == fresh[0]
    assert not params.exact or resumed[1] == fresh[1]


def test_rows_serve_no_other_weights_cache_or_forwards(target, rows, tmp_path):
    engine = engine_for(target, rows)
    reply(engine)
    engine.keep_rows()
    weights = {name: mx.array(array) for name, array in random_weights(CONFIG).items()}
    name = "model.layers.1.mlp.up_proj.weight"
    weights[name][3, 5] += 1e-3
    other = save_folder(tmp_path / "other", CONFIG, weights)
    assert reply(engine_for(other, rows))[2] == 0
    assert reply(engine_for(target, rows, kv_bits=8))[2] == 0
    assert reply(engine_for(target, rows, dtype="float16"))[2] == 0
    assert reply(engine_for(target, rows), params=EXACT)[2] == 0
    assert reply(engine_for(target, rows))[2] == 2 * CHUNK


def test_a_server_keeps_the_texts_of_its_replies(target, rows):
    batch = engine_for(target, rows).open_batch(prefix_bytes=1 << 24)
    for prompt in (PROMPT, PROMPT[::-1]):
        batch.join(prompt, USUAL)
    while batch.num_replies:
        batch.step()
    assert not rows.exists()
    batch.save_prefixes()
    opened = engine_for(target, rows).open_batch(prefix_bytes=1 << 24)
    for prompt in (PROMPT, PROMPT[::-1]):
        opened.join(prompt, USUAL)
    told = []
    while opened.num_replies:
        told += [event for _, event in opened.step()]
    reused = [event.stats["reused_tokens"] for event in told if hasattr(event, "stats")]
    assert reused == [2 * CHUNK] * 2


def test_nothing_is_written_while_a_reply_streams_or_unasked(target, rows, tmp_path):
    engine = engine_for(target, rows)
    events = engine.generate(PROMPT, USUAL)
    for _ in range(8):
        next(events)
    engine.keep_rows()
    assert not rows.exists()
    events.close()
    engine.keep_rows([*PROMPT[:50], 23, 23, 23])
    assert [path.name.split("-")[1] for path in rows.iterdir()] == ["50"]
    unasked = engine_for(target)
    reply(unasked)
    unasked.keep_rows()
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1


def test_a_rotating_cache_keeps_nothing(target, rows):
    engine = engine_for(target, rows, max_kv_size=400)
    reply(engine)
    engine.keep_rows()
    assert not rows.exists()


def test_a_chat_keeps_its_own_text_and_not_that_of_a_race(rows):
    options = Options("suffix", prefixes=rows)
    chat = Conversation(prepare_loaded(toy_target(), options, say=pytest.fail).engine)
    chat.keep_rows("a" * 16)
    assert not rows.exists()
    list(chat.reply("abc", replace(USUAL, max_tokens=6)))
    list(chat.race("bcdefg", replace(USUAL, max_tokens=6)))
    chat.keep_rows("a" * 16)
    ((label, end),) = [path.name.split("-")[:2] for path in rows.iterdir()]
    last = chat._exchanges[-1]
    assert label == "a" * 16
    assert int(end) <= len(last.prompt) + len(last.tokens) < len(chat.engine.target)
    list(chat.regenerate(replace(USUAL, max_tokens=6)))
    chat.keep_rows("a" * 16)
    last = chat._exchanges[-1]
    assert max(int(path.name.split("-")[1]) for path in rows.glob("*")) == (
        len(last.prompt) + len(last.tokens) - 1
    )
