"""Owns the chat-completions bodies that tests send and that the scripted upstream answers.

Must not imitate any one provider's habits; recorded traffic does that. Invariant: every builder is deterministic, so
equal arguments give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

MODEL = "gpt-4o-test"
DONE = b"data: [DONE]\n\n"


def user(text: str) -> dict[str, Any]:
    """A user message."""
    return {"role": "user", "content": text}


def system(text: str) -> dict[str, Any]:
    """A system message."""
    return {"role": "system", "content": text}


def request(messages: Sequence[dict[str, Any]] | str, *, stream: bool = False, **more: Any) -> bytes:
    """A request body; a plain string is one user message."""
    said = [user(messages)] if isinstance(messages, str) else list(messages)
    body: dict[str, Any] = {"model": MODEL, "messages": said}
    if stream:
        body["stream"] = True
    return json.dumps(body | more).encode()


def tool_call(name: str, arguments: str = "{}", *, call_id: str = "call_1") -> dict[str, Any]:
    """A complete function call; ``arguments`` is JSON text."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def completion(
    text: str | None = "hello",
    *,
    name: str = "1",
    tool_calls: Sequence[dict[str, Any]] = (),
    finish: str | None = None,
    choices: int = 1,
) -> bytes:
    """A plain answer. Spacing and an unknown field are there on purpose: bytes have to come back as they were."""
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if tool_calls:
        message["tool_calls"] = list(tool_calls)
    reason = finish or ("tool_calls" if tool_calls else "stop")
    body = {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion",
        "created": 1700000000,
        "model": MODEL,
        "choices": [
            {"index": index, "message": message, "logprobs": None, "finish_reason": reason} for index in range(choices)
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12},
        "x_vendor": {"unknown": 1.10},
    }
    return json.dumps(body, indent=1).encode()


def chunk(delta: dict[str, Any], *, name: str = "1", finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    """One SSE event with one choice."""
    body = {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": MODEL,
        "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }
    return b"data: " + json.dumps(body | more).encode() + b"\n\n"


def chunks(
    text: str = "hello", *, name: str = "1", tool_calls: Iterable[dict[str, Any]] = (), done: bool = True
) -> list[bytes]:
    """A streamed answer, one SSE event an element: role, each word, each call in two pieces, finish, ``[DONE]``."""
    calls = list(tool_calls)
    events = [chunk({"role": "assistant", "content": "", "refusal": None}, name=name)]
    words = text.split(" ") if text else []
    events += [chunk({"content": word if at == 0 else " " + word}, name=name) for at, word in enumerate(words)]
    for at, call in enumerate(calls):
        arguments = call["function"]["arguments"]
        first = {"index": at, **call, "function": {"name": call["function"]["name"], "arguments": ""}}
        events.append(chunk({"tool_calls": [first]}, name=name))
        events.append(chunk({"tool_calls": [{"index": at, "function": {"arguments": arguments}}]}, name=name))
    events.append(chunk({}, name=name, finish="tool_calls" if calls else "stop"))
    return [*events, DONE] if done else events


def text_of(body: bytes) -> str:
    """The answered text of a plain or a streamed body, first choice."""
    if not body.lstrip().startswith((b"data:", b":", b"event:")):
        return str(json.loads(body)["choices"][0]["message"]["content"])
    parts: list[str] = []
    for line in body.decode().splitlines():
        if line.startswith("data: {"):
            choices = json.loads(line.removeprefix("data: ")).get("choices", [])
            parts += [choice["delta"].get("content") or "" for choice in choices]
    return "".join(parts)
