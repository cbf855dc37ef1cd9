"""Replies of reasoning models: channels, and the turns that follow, against transformers."""

import pytest

from mlxspec.params import GenerationParams
from mlxspec.text.reasoning import ChannelTracker, ReasoningMarks
from mlxspec.trace.difference import common_length
from mlxspec.trace.events import GenerationFinished, PrefillProgress, text_of
from mlxspec.trace.reply_text import ReplyText
from tests.support.adversaries import AlwaysRight
from tests.support.reasoning import DROPPING, KEEPING, OPENING, chat, reasoning_tokenizer, saying
from tests.support.tiny import emitted
from tests.support.toy_chat import CHATML, byte_tokenizer

REPLY = "<think>\nhm, 2\n</think>\n\nyes<|im_end|>"


def collected(events):
    said = ReplyText()
    for event in events:
        said.add(event)
    return said


def channels(events):
    return [token.channel for event in events for token in getattr(event, "emit", ())]


# ---- marks -----------------------------------------------------------------------------------


MARKS = [  # marks, a reply: reasoning, answer
    (("<think>", "</think>"), "a<think>b</think>c", "b", "ac"),
    (("<longcat_think>", "</longcat_think>"), "<longcat_think>b</longcat_think>c", "b", "c"),
    (("<|think:start|>", "<|think:end|>"), "<|think:start|>b<|think:end|>c", "b", "c"),
    (("<|channel>", "<channel|>"), "<|channel>thought\nb<channel|>c", "\nb", "c"),
    (("<|open|>", "<|close|>", "<|sep|>"), "<|open|>think<|sep|>b<|close|>think<|sep|>c", "b", "c"),
    (
        ("<|channel|>", "<|message|>", "<|start|>", "<|end|>"),
        "<|channel|>analysis<|message|>b<|end|><|start|>assistant<|channel|>final<|message|>c",
        "b",
        "c",
    ),
]


@pytest.mark.parametrize(("marks", "reply", "reasoning", "answer"), MARKS, ids=lambda value: "")
@pytest.mark.parametrize("are_special", [True, False])
def test_every_pair_of_marks_splits_a_reply(marks, reply, reasoning, answer, are_special):
    tokenizer = reasoning_tokenizer(CHATML, marks, are_special=are_special)
    texts = {"reasoning": "", "answer": "", "mark": ""}
    for token, channel in channels_of(tokenizer, tokenizer.encode(reply)):
        texts[channel] += tokenizer.token_bytes(token).decode()
    assert texts["reasoning"].replace("<|end|>", "") == reasoning
    assert texts["answer"] == answer


def channels_of(tokenizer, tokens):
    tracker = ChannelTracker(tokenizer.reasoning, [0], tokenizer.token_bytes)
    return [(token, tracker.next(token)) for token in tokens]


def test_a_model_without_marks_does_not_reason():
    assert byte_tokenizer(CHATML).reasoning is None
    assert reasoning_tokenizer(CHATML, ["<think>"]).reasoning is None


def test_a_mark_that_is_spelled_out_in_letters_or_only_begun_is_text():
    tokenizer = reasoning_tokenizer(CHATML)
    letters = [token for letter in "<think>" for token in tokenizer.encode(letter)]
    assert {channel for _, channel in channels_of(tokenizer, letters)} == {"answer"}
    tokenizer = reasoning_tokenizer(CHATML, ("<|channel>", "<channel|>"))
    found = [channel for _, channel in channels_of(tokenizer, tokenizer.encode("<|channel>thin"))]
    assert found == ["mark", "mark", "mark", "answer", "answer"]  # "th" is how "thought" begins


