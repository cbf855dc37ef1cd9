"""The package `openai` for Python: chat, tools, a JSON schema, completions, responses, models."""

import json
import os

from openai import BadRequestError, OpenAI

MODEL = os.environ["MLXSPEC_MODEL"]
ASK = [{"role": "user", "content": "Name one colour of a ripe banana. Answer in one word."}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"enum": [1, 2, 3]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "description": "Weather of a city", "parameters": SCHEMA},
    }
]
client = OpenAI(base_url=os.environ["MLXSPEC_URL"] + "/v1", api_key="any")


def joined(stream):
    return "".join(c.choices[0].delta.content or "" for c in stream if c.choices)


names = [model.id for model in client.models.list()]
assert MODEL in names, names
print("models:", names)

how = {"model": MODEL, "temperature": 0}
whole = client.chat.completions.create(messages=ASK, max_tokens=8, **how)
streamed = joined(client.chat.completions.create(messages=ASK, max_tokens=8, stream=True, **how))
assert whole.choices[0].message.content == streamed
print("chat:", repr(streamed), whole.usage.model_dump(exclude_none=True))

format = {"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA, "strict": True}}
fields = {"messages": ASK, "response_format": format, "max_tokens": 60, **how}
found = json.loads(client.chat.completions.create(**fields).choices[0].message.content)
assert set(found) == {"city", "days"}
assert json.loads(joined(client.chat.completions.create(stream=True, **fields))) == found
print("schema:", found)

forced = {"type": "function", "function": {"name": "weather"}}
ask = [{"role": "user", "content": "How is the weather in Oslo for two days?"}]
fields = {"messages": ask, "tools": TOOLS, "tool_choice": forced, "max_tokens": 90, **how}
fields["parallel_tool_calls"] = False
choice = client.chat.completions.create(**fields).choices[0]
(call,) = choice.message.tool_calls
assert choice.finish_reason == "tool_calls"
assert set(json.loads(call.function.arguments)) == {"city", "days"}
parts = [
    row.function.arguments
    for chunk in client.chat.completions.create(stream=True, **fields)
    for row in chunk.choices[0].delta.tool_calls or ()
]
assert "".join(parts) == call.function.arguments
print("tool:", call.function.name, call.function.arguments, f"in {len(parts)} parts")

result = [{"role": "tool", "tool_call_id": call.id, "content": "rain"}]
history = [*ask, choice.message.model_dump(exclude_none=True), *result]
again = client.chat.completions.create(messages=history, tools=TOOLS, max_tokens=12, **how)
print("after its result:", repr(again.choices[0].message.content))

text = client.completions.create(prompt="One, two, three,", max_tokens=6, **how).choices[0].text
print("completion:", repr(text))

how = {"model": MODEL, "temperature": 0, "max_output_tokens": 8}
reply = client.responses.create(input=ASK[0]["content"], **how)
deltas = [
    event.delta
    for event in client.responses.create(input=ASK[0]["content"], stream=True, **how)
    if event.type == "response.output_text.delta"
]
assert "".join(deltas) == reply.output_text == streamed
tool = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}
how["max_output_tokens"] = 90
reply = client.responses.create(
    input="Oslo?", tools=[tool], tool_choice="required", parallel_tool_calls=False, **how
)
assert set(json.loads(reply.output[0].arguments)) == {"city", "days"}
print("response:", repr("".join(deltas)), reply.output[0].arguments)

try:
    client.chat.completions.create(model=MODEL, messages=ASK, temperature=-1)
except BadRequestError as error:
    print("refused:", error.message)
else:
    raise AssertionError("a negative temperature was taken")
