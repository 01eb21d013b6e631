"""Owns a proxy with a translator of chat questions into Anthropic's messages that is as small as can be:
``python -m tests.support.translating_server …``, the normal command line.

Must not replace a translator that is there: where the package has its own, that is used. Invariant: what the small one
cannot carry it says in its losses.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass

from agentstate.errors import BadRequest

NAME = "agentstate.dialects.translate"
COMMAND = (sys.executable, "-m", "tests.support.translating_server")


@dataclass(frozen=True)
class Translated:
    """As the package's own translator gives it."""

    path: str
    body: bytes
    losses: tuple[str, ...]


def translatable(source: str, target: str) -> bool:
    """Chat to messages is all it knows."""
    return (source, target) == ("openai_chat", "anthropic_messages")


def question(source: str, target: str, body: bytes, model: str) -> Translated:
    """A question of user texts."""
    asked = json.loads(body)
    if asked.get("n", 1) > 1:
        raise BadRequest("n is larger than 1")
    lost = tuple(sorted(name for name in asked if name not in ("model", "messages", "stream", "stream_options")))
    made = {"model": model, "max_tokens": 100, "messages": asked["messages"]}
    return Translated("/v1/messages", json.dumps(made).encode(), lost)


def answer(source: str, target: str, asked: bytes, body: bytes) -> Translated:
    """An answer of texts and calls."""
    said = json.loads(body)
    message: dict[str, object] = {
        "role": "assistant",
        "content": "".join(block.get("text", "") for block in said["content"]),
    }
    calls = [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": json.dumps(block["input"])},
        }
        for block in said["content"]
        if block["type"] == "tool_use"
    ]
    if calls:
        message["tool_calls"] = calls
    finish = "tool_calls" if calls else "stop"
    made = {
        "id": "chatcmpl-" + said["id"],
        "object": "chat.completion",
        "created": 0,
        "model": said["model"],
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }
    return Translated("", json.dumps(made).encode(), ())


def loses_tools_or_structure(losses: Sequence[str]) -> bool:
    """Whether tools are among what was lost."""
    return "tools" in losses


def main() -> None:
    """Put the small translator in place where there is none, and run the command line."""
    if importlib.util.find_spec(NAME) is None:
        module = types.ModuleType(NAME)
        for part in (Translated, translatable, question, answer, loses_tools_or_structure):
            setattr(module, part.__name__, part)
        sys.modules[NAME] = module
    from agentstate.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
