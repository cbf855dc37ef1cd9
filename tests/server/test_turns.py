"""The turns that programs send, over each API: one form, which strict templates take.

The truth is the text that is written here, or the same chat as another API states it.
"""

import json
import re
from types import SimpleNamespace

import pytest

from mlxspec_server.apis.chat import chat_turns
from mlxspec_server.apis.messages import message_chat
from mlxspec_server.apis.responses import response_chat
from mlxspec_server.body import Body
from mlxspec_server.prompts import chat_prompt
from mlxspec_server.refusals import Refusal
from mlxspec_server.tools.calls import ToolFormat
from tests.support.pairwise import pairwise
from tests.support.reasoning import CLOSING, DROPPING, KEEPING, MODEL, OPENING, reasoning_tokenizer
from tests.support.served import (
    LENGTH,
    MESSAGES,
    TARGET,
    TOKENIZER,
    data_of,
    engine,
    serving,
    shelf,
)
from tests.support.templates import ALTERNATING, NINE_LETTERS, ONE_CALL, ONE_SYSTEM
from tests.support.toy_chat import CHATML, LLAMA3, byte_tokenizer

APIS = {"chat": chat_turns, "messages": message_chat, "responses": response_chat}
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
    found = chat_prompt(loaded, APIS[api](Body(body)), (), {})
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


# ---- system prompts -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api", "body"),
    [
        ("chat", {"messages": [{"role": "system", "content": "a"}, "b", HI]}),
        ("responses", {"instructions": "a", "input": ["b", HI]}),
        ("messages", {"system": [{"type": "text", "text": "a"}], "messages": ["b", HI]}),
    ],
)
@pytest.mark.parametrize("role", ["system", "developer"])
def test_the_system_messages_at_the_start_are_one(api, body, role):
    second = {"role": role, "content": [{"type": "text", "text": "b", "cache_control": {}}]}
    body = {
        name: [second if one == "b" else one for one in value]
        if name in ("messages", "input")
        else value
        for name, value in body.items()
    }
    expected = turn("system", "a\n\nb") + turn("user", "Hi") + START
    assert text_of(ONE_SYSTEM, api, **body) == expected


@pytest.mark.parametrize("api", ["chat", "messages", "responses"])
@pytest.mark.parametrize(("template", "role"), [(ONE_SYSTEM, "user"), (CHATML, "system")])
def test_a_later_system_message_is_the_users_where_the_template_refuses_it(api, template, role):
    late = {"role": "system", "content": "note"}
    field = "input" if api == "responses" else "messages"
    text = text_of(template, api, **{field: [HI, OK, late]})
    assert text.endswith(turn("assistant", "ok") + turn(role, "note") + START)


def test_turns_of_the_user_in_a_row_are_one_where_roles_must_alternate():
    late = {"role": "system", "content": "note"}
    expected = turn("user", "Be brief.\n\nHi\n\nnote\n\nHi") + START
    assert text_of(ALTERNATING, "messages", system="Be brief.", messages=[HI, late, HI]) == expected


def test_a_system_prompt_alone_is_the_users_where_there_is_no_such_role():
    expected = turn("user", "Be brief.") + START
    system = {"role": "system", "content": "Be brief."}
    assert text_of(ALTERNATING, "chat", messages=[system]) == expected


@pytest.mark.parametrize("role", ["tool", "critic", None])
def test_a_message_of_another_role_is_refused_by_the_messages_api(role):
    with pytest.raises(Refusal, match="role user, assistant, system, developer"):
        text_of(CHATML, "messages", messages=[{"role": role, "content": "x"}])


# ---- calls and results --------------------------------------------------------------------------


@pytest.mark.parametrize("calls", [[], None])
def test_an_empty_list_of_calls_is_no_call(calls):
    messages = [HI, {**OK, "tool_calls": calls}, HI]
    expected = turn("user", "Hi") + turn("assistant", "ok") + turn("user", "Hi") + START
    assert text_of(ONE_CALL, "chat", messages=messages) == expected


