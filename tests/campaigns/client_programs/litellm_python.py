"""The package `litellm`: chat, a tool and a JSON schema through its provider `openai`."""

import json
import os

import litellm

ASK = [{"role": "user", "content": "Name one colour of a ripe banana. Answer in one word."}]
SCHEMA = {
    "type": "object",
    "properties": {"days": {"enum": [1, 2, 3]}},
    "required": ["days"],
    "additionalProperties": False,
}
HOW = {
    "model": "openai/" + os.environ["MLXSPEC_MODEL"],
    "api_base": os.environ["MLXSPEC_URL"] + "/v1",
    "api_key": "any",
    "messages": ASK,
    "temperature": 0,
}

whole = litellm.completion(max_tokens=8, **HOW).choices[0].message.content
parts = [
    c.choices[0].delta.content or "" for c in litellm.completion(max_tokens=8, stream=True, **HOW)
]
assert "".join(parts) == whole
print("chat:", repr(whole))

format = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
found = litellm.completion(response_format=format, max_tokens=40, **HOW)
print("schema:", json.loads(found.choices[0].message.content))

tools = [{"type": "function", "function": {"name": "wait", "parameters": SCHEMA}}]
fields = {"tools": tools, "tool_choice": "required", "parallel_tool_calls": False, **HOW}
(call,) = litellm.completion(max_tokens=60, **fields).choices[0].message.tool_calls
chunks = list(litellm.completion(max_tokens=60, stream=True, **fields))
built = litellm.stream_chunk_builder(chunks, messages=ASK)
(streamed,) = built.choices[0].message.tool_calls
assert streamed.function.arguments == call.function.arguments
assert set(json.loads(call.function.arguments)) == {"days"}
print("tool:", call.function.name, call.function.arguments)
