"""Owns the same small conversation in each wire format: what agents ask, models answer, and agents send back of it.

Must not imitate any one provider's habits; recorded traffic does that. Invariant: what an agent sends back of an answer
is what its SDK would, not the answer's own bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]
SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
NAMES = ("send_email", "search")


@dataclass(frozen=True)
class Calling:
    """A call that a model proposes; ``call_id`` empty: the format has none."""

    call_id: str
    name: str
    arguments: dict[str, Any]


class Chat:
    name, path, field = "chat", "/v1/chat/completions", "messages"

    def ask(self, messages: list[Message]) -> bytes:
        functions = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in NAMES]
        return json.dumps({"model": "m", "messages": messages, "tools": functions}).encode()

    def user(self, text: str) -> Message:
        return {"role": "user", "content": text}

    def answer(self, text: str, *calls: Calling) -> bytes:
        message = {"role": "assistant", "content": text, "refusal": None, "vendor": {"trace": 1.10}}
        if calls:
            message["tool_calls"] = [self._call(one) for one in calls]
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        return json.dumps({"id": "c-1", "object": "chat.completion", "model": "m", "choices": [choice]}).encode()

    def _call(self, one: Calling) -> Message:
        spelled = json.dumps(one.arguments)
        return {"id": one.call_id, "type": "function", "function": {"name": one.name, "arguments": spelled}}

    def said(self, answer: bytes) -> list[Message]:
        """What an agent sends back of an answer."""
        message = json.loads(answer)["choices"][0]["message"]
        kept = ("role", "content", "tool_calls")
        return [{name: message[name] for name in kept if message.get(name) is not None}]

    def results(self, *results: tuple[Calling, str]) -> list[Message]:
        return [{"role": "tool", "tool_call_id": call.call_id, "content": text} for call, text in results]

    def told(self, messages: list[Message]) -> list[tuple[str, str]]:
        """(call id, or its tool where it has none; text) of the results among messages."""
        return [(one["tool_call_id"], one["content"]) for one in messages if one["role"] == "tool"]

    def called(self, messages: list[Message]) -> list[tuple[str, Any]]:
        """(call id or tool, arguments) of the calls among messages."""
        calls = [call for one in messages for call in one.get("tool_calls") or ()]
        return [(call["id"], json.loads(call["function"]["arguments"])) for call in calls]


class Ollama(Chat):
    name, path = "ollama", "/api/chat"

    def ask(self, messages: list[Message]) -> bytes:
        return json.dumps(json.loads(super().ask(messages)) | {"stream": False}).encode()

    def answer(self, text: str, *calls: Calling) -> bytes:
        message: Message = {"role": "assistant", "content": text}
        if calls:
            functions = [{"name": one.name, "arguments": one.arguments} for one in calls]
            message["tool_calls"] = [{"function": one} for one in functions]
        return json.dumps({"model": "m", "message": message, "done": True, "done_reason": "stop"}).encode()

    def said(self, answer: bytes) -> list[Message]:
        return [json.loads(answer)["message"]]

    def results(self, *results: tuple[Calling, str]) -> list[Message]:
        return [{"role": "tool", "tool_name": call.name, "content": text} for call, text in results]

    def told(self, messages: list[Message]) -> list[tuple[str, str]]:
        return [(one["tool_name"], one["content"]) for one in messages if one["role"] == "tool"]

    def called(self, messages: list[Message]) -> list[tuple[str, Any]]:
        calls = [call["function"] for one in messages for call in one.get("tool_calls") or ()]
        return [(call["name"], call["arguments"]) for call in calls]


class Anthropic:
    name, path, field = "anthropic", "/v1/messages", "messages"

    def ask(self, messages: list[Message]) -> bytes:
        tools = [{"name": name, "input_schema": SCHEMA} for name in NAMES]
        return json.dumps({"model": "m", "max_tokens": 64, "messages": messages, "tools": tools}).encode()

    def user(self, text: str) -> Message:
        return {"role": "user", "content": text}

    def answer(self, text: str, *calls: Calling) -> bytes:
        blocks: list[Message] = [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}]
        blocks += [{"type": "text", "text": text}] if text else []
        blocks += [{"type": "tool_use", "id": one.call_id, "name": one.name, "input": one.arguments} for one in calls]
        whole = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": blocks}
        usage = {"input_tokens": 1, "output_tokens": 1}
        return json.dumps(whole | {"stop_reason": "tool_use" if calls else "end_turn", "usage": usage}).encode()

    def said(self, answer: bytes) -> list[Message]:
        return [{"role": "assistant", "content": json.loads(answer)["content"]}]

    def results(self, *results: tuple[Calling, str]) -> list[Message]:
        blocks = [{"type": "tool_result", "tool_use_id": call.call_id, "content": text} for call, text in results]
        return [{"role": "user", "content": blocks}]

    def _blocks(self, messages: list[Message], kind: str) -> list[Message]:
        lists = [one["content"] for one in messages if isinstance(one["content"], list)]
        return [block for blocks in lists for block in blocks if block["type"] == kind]

    def told(self, messages: list[Message]) -> list[tuple[str, str]]:
        return [(one["tool_use_id"], one["content"]) for one in self._blocks(messages, "tool_result")]

    def called(self, messages: list[Message]) -> list[tuple[str, Any]]:
        return [(one["id"], one["input"]) for one in self._blocks(messages, "tool_use")]


class Gemini:
    name, path, field = "gemini", "/v1beta/models/gemini-x:generateContent", "contents"

    def ask(self, messages: list[Message]) -> bytes:
        declared = [{"name": name, "parametersJsonSchema": SCHEMA} for name in NAMES]
        return json.dumps({"contents": messages, "tools": [{"functionDeclarations": declared}]}).encode()

    def user(self, text: str) -> Message:
        return {"role": "user", "parts": [{"text": text}]}

    def answer(self, text: str, *calls: Calling) -> bytes:
        parts: list[Message] = [{"text": text, "thoughtSignature": "c2ln"}] if text else []
        parts += [{"functionCall": {"name": one.name, "args": one.arguments}} for one in calls]
        candidate = {"content": {"parts": parts, "role": "model"}, "finishReason": "STOP", "index": 0}
        return json.dumps({"candidates": [candidate], "modelVersion": "gemini-x"}).encode()

    def said(self, answer: bytes) -> list[Message]:
        return [json.loads(answer)["candidates"][0]["content"]]

    def results(self, *results: tuple[Calling, str]) -> list[Message]:
        parts = [{"functionResponse": {"name": call.name, "response": {"output": text}}} for call, text in results]
        return [{"role": "user", "parts": parts}]

    def _parts(self, messages: list[Message], kind: str) -> list[Message]:
        return [part[kind] for one in messages for part in one["parts"] if kind in part]

    def told(self, messages: list[Message]) -> list[tuple[str, str]]:
        found = self._parts(messages, "functionResponse")
        return [(one["name"], " ".join(str(text) for text in one["response"].values())) for one in found]

    def called(self, messages: list[Message]) -> list[tuple[str, Any]]:
        return [(one["name"], one["args"]) for one in self._parts(messages, "functionCall")]


class Responses:
    name, path, field = "responses", "/v1/responses", "input"

    def ask(self, messages: list[Message], **more: Any) -> bytes:
        tools = [{"type": "function", "name": name, "parameters": SCHEMA} for name in NAMES]
        return json.dumps({"model": "m", "input": messages, "tools": tools, **more}).encode()

    def user(self, text: str) -> Message:
        return {"role": "user", "content": text}

    def answer(self, text: str, *calls: Calling, name: str = "resp_1") -> bytes:
        output: list[Message] = []
        if text:
            said = [{"type": "output_text", "text": text, "annotations": []}]
            output.append({"type": "message", "id": f"msg_{name}", "role": "assistant", "content": said})
            output[-1]["status"] = "completed"
        for one in calls:
            called = {"type": "function_call", "id": f"fc_{name}_{one.call_id}", "call_id": one.call_id}
            output.append({**called, "name": one.name, "arguments": json.dumps(one.arguments)})
        whole = {"id": name, "object": "response", "status": "completed", "model": "m", "output": output}
        return json.dumps(whole).encode()

    def said(self, answer: bytes) -> list[Message]:
        return list(json.loads(answer)["output"])

    def results(self, *results: tuple[Calling, str]) -> list[Message]:
        kind = "function_call_output"
        return [{"type": kind, "call_id": call.call_id, "output": text} for call, text in results]

    def told(self, messages: list[Message]) -> list[tuple[str, str]]:
        kind = "function_call_output"
        return [(one["call_id"], one["output"]) for one in messages if one.get("type") == kind]

    def called(self, messages: list[Message]) -> list[tuple[str, Any]]:
        calls = [one for one in messages if one.get("type") == "function_call"]
        return [(one["call_id"], json.loads(one["arguments"])) for one in calls]


Wire = Chat | Anthropic | Gemini | Responses
WIRES: tuple[Wire, ...] = (Chat(), Ollama(), Anthropic(), Gemini(), Responses())