@pytest.mark.parametrize("words", ["look", ""])
def test_a_message_and_its_calls_are_one_turn_over_every_api(words):
    calls = [call("a", to="x"), call("b", to="x")]
    said = {"role": "assistant", "content": words or None, "tool_calls": calls}
    chat = [HI, said, result("a", "1"), result("b", "2")]
    items = [{"type": "message", "role": "assistant", "content": words}] if words else []
    items = [HI, *items, item("a"), item("b"), output("a", "1"), output("b", "2")]
    blocks = [{"type": "text", "text": words}] if words else []
    blocks += [{"type": "tool_use", "id": id, "name": "go", "input": {"to": "x"}} for id in "ab"]
    results = [
        {"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": text}]}
        for id, text in (("a", "1"), ("b", "2"))
    ]
    messages = [HI, {"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
    answer = turn("assistant", f"{words}<call go to=x><call go to=x>")
    expected = turn("user", "Hi") + answer + turn("tool", "1") + turn("tool", "2") + START
    assert text_of(ONE_SYSTEM, "chat", messages=chat) == expected
    assert text_of(ONE_SYSTEM, "responses", input=items) == expected
    assert text_of(ONE_SYSTEM, "messages", messages=messages) == expected


@pytest.mark.parametrize("text", ['{"to": "x', "no JSON", "[1]", "", None])
def test_arguments_that_are_no_object_are_an_empty_one_where_the_template_writes_pairs(text):
    found = text_of(ONE_SYSTEM, "responses", input=[HI, item("a", text), output("a", "1")])
    assert turn("assistant", "<call go>") in found


@pytest.mark.parametrize("ids", [("toolu_01A09q90qw90lq917835lq9", "call_x"), ("1", "2"), "ab"])
def test_ids_are_of_nine_letters_where_the_template_wants_that(ids):
    first, second = ids
    chat = [HI, {**OK, "tool_calls": [call(first), call(second)]}]
    chat += [result(second, "2"), result(first, "1"), HI]
    found = text_of(NINE_LETTERS, "chat", messages=chat)
    made, answered = re.findall(r"go\[(\w{9})\]", found), re.findall(r"tool:.\[(\w{9})\]", found)
    assert len(set(made)) == 2
    assert answered == made[::-1]
    items = [HI, OK, item(first, "{}"), item(second, "{}"), output(second, "2"), output(first, "1")]
    assert text_of(NINE_LETTERS, "responses", input=[*items, HI]) == found


@pytest.mark.parametrize("id", [None, "", 7, [1]])
def test_a_call_without_an_id_has_the_next_result(id):
    chat = [HI, {**OK, "tool_calls": [call(id), call(id)]}, result(id, "1"), result(id, "2")]
    found = text_of(NINE_LETTERS, "chat", messages=chat)
    made, answered = re.findall(r"go\[(\w{9})\]", found), re.findall(r"tool:.\[(\w{9})\]", found)
    assert len(set(made)) == 2
    assert answered == made


def test_ids_that_the_template_takes_are_left_alone():
    chat = [HI, {**OK, "tool_calls": [call("abcdefghi")]}, result("abcdefghi", "1")]
    assert "go[abcdefghi]\ntool:1[abcdefghi]" in text_of(NINE_LETTERS, "chat", messages=chat)


def test_a_function_call_of_the_time_before_tools_is_a_call():
    said = {"role": "assistant", "content": None}
    said["function_call"] = {"name": "go", "arguments": '{"to": "é"}'}
    chat = [HI, said, {"role": "function", "name": "go", "content": "1"}]
    expected = turn("user", "Hi") + turn("assistant", "<call go to=é>") + turn("tool", "1") + START
    assert text_of(ONE_SYSTEM, "chat", messages=chat) == expected
    assert len(set(re.findall(r"\[(\w{9})\]", text_of(NINE_LETTERS, "chat", messages=chat)))) == 1


@pytest.mark.parametrize("messages", [[HI, result("x", "1")], [result("x", "1"), HI, OK, HI]])
def test_a_result_without_its_call_is_told(messages):
    assert turn("tool", "1") in text_of(ONE_SYSTEM, "chat", messages=messages)
    assert "tool:1[" in text_of(NINE_LETTERS, "chat", messages=messages)


def test_calls_and_results_are_texts_for_a_template_without_tools():
    chat = [HI, {**OK, "tool_calls": [call("a", to="x")]}, result("a", "1")]
    told = 'ok\n<tool_call>\n{"name": "go", "arguments": {"to": "x"}}\n</tool_call>'
    answer = turn("user", "<tool_response>\n1\n</tool_response>")
    found = text_of(CHATML, "chat", messages=chat)
    assert found.endswith(turn("assistant", told) + answer + START)


# ---- what other servers did ---------------------------------------------------------------------


def test_items_of_tools_that_run_elsewhere_are_left_out_and_own_ones_told():
    items = [
        HI,
        {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search"}},
        {"type": "mcp_list_tools", "id": "m", "tools": []},
        {"type": "local_shell_call_output", "id": "l", "output": "x"},
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"},
        {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "begin"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "done"},
    ]
    told = turn("assistant", "<call patch input=begin>") + turn("tool", "done")
    assert text_of(ONE_SYSTEM, "responses", input=items) == turn("user", "Hi") + told + START
    with pytest.raises(Refusal, match="an item of type item_reference"):
        text_of(ONE_SYSTEM, "responses", input=[{"type": "item_reference", "id": "x"}])


def test_blocks_of_tools_that_run_elsewhere_are_left_out():
    blocks = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "ok"},
    ]
    messages = [HI, {"role": "assistant", "content": blocks}, HI]
    expected = turn("user", "Hi") + turn("assistant", "ok") + turn("user", "Hi") + START
    assert text_of(ONE_SYSTEM, "messages", messages=messages) == expected


def test_reasoning_of_a_turn_with_calls_reaches_the_template_over_every_api():
    tokenizer = reasoning_tokenizer(DROPPING)
    thought = {"type": "thinking", "thinking": "hm", "signature": ""}
    blocks = [thought, {"type": "text", "text": "ok"}]
    messages = [HI, {"role": "assistant", "content": blocks}]
    part = {"type": "reasoning_text", "text": "hm"}
    items = [HI, {"type": "reasoning", "summary": [], "content": [part]}, OK]
    expected = turn("user", "Hi") + START + "<think>\nhm\n</think>\n\nok"
    assert text_of(tokenizer, "messages", messages=messages) == expected
    assert text_of(tokenizer, "responses", input=items) == expected
    chat = [HI, {**OK, "reasoning_content": "hm"}]
    assert text_of(tokenizer, "chat", messages=chat) == expected


def test_a_refusal_of_an_earlier_reply_is_its_text():
    whole = {"role": "assistant", "content": None, "refusal": "I will not."}
    part = {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not."}]}
    for said in (whole, part):
        found = text_of(ONE_SYSTEM, "chat", messages=[HI, said, HI])
        assert turn("assistant", "I will not.") in found


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


def test_a_last_message_is_a_turn_of_its_own_where_a_request_says_so():
    expected = turn("user", "Hi") + turn("assistant", "ok") + START
    for field in ({"continue_final_message": False}, {"add_generation_prompt": True}):
        assert text_of(ONE_SYSTEM, "chat", messages=[HI, OK], **field) == expected


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"continue_final_message": True}, "the last message must be one of the assistant"),
        ({"add_generation_prompt": False}, "the last message must be one of the assistant"),
    ],
)
def test_a_field_about_turns_that_cannot_be_honoured_is_refused(fields, message):
    with pytest.raises(Refusal, match=message):
        text_of(ONE_SYSTEM, "chat", messages=[HI], **fields)
    found = text_of(ONE_SYSTEM, "chat", messages=[HI], continue_final_message=False)
    assert found == turn("user", "Hi") + START


@pytest.mark.parametrize("blank", ["", " \n", None, []])
def test_an_empty_last_message_begins_no_reply(blank):
    messages = [HI, {"role": "assistant", "content": blank}]
    assert text_of(ONE_SYSTEM, "chat", messages=messages) == turn("user", "Hi") + START


def test_a_call_without_its_result_is_not_gone_on_with():
    found = text_of(ONE_SYSTEM, "chat", messages=[HI, {**OK, "tool_calls": [call("a")]}])
    assert found.endswith("ok<call go><|im_end|>\n" + START)


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
            response = client.post(f"/v1/{path}", json=body)
            said = whole_text(path, data_of(response) if is_streamed else response.json())
            assert said == expected
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


def whole_text(path, told):
    """The text of an answer, streamed or whole."""
    rows = told if isinstance(told, list) else [told]
    if path == "messages":
        blocks = [row["delta"] for row in rows if "delta" in row] or told["content"]
        return "".join(block.get("text", "") for block in blocks)
    choices = [row["choices"][0] for row in rows]
    said = [choice.get("delta", choice.get("message")) for choice in choices]
    return "".join(message.get("content", "") for message in said)
