"""Owns how tests of the translator ask it, and the official SDKs that read what it wrote. Must not know the code under
test but for its public face.

Invariant: an SDK gets the bytes that an agent would get, through its own HTTP client.
"""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx2
import openai

from agentstate.core.model import Shape
from agentstate.dialects import translate
from agentstate.dialects.registry import BY_NAME

CHAT, RESPONSES, MESSAGES = "openai_chat", "openai_responses", "anthropic_messages"
NAMES = (CHAT, RESPONSES, MESSAGES)
PAIRS = [(one, other) for one in NAMES for other in NAMES if one != other]
# A model of each dialect that takes whatever the dialect has.
MODELS = {CHAT: "gpt-4o", RESPONSES: "gpt-5.6", MESSAGES: "claude-sonnet-4-6"}

Body = dict[str, Any]


def ask(source: str, target: str, body: Body, model: str = "") -> tuple[Body, tuple[str, ...]]:
    """A question in the target's dialect, and what was lost."""
    found = translate.question(source, target, json.dumps(body).encode(), model or MODELS[target])
    return json.loads(found.body), found.losses


def tell(source: str, target: str, answer: Body, asked: Body | None = None) -> tuple[Body, tuple[str, ...]]:
    """The target's answer as the agent gets it, which asks in ``source``, and what was lost."""
    request = json.dumps(asked if asked is not None else simple(source)).encode()
    found = translate.answer(source, target, request, json.dumps(answer).encode(), created=1700000000)
    return json.loads(found.body), found.losses


def simple(dialect: str, **more: Any) -> Body:
    """A question of one word."""
    if dialect == RESPONSES:
        return {"model": "m", "input": "hi", **more}
    limit = {"max_tokens": 100} if dialect == MESSAGES else {}
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}], **limit, **more}


def completion(message: Body, finish: str = "stop", **more: Any) -> Body:
    """An answer in chat completions."""
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": finish}
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    return {
        "id": "chatcmpl-A1", "object": "chat.completion", "created": 1700000001, "model": "gpt-4o-2024-08-06",
        "choices": [choice], "usage": usage, **more,
    }  # fmt: skip


def message(content: list[Body], reason: str = "end_turn", **more: Any) -> Body:
    """An answer in Anthropic's messages."""
    return {
        "id": "msg_01ABC", "type": "message", "role": "assistant", "model": "claude-sonnet-5-5", "content": content,
        "stop_reason": reason, "stop_sequence": None, "usage": {"input_tokens": 100, "output_tokens": 20}, **more,
    }  # fmt: skip


def response(output: list[Body], status: str = "completed", **more: Any) -> Body:
    """An answer in the Responses API."""
    usage = {
        "input_tokens": 100, "input_tokens_details": {"cached_tokens": 30}, "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 120,
    }  # fmt: skip
    return {
        "id": "resp_9f", "object": "response", "created_at": 1700000002, "status": status, "model": "gpt-5-2025-08-07",
        "output": output, "usage": usage, "error": None, "incomplete_details": None, **more,
    }  # fmt: skip


def said(text: str) -> Body:
    """An output item of text."""
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}


def tool_use(name: str, arguments: Body, call_id: str = "toolu_01X") -> Body:
    """A block that calls a tool."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


# --- the official SDKs ------------------------------------------------------------------------------------------------


def streamed(dialect: str, body: bytes) -> bytes:
    """A plain answer as the stream that the proxy gives of it."""
    return BY_NAME[dialect].convert(Shape(), Shape(stream=True, usage=dialect == CHAT), body)


class Reader:
    """The SDK of a dialect, which gets ``body`` for an answer, plain and streamed, and returns its objects as JSON."""

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect
        self._body = b""
        self._kind = "application/json"
        client = httpx2.Client(transport=httpx2.MockTransport(self._respond))
        if dialect == MESSAGES:
            self._sdk: Any = anthropic.Anthropic(
                api_key="sk-test-anthropic", base_url="http://127.0.0.1:9", http_client=client, max_retries=0
            )
        else:
            self._sdk = openai.OpenAI(
                api_key="sk-test-openai", base_url="http://127.0.0.1:9/v1", http_client=client, max_retries=0
            )

    def _respond(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": self._kind}, content=self._body)

    def plain(self, body: bytes) -> Body:
        """What the SDK makes of a plain answer; pydantic's own rules for its types are kept."""
        self._body, self._kind = body, "application/json"
        found = self._create()
        type(found).model_validate_json(body)
        return _shown(found)

    def _create(self) -> Any:
        if self._dialect == MESSAGES:
            return self._sdk.messages.create(**simple(MESSAGES))
        if self._dialect == CHAT:
            return self._sdk.chat.completions.create(**simple(CHAT))
        return self._sdk.responses.create(**simple(RESPONSES))

    def stream(self, body: bytes) -> Body:
        """What the SDK's accumulator ends with."""
        self._body, self._kind = streamed(self._dialect, body), "text/event-stream"
        if self._dialect == MESSAGES:
            with self._sdk.messages.stream(**simple(MESSAGES)) as events:
                return _shown(events.get_final_message())
        if self._dialect == CHAT:
            with self._sdk.chat.completions.stream(**simple(CHAT)) as events:
                for _ in events:
                    pass
                return _shown(events.current_completion_snapshot)
        with self._sdk.responses.stream(**simple(RESPONSES)) as events:
            last: Any = None
            for event in events:  # the helper keeps a response that is completed, and none that is incomplete
                last = event
            return _shown(events.get_final_response() if last.type == "response.completed" else last.response)


def _shown(found: Any) -> Body:
    return without_nulls(found.to_dict(warnings=False))  # type: ignore[no-any-return]


_ADDED = ("parsed", "parsed_arguments", "parsed_output", "index")  # what accumulators add to what they read


def without_nulls(value: Any) -> Any:
    """JSON less nulls and what accumulators add."""
    if isinstance(value, dict):
        return {name: without_nulls(part) for name, part in value.items() if part is not None and name not in _ADDED}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value
