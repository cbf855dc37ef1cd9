// The package `openai` of npm: chat, a tool and a JSON schema, streamed and not.
import assert from "node:assert";
import OpenAI from "openai";

const model = process.env.MLXSPEC_MODEL;
const client = new OpenAI({ baseURL: process.env.MLXSPEC_URL + "/v1", apiKey: "any" });
const messages = [
  { role: "user", content: "Name one colour of a ripe banana. Answer in one word." },
];
const how = { model, messages, temperature: 0 };

const whole = await client.chat.completions.create({ ...how, max_tokens: 8 });
let text = "";
for await (const chunk of await client.chat.completions.create({ ...how, max_tokens: 8, stream: true })) {
  text += chunk.choices[0]?.delta?.content ?? "";
}
assert.equal(text, whole.choices[0].message.content);
console.log("chat:", JSON.stringify(text));

const schema = {
  type: "object",
  properties: { days: { enum: [1, 2, 3] } },
  required: ["days"],
  additionalProperties: false,
};
const format = { type: "json_schema", json_schema: { name: "n", schema } };
const found = await client.chat.completions.create({ ...how, max_tokens: 40, response_format: format });
console.log("schema:", JSON.parse(found.choices[0].message.content));

const tools = [{ type: "function", function: { name: "wait", parameters: schema } }];
const asked = { ...how, max_tokens: 60, tools, tool_choice: "required", parallel_tool_calls: false };
const [call] = (await client.chat.completions.create(asked)).choices[0].message.tool_calls;
const last = await client.chat.completions.stream(asked).finalChatCompletion();
assert.equal(last.choices[0].message.tool_calls[0].function.arguments, call.function.arguments);
console.log("tool:", call.function.name, call.function.arguments);

const reply = await client.responses.create({
  model, temperature: 0, max_output_tokens: 8, input: messages[0].content,
});
assert.equal(reply.output_text, text);
console.log("response:", JSON.stringify(reply.output_text));
