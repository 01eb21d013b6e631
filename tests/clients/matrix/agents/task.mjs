// Owns what the agents of the matrix on npm packages share: the task, its two tools, where the model is, how the end is
// told; it says the same as `task.py`, whose docstring names the variables. Must not import any client.
// Invariant: the tools are deterministic, and at most one line is printed a tool execution.
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import process from "node:process";

export const TASK = "Check the weather in Paris, then email bob about it.";
export const SYSTEM = "You are a helper.";
export const MODEL = "gpt-4o";
export const CLAUDE = "claude-sonnet-5-5";
export const STREAM = process.argv.includes("--stream");
export const BASE_URL = process.env.MATRIX_BASE_URL;
export const HEADERS = JSON.parse(process.env.MATRIX_HEADERS ?? "{}");
const LONGEST_HOLD_MS = 60000; // an agent that nobody kills ends by itself
const FIELDS = { get_weather: "city", send_email: "to" };

let calls = 0;

tell(`PID: ${process.pid}`);

// Packages are found in the folder of MATRIX_PACKAGES, not beside this file.
export const PACKAGES = process.env.MATRIX_PACKAGES;
const find = createRequire(join(PACKAGES, "package.json"));
export const load = (name) => find(name);

// Print a line of our own, on a new one: a package that prints too may have left its own unfinished.
export function tell(line) {
  console.log(`\n${line}`);
}

export const TOOLS = {
  get_weather: ({ city }) => use("get_weather", city),
  send_email: ({ to }) => use("send_email", to),
};

export function schema(name) {
  const field = FIELDS[name];
  return {
    type: "object",
    properties: { [field]: { type: "string" } },
    required: [field],
    additionalProperties: false,
  };
}

// Options for a client's constructor, named `url` and `headers` there; only what was given.
export function given(url, headers, version = "") {
  return {
    ...(BASE_URL ? { [url]: BASE_URL + version } : {}),
    ...(Object.keys(HEADERS).length ? { [headers]: HEADERS } : {}),
  };
}

// Tell the final answer, on one line.
export function finish(text) {
  tell(`FINAL: ${text.split(/\s+/).join(" ").trim()}`);
  hold(calls + 1);
}

function use(name, value) {
  calls += 1;
  hold(calls);
  tell(`TOOL: ${name} ${value}`);
  return `[${name}: ${value} done]`;
}

// Stand still if that is asked for at this call.
export function hold(call) {
  const place = process.env.MATRIX_HOLD;
  if (place && existsSync(place) && readFileSync(place, "utf8") === String(call)) {
    tell(`HOLDS: ${call}`);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LONGEST_HOLD_MS);
    console.error(`was held for ${LONGEST_HOLD_MS} ms and nobody killed it`);
    process.exit(1);
  }
}
