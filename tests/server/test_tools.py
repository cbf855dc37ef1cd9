"""Calls of tools: the form is that of the model's template, and mlx-lm's parser reads it.

The truth is the template, which writes a call by itself, and the calls that were put into it.
"""

import json

import pytest
from jsonschema import validate

from mlxspec.grammar.compiled import Grammars
from mlxspec_server.tools.calls import ToolCall, ToolFormat
from mlxspec_server.tools.choice import ToolChoice
from mlxspec_server.tools.demand import demanded_grammar
from mlxspec_server.tools.splitter import ArgumentsText, ToolSplitter
from tests.support.served import MESSAGES, MODEL, data_of, engine, serving, shelf
from tests.support.tool_templates import JSON_TOOLS, TEMPLATES
from tests.support.toy_chat import CHATML, byte_tokenizer

GO = {
    "type": "object",
    "properties": {
        "to": {"type": "string"},
        "steps": {"type": "integer"},
        "mode": {"enum": ["walk", "run"]},
    },
    "required": ["to", "steps"],
}
STOP = {"type": "object", "properties": {"now": {"type": "boolean"}}}


def tool(name, schema):
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS = [tool("go", GO), tool("stop", STOP)]
CALLS = [("go", {"to": 'a "b" </x>', "steps": 3, "mode": "run"}), ("stop", {"now": True})]


def written(tokenizer, calls):
    """What the template of a model writes in place of its reply."""
    listed = [
        {"id": "a" * 9, "type": "function", "function": {"name": name, "arguments": arguments}}
        for name, arguments in calls
    ]
    turn = {"role": "assistant", "content": "", "tool_calls": listed}
    text = tokenizer.render_chat([*MESSAGES, turn], add_generation_prompt=False)
    reply = text.partition("assistant\n")[2].rpartition("<|im_end|>")[0]
    return reply.lstrip("\n")


def is_whole(matcher, tokenizer, text):
    tokens = tokenizer.encode(text, add_special_tokens=False)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def heard(format, text, size):
    """The calls in a text that comes in parts, and the words beside them."""
    splitter, calls, words = ToolSplitter(format, TOOLS), [], ""
    parts = [splitter.push(text[at : at + size]) for at in range(0, len(text), size)]
    for part in (part for parts in (*parts, splitter.finish()) for part in parts):
        if isinstance(part, ToolCall):
            calls.append([part.name, part.arguments])
        elif isinstance(part, ArgumentsText):
            calls[-1][1] += part.text
        else:
            words += part
    return [(name, json.loads(arguments)) for name, arguments in calls], words


@pytest.mark.parametrize("kind", TEMPLATES)
def test_the_grammar_has_what_the_template_writes_and_nothing_against_the_schema(kind):
    tokenizer = byte_tokenizer(TEMPLATES[kind])
    format = ToolFormat.of(tokenizer)
    fresh = Grammars(tokenizer).matcher

    def fits(calls, choice):
        grammar = demanded_grammar(choice, format.form, format.special)
        return is_whole(fresh(grammar), tokenizer, written(tokenizer, calls))

    every, alone = ToolChoice(TOOLS, TOOLS), ToolChoice(TOOLS, TOOLS, is_parallel=False)
    assert fits(CALLS, every)
    assert fits(CALLS[:1], alone)
    assert not fits(CALLS, alone)
    assert not fits(CALLS[:1], ToolChoice(TOOLS, TOOLS[1:]))  # another one is demanded
    assert fits([("stop", {})], every)
    assert fits([("go", {"to": "x", "steps": 1})], every)  # the last one may be left out
    for wrong in ({"to": "x", "steps": 1.5}, {"to": "x"}, {"to": "x", "steps": 1, "mode": "fly"}):
        assert not fits([("go", wrong)], every)


@pytest.mark.parametrize("kind", TEMPLATES)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_calls_are_heard_as_the_template_writes_them(kind, size):
    tokenizer = byte_tokenizer(TEMPLATES[kind])
    text = "Well. " + written(tokenizer, CALLS)
    assert heard(ToolFormat.of(tokenizer), text, size) == (CALLS, "Well. ")


@pytest.mark.parametrize("size", [1, 7])
def test_an_end_mark_in_a_text_of_the_arguments_ends_no_call(size):
    tokenizer = byte_tokenizer(JSON_TOOLS)
    calls = [("go", {"to": "a</tool_call>b", "steps": 1})]
    assert heard(ToolFormat.of(tokenizer), written(tokenizer, calls), size) == (calls, "")


def test_what_is_no_call_stays_text():
    format = ToolFormat.of(byte_tokenizer(JSON_TOOLS))
    assert heard(format, "a <tool_call>no</tool_call> b", 3) == (
        [],
        "a <tool_call>no</tool_call> b",
    )
    for cut in ("a <tool", 'a <tool_call>{"name'):
        assert heard(format, cut, 3) == ([], cut)


# ---- over HTTP: the grammar forces the output of a random model --------------------------------

