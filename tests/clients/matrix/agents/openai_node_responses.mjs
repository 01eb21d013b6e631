// An agent on the npm package of OpenAI, responses.
import { MODEL, STREAM, TASK, TOOLS, finish, given, load, schema } from "./task.mjs";

const OpenAI = load("openai").OpenAI;
const client = new OpenAI(given("baseURL", "defaultHeaders"));
const tools = Object.keys(TOOLS).map((name) => ({
  type: "function",
  name,
  description: name,
  parameters: schema(name),
  strict: true,
}));
const input = [{ role: "user", content: TASK }];

async function ask() {
  const asked = { model: MODEL, input, tools };
  return STREAM ? await client.responses.stream(asked).finalResponse() : await client.responses.create(asked);
}

for (;;) {
  const response = await ask();
  const calls = response.output.filter((item) => item.type === "function_call");
  if (!calls.length) {
    finish(response.output_text);
    break;
  }
  for (const { call_id, name, arguments: text } of calls) {
    input.push({ type: "function_call", call_id, name, arguments: text });
    input.push({ type: "function_call_output", call_id, output: TOOLS[name](JSON.parse(text)) });
  }
}