@pytest.mark.parametrize(
    ("prompt", "is_open"),
    [
        ("a<think>", True),
        ("a<think>\n \n", True),
        ("a<think>b", False),
        ("a<think>\n\n</think>\n\n", False),
        ("what is <think>?<|im_end|>\n", False),
        ("a<think><|im_end|>\n", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("are_special", [True, False])
def test_a_prompt_that_ends_with_the_opening_mark_begins_inside(prompt, is_open, are_special):
    tokenizer = reasoning_tokenizer(CHATML, are_special=are_special)
    tokens = tokenizer.encode(prompt)
    assert tokenizer.reasoning.is_open_after(tokens, tokenizer.token_bytes) == is_open


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("<think>b</think>c", "b", "c"),
        ("a<think>b</think>c</think>", "b", "ac</think>"),
        ("b</think>c", "b", "c"),
        ("<think>cut off", "cut off", ""),
        ("only an answer", "", "only an answer"),
        ("", "", ""),
    ],
)
def test_a_stored_reply_is_split_by_its_text(text, reasoning, answer):
    marks = ReasoningMarks.of({"<think>": 0, "</think>": 1}, lambda mark: [len(mark)])
    said = ReplyText(marks.split(text))
    assert (said.reasoning, said.answer, said.text) == (reasoning, answer, text)


# ---- a reply ---------------------------------------------------------------------------------


def test_the_replies_of_a_batch_are_split():
    tokenizer = reasoning_tokenizer(DROPPING)
    batch = {  # prompt, reply: reasoning, answer
        ("2?", "<think>hm</think>yes"): ("hm", "yes"),
        ("2? <think>", "so</think>no"): ("so", "no"),
        ("3?", "<think>hmmz"): ("hmmz", ""),  # "z" is held back to the end: a stop begins with it
        ("4?", "four"): ("", "four"),
    }
    params = [saying(tokenizer, reply, stop=("zz",)) for _, reply in batch]
    replies = chat(tokenizer).engine.generate_batch([prompt for prompt, _ in batch], params)
    found = sorted((reply.index, reply.reasoning, reply.answer) for reply in replies)
    assert found == [(index, *parts) for index, parts in enumerate(batch.values())]


@pytest.mark.parametrize("drafts", [False, True])
@pytest.mark.parametrize("are_special", [True, False])
def test_a_reply_is_split_while_it_is_written(drafts, are_special):
    tokenizer = reasoning_tokenizer(DROPPING, are_special=are_special)
    script = tokenizer.encode(REPLY)
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": "2?"}])
    drafter = AlwaysRight([*prompt, *script]) if drafts else None
    params = saying(tokenizer, REPLY)
    events = list(chat(tokenizer, drafter).reply("2?", params))
    said = collected(events)
    assert (said.reasoning, said.answer) == ("\nhm, 2\n", "\n\nyes")
    assert said.text == tokenizer.decode(script) == "".join(map(text_of, events))
    assert channels(events).count("mark") == 2
    end = next(event for event in events if isinstance(event, GenerationFinished))
    assert end.stats["reasoning_tokens"] == len("\nhm, 2\n")
    assert (end.stats["rounds"] > 0) == drafts


def test_a_reply_without_thinking_is_an_answer():
    tokenizer = reasoning_tokenizer(DROPPING)
    params = saying(tokenizer, "yes", chat_template_args={"enable_thinking": False})
    assert set(channels(chat(tokenizer).reply("2?", params))) == {"answer"}


# ---- the turn after it -----------------------------------------------------------------------

TURNS = [
    (DROPPING, REPLY, {"content": "yes", "reasoning_content": "hm, 2"}),
    (OPENING, "hm\n</think>\n\nyes<|im_end|>", {"content": "<think>\nhm\n</think>\n\nyes"}),
    (KEEPING, "hm\n</think>\n\nyes<|im_end|>", {"content": "<think>\nhm\n</think>\n\nyes"}),
]


@pytest.mark.parametrize("are_special", [True, False])
@pytest.mark.parametrize(("template", "reply", "parts"), TURNS, ids=["drop", "cut", "keep"])
def test_the_next_prompt_is_that_of_the_template(template, reply, parts, are_special):
    tokenizer = reasoning_tokenizer(template, are_special=are_special)
    conversation = chat(tokenizer)
    list(conversation.reply("2?", saying(tokenizer, reply)))
    before = conversation.engine.target.history
    messages = [
        {"role": "user", "content": "2?"},
        {"role": "assistant", **parts},
        {"role": "user", "content": "sure?"},
    ]
    assert conversation.messages == messages[:2]
    expected = tokenizer.encode(
        tokenizer.wrapped.apply_chat_template(messages, tokenize=False, add_generation_prompt=True),
        add_special_tokens=False,
    )
    events = list(conversation.reply("sure?", saying(tokenizer, "no<|im_end|>")))
    assert list(conversation.engine.target.history)[: len(expected)] == expected
    reused = [event.reused for event in events if isinstance(event, PrefillProgress)]
    assert reused == [common_length(before, expected)]
    assert (reused == [len(before)]) == (template == KEEPING)


def test_a_turn_after_a_rollback_is_answered_as_by_an_engine_that_read_it_alone():
    tokenizer = reasoning_tokenizer(DROPPING)
    conversation = chat(tokenizer)
    list(conversation.reply("2?", saying(tokenizer, REPLY)))
    plain = GenerationParams(max_tokens=12, ignore_eos=True)
    found = emitted(conversation.reply("sure?", plain))
    prompt = list(conversation.engine.target.history)[:-11]
    assert found == emitted(chat(tokenizer).engine.generate(prompt, plain))


def test_a_restored_reply_has_its_reasoning_apart():
    tokenizer = reasoning_tokenizer(DROPPING)
    conversation = chat(tokenizer)
    conversation.restore([("2?", "<think>\nhm\n</think>\n\nyes")])
    assert conversation.turns == [("2?", "<think>\nhm\n</think>\n\nyes")]
    assert conversation.messages[1] == {
        "role": "assistant",
        "content": "yes",
        "reasoning_content": "hm",
    }


def test_many_turns_are_answered_from_prompts_of_the_template():
    tokenizer = reasoning_tokenizer(DROPPING)
    conversation = chat(tokenizer)
    messages = []
    for number in range(6):
        messages.append({"role": "user", "content": f"{number}?"})
        text = tokenizer.wrapped.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        reply = f"<think>\nhm {number}\n</think>\n\n{number}!"
        list(conversation.reply(f"{number}?", saying(tokenizer, f"{reply}<|im_end|>")))
        told = tokenizer.decode(conversation.engine.target.history, keep_special=True)
        assert told == text + reply
        parts = {"content": f"{number}!", "reasoning_content": f"hm {number}"}
        messages.append({"role": "assistant", **parts})
