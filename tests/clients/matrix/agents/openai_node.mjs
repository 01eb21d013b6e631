// An agent on the npm package of OpenAI, chat completions.
import { MODEL, STREAM, TASK, TOOLS, finish, given, load, schema } from "./task.mjs";

const OpenAI = load("openai").OpenAI;
const client = new OpenAI(given("baseURL", "defaultHeaders"));
const tools = Object.keys(TOOLS).map((name) => ({
  type: "function",
  function: { name, description: name, parameters: schema(name) },
}));
const messages = [{ role: "user", content: TASK }];

async function ask() {
  const asked = { model: MODEL, messages, tools };
  const answer = STREAM
    ? await client.chat.completions.stream(asked).finalChatCompletion()
    : await client.chat.completions.create(asked);
  return answer.choices[0].message;
}

for (;;) {
  const { content, tool_calls: calls } = await ask();
  if (!calls?.length) {
    finish(content);
    break;
  }
  messages.push({
    role: "assistant",
    content,
    tool_calls: calls.map(({ id, function: { name, arguments: text } }) => ({
      id,
      type: "function",
      function: { name, arguments: text },
    })),
  });
  for (const call of calls) {
    const result = TOOLS[call.function.name](JSON.parse(call.function.arguments));
    messages.push({ role: "tool", tool_call_id: call.id, content: result });
  }
}
