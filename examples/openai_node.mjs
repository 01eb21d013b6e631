// A tool-using agent on openai-node, crash-proof by its base URL.
//
// Install:          npm install openai
// Start the proxy:  agentstate serve --simulate      (no key needed; without --simulate, set OPENAI_API_KEY)
// Start the agent:  node examples/openai_node.mjs [SESSION]
//
// Session and run are in the base URL: /s/SESSION/r/RUN/v1. The session is the same in every life of the agent, the run
// another one each time. Kill it at any moment and start it again: it goes on where it was, and nothing is paid twice.

import { randomUUID } from "node:crypto";
import OpenAI from "openai";

const session = process.argv[2] ?? "node-agent";
const run = process.env.AGENTSTATE_RUN_ID ?? randomUUID();
const proxy = (process.env.AGENTSTATE_URL ?? "http://localhost:8080/v1").replace(/\/v1\/?$/, "");

const client = new OpenAI({
  baseURL: `${proxy}/s/${encodeURIComponent(session)}/r/${encodeURIComponent(run)}/v1`,
  apiKey: process.env.OPENAI_API_KEY ?? "OPENAI_API_KEY-is-not-set",
});

const text = { type: "string" };
const tools = [
  {
    type: "function",
    function: {
      name: "open_tickets",
      description: "The open tickets of a customer.",
      parameters: { type: "object", properties: { customer: text }, required: ["customer"] },
    },
  },
  {
    type: "function",
    function: {
      name: "assign",
      description: "Assign a ticket to a team.",
      parameters: { type: "object", properties: { ticket: text, team: text }, required: ["ticket", "team"] },
    },
  },
];

const implementations = {
  open_tickets: ({ customer }) => `${customer}: #81 cannot log in, #82 wrong invoice`,
  assign: ({ ticket, team }) => `${ticket} is with ${team}`,
};

const messages = [{ role: "user", content: "Send the open tickets of Acme to the right teams." }];
for (;;) {
  const answer = await client.chat.completions.create({
    model: process.env.MODEL ?? "gpt-4o-mini",
    messages,
    tools,
  });
  const message = answer.choices[0].message;
  messages.push(message);
  if (!message.tool_calls?.length) {
    console.log(message.content);
    break;
  }
  for (const asked of message.tool_calls) {
    const result = implementations[asked.function.name](JSON.parse(asked.function.arguments));
    console.log(`${asked.function.name}(${asked.function.arguments}) -> ${result}`);
    messages.push({ role: "tool", tool_call_id: asked.id, content: result });
  }
}
