"""Calls of tools: the form is that of the model's template, and mlx-lm's parser reads it.

The truth is the template, which writes a call by itself, and the calls that were put into it.
"""

import json

import pytest
from jsonschema import validate

from mlxspec.grammar.compiled import Grammars
from mlxspec_server.body import Refusal
from mlxspec_server.pieces import ToolSplitter
from mlxspec_server.tools.calls import ToolFormat, demanded_grammar
from mlxspec_server.tools.choice import ToolChoice, function_tools
from tests.support.pairwise import each_value
from tests.support.served import ASKED, MESSAGES, MODEL, engine, serving, shelf, told
from tests.support.templates import JSON_TOOLS, TEMPLATES
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
ANY = ToolChoice(TOOLS)
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


def heard(format, text, size, choice=ANY, **end):
    """The calls in a text that comes in parts, and the words beside them."""
    splitter, calls, words = ToolSplitter(format, choice), [], ""
    parts = [splitter.push(text[at : at + size]) for at in range(0, len(text), size)]
    for part in (part for parts in (*parts, splitter.finish(**end)) for part in parts):
        if part.kind == "call":
            calls.append([part.call.name, part.call.arguments])
        elif part.kind == "arguments":
            calls[-1][1] += part.text
        else:
            words += part.text
    return [(name, json.loads(arguments)) for name, arguments in calls], words


def test_a_tool_may_name_formats_that_nothing_checks():
    tokenizer = byte_tokenizer(TEMPLATES["json_tools"])
    format = ToolFormat.of(tokenizer)
    tools = [tool("save", {"properties": {"at": {"type": "string", "format": "path"}}})]
    grammar = demanded_grammar(ToolChoice(tools, tools), format)
    assert grammar.unchecked == ("path",)
    text = written(tokenizer, [("save", {"at": "/x"})])
    assert is_whole(Grammars(tokenizer).matcher(grammar), tokenizer, text)


@pytest.mark.parametrize("kind", TEMPLATES)
def test_the_grammar_has_what_the_template_writes_and_nothing_against_the_schema(kind):
    tokenizer = byte_tokenizer(TEMPLATES[kind])
    format = ToolFormat.of(tokenizer)
    fresh = Grammars(tokenizer).matcher

    def fits(calls, choice):
        grammar = demanded_grammar(choice, format)
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


@each_value(size=[1, 7, 1000], kind=TEMPLATES)
def test_calls_are_heard_as_the_template_writes_them_and_one_where_one_is_allowed(kind, size):
    tokenizer = byte_tokenizer(TEMPLATES[kind])
    format, text = ToolFormat.of(tokenizer), "Well. " + written(tokenizer, CALLS)
    assert heard(format, text, size) == (CALLS, "Well. ")
    alone = ToolChoice(TOOLS, is_parallel=False)
    assert heard(format, text + " Done.", size, alone) == (CALLS[:1], "Well. ")


@pytest.mark.parametrize("size", [1, 7])
def test_a_mark_in_arguments_ends_no_call_and_what_is_no_call_stays_text(size):
    tokenizer = byte_tokenizer(JSON_TOOLS)
    format, calls = ToolFormat.of(tokenizer), [("go", {"to": "a</tool_call>b", "steps": 1})]
    assert heard(format, written(tokenizer, calls), size) == (calls, "")
    for text in ("a <tool_call>no</tool_call> b", "a <tool", 'a <tool_call>{"name'):
        assert heard(format, text, size) == ([], text)


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_call_that_is_cut_is_no_text(kind):
    tokenizer = byte_tokenizer(TEMPLATES[kind])
    format, demanded = ToolFormat.of(tokenizer), ToolChoice(TOOLS, TOOLS)
    one = written(tokenizer, CALLS[:1])
    name_at = one.index("go")
    for length in range(1, name_at + 1):
        assert heard(format, one[:length], 3, demanded, is_cut=True) == ([], "")
        if length >= len(format.start):
            assert heard(format, "a " + one[:length], 3, is_cut=True) == ([], "a ")
        behind = heard(format, one + one[:length], 3, is_cut=True)
        assert behind == (CALLS[:1], "") or not format.end  # else it goes on with the first one
    assert heard(format, "a <", 3, is_cut=True) == ([], "a <")  # any text may end so


