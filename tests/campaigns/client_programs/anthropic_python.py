"""The package `anthropic` for Python: messages and tools, streamed and not, and token counts."""

import os

from anthropic import Anthropic, BadRequestError

MODEL = os.environ["MLXSPEC_MODEL"]
ASK = [{"role": "user", "content": "Name one colour of a ripe banana. Answer in one word."}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"enum": [1, 2, 3]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = [{"name": "weather", "description": "Weather of a city", "input_schema": SCHEMA}]
GREEDY = {"temperature": 0}  # the package has no argument for it
client = Anthropic(base_url=os.environ["MLXSPEC_URL"], api_key="any")

count = client.messages.count_tokens(model=MODEL, messages=ASK).input_tokens
fields = {"model": MODEL, "max_tokens": 8, "messages": ASK, "extra_body": GREEDY}
whole = client.messages.create(**fields)
with client.messages.stream(**fields) as stream:
    text = "".join(stream.text_stream)
    last = stream.get_final_message()
assert whole.content[0].text == text == last.content[0].text
print("message:", repr(text), whole.usage.model_dump(exclude_none=True), f"{count} tokens counted")

ask = [{"role": "user", "content": "How is the weather in Oslo for two days?"}]
for choice in ({"type": "tool", "name": "weather"}, {"type": "any"}):
    choice["disable_parallel_tool_use"] = True
    fields = {"model": MODEL, "max_tokens": 90, "messages": ask, "extra_body": GREEDY}
    fields |= {"tools": TOOLS, "tool_choice": choice}
    whole = client.messages.create(**fields)
    assert whole.stop_reason == "tool_use"
    with client.messages.stream(**fields) as stream:
        parts = [event.partial_json for event in stream if event.type == "input_json"]
        last = stream.get_final_message()
    assert last.content[0].input == whole.content[0].input
    assert set(whole.content[0].input) == {"city", "days"}
    print("tool:", choice["type"], whole.content[0].input, f"in {len(parts)} parts")

use = whole.content[0]
result = {"type": "tool_result", "tool_use_id": use.id, "content": "rain"}
history = [
    *ask,
    {"role": "assistant", "content": whole.model_dump()["content"]},
    {"role": "user", "content": [result]},
]
again = client.messages.create(model=MODEL, max_tokens=12, messages=history, tools=TOOLS)
print("after its result:", [block.type for block in again.content])

try:
    client.messages.create(model=MODEL, max_tokens=8, messages=ASK, extra_body={"temperature": -1})
except BadRequestError as error:
    print("refused:", error.message)
else:
    raise AssertionError("a negative temperature was taken")
