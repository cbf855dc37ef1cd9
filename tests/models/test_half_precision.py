"""Half precision, as on a GPU: rounding parts replies at gaps that are faults in float32.

Everything that compares greedy replies has to say both: that rounding explains such a place, and
that it does not explain a mistake.
"""

import json
from dataclasses import replace

import mlx.core as mx
import pytest

from mlxspec.chat.conversation import Conversation
from mlxspec.measure.lossless import prove
from mlxspec.params import GenerationParams
from mlxspec_cli.main import main
from tests.support.adversaries import AlwaysRight, RandomTrees
from tests.support.gguf_files import tiny_config
from tests.support.halves import cut_sums, half_model, lose_a_row
from tests.support.model_folders import random_weights, save_folder
from tests.support.question_file import save_questions
from tests.support.tiny import emitted, make_engine
from tests.support.toy_chat import ToyChat

PARAMS = GenerationParams(max_tokens=24, num_draft_tokens=4, ignore_eos=True)
PROMPTS = [[1, 2, 3, 1, 2], [4, 4, 4], [3, 9, 2, 3, 9], [7, 8, 7, 8]]
LARGEST_IN_FLOAT32 = 1e-3


@pytest.fixture
def rounds(gpu, monkeypatch):
    """Kernels that round by the number of rows."""
    cut_sums(monkeypatch)


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run a command on a folder in float16 whose draft model is right; return code and document."""
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    questions = str(save_questions(tmp_path))

    def run(name, *arguments, twins):
        weights = {n: mx.array(array) for n, array in random_weights(tiny_config()).items()}
        if twins:
            head = weights["lm_head.weight"]
            noise = mx.random.normal(head.shape, key=mx.random.key(1)) * 2e-4
            weights["lm_head.weight"] = 8 * (mx.repeat(head[::2], 2, axis=0) + noise)
        halves = {n: array.astype(mx.float16) for n, array in weights.items()}
        folder = str(save_folder(tmp_path / "half", weights=halves))
        words = [name, folder, "--draft-model", folder, "--prompts", questions, "--json"]
        code = main([*words, "--max-tokens", "24", *arguments])
        return code, json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def loses_a_row(monkeypatch):
    lose_a_row(monkeypatch)


def differences(model, kind="full"):
    """What parts drafted replies from plain ones; the drafts are the plain ones."""
    found = []
    for prompt in PROMPTS:
        plain = emitted(make_engine(model, None, kind).generate(prompt, PARAMS))
        engine = make_engine(model, AlwaysRight([*prompt, *plain]), kind)
        tokens = emitted(engine.generate(prompt, PARAMS))
        found.append(prove(engine, prompt, tokens, PARAMS).difference)
    return [difference for difference in found if difference]


@pytest.mark.parametrize(("dtype", "kind"), [(mx.float16, "full"), (mx.bfloat16, "rotating")])
def test_a_rounding_of_half_precision_is_a_near_tie(dtype, kind, rounds):
    found = differences(half_model(dtype, twins=True), kind)
    assert max(difference.gap for difference in found) > LARGEST_IN_FLOAT32
    assert all(difference.is_near_tie for difference in found)


def test_a_lost_row_is_more_than_a_rounding_of_half_precision(rounds, loses_a_row):
    found = differences(half_model(mx.float16))
    assert not all(difference.is_near_tie for difference in found)
    assert all(difference.near_tie < 0.5 for difference in found)


VERIFY = ("verify", "--drafters", "model", "--caches", "full", "--draws", "80")
BENCH = ("bench", "--arms", "plain,model", "--temps", "0", "--k", "4")


def found_by(document):
    """The differences that a command found."""
    partings = [
        parting["proof"]["difference"]
        for cache in document.get("caches", ())
        for found in cache["agreements"]
        for parting in found["partings"]
    ]
    return partings + [d for row in document.get("rows", ()) for d in row["differences"] if d]


@pytest.mark.parametrize("words", [VERIFY, BENCH], ids=lambda words: words[0])
def test_a_command_lets_a_rounding_of_half_precision_pass(words, command, rounds):
    code, document = command(*words, twins=True)
    found = found_by(document)
    assert max(difference["gap"] for difference in found) > LARGEST_IN_FLOAT32
    assert all(difference["gap"] <= difference["near_tie"] for difference in found)
    assert code == 0


@pytest.mark.parametrize("words", [VERIFY, BENCH], ids=lambda words: words[0])
def test_a_command_sees_a_lost_row_in_half_precision(words, command, rounds, loses_a_row):
    code, document = command(*words, twins=False)
    found = found_by(document)
    assert max(difference["gap"] for difference in found) > 0.1
    assert any(difference["gap"] > difference["near_tie"] for difference in found)
    assert code == 1


def test_a_chat_says_whether_a_rounding_decided(rounds):
    engine = make_engine(half_model(twins=True), RandomTrees(24), tokenizer=ToyChat())
    conversation = Conversation(engine)
    for _ in conversation.reply("abc", replace(PARAMS, max_tokens=60)):
        pass
    assert ", a near-tie, as rounding explains up to 0." in conversation.prove().describe()
