"""The official SDKs, on their default settings, wait as long as a person takes.

How long is said by AGENTSTATE_HOLD_S: one heartbeat's time by default, minutes where somebody has them.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.support import chat
from tests.support.people import decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Reply, Seen, Upstream, plain, stream

# Read once, here: the variable must not reach a proxy, for which it would be an unknown setting.
HOLD_S = float(os.environ.get("AGENTSTATE_HOLD_S", "17"))
ARGUMENTS = '{"to": "bob@example.com"}'
CHAT = [{"type": "function", "function": {"name": "send_email", "parameters": {"type": "object"}}}]
FLAT = [{"type": "function", "name": "send_email", "parameters": {"type": "object"}}]
CLAUDE = [{"name": "send_email", "input_schema": {"type": "object"}}]


def answer(seen: Seen) -> Reply:
    """The same call in the wire format that is asked for."""
    asked = json.loads(seen.body)
    if "chat/completions" in seen.target:
        calls = [chat.tool_call("send_email", ARGUMENTS)]
        return (
            stream(*chat.chunks("", tool_calls=calls))
            if asked.get("stream")
            else plain(chat.completion(None, tool_calls=calls))
        )
    if "messages" in seen.target:
        return _claude(bool(asked.get("stream")))
    return _responses(bool(asked.get("stream")))


def _claude(streamed: bool) -> Reply:
    block = {"type": "tool_use", "id": "toolu_1", "name": "send_email", "input": json.loads(ARGUMENTS)}
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test", "content": [block],
        "stop_reason": "tool_use", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip
    if not streamed:
        return plain(json.dumps(message).encode())
    events = [
        {"type": "message_start", "message": message | {"content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": block | {"input": {}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": ARGUMENTS}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return stream(*_events(events))


def _responses(streamed: bool) -> Reply:
    item = {
        "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "send_email", "arguments": ARGUMENTS,
        "status": "completed",
    }  # fmt: skip
    whole = {
        "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "gpt-test",
        "output": [item], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    if not streamed:
        return plain(json.dumps(whole).encode())
    begun = whole | {"status": "in_progress", "output": []}
    events = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": item | {"arguments": ""}},
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 0, "delta": ARGUMENTS},
        {"type": "response.function_call_arguments.done", "item_id": "fc_1", "output_index": 0,
         "arguments": ARGUMENTS, "name": "send_email"},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]  # fmt: skip
    return stream(*_events([event | {"sequence_number": place} for place, event in enumerate(events)]))


def _events(events: list[dict[str, Any]]) -> list[bytes]:
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def chat_plain(client: openai.OpenAI) -> Any:
    said = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], tools=CHAT)  # type: ignore[arg-type]
    return said.choices[0].message.tool_calls[0].function.arguments  # type: ignore[index, union-attr]


def chat_streamed(client: openai.OpenAI) -> Any:
    with client.chat.completions.stream(
        model="m",
        messages=[{"role": "user", "content": "hi"}],
        tools=CHAT,  # type: ignore[arg-type]
    ) as events:
        said = events.get_final_completion()
    return said.choices[0].message.tool_calls[0].function.arguments  # type: ignore[index]


def responses_plain(client: openai.OpenAI) -> Any:
    return client.responses.create(model="m", input="hi", tools=FLAT).output[0].arguments  # type: ignore[arg-type, union-attr]


def responses_streamed(client: openai.OpenAI) -> Any:
    with client.responses.stream(model="m", input="hi", tools=FLAT) as events:  # type: ignore[arg-type]
        return events.get_final_response().output[0].arguments  # type: ignore[union-attr]


def claude_plain(client: anthropic.Anthropic) -> Any:
    said = client.messages.create(
        model="m",
        max_tokens=9,
        messages=[{"role": "user", "content": "hi"}],
        tools=CLAUDE,  # type: ignore[arg-type]
    )
    return json.dumps(said.content[0].input)  # type: ignore[union-attr]


def claude_streamed(client: anthropic.Anthropic) -> Any:
    with client.messages.stream(
        model="m",
        max_tokens=9,
        messages=[{"role": "user", "content": "hi"}],
        tools=CLAUDE,  # type: ignore[arg-type]
    ) as events:
        return json.dumps(events.get_final_message().content[0].input)  # type: ignore[union-attr]


@pytest.mark.xdist_group("long-holds")
def test_official_sdks_wait_for_a_person_with_one_request_each(tmp_path: Path) -> None:
    asks: list[Callable[..., Any]] = [
        chat_plain, chat_streamed, responses_plain, responses_streamed, claude_plain, claude_streamed,
    ]  # fmt: skip
    said: dict[str, Any] = {}
    with Upstream(answer) as upstream, Proxy(tmp_path, upstream.url) as proxy:

        def run(ask: Callable[..., Any]) -> None:
            base = f"{proxy.url}/s/{ask.__name__}"
            try:
                if ask.__name__.startswith("claude"):
                    said[ask.__name__] = ask(anthropic.Anthropic(base_url=base, api_key="sk-test-x"))
                else:
                    said[ask.__name__] = ask(openai.OpenAI(base_url=f"{base}/v1", api_key="sk-test-x"))
            except Exception as error:  # noqa: BLE001 - shown in place of the answer
                said[ask.__name__] = error

        threads = [threading.Thread(target=run, args=(ask,), daemon=True) for ask in asks]
        for thread in threads:
            thread.start()
        approvals = pending(proxy, len(asks))
        threading.Event().wait(HOLD_S)  # what is waited for is time itself
        assert not said
        for approval in approvals:
            decide(proxy, approval, "APPROVED")
        for thread in threads:
            thread.join(60)
        assert {name: json.loads(text) if isinstance(text, str) else text for name, text in said.items()} == {
            ask.__name__: json.loads(ARGUMENTS) for ask in asks
        }
        assert upstream.calls == len(asks)
