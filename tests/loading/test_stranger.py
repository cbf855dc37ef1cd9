"""The script that a stranger writes: `wrap` as it comes, in any thread, with a reply left open."""

from threading import Thread

import pytest
from mlx_lm.utils import load

import mlxspec
from mlxspec import GenerationParams
from tests.loading.test_mlx_lm import PROMPT, greedy
from tests.support.qwen3_folder import save_qwen3
from tests.support.tiny import emitted

PARAMS = GenerationParams(max_tokens=24)


pytestmark = pytest.mark.usefixtures("shared_home")


@pytest.fixture
def folder(tmp_path):
    return str(save_qwen3(tmp_path / "model"))


def test_five_lines_write_what_mlx_lm_writes(folder, capsys):
    script = f"""
import mlx_lm, mlxspec
model, tokenizer = mlx_lm.load({folder!r})
engine = mlxspec.wrap(model, tokenizer)
for text in mlxspec.stream_text(engine, "abab", mlxspec.GenerationParams(max_tokens=12)):
    print(text, end="")
"""
    exec(script, {})
    model, tokenizer = load(folder)
    tokens = greedy(model, tokenizer.eos_token_ids, tokenizer.encode("abab"), 12)
    assert capsys.readouterr().out == tokenizer.decode(tokens, skip_special_tokens=True)


def in_another_thread(work):
    results = []
    thread = Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def test_a_model_is_wrapped_and_used_in_other_threads_while_a_reply_is_held(folder):
    model, tokenizer = load(folder)
    engine = in_another_thread(lambda: mlxspec.wrap(model, tokenizer))
    held = engine.generate(PROMPT, PARAMS)
    begun = [next(held) for _ in range(3)]
    other = in_another_thread(lambda: emitted(engine.generate(PROMPT[3:], PARAMS)))
    truth, ends = load(folder)[0], tokenizer.eos_token_ids
    assert other == greedy(truth, ends, PROMPT[3:], PARAMS.max_tokens)
    assert emitted([*begun, *held]) == greedy(truth, ends, PROMPT, PARAMS.max_tokens)
