// An agent on the npm package of Anthropic.
import { CLAUDE, STREAM, TASK, TOOLS, finish, given, load, schema } from "./task.mjs";

const Anthropic = load("@anthropic-ai/sdk").Anthropic;
const client = new Anthropic(given("baseURL", "defaultHeaders"));
const tools = Object.keys(TOOLS).map((name) => ({ name, description: name, input_schema: schema(name) }));
const messages = [{ role: "user", content: TASK }];

async function ask() {
  const asked = { model: CLAUDE, max_tokens: 1000, tools, messages };
  return STREAM ? await client.messages.stream(asked).finalMessage() : await client.messages.create(asked);
}

for (;;) {
  const { content, stop_reason } = await ask();
  messages.push({ role: "assistant", content });
  if (stop_reason !== "tool_use") {
    finish(content.map((block) => block.text).join(""));
    break;
  }
  const results = content
    .filter((block) => block.type === "tool_use")
    .map(({ id, name, input }) => ({ type: "tool_result", tool_use_id: id, content: TOOLS[name](input) }));
  messages.push({ role: "user", content: results });
}
