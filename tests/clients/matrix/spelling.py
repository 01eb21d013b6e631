"""Owns how one answer of the scripted model is spelled in each wire format, plain and streamed.

Must not decide what is answered. Invariant: equal answers give equal bytes, and every id in them holds the answer's own
name, so that no two answers of a model share one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.clients.matrix.clients import CHAT, GEMINI, MESSAGES, RESPONSES

_TOKENS_IN, _TOKENS_OUT = 100, 20
_CREATED = 1700000000


@dataclass(frozen=True)
class Said:
    """One answer: text, or a call of ``tool`` with ``arguments``. ``name`` is unlike that of any other answer."""

    name: str
    model: str
    text: str = ""
    tool: str = ""
    arguments: Mapping[str, str] | None = None


Body = dict[str, Any]


def plain(wire: str, said: Said) -> bytes:
    """The answer as one JSON body."""
    return json.dumps(_PLAIN[wire](said), indent=1).encode()


def streamed(wire: str, said: Said) -> list[bytes]:
    """The answer as server-sent events, one element each. Texts and tool arguments come in two pieces."""
    return [_event(wire, body) for body in _STREAMED[wire](said)] + ([b"data: [DONE]\n\n"] if wire == CHAT else [])


def _event(wire: str, body: Body) -> bytes:
    named = f"event: {body['type']}\n" if wire in (RESPONSES, MESSAGES) else ""
    return f"{named}data: {json.dumps(body)}\n\n".encode()


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def _chat(said: Said) -> Body:
    message: Body = {"role": "assistant", "content": said.text or None, "refusal": None}
    if said.tool:
        function = {"name": said.tool, "arguments": json.dumps(said.arguments)}
        message["tool_calls"] = [{"id": f"call_{said.name}", "type": "function", "function": function}]
    finish = "tool_calls" if said.tool else "stop"
    return _chat_frame(said, "chat.completion") | {
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": _chat_usage(),
    }


def _chat_frame(said: Said, kind: str) -> Body:
    return {"id": f"chatcmpl-{said.name}", "object": kind, "created": _CREATED, "model": said.model}


def _chat_usage() -> Body:
    return {
        "prompt_tokens": _TOKENS_IN,
        "completion_tokens": _TOKENS_OUT,
        "total_tokens": _TOKENS_IN + _TOKENS_OUT,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def _chat_chunks(said: Said) -> list[Body]:
    deltas: list[Body] = [{"role": "assistant", "content": None if said.tool else "", "refusal": None}]
    if said.tool:
        first = {"index": 0, "id": f"call_{said.name}", "type": "function"}
        deltas.append({"tool_calls": [first | {"function": {"name": said.tool, "arguments": ""}}]})
        halves = _halves(json.dumps(said.arguments))
        deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": half}}]} for half in halves]
    else:
        deltas += [{"content": half} for half in _halves(said.text)]
    finishes = [None] * len(deltas) + ["tool_calls" if said.tool else "stop"]
    frame = _chat_frame(said, "chat.completion.chunk")
    chunks = [
        frame | {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}
        for delta, finish in zip([*deltas, {}], finishes, strict=True)
    ]
    return [*chunks, frame | {"choices": [], "usage": _chat_usage()}]


def _response(said: Said) -> Body:
    return _response_frame(said) | {"status": "completed", "output": [_item(said)], "usage": _response_usage()}


def _response_frame(said: Said) -> Body:
    return {
        "id": f"resp_{said.name}",
        "object": "response",
        "created_at": _CREATED,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "model": said.model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
        "metadata": {},
    }


def _response_usage() -> Body:
    return {
        "input_tokens": _TOKENS_IN,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": _TOKENS_OUT,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": _TOKENS_IN + _TOKENS_OUT,
    }


def _item(said: Said) -> Body:
    if said.tool:
        call = {"call_id": f"call_{said.name}", "name": said.tool, "arguments": json.dumps(said.arguments)}
        return {"type": "function_call", "id": f"fc_{said.name}", "status": "completed"} | call
    content = [_text_part(said.text)]
    return {
        "type": "message",
        "id": f"msg_{said.name}",
        "status": "completed",
        "role": "assistant",
        "content": content,
    }


def _text_part(text: str) -> Body:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _response_events(said: Said) -> list[Body]:
    frame, item = _response_frame(said), _item(said)
    at = {"item_id": item["id"], "output_index": 0}
    part = at | {"content_index": 0}
    begun = item | {"status": "in_progress"} | ({"arguments": ""} if said.tool else {"content": []})
    middle: list[Body]
    if said.tool:
        kind = "response.function_call_arguments"
        middle = [{"type": f"{kind}.delta", "delta": half} | at for half in _halves(item["arguments"])]
        middle.append({"type": f"{kind}.done", "arguments": item["arguments"], "name": said.tool} | at)
    else:
        kind = "response.output_text"
        middle = [{"type": "response.content_part.added", "part": _text_part("")} | part]
        middle += [{"type": f"{kind}.delta", "delta": half, "logprobs": []} | part for half in _halves(said.text)]
        middle.append({"type": f"{kind}.done", "text": said.text, "logprobs": []} | part)
        middle.append({"type": "response.content_part.done", "part": _text_part(said.text)} | part)
    events: list[Body] = [
        {"type": "response.created", "response": frame},
        {"type": "response.in_progress", "response": frame},
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        *middle,
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": _response(said)},
    ]
    return [event | {"sequence_number": number} for number, event in enumerate(events)]


def _message(said: Said) -> Body:
    if said.tool:
        block: Body = {"type": "tool_use", "id": f"toolu_{said.name}", "name": said.tool, "input": said.arguments}
    else:
        block = {"type": "text", "text": said.text}
    return _message_frame(said) | {
        "content": [block],
        "stop_reason": "tool_use" if said.tool else "end_turn",
        "usage": _message_usage(),
    }


def _message_frame(said: Said) -> Body:
    return {
        "id": f"msg_{said.name}",
        "type": "message",
        "role": "assistant",
        "model": said.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _message_usage(1),
    }


def _message_usage(out: int = _TOKENS_OUT) -> Body:
    return {
        "input_tokens": _TOKENS_IN,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": out,
    }


def _message_events(said: Said) -> list[Body]:
    whole = _message(said)
    (block,) = whole["content"]
    if said.tool:
        begun = block | {"input": {}}
        halves = _halves(json.dumps(said.arguments))
        deltas = [{"type": "input_json_delta", "partial_json": half} for half in halves]
    else:
        begun = block | {"text": ""}
        deltas = [{"type": "text_delta", "text": half} for half in _halves(said.text)]
    stopped = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    return [
        {"type": "message_start", "message": _message_frame(said)},
        {"type": "content_block_start", "index": 0, "content_block": begun},
        {"type": "ping"},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stopped, "usage": {"output_tokens": _TOKENS_OUT}},
        {"type": "message_stop"},
    ]


def _generated(said: Said) -> Body:
    part: Body = {"functionCall": {"name": said.tool, "args": said.arguments}} if said.tool else {"text": said.text}
    return _chunk(said, part, finish="STOP")


def _chunk(said: Said, part: Body, finish: str | None = None) -> Body:
    candidate: Body = {"content": {"role": "model", "parts": [part]}, "index": 0}
    body: Body = {"candidates": [candidate], "modelVersion": said.model, "responseId": f"gem-{said.name}"}
    if finish is not None:
        candidate["finishReason"] = finish
        body["usageMetadata"] = {
            "promptTokenCount": _TOKENS_IN,
            "candidatesTokenCount": _TOKENS_OUT,
            "totalTokenCount": _TOKENS_IN + _TOKENS_OUT,
        }
    return body


def _generated_chunks(said: Said) -> list[Body]:
    """Function calls come whole in this format; a first chunk without text stands before them."""
    if said.tool:
        return [_chunk(said, {"text": ""}), _generated(said)]
    first, second = _halves(said.text)
    return [_chunk(said, {"text": first}), _chunk(said, {"text": second}, finish="STOP")]


_PLAIN: dict[str, Callable[[Said], Body]] = {
    CHAT: _chat,
    RESPONSES: _response,
    MESSAGES: _message,
    GEMINI: _generated,
}
_STREAMED: dict[str, Callable[[Said], list[Body]]] = {
    CHAT: _chat_chunks,
    RESPONSES: _response_events,
    MESSAGES: _message_events,
    GEMINI: _generated_chunks,
}
