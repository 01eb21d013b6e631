// One life of a coding CLI: claude, codex, opencode or opencode-anthropic. It is started with a home and a project
// folder that are made anew at the same place in every life (MATRIX_KEEP: that are kept from life to life), and what it
// does is told as every agent of the matrix tells it. Its model is given two harmless commands of the project folder,
// which tell of their own execution. Must not touch what the CLI asks or is answered.
// Invariant: without MATRIX_KEEP nothing of an earlier life is on disk when one begins.
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, openSync, rmSync, writeFileSync } from "node:fs";
import { Socket } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { createInterface } from "node:readline";

import { BASE_URL, HEADERS, MODEL, PACKAGES, TASK, hold, tell } from "./task.mjs";

const LAST_CALL = 3;
const life = join(process.env.HOME, "life");
const home = join(life, "home");
const project = join(life, "project");
const told = join(life, "told");
const headered = Object.keys(HEADERS).length > 0;

// The command that the model calls: `./tools get_weather CITY` or `./tools send_email WHOM`.
const TOOLS = `#!/bin/sh
call=1
[ "$1" = send_email ] && call=2
if [ -f '${process.env.MATRIX_HOLD}' ] && [ "$(cat '${process.env.MATRIX_HOLD}')" = "$call" ]; then
  echo "HOLDS: $call" > '${told}'
  exec sleep 60
fi
echo "TOOL: $1 $2" > '${told}'
echo "[$1: $2 done]"
`;

const QUIET = {
  claude: { CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_AUTOUPDATER: "1", DISABLE_TELEMETRY: "1" },
  opencode: { OPENCODE_DISABLE_AUTOUPDATE: "1", OPENCODE_DISABLE_MODELS_FETCH: "1" },
};

// What each is started with: arguments, variables, and which of its JSON lines holds the final text.
const CLIS = {
  claude: () => ({
    arguments: ["-p", TASK, "--output-format", "stream-json", "--verbose", "--allowedTools", "Bash"],
    variables: {
      ...QUIET.claude,
      ...(BASE_URL ? { ANTHROPIC_BASE_URL: BASE_URL } : {}),
      ...(headered ? { ANTHROPIC_CUSTOM_HEADERS: lines(HEADERS) } : {}),
    },
    final: (line) => (line.type === "result" ? line.result : undefined),
  }),
  codex: () => ({
    arguments: ["exec", "--json", "--skip-git-repo-check", "-s", "danger-full-access", ...codexAddress(), TASK],
    variables: { CODEX_API_KEY: process.env.OPENAI_API_KEY },
    final: ({ item, type }) =>
      type === "item.completed" && item.type === "agent_message" ? item.text : undefined,
  }),
  opencode: () => opencode("openai", MODEL, BASE_URL),
  "opencode-anthropic": () => opencode("anthropic", "claude-sonnet-4-5", BASE_URL && `${BASE_URL}/v1`),
};

function lines(headers) {
  return Object.entries(headers)
    .map(([name, value]) => `${name}: ${value}`)
    .join("\n");
}

// It reads no variable for its address; headers are a matter of a provider of one's own.
function codexAddress() {
  const model = ["-m", "gpt-5"];
  if (!headered) return [...model, "-c", `openai_base_url="${BASE_URL ?? process.env.OPENAI_BASE_URL}"`];
  const pairs = Object.entries(HEADERS).map(([name, value]) => `"${name}"="${value}"`);
  const fields = ['name="matrix"', 'wire_api="responses"', 'env_key="OPENAI_API_KEY"', `base_url="${BASE_URL}"`];
  const provider = `{${[...fields, `http_headers={${pairs}}`]}}`;
  return [...model, "-c", "model_provider=matrix", "-c", `model_providers.matrix=${provider}`];
}

function opencode(provider, model, baseURL) {
  const options = { ...(baseURL ? { baseURL } : {}), ...(headered ? { headers: HEADERS } : {}) };
  const config = {
    autoupdate: false,
    permission: { bash: "allow" },
    provider: { [provider]: { options } },
    share: "disabled",
  };
  return {
    arguments: ["run", "--format", "json", "-m", `${provider}/${model}`, TASK],
    variables: { ...QUIET.opencode, OPENCODE_CONFIG_CONTENT: JSON.stringify(config) },
    final: (line) => (line.type === "text" ? line.part.text : undefined),
  };
}

function prepare() {
  rmSync(process.env.MATRIX_KEEP ? told : life, { recursive: true, force: true, maxRetries: 3 });
  for (const folder of [home, project]) mkdirSync(folder, { recursive: true });
  writeFileSync(join(project, "tools"), TOOLS, { mode: 0o755 });
  execFileSync("mkfifo", [told]);
  // Open for both ways, so that it never ends and its writers never wait.
  const socket = new Socket({ fd: openSync(told, "r+"), readable: true, writable: false });
  createInterface({ input: socket }).on("line", tell);
}

function variables(own) {
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith("MATRIX_"));
  return { ...Object.fromEntries(kept), ...own, HOME: home, NO_PROXY: "127.0.0.1,localhost", PWD: project };
}

function parsed(line) {
  try {
    return JSON.parse(line);
  } catch (error) {
    console.error(`not JSON (${error.message}): ${line}`);
    return {};
  }
}

prepare();
const name = process.argv[2];
const { arguments: given, variables: own, final } = CLIS[name]();
const program = join(PACKAGES, "node_modules", ".bin", name.replace("-anthropic", ""));
const child = spawn(program, given, { cwd: project, env: variables(own), stdio: ["ignore", "pipe", "inherit"] });
createInterface({ input: child.stdout }).on("line", (line) => {
  console.error(line.slice(0, 2000));
  const text = final(parsed(line));
  if (text !== undefined) {
    tell(`FINAL: ${text.split(/\s+/).join(" ").trim()}`);
    hold(LAST_CALL);
  }
});
child.on("close", (code, signal) => {
  if (signal) console.error(`ended by ${signal}`);
  process.exit(code ?? 1);
});
