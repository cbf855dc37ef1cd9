"""The script that a stranger writes: `wrap` as it comes, in any thread, with a reply left open."""

from threading import Thread

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step
from mlx_lm.utils import load

import mlxspec
from mlxspec import GenerationParams
from tests.support.qwen3_folder import save_qwen3
from tests.support.tiny import emitted

PROMPT = [5, 9, 2, 7, 11, 8, 4, 12]
PARAMS = GenerationParams(max_tokens=24)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    return str(save_qwen3(tmp_path / "model"))


def true_tokens(folder, tokens, length=PARAMS.max_tokens):
    """mlx-lm's own greedy tokens, from a model of its own."""
    model, tokenizer = load(folder)
    found = []
    for token, _ in generate_step(mx.array(tokens), model, max_tokens=length):
        found.append(int(token))
        if token in tokenizer.eos_token_ids:
            break
    return found


def test_five_lines_write_what_mlx_lm_writes(folder, capsys):
    script = f"""
import mlx_lm, mlxspec
model, tokenizer = mlx_lm.load({folder!r})
engine = mlxspec.wrap(model, tokenizer)
for text in mlxspec.stream_text(engine, "abab", mlxspec.GenerationParams(max_tokens=12)):
    print(text, end="")
"""
    exec(script, {})
    _, tokenizer = load(folder)
    tokens = true_tokens(folder, tokenizer.encode("abab"), 12)
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
    assert other == true_tokens(folder, PROMPT[3:])
    assert emitted([*begun, *held]) == true_tokens(folder, PROMPT)
