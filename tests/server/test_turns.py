"""The turns that programs send, over each API: one form, which strict templates take.

The truth is the text that is written here, or the same chat as another API states it.
"""

import json
import re
from types import SimpleNamespace

import pytest

from mlxspec.params import GenerationParams
from mlxspec_server.body import Body, Refusal
from mlxspec_server.server import APIS
from mlxspec_server.tools.calls import ToolFormat
from mlxspec_server.turns import chat_prompt
from tests.support.pairwise import pairwise
from tests.support.reasoning import CLOSING, DROPPING, KEEPING, MODEL, OPENING, reasoning_tokenizer
from tests.support.served import (
    LENGTH,
    MESSAGES,
    TARGET,
    TOKENIZER,
    engine,
    serving,
    shelf,
    told,
)
from tests.support.templates import ALTERNATING, NINE_LETTERS, ONE_CALL, ONE_SYSTEM
from tests.support.toy_chat import CHATML, LLAMA3, byte_tokenizer

PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
HI = {"role": "user", "content": "Hi"}
OK = {"role": "assistant", "content": "ok"}
START = "<|im_start|>assistant\n"


def turn(role, text):
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def prompt_of(template, api, **body):
    """The text of the prompt of a request, and how many of its tokens begin the reply."""
    tokenizer = byte_tokenizer(template) if isinstance(template, str) else template
    engine, offer = SimpleNamespace(tokenizer=tokenizer), SimpleNamespace(name="tiny")
    loaded = SimpleNamespace(engine=engine, tools=ToolFormat.of(tokenizer), offer=offer)
    request = APIS[PATHS[api]](Body({"max_tokens": 9, **body}), GenerationParams())
    found = chat_prompt(loaded, request.ask.chat, (), GenerationParams())
    return tokenizer.decode(found.tokens, keep_special=True), found.num_begun


def text_of(template, api, **body):
    return prompt_of(template, api, **body)[0]


def call(id, **arguments):
    return {"id": id, "type": "function", "function": {"name": "go", "arguments": arguments}}


def item(id, text='{"to": "x"}'):
    return {"type": "function_call", "call_id": id, "name": "go", "arguments": text}


def result(id, text):
    return {"role": "tool", "tool_call_id": id, "content": text}


def output(id, text):
    return {"type": "function_call_output", "call_id": id, "output": text}


BOTH = [call("a", to="x"), call("b", to="x")]
RESULTS = [
    {"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": text}]}
    for id, text in (("a", "1"), ("b", "2"))
]
USES = [{"type": "tool_use", "id": id, "name": "go", "input": {"to": "x"}} for id in "ab"]
LATE = {"role": "system", "content": "note"}
BRIEF = {"role": "system", "content": "Be brief."}
SECOND = [{"type": "text", "text": "b", "cache_control": {}}]
OLD_CALL = {"role": "assistant", "content": None}
OLD_CALL["function_call"] = {"name": "go", "arguments": '{"to": "é"}'}
OLD_RESULT = {"role": "function", "name": "go", "content": "1"}
OLD_ANSWER = turn("assistant", "<call go to=é>") + turn("tool", "1")
U, A, CALLS = turn("user", "Hi"), turn("assistant", "ok"), "<call go to=x><call go to=x>"
ANSWERS = turn("tool", "1") + turn("tool", "2")
WILL_NOT = U + turn("assistant", "I will not.") + U


def said(content):
    return {"role": "assistant", "content": content}


def system_first(role, api):
    """A second system prompt right behind the first one."""
    turns, parts = [{"role": role, "content": SECOND}, HI], [{"type": "text", "text": "a"}]
    return {
        "chat": {"messages": [{"role": "system", "content": "a"}, *turns]},
        "responses": {"instructions": "a", "input": turns},
        "messages": {"system": parts, "messages": turns},
    }[api]


