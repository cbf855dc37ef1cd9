// The packages `ai` and `@ai-sdk/openai-compatible` of npm: text and a tool, streamed and not.
import assert from "node:assert";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, streamText, tool } from "ai";

const provider = createOpenAICompatible({
  name: "mlxspec", baseURL: process.env.MLXSPEC_URL + "/v1", apiKey: "any", includeUsage: true,
});
const prompt = "Name one colour of a ripe banana. Answer in one word.";
const how = { model: provider(process.env.MLXSPEC_MODEL), prompt, temperature: 0 };

const whole = await generateText({ ...how, maxOutputTokens: 8 });
const streamed = streamText({ ...how, maxOutputTokens: 8 });
let text = "";
for await (const part of streamed.textStream) text += part;
assert.equal(text, whole.text);
const usage = await streamed.usage;
assert.equal(usage.outputTokens, whole.usage.outputTokens);
console.log("text:", JSON.stringify(text), `${usage.outputTokens} tokens`);

const inputSchema = jsonSchema({
  type: "object",
  properties: { days: { enum: [1, 2, 3] } },
  required: ["days"],
  additionalProperties: false,
});
const asked = { ...how, maxOutputTokens: 60, tools: { wait: tool({ inputSchema }) }, toolChoice: "required" };
const [call] = (await generateText(asked)).toolCalls;
const [last] = await streamText(asked).toolCalls;
assert.deepEqual(last.input, call.input);
console.log("tool:", call.toolName, call.input);

const missing = { ...how, model: provider("no such model"), maxRetries: 0 };
await assert.rejects(generateText(missing), (error) => {
  assert.equal(error.statusCode, 404);
  assert.match(error.message, /there is no model of the name/); // read from the form of the error
  console.log("error:", error.statusCode, error.message.slice(0, 60));
  return true;
});
