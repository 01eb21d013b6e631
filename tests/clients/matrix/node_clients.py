"""Owns the rows of the matrix that are installed from npm: packages for node, and coding CLIs.

Must not start anything. Invariant: a client is one row; only its agent, and for a coding CLI the lines about it in
`agents/cli.mjs`, know it by name.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.clients.matrix.clients import CHAT, MESSAGES, RESPONSES, STREAM, Client


@dataclass(frozen=True)
class NodeClient(Client):
    """A row whose ``package`` and ``requirements`` (``name@version``) are npm's, in the folder ``environment``.

    ``side_calls``: how many calls besides those of the task it makes at most, such as one for a title.
    """

    side_calls: int = 0

    @property
    def coding(self) -> bool:
        """Whether it is a coding CLI."""
        return self.agent == _CLI


_CLI = "cli.mjs"
_OPENAI = "new OpenAI({ baseURL: BASE })"
_DEFAULT = "defaultHeaders: HEADERS"
_AI = ("ai@6.0.325", "@ai-sdk/openai@3.0.141", "@ai-sdk/anthropic@3.0.140", "zod@4.6.7")

NODE_CLIENTS = (
    NodeClient(
        "openai-node",
        "openai",
        CHAT,
        "openai_node.mjs",
        _OPENAI,
        _DEFAULT,
        environment="node-openai",
        requirements=("openai@6.49.0",),
    ),
    NodeClient(
        "openai-node (responses)",
        "openai",
        RESPONSES,
        "openai_node_responses.mjs",
        _OPENAI,
        _DEFAULT,
        environment="node-openai",
        requirements=("openai@6.49.0",),
    ),
    NodeClient(
        "@anthropic-ai/sdk",
        "@anthropic-ai/sdk",
        MESSAGES,
        "anthropic_node.mjs",
        "new Anthropic({ baseURL: ROOT })",
        _DEFAULT,
        environment="node-anthropic",
        requirements=("@anthropic-ai/sdk@1.14.0",),
    ),
    NodeClient(
        "Vercel AI SDK (openai)",
        "ai",
        RESPONSES,
        "ai_sdk.mjs",
        "createOpenAI({ baseURL: BASE })",
        "headers: HEADERS",
        arguments=("openai",),
        environment="node-ai",
        requirements=_AI,
    ),
    NodeClient(
        "Vercel AI SDK (anthropic)",
        "ai",
        MESSAGES,
        "ai_sdk.mjs",
        "createAnthropic({ baseURL: BASE })",
        "headers: HEADERS",
        arguments=("anthropic",),
        environment="node-ai",
        requirements=_AI,
    ),
    NodeClient(
        "Claude Code",
        "@anthropic-ai/claude-code",
        MESSAGES,
        _CLI,
        "ANTHROPIC_BASE_URL=ROOT claude -p",
        "ANTHROPIC_CUSTOM_HEADERS",
        arguments=("claude",),
        environment="claude-code",
        requirements=("@anthropic-ai/claude-code@2.1.332",),
        modes=(STREAM,),
        notes="always streams",
    ),
    NodeClient(
        "Codex",
        "@openai/codex",
        RESPONSES,
        _CLI,
        'codex exec -c openai_base_url="BASE"',
        "http_headers of a provider in config.toml",
        arguments=("codex",),
        environment="codex",
        requirements=("@openai/codex@0.171.0",),
        modes=(STREAM,),
        notes="always streams; reads no variable for its address",
    ),
    NodeClient(
        "opencode",
        "opencode-ai",
        RESPONSES,
        _CLI,
        "provider.openai.options.baseURL = BASE",
        "provider.openai.options.headers = HEADERS",
        arguments=("opencode",),
        environment="opencode",
        requirements=("opencode-ai@1.18.33",),
        modes=(STREAM,),
        notes="always streams; a call for a title stands beside the first one",
        side_calls=1,
    ),
    NodeClient(
        "opencode (anthropic)",
        "opencode-ai",
        MESSAGES,
        _CLI,
        "provider.anthropic.options.baseURL = BASE",
        "provider.anthropic.options.headers = HEADERS",
        arguments=("opencode-anthropic",),
        environment="opencode",
        requirements=("opencode-ai@1.18.33",),
        modes=(STREAM,),
        notes="always streams; a call for a title stands beside the first one",
        side_calls=1,
    ),
)
