"""A chat of many turns with models of mlx-lm: a reasoning one, and a hybrid one with states.

The truth is mlx-lm, which reads the prompts over a cache of its own.
"""

import copy
import time

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache

import mlxspec
from mlxspec.chat.conversation import Conversation
from mlxspec.params import GenerationParams
from mlxspec.trace.events import PrefillProgress
from mlxspec.trace.file import read_trace
from mlxspec_app.sessions.engine_session import EngineSession
from tests.support.app_driver import running
from tests.support.app_live import PATIENCE_S, FakeModels
from tests.support.reasoning import DROPPING, reasoning_tokenizer
from tests.support.zoo import build

TOKENIZER = reasoning_tokenizer(DROPPING).wrapped
TOKENIZER.eos_token = "<|im_end|>"
FIRST, LAST, END, NEWLINE = TOKENIZER.convert_tokens_to_ids(
    ["<think>", "</think>", "<|im_end|>", "\u010a"]
)
LETTERS = TOKENIZER.convert_tokens_to_ids(list("abcdefghij"))
MARKS = {0: FIRST, 3: LAST, 6: END}  # by place in a reply; all else is a letter


def marked(tokens, logits):
    """Let every reply think for two letters and answer in two, whatever the model would say."""
    place = tokens.tolist()[::-1].index(NEWLINE)  # the prompt ends with a new line
    allowed = [MARKS[place]] if place in MARKS else LETTERS
    kept = mx.zeros(logits.shape[-1], mx.bool_)
    kept[mx.array(allowed)] = True
    return mx.where(kept, logits, -mx.inf)


PARAMS = GenerationParams(max_tokens=9, logits_processors=(marked,))
TRUE_SETTINGS = {"max_tokens": max(MARKS) + 1, "logits_processors": [marked]}


def true_replies(model, messages):
    """The reasoning and the answer of each turn."""
    chat, replies, read, cache = [], [], [], make_prompt_cache(model)
    for message in messages:
        chat.append({"role": "user", "content": message})
        prompt = TOKENIZER.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        tokens = TOKENIZER.encode(prompt, add_special_tokens=False)
        assert tokens[: len(read)] == read  # else the whole prompt has to be read anew
        model(mx.array([tokens[len(read) : -1]]), cache=cache)
        read, own = tokens[:-1], copy.deepcopy(cache)
        steps = generate_step(mx.array(tokens[-1:]), model, prompt_cache=own, **TRUE_SETTINGS)
        said = [int(token) for token, _ in steps]
        assert said[-1] == END
        thought, answer = TOKENIZER.decode(said[1:3]), TOKENIZER.decode(said[4:-1])
        chat.append({"role": "assistant", "content": answer, "reasoning_content": thought})
        replies.append((thought, answer))
    return replies


async def answered(driver, text, turn):
    """Say a text and return the reasoning and the answer, once they are complete."""
    await driver.say(text)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        messages = driver.screen.state.messages
        if len(messages) == 2 * turn and messages[-1].reason is not None:
            break
        assert time.monotonic() < deadline, messages
        await driver.pilot.pause(0.03)
        await driver.settle()
    assert messages[-1].error == ""
    return tuple(
        "".join(span.text for span in messages[-1].spans if span.channel == channel)
        for channel in ("reasoning", "answer")
    )


SMALL = {
    "qwen3": {"num_hidden_layers": 2},
    "qwen3_next": {"num_hidden_layers": 2, "full_attention_interval": 2},
}


@pytest.mark.parametrize(("kind", "num_turns"), [("qwen3", 7), *((kind, 20) for kind in SMALL)])
async def test_the_turns_of_a_chat_are_those_of_mlx_lm(kind, num_turns, tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path))
    model = build(kind, vocab_size=len(TOKENIZER), **SMALL[kind])
    messages = ["abc"[turn % 3] * (1 + turn % 4) for turn in range(num_turns)]
    expected = true_replies(model, messages)

    def open_chat(choice, on_progress):
        return Conversation(mlxspec.wrap(model, TOKENIZER, drafter="pool"))

    trace = tmp_path / "trace.jsonl"
    live = EngineSession(FakeModels(open_chat), PARAMS, trace)
    try:
        async with running(live, size=(50, 12)) as driver:
            said = [await answered(driver, text, turn) for turn, text in enumerate(messages, 1)]
    finally:
        live.close()
    assert said == expected
    reads = [e for e in read_trace(trace) if isinstance(e, PrefillProgress) and e.done == e.total]
    # The template drops earlier reasoning, so a chat goes back to the prompt of its last turn, or,
    # where a state cannot be cut, to the end of what was read as a text: one token less.
    less = 1 if kind == "qwen3_next" else 0
    assert [read.reused for read in reads] == [0, *(read.total - less for read in reads[:-1])]
