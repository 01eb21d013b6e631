// An agent on the Vercel AI SDK, with the provider package that is named first: openai or anthropic.
import process from "node:process";

import { CLAUDE, MODEL, STREAM, SYSTEM, TASK, TOOLS, finish, given, load, schema } from "./task.mjs";

const { generateText, jsonSchema, stepCountIs, streamText, tool } = load("ai");

// Both providers want the version in their address. Without a given one they read their own variables.
const PROVIDERS = {
  openai: () => load("@ai-sdk/openai").createOpenAI(given("baseURL", "headers"))(MODEL),
  anthropic: () => load("@ai-sdk/anthropic").createAnthropic(given("baseURL", "headers", "/v1"))(CLAUDE),
};

const tools = Object.fromEntries(
  Object.entries(TOOLS).map(([name, act]) => [
    name,
    tool({ description: name, inputSchema: jsonSchema(schema(name)), execute: async (input) => act(input) }),
  ]),
);
const asked = {
  model: PROVIDERS[process.argv[2]](),
  system: SYSTEM,
  prompt: TASK,
  tools,
  stopWhen: stepCountIs(10),
};

if (STREAM) {
  const stream = streamText({
    ...asked,
    onError: ({ error }) => {
      throw error;
    },
  });
  finish(await stream.text);
} else {
  finish((await generateText(asked)).text);
}