ITEMS_FROM_ELSEWHERE = [
    {"type": "web_search_call", "id": "w", "action": {"type": "search"}},
    {"type": "mcp_list_tools", "id": "m", "tools": []},
    {"type": "local_shell_call_output", "id": "l", "output": "x"},
    {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"},
]
PATCH = [
    {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "begin"},
    {"type": "custom_tool_call_output", "call_id": "c", "output": "done"},
]
BLOCKS = [
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
    {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
    {"type": "redacted_thinking", "data": "x"},
    {"type": "text", "text": "ok"},
]
OUTPUTS = [output("a", "1"), output("b", "2")]
TWO_RESULTS = [result("a", "1"), result("b", "2")]
AS_TEXT = 'ok\n<tool_call>\n{"name": "go", "arguments": {"to": "x"}}\n</tool_call>'
AS_TEXTS = turn("assistant", AS_TEXT) + turn("user", "<tool_response>\n1\n</tool_response>")
KIND, PATCHED = turn("system", "Be kind"), "<call patch input=begin>"
IN_A_ROW = turn("user", "Be brief.\n\nHi\n\nnote\n\nHi")
LOOK, ALONE = (
    U + turn("assistant", f"look{CALLS}") + ANSWERS,
    U + turn("assistant", CALLS) + ANSWERS,
)
BY_USER = {"role": "user", "content": RESULTS}
TURNS = [
    # Turns in a row are one where roles must alternate; a system prompt alone is the user's.
    (ALTERNATING, IN_A_ROW, "messages", {"system": "Be brief.", "messages": [HI, LATE, HI]}),
    (ALTERNATING, turn("user", "Be brief."), "chat", [BRIEF]),
    # A message and its calls are one turn; an empty list of calls is no call.
    (ONE_CALL, U + A + U, "chat", [HI, {**OK, "tool_calls": []}, HI]),
    (ONE_SYSTEM, LOOK, "chat", [HI, {**said("look"), "tool_calls": BOTH}, *TWO_RESULTS]),
    (ONE_SYSTEM, LOOK, "responses", [HI, said("look"), *map(item, "ab"), *OUTPUTS]),
    (ONE_SYSTEM, LOOK, "messages", [HI, said([{"type": "text", "text": "look"}, *USES]), BY_USER]),
    (ONE_SYSTEM, ALONE, "chat", [HI, {**said(None), "tool_calls": BOTH}, *TWO_RESULTS]),
    (ONE_SYSTEM, ALONE, "responses", [HI, *map(item, "ab"), *OUTPUTS]),
    (ONE_SYSTEM, ALONE, "messages", [HI, said(USES), BY_USER]),
    # The call of the time before tools, and a result without its call.
    (ONE_SYSTEM, U + OLD_ANSWER, "chat", [HI, OLD_CALL, OLD_RESULT]),
    (ONE_SYSTEM, U + turn("tool", "1"), "chat", [HI, result("x", "1")]),
    (CHATML, KIND + U + AS_TEXTS, "chat", [HI, {**OK, "tool_calls": BOTH[:1]}, TWO_RESULTS[0]]),
    # What tools did that run elsewhere is left out.
    (ONE_SYSTEM, U + A + U, "messages", [HI, said(BLOCKS), HI]),
    (
        ONE_SYSTEM,
        U + turn("assistant", PATCHED) + turn("tool", "done"),
        "responses",
        [HI, *ITEMS_FROM_ELSEWHERE, *PATCH],
    ),
    # A refusal is the text of its reply.
    (ONE_SYSTEM, WILL_NOT, "chat", [HI, {**said(None), "refusal": "I will not."}, HI]),
    (ONE_SYSTEM, WILL_NOT, "chat", [HI, said([{"type": "refusal", "refusal": "I will not."}]), HI]),
]
for api in PATHS:
    TURNS += [
        # The system messages at the start are one; a later one is the user's where it is refused.
        (ONE_SYSTEM, turn("system", "a\n\nb") + U, api, system_first("system", api)),
        (ONE_SYSTEM, turn("system", "a\n\nb") + U, api, system_first("developer", api)),
        (ONE_SYSTEM, U + A + turn("user", "note"), api, [HI, OK, LATE]),
        (CHATML, KIND + U + A + turn("system", "note"), api, [HI, OK, LATE]),
    ]


@pytest.mark.parametrize(("template", "expected", "api", "body"), TURNS)
def test_the_turns_of_a_chat_have_one_form_over_every_api(template, expected, api, body):
    field = "input" if api == "responses" else "messages"
    body = body if isinstance(body, dict) else {field: body}
    assert text_of(template, api, **body) == expected + START


@pytest.mark.parametrize(
    ("api", "turns", "named"),
    [
        *(("messages", [{"role": role, "content": "x"}], "role user") for role in ("tool", None)),
        ("responses", [{"type": "item_reference", "id": "x"}], "an item of type item_reference"),
    ],
)
def test_a_turn_that_an_api_does_not_have_is_refused(api, turns, named):
    with pytest.raises(Refusal, match=named):
        text_of(CHATML, api, **{"input" if api == "responses" else "messages": turns})


@pytest.mark.parametrize("text", ['{"to": "x', "no JSON", "[1]", "", None])
def test_arguments_that_are_no_object_are_an_empty_one_where_the_template_writes_pairs(text):
    found = text_of(ONE_SYSTEM, "responses", input=[HI, item("a", text), output("a", "1")])
    assert turn("assistant", "<call go>") in found


# ---- ids of calls -------------------------------------------------------------------------------


def ids_in(api, **body):
    """The ids of calls and of results, in a template that has a rule for them."""
    found = text_of(NINE_LETTERS, api, **body)
    return re.findall(r"go\[(\w{9})\]", found), re.findall(r"tool:.\[(\w{9})\]", found)


@pytest.mark.parametrize("ids", [("toolu_01A09q90qw90lq917835lq9", "call_x"), ("1", "2"), "ab"])
def test_ids_are_of_nine_letters_where_the_template_wants_that(ids):
    first, second = ids
    chat = [HI, {**OK, "tool_calls": [call(first), call(second)]}]
    made, answered = ids_in("chat", messages=[*chat, result(second, "2"), result(first, "1"), HI])
    assert len(set(made)) == 2
    assert answered == made[::-1]
    items = [HI, OK, item(first, "{}"), item(second, "{}"), output(second, "2"), output(first, "1")]
    assert ids_in("responses", input=[*items, HI]) == (made, answered)


@pytest.mark.parametrize("id", [None, "", 7, [1]])
def test_a_call_without_an_id_has_the_next_result(id):
    chat = [HI, {**OK, "tool_calls": [call(id), call(id)]}, result(id, "1"), result(id, "2")]
    made, answered = ids_in("chat", messages=chat)
    assert len(set(made)) == 2
    assert answered == made


def test_ids_that_the_template_takes_are_left_alone():
    chat = [HI, {**OK, "tool_calls": [call("abcdefghi")]}, result("abcdefghi", "1")]
    assert ids_in("chat", messages=chat) == (["abcdefghi"], ["abcdefghi"])
    lone = ids_in("chat", messages=[result("x", "1"), HI, OK, HI])
    assert (lone[0], len(lone[1])) == ([], 1)


def test_reasoning_of_a_turn_reaches_the_template_over_every_api():
    tokenizer = reasoning_tokenizer(DROPPING)
    thought = {"type": "thinking", "thinking": "hm", "signature": ""}
    part = {"type": "reasoning_text", "text": "hm"}
    expected = U + START + "<think>\nhm\n</think>\n\nok"
    for api, body in {
        "messages": {"messages": [HI, said([thought, {"type": "text", "text": "ok"}])]},
        "responses": {"input": [HI, {"type": "reasoning", "summary": [], "content": [part]}, OK]},
        "chat": {"messages": [HI, {**OK, "reasoning_content": "hm"}]},
    }.items():
        assert text_of(tokenizer, api, **body) == expected, api


# ---- a reply that goes on -----------------------------------------------------------------------


@pairwise(
    template=[ONE_SYSTEM, LLAMA3, ALTERNATING],
    begun=['{"colour": "', "ends in spaces  \n", "café"],
    api=["chat", "messages", "responses"],
)
def test_a_last_message_of_the_assistant_is_the_beginning_of_the_reply(api, begun, template):
    field = "input" if api == "responses" else "messages"
    text, num_begun = prompt_of(template, api, **{field: [HI, {**OK, "content": begun}]})
    start = text_of(template, "chat", messages=[HI])
    assert text == start + begun
    assert num_begun == len(begun.encode())


@pytest.mark.parametrize(
    ("messages", "fields", "expected"),
    [
        ([HI, OK], {"continue_final_message": False}, U + A),
        ([HI, OK], {"add_generation_prompt": True}, U + A),
        ([HI], {"continue_final_message": False}, U),
        *(([HI, said(blank)], {}, U) for blank in ("", " \n", None, [])),
        ([HI, {**OK, "tool_calls": [call("a")]}], {}, U + turn("assistant", "ok<call go>")),
    ],
)
def test_behind_a_last_turn_that_begins_no_reply_there_is_a_new_one(messages, fields, expected):
    assert text_of(ONE_SYSTEM, "chat", messages=messages, **fields) == expected + START


@pytest.mark.parametrize(
    "fields", [{"continue_final_message": True}, {"add_generation_prompt": False}], ids=str
)
def test_a_reply_that_has_nothing_to_go_on_with_is_refused(fields):
    with pytest.raises(Refusal, match="the last message must be one of the assistant"):
        text_of(ONE_SYSTEM, "chat", messages=[HI], **fields)


@pytest.mark.parametrize("template", [CLOSING, DROPPING, OPENING, KEEPING])
@pytest.mark.parametrize(
    "last",
    [
        {"role": "assistant", "content": "<think>\nhm"},
        {"role": "assistant", "content": "", "reasoning_content": "hm"},
    ],
)
def test_a_reply_that_begins_in_its_reasoning_goes_on_there(template, last):
    text, num_begun = prompt_of(reasoning_tokenizer(template), "chat", messages=[HI, last])
    assert text == turn("user", "Hi") + START + "<think>\nhm"
    assert num_begun == 4  # the mark is one token


@pytest.mark.parametrize("is_streamed", [False, True])
def test_the_reply_goes_on_as_the_target_does(is_streamed):
    begun = TOKENIZER.encode("Well, ", add_special_tokens=False)
    tokens = [*TOKENIZER.apply_chat_template(MESSAGES), *begun]
    expected = TOKENIZER.decode(TARGET.greedy(tokens, LENGTH))
    messages = [*MESSAGES, {"role": "assistant", "content": "Well, "}]
    body = {"messages": messages, "max_tokens": LENGTH, "stream": is_streamed}
    with serving() as client:
        for path in ("chat/completions", "messages"):
            assert told(client.post(f"/v1/{path}", json=body)).text == expected
        count = client.post("/v1/messages/count_tokens", json={"messages": messages}).json()
        assert count == {"input_tokens": len(tokens)}
        usage = client.post("/v1/chat/completions", json={**body, "stream": False}).json()["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(tokens), LENGTH)


@pytest.mark.parametrize("begun", ["[1", "[12, 2", "[21]"])
def test_a_reply_and_the_text_that_it_goes_on_with_fit_the_schema_together(begun):
    schema = {"type": "array", "items": {"enum": [12, 21]}, "maxItems": 3}
    format = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    body = {"max_tokens": 40, "response_format": format}

    def answer(client, begun):
        messages = [*MESSAGES, {"role": "assistant", "content": begun}]
        return client.post("/v1/chat/completions", json={**body, "messages": messages})

    with serving() as client:
        found = answer(client, begun).json()["choices"][0]
        whole = json.loads(begun + found["message"]["content"])
        assert set(whole) <= {12, 21}
        assert found["finish_reason"] == "stop"
        refused = answer(client, "Well, [1")
        assert refused.status_code == 400
        assert "forbids the last message" in refused.json()["error"]["message"]


@pytest.mark.parametrize("begun", ["<think>\nhm", "Well, "])
def test_a_reply_goes_on_in_the_channel_of_its_beginning(begun):
    tokenizer = reasoning_tokenizer(KEEPING)
    on = shelf(load_engine=lambda offer: engine(MODEL, tokenizer))
    messages = [*MESSAGES, {"role": "assistant", "content": begun}]
    with serving(on) as client:
        body = {"messages": messages, "max_tokens": 5}
        found = client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]
    is_thought = begun.startswith("<think>")
    assert bool(found.get("reasoning_content")) == is_thought
    assert bool(found["content"]) != is_thought
