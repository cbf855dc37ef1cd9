"""What a chat gives to a template, and what it does with ids that the tokenizer lacks."""

import warnings

import pytest

from mlxspec.chat.prompts import ChatPrompts
from mlxspec.drafters.none import NoDrafter
from mlxspec.errors import UnsupportedOperationError
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.text import chat_template
from mlxspec.trace.events import TurnStarted
from tests.support.adversaries import RandomTrees
from tests.support.reasoning import DROPPING, MODEL, VOCAB, chat, reasoning_tokenizer, saying
from tests.support.tiny import emitted, make_engine
from tests.support.toy_chat import CHATML

BODY = (
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
REFUSING = (
    "{% for m in messages %}{% if m.role == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}" + BODY
)
IGNORING = "{% for m in messages if m.role != 'system' %}" + BODY
TOOL = {"type": "function", "function": {"name": "time", "parameters": {"type": "object"}}}
END = "<|im_end|>"


def prompt_of(conversation, text, **settings):
    """The text of the prompt of a turn that is answered by one end token."""
    tokenizer = conversation.engine.tokenizer
    list(conversation.reply(text, saying(tokenizer, END, **settings)))
    return tokenizer.decode(conversation.engine.target.history, keep_special=True)


# ---- the system prompt -----------------------------------------------------------------------


@pytest.mark.parametrize("template", [REFUSING, IGNORING], ids=["refuses", "ignores"])
def test_a_system_prompt_without_a_role_stands_before_the_first_message(template):
    tokenizer = reasoning_tokenizer(template)
    conversation = chat(tokenizer, system="Be brief.")
    expected = [{"role": "user", "content": "Be brief.\n\nhi"}]
    assert prompt_of(conversation, "hi") == tokenizer.wrapped.apply_chat_template(
        expected, tokenize=False, add_generation_prompt=True
    )
    assert conversation.messages[0] == {"role": "system", "content": "Be brief."}
    said = prompt_of(conversation, "more")
    assert said.count("Be brief.") == 1
    assert said.startswith("<|im_start|>user\nBe brief.\n\nhi<|im_end|>\n")


def test_a_template_that_runs_too_long_is_not_tried_with_other_forms(monkeypatch):
    monkeypatch.setattr(chat_template, "TIME_S", 0.05)
    rounds = "{% for a in range(9999) %}\n{% for b in range(9999) %}\n{% endfor %}{% endfor %}"
    tokenizer = reasoning_tokenizer("{% for m in messages %}{{ m.content }}{% endfor %}" + rounds)
    tried, render = [], tokenizer.render_chat

    def counted(form, **how):
        tried.append(form)
        return render(form, **how)

    monkeypatch.setattr(tokenizer, "render_chat", counted)
    twice = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    with pytest.raises(UnsupportedOperationError, match="was stopped"):
        ChatPrompts(tokenizer).render(twice, None, {})
    assert len(tried) == 1


# ---- arguments and tools ---------------------------------------------------------------------


def test_arguments_reach_the_prompt_of_their_reply_and_a_name_that_is_not_read_is_told_once():
    lines = []
    conversation = chat(reasoning_tokenizer(DROPPING), say=lines.append)
    args = {"enable_thinkin": False, "enable_thinking": False}
    for text in ("a", "b"):
        off = prompt_of(conversation, text, chat_template_args=args)
        assert off.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert prompt_of(conversation, "c").endswith("<|im_start|>assistant\n")
    assert lines == [
        "warning: the chat template of tiny does not read 'enable_thinkin', so it has no effect; "
        "the arguments that it reads: enable_thinking"
    ]


def test_what_has_no_effect_is_a_python_warning_for_a_script():
    conversation = chat(reasoning_tokenizer(CHATML), tools=[TOOL])
    with pytest.warns(UserWarning, match=r"^the chat template of tiny does not read 'tools'.*none"):
        prompt_of(conversation, "a", chat_template_args={})


def test_tools_and_their_results_are_part_of_the_chat():
    tokenizer = reasoning_tokenizer(DROPPING)
    conversation = chat(tokenizer, tools=[TOOL])
    call = '<tool_call>{"name": "time"}</tool_call>'
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(conversation.reply("what time?", saying(tokenizer, call + END)))
    result = {"role": "tool", "name": "time", "content": "12:00"}
    messages = [
        {"role": "user", "content": "what time?"},
        {"role": "assistant", "content": call},
        result,
    ]
    text = tokenizer.wrapped.apply_chat_template(
        messages, tools=[TOOL], tokenize=False, add_generation_prompt=True
    )
    events = list(conversation.reply(result, saying(tokenizer, "noon" + END)))
    assert events[0] == TurnStarted("tool", "12:00")
    assert conversation.messages == [*messages, {"role": "assistant", "content": "noon"}]
    history = tokenizer.decode(conversation.engine.target.history, keep_special=True)
    assert history == text + "noon"


def test_two_results_are_one_turn_and_it_can_be_answered_again():
    tokenizer = reasoning_tokenizer(DROPPING)
    conversation = chat(tokenizer)
    results = [{"role": "tool", "content": number} for number in "12"]
    events = list(conversation.reply(results, saying(tokenizer, "a" + END)))
    assert [event.text for event in events if isinstance(event, TurnStarted)] == ["1", "2"]
    list(conversation.regenerate(saying(tokenizer, "b" + END)))
    assert conversation.messages == [*results, {"role": "assistant", "content": "b"}]
    assert conversation.turns == [("1\n2", "b")]


@pytest.mark.parametrize("text", [3, None, [], [{"content": "a"}], {"role": 1}, ["a"], b"a"])
def test_what_is_no_message_is_refused_and_nothing_is_added(text):
    conversation = chat(reasoning_tokenizer(DROPPING))
    with pytest.raises(ValueError, match="text must be a text, a message"):
        conversation.reply(text)
    assert conversation.messages == []


# ---- ids beyond the tokenizer, and several end tokens ------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_ids_that_the_tokenizer_lacks_are_emitted_without_text(temperature):
    tokenizer = reasoning_tokenizer(CHATML)
    padding = list(range(tokenizer.vocab_size, VOCAB))
    assert len(padding) > 20
    sampling = SamplingParams(temperature=temperature, logit_bias=dict.fromkeys(padding, 60.0))
    params = GenerationParams(max_tokens=12, sampling=sampling, seed=3)
    conversation = chat(tokenizer, RandomTrees(VOCAB))
    for turn in ("a", "b"):  # the second prompt holds the tokens of the first reply
        found = emitted(conversation.reply(turn, params))
        assert len(found) == 12
        assert set(found) <= set(padding)
        assert conversation.turns[-1] == (turn, "")
    (reply,) = make_engine(MODEL, NoDrafter(), tokenizer=tokenizer).generate_batch(["a"], params)
    assert (reply.text, len(reply.tokens)) == ("", 12)
