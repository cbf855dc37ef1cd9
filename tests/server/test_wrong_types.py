"""Whole requests with a value of a wrong type anywhere in them: none is a fault of the server."""

import copy

import pytest

from tests.support.served import serving

WRONG = (None, True, 7, -1.5, "x", [], [[]], [7], {}, {"type": 7})
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
PARAMETERS = {"name": "go", "description": "Goes", "parameters": SCHEMA}
CALL = {"id": "a", "type": "function", "function": {"name": "go", "arguments": "{}"}}
CHAT = {
    "messages": [
        {"role": "system", "content": "Be"},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": "a", "reasoning_content": "b", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
    ],
    "tools": [{"type": "function", "function": PARAMETERS}],
    "tool_choice": {"type": "function", "function": {"name": "go"}},
    "stream_options": {"include_usage": True},
    "max_tokens": 1,
}
ALLOWED = {"mode": "auto", "tools": [{"type": "function", "name": "go"}]}
REQUESTS = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"prompt": ["a", [72]], "logprobs": 1, "max_tokens": 1},
    "/v1/messages": {
        "system": [{"type": "text", "text": "Be"}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "b", "signature": "c"},
                    {"type": "tool_use", "id": "a", "name": "go", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "a", "content": "1"}],
            },
        ],
        "tools": [{"name": "go", "description": "Goes", "input_schema": SCHEMA}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "max_tokens": 1,
    },
    "/v1/responses": {
        "instructions": "Be",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "b"}]},
            {"type": "function_call", "call_id": "a", "name": "go", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "1"},
        ],
        "tools": [{"type": "function", **PARAMETERS}],
        "tool_choice": {"type": "allowed_tools", **ALLOWED},
        "metadata": {"a": "b"},
        "max_output_tokens": 1,
    },
}


def places_in(value, at=()):
    """The place of each value in a document, the document's own left out."""
    lists = dict(enumerate(value)) if isinstance(value, list) else {}
    for name, one in (value if isinstance(value, dict) else lists).items():
        yield (*at, name)
        yield from places_in(one, (*at, name))


def changed(document, place, value):
    found = copy.deepcopy(document)
    inner = found
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    return found


@pytest.mark.parametrize("path", REQUESTS)
def test_no_value_of_a_wrong_type_is_a_fault_of_the_server(path):
    request = REQUESTS[path]
    with serving() as client:
        assert client.post(path, json=request).status_code == 200
        for place in places_in(request):
            for value in WRONG:
                found = client.post(path, json=changed(request, place, value))
                assert found.status_code in (200, 400, 404), (place, value, found.text)