NUMBER = {
    "type": "object",
    "properties": {"n": {"enum": [12, 21]}},
    "required": ["n"],
    "additionalProperties": False,
}
OFFERED = [tool("first", NUMBER), tool("second", NUMBER)]


@pytest.fixture(scope="module", params=["template", "plain"])
def client(request):
    """Servers of a model whose template writes calls, and of one whose template has no tools."""
    template = JSON_TOOLS if request.param == "template" else CHATML
    tokenizer = byte_tokenizer(template)
    with serving(shelf(load_engine=lambda offer: engine(MODEL, tokenizer))) as client:
        yield client


def asked(client, path, **fields):
    body = {"max_tokens": 200, **fields}
    response = client.post(f"/v1/{path}", json=body)
    assert response.status_code == 200, response.text
    return response


def check(name, arguments):
    assert name in ("first", "second")
    validate(json.loads(arguments), NUMBER)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_chat_calls_the_tool_that_is_demanded(client, is_streamed):
    choice = {"type": "function", "function": {"name": "second"}}
    fields = {"messages": MESSAGES, "tools": OFFERED, "parallel_tool_calls": False}
    fields |= {"tool_choice": choice, "stream": is_streamed}
    response = asked(client, "chat/completions", **fields)
    if is_streamed:
        deltas = [row["choices"][0] for row in data_of(response)]
        rows = [row for one in deltas for row in one["delta"].get("tool_calls", ())]
        assert {row["index"] for row in rows} == {0}
        name = rows[0]["function"]["name"]
        parts = [row["function"]["arguments"] for row in rows]
        assert len([part for part in parts if part]) > 1  # they come as they are written
        arguments, reason = "".join(parts), deltas[-1]["finish_reason"]
        assert not any(one["delta"].get("content") for one in deltas)
    else:
        (choice,) = response.json()["choices"]
        (call,) = choice["message"]["tool_calls"]
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        reason = choice["finish_reason"]
        assert choice["message"]["content"] is None
    assert (name, reason) == ("second", "tool_calls")
    check(name, arguments)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_message_calls_a_tool_that_is_demanded(client, is_streamed):
    tools = [{"name": name, "input_schema": NUMBER} for name in ("first", "second")]
    choice = {"type": "any", "disable_parallel_tool_use": True}
    fields = {"messages": MESSAGES, "tools": tools, "tool_choice": choice}
    response = asked(client, "messages", **fields, stream=is_streamed)
    if is_streamed:
        rows = data_of(response)
        (block,) = [row["content_block"] for row in rows if row["type"] == "content_block_start"]
        deltas = [row["delta"] for row in rows if row["type"] == "content_block_delta"]
        arguments = "".join(delta["partial_json"] for delta in deltas)
        (end,) = [row["delta"] for row in rows if row["type"] == "message_delta"]
    else:
        end = response.json()
        (block,) = end["content"]
        arguments = json.dumps(block["input"])
    assert (block["type"], end["stop_reason"]) == ("tool_use", "tool_use")
    check(block["name"], arguments)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_response_calls_the_tool_that_is_demanded(client, is_streamed):
    tools = [{"type": "function", "name": "first", "parameters": NUMBER}]
    fields = {"input": "Hi", "tools": tools, "tool_choice": "required", "stream": is_streamed}
    response = asked(client, "responses", **fields, parallel_tool_calls=False, max_output_tokens=99)
    whole = data_of(response)[-1]["response"] if is_streamed else response.json()
    (item,) = whole["output"]
    check(item["name"], item["arguments"])
    if is_streamed:
        rows = data_of(response)
        kind = "response.function_call_arguments.delta"
        deltas = [row["delta"] for row in rows if row["type"] == kind]
        assert len(deltas) > 1
        assert "".join(deltas) == item["arguments"]


@pytest.mark.parametrize("client", ["template"], indirect=True)
def test_several_calls_are_told_with_their_own_arguments(client):
    fields = {"messages": MESSAGES, "tools": OFFERED, "tool_choice": "required"}
    # Without a token that ends a text, the grammar goes on with calls as long as it may.
    (choice,) = asked(client, "chat/completions", **fields, max_tokens=220).json()["choices"]
    *calls, last = choice["message"]["tool_calls"]
    assert len(calls) > 1
    assert choice["finish_reason"] == "length"  # the last one may be cut
    assert len({call["id"] for call in [*calls, last]}) == len(calls) + 1
    for call in calls:
        check(call["function"]["name"], call["function"]["arguments"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tool_choice": "required"}, "demands a call, but there are no tools"),
        ({"tool_choice": "any", "tools": OFFERED}, "tool_choice must be auto, none, required"),
        (
            {"tool_choice": {"function": {"name": "third"}}, "tools": OFFERED},
            "tool_choice names 'third'; the tools are: first, second",
        ),
        (
            {"tool_choice": "required", "tools": [tool("f", {"type": "array"})]},
            "the arguments of f must be an object",
        ),
    ],
)
def test_a_choice_that_cannot_be_met_is_refused_in_words(client, fields, message):
    body = {"messages": MESSAGES, **fields}
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert message in response.json()["error"]["message"]
