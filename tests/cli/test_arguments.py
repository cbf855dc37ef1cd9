"""What a call refuses, before anything is read or loaded: arguments of the wrong type."""

import mlx.core as mx
import numpy as np
import pytest

import mlxspec
from mlxspec.chat.conversation import Conversation
from mlxspec.drafters.none import NoDrafter
from mlxspec.params import GenerationParams, SamplingParams
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.toy_chat import ToyChat

MODEL = tiny_model()
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
SHORT = GenerationParams(max_tokens=6)


def chat():
    return Conversation(make_engine(MODEL, NoDrafter(), tokenizer=ToyChat()))


# ---- prompts ---------------------------------------------------------------------------------

SAME_PROMPTS = {
    "range": range(3, 6),
    "int64": np.array(PROMPT),
    "numpy ids": [np.int32(token) for token in PROMPT],
    "mlx uint32": mx.array(PROMPT, mx.uint32),
}


@pytest.mark.parametrize("prompt", SAME_PROMPTS.values(), ids=SAME_PROMPTS)
def test_a_prompt_may_be_any_sequence_or_array_of_whole_numbers(prompt):
    tokens = [int(token) for token in prompt]
    engine = make_engine(MODEL, NoDrafter())
    reply = emitted(engine.generate(prompt, SHORT))
    assert reply == emitted(make_engine(MODEL, NoDrafter()).generate(tokens, SHORT))
    assert engine.target.history[: len(tokens)] == tuple(tokens)
    assert set(map(type, engine.target.history)) == {int}
    assert next(iter(engine.generate_batch([prompt], SHORT))).tokens == tuple(reply)


WRONG_PROMPTS = {
    "floats": ([1.0, 2.0], "got 1.0 of type float as item 0"),
    "texts": (["a", "b"], "got 'a' of type str as item 0"),
    "bool array": (mx.array([True]), "got True of type bool as item 0"),
    "a batch of one": (np.array([[1, 2]]), r"shape \(1, 2\): take one row of it"),
    "a number": (3, "got 3 of type int"),
    "a mapping": ({"input_ids": [1, 2]}, "of type dict"),
}


@pytest.mark.parametrize(("prompt", "message"), WRONG_PROMPTS.values(), ids=WRONG_PROMPTS)
def test_what_is_no_prompt_is_refused_before_anything_is_read(prompt, message, forwards):
    engine = make_engine(MODEL, NoDrafter())
    with pytest.raises(ValueError, match=f"the prompt must be text, or token ids .*{message}"):
        engine.generate(prompt)
    with pytest.raises(ValueError, match=f"prompt 1 must be text, or token ids .*{message}"):
        engine.generate_batch([[1], prompt])
    assert forwards.of(engine.target.model) == 0


def test_a_batch_takes_the_rows_of_an_array():
    engine = make_engine(MODEL, NoDrafter())
    replies = engine.generate_batch(np.array([PROMPT, PROMPT[::-1]]), SHORT)
    one_by_one = [emitted(engine.generate(p, SHORT)) for p in (PROMPT, PROMPT[::-1])]
    assert [list(reply.tokens) for reply in replies] == one_by_one


# ---- calls -----------------------------------------------------------------------------------


@pytest.mark.parametrize("params", [0, "", {}, [], SamplingParams(), GenerationParams])
def test_what_are_no_settings_is_refused_even_where_it_is_empty(params):
    engine = make_engine(MODEL, NoDrafter())
    with pytest.raises(ValueError, match="params must be of type GenerationParams; got "):
        engine.generate(PROMPT, params)
    if params != []:
        with pytest.raises(ValueError, match="params"):
            engine.generate_batch([PROMPT], params)
    with pytest.raises(ValueError, match="params of prompt 0 must be of type GenerationParams"):
        engine.generate_batch([PROMPT], [params])
    with pytest.raises(ValueError, match="params must be of type GenerationParams"):
        chat().reply("ab", params)


@pytest.mark.parametrize("name", ["should_stop", "stop_when"])
def test_what_cannot_be_asked_is_refused_before_anything_is_read(name):
    engine, conversation = make_engine(MODEL, NoDrafter()), chat()
    for call in (
        lambda: engine.generate(PROMPT, **{name: True}),
        lambda: engine.generate_batch([PROMPT], **{name: True}),
        lambda: conversation.reply("ab", **{name: True}),
    ):
        with pytest.raises(ValueError, match=f"{name} must be a function; got True"):
            call()
    assert conversation.turns == []


@pytest.mark.parametrize("prompts", [3, None, b"ab", {1: 2}, np.array(3), iter([[1]])])
def test_what_are_no_prompts_is_refused(prompts):
    engine = make_engine(MODEL, NoDrafter())
    with pytest.raises(ValueError, match="prompts must be a list of prompts; got "):
        engine.generate_batch(prompts)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stop_tokens": (24,)}, "stop_tokens must be token ids from 0 to 23; got 24"),
        ({"sampling": SamplingParams(logit_bias={24: 1.0})}, "logit_bias must be token ids from"),
    ],
)
def test_tokens_outside_the_vocabulary_are_refused_before_anything_is_read(
    settings, message, forwards
):
    engine = make_engine(MODEL, NoDrafter())
    params = GenerationParams(**settings)
    with pytest.raises(ValueError, match=message):
        engine.generate(PROMPT, params)
    with pytest.raises(ValueError, match=message):
        engine.generate_batch([PROMPT], params)
    assert forwards.of(engine.target.model) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": 3}, "source must be a name or a path; got 3"),
        ({"drafter": 1}, "drafter must be a name or a path; got 1"),
        ({"on_progress": 3}, "on_progress must be a function"),
        ({"say": "x"}, "say must be a function"),
    ],
)
def test_load_refuses_wrong_arguments_before_anything_is_loaded(arguments, message, monkeypatch):
    monkeypatch.setattr("mlxspec.api.load_model", lambda *_, **__: pytest.fail("it was loaded"))
    with pytest.raises(ValueError, match=message):
        mlxspec.load(**arguments)


def test_a_conversation_refuses_what_is_neither_text_nor_message():
    conversation = chat()
    for call, message in (
        (lambda: conversation.reply(3), "text must be a text, a message .*; got 3 of type int"),
        (lambda: conversation.reply([1, 2]), "text must be a text"),
        (lambda: conversation.cut("1"), "num_turns must be a whole number"),
        (lambda: conversation.restore([("a", 1)]), "a turn must be"),
        (lambda: conversation.restore([("a", "b", "c")]), "must be a pair"),
        (lambda: conversation.restore([("a", "b")], 3), "system must be a text"),
        (lambda: Conversation(conversation.engine, 3), "system must be a text"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert (conversation.turns, conversation.system) == ([], None)