def test_tools_that_the_client_does_not_run_are_left_out():
    own = {"type": "function", "name": "go", "parameters": GO, "strict": True}
    chat = {"type": "function", "function": {"name": "stop", "parameters": STOP}}
    others = [{"type": kind} for kind in ("web_search", "local_shell", "image_generation", "mcp")]
    others += [{"type": kind, "name": "x"} for kind in ("custom", "namespace", "bash_20250124")]
    assert function_tools([*others, own, chat], "parameters") == TOOLS
    custom = {"type": "custom", "name": "go", "input_schema": GO}
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
    assert function_tools([search, custom], "input_schema", "custom") == TOOLS[:1]
    for stated in ({}, {"parameters": None}, {"parameters": {}}):
        (found,) = function_tools([{"name": "go", "description": None, **stated}], "parameters")
        assert found == tool("go", {"type": "object", "properties": {}})


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("any", "tool_choice must be auto, none, required"),
        ({"function": {"name": "third"}}, "tool_choice names 'third'; the functions are: go, stop"),
        ({"type": "web_search"}, "tool_choice names 'web_search'; the functions are: go, stop"),
        ({"type": "custom", "name": "patch"}, "tool_choice names 'patch'"),
        ({"type": "allowed_tools", "allowed_tools": 5}, "allowed_tools must have a list of tools"),
        ({"type": "function"}, "tool_choice must be auto, none, required"),
        (5, "tool_choice must be auto, none, required"),
    ],
)
def test_a_choice_of_what_is_not_there_is_refused_by_name(choice, message):
    with pytest.raises(Refusal, match=message):
        ToolChoice.of(TOOLS, choice)
    with pytest.raises(Refusal, match="demands a call, but there are no tools"):
        ToolChoice.of([], "required")


NAMED_TOOLS = [{"type": "function", "name": "go"}, {"type": "web_search"}]


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        ("required", ToolChoice(TOOLS, TOOLS)),
        # A tool that is named is called once; allowed tools may name those that are left out.
        *(
            ({"type": "function", **named}, ToolChoice(TOOLS, TOOLS[:1], is_parallel=False))
            for named in ({"function": {"name": "go"}}, {"name": "go"})
        ),
        ({"type": "allowed_tools", "tools": NAMED_TOOLS}, ToolChoice(TOOLS[:1])),
    ],
)
def test_a_choice_leaves_the_tools_that_it_names(choice, found):
    assert ToolChoice.of(TOOLS, choice) == found


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


NAMED = [{"name": name, "input_schema": NUMBER} for name in ("first", "second")]
DEMANDS = {  # a call of the second tool, and a call of any
    "/v1/chat/completions": (
        {"tools": OFFERED, "tool_choice": {"type": "function", "function": {"name": "second"}}},
        {"tools": OFFERED, "tool_choice": "required"},
    ),
    "/v1/messages": (
        {"tools": NAMED, "tool_choice": {"type": "tool", "name": "second"}},
        {"tools": NAMED, "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
    ),
    "/v1/responses": (
        {"tools": OFFERED, "tool_choice": {"type": "function", "name": "second"}},
        {"tools": OFFERED, "tool_choice": "required"},
    ),
}
CALLED = dict(zip(DEMANDS, ("tool_calls", "tool_use", "completed"), strict=True))

each_way = pytest.mark.parametrize("is_streamed", [False, True])
each_api = pytest.mark.parametrize("path", DEMANDS)


def post(client, path, most=200, **fields):
    lengths = {"max_tokens": most, "max_output_tokens": most}
    return client.post(path, json={**ASKED[path], **lengths, **fields})


def check(name, arguments):
    assert name in ("first", "second")
    validate(json.loads(arguments), NUMBER)


@each_way
@each_api
def test_the_tool_that_is_demanded_is_called(client, path, is_streamed):
    found = told(post(client, path, **DEMANDS[path][0], stream=is_streamed))
    ((name, arguments),) = found.calls
    assert (name, found.text, found.reason) == ("second", "", CALLED[path])
    check(name, arguments)
    if is_streamed:  # the arguments come as they are written
        assert sum("arguments" in str(row) or "partial_json" in str(row) for row in found.rows) > 3


def test_the_input_of_a_call_that_is_cut_is_an_object(client):
    fields = DEMANDS["/v1/messages"][1]
    found = [post(client, "/v1/messages", n, **fields).json() for n in (40, 43, 46, 52)]
    inputs = [block["input"] for message in found for block in message["content"]]
    assert inputs
    assert all(isinstance(value, dict) for value in inputs)


@pytest.mark.parametrize("client", ["template"], indirect=True)
def test_several_calls_are_told_with_their_own_arguments(client):
    fields = DEMANDS["/v1/chat/completions"][1]
    # Without a token that ends a text, the grammar goes on with calls as long as it may.
    (choice,) = post(client, "/v1/chat/completions", 220, **fields).json()["choices"]
    *calls, last = choice["message"]["tool_calls"]
    assert len(calls) > 1
    assert choice["finish_reason"] == "length"  # the last one may be cut
    assert len({call["id"] for call in [*calls, last]}) == len(calls) + 1
    for call in calls:
        check(call["function"]["name"], call["function"]["arguments"])


def test_a_call_that_no_grammar_can_write_is_refused_in_words(client):
    fields = {"tool_choice": "required", "tools": [tool("f", {"type": "array"})]}
    response = post(client, "/v1/chat/completions", **fields)
    assert response.status_code == 400
    assert "the arguments of f must be an object" in response.json()["error"]["message"]
