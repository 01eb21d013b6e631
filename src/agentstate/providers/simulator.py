"""Owns the scripted model: a provider without network, key or bill, for the demo, for tests and for trying things out.

Must not read a clock, roll dice or keep anything between calls: the answer is a function of the request alone, and the
caller decides how long it takes. Invariant: equal requests (``stream`` and ``stream_options`` aside) get equal answers
with equal ids, different requests get different ids; so an agent that asks the very same thing twice gets one id twice.

How it plays a model, stated so that tests and agents can count on it:

* Offered tools, it calls one a turn until ``t`` tool results are in the conversation, then it answers with text. Tools
  take turns in the order offered; arguments are made to fit the tool's JSON schema, its ``examples`` first.
* Knobs are read off the end of the model's name, in any order: ``-t11`` tool results wanted (2), ``-p2`` calls a turn
  (1; ``parallel_tool_calls: false`` forces 1), ``-c20`` pieces a streamed answer is cut into (8), ``-e429`` answer with
  that error status. The answer names the model without its knobs, so ``gpt-4o-mini-t11`` has a known price.
* Tokens: one for every 4 bytes of UTF-8, rounded up; the prompt is ``messages`` and the tools as canonical JSON, the
  completion is the text, or the names and arguments of the calls. ``max_tokens`` cuts text at 4 bytes a token.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
import re
import struct
from dataclasses import dataclass
from typing import Any

import msgspec

from agentstate.providers.simulator_schema import fit

MODELS = ("simulated", "gpt-4o", "gpt-4o-mini", "text-embedding-3-small", "omni-moderation-latest")
CREATED = 1_700_000_000  # every answer says it was made then: a clock would make equal requests differ
DIMENSIONS = 1536  # what text-embedding-3-small gives when not told otherwise
_JSON = ("content-type", "application/json")
_SSE = ("content-type", "text/event-stream; charset=utf-8")
_KNOB = re.compile(r"-([tpc](?=\d{1,4}$)|e(?=[45]\d\d$))(\d+)$")
_KINDS = ("function", "custom")
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_ERRORS = {
    401: ("authentication_error", "invalid_api_key"),
    403: ("permission_error", "forbidden"),
    404: ("invalid_request_error", "not_found"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}
_CATEGORIES = ("harassment", "hate", "illicit", "self-harm", "sexual", "violence")


@dataclass(frozen=True, slots=True)
class Simulated:
    """An answer: HTTP status, headers, and the body. One chunk is a plain body; a stream has one chunk an SSE event."""

    status: int
    headers: tuple[tuple[str, str], ...]
    chunks: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class _Knobs:
    model: str
    results: int = 2
    parallel: int = 1
    pieces: int | None = None


@dataclass(frozen=True, slots=True)
class _Call:
    id: str
    kind: str  # "function" | "custom" | "legacy"
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class _Choice:
    text: str | None
    calls: tuple[_Call, ...]
    finish: str

    def size(self) -> int:
        return len((self.text or "").encode()) + sum(len((call.name + call.text).encode()) for call in self.calls)


class _RefusedError(Exception):
    """The request is one that a provider would answer with an error."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        kind, usual = _ERRORS.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code or usual}}


def answer(method: str, path: str, body: bytes) -> Simulated:
    """The answer to an OpenAI-dialect request. ``path`` with or without ``/v1`` and query. Never raises.

    Knows ``/chat/completions``, ``/embeddings``, ``/moderations`` and ``/models``; anything else is a 404 in
    OpenAI's error shape, bad input a 400.
    """
    seed = hashlib.sha256(b"\0".join((method.encode(), path.encode("utf-8", "surrogatepass"), body))).hexdigest()
    try:
        return _route(method.upper(), "/" + path.split("?")[0].strip("/").removeprefix("v1").strip("/"), body, seed)
    except _RefusedError as refused:
        return _plain(refused.body, seed, refused.status)


def _route(method: str, path: str, body: bytes, seed: str) -> Simulated:
    if path == "/models" or path.startswith("/models/"):
        _expect(method, "GET", path)
        return _plain(_models(path.removeprefix("/models").strip("/")), seed)
    handler = {"/chat/completions": _chat, "/embeddings": _embeddings, "/moderations": _moderations}.get(path)
    if handler is None:
        raise _RefusedError(404, f"The simulator does not know {path}.", code="unknown_url")
    _expect(method, "POST", path)
    request = _decoded(body)
    seed = _digest(path, {key: value for key, value in request.items() if key not in ("stream", "stream_options")})
    return handler(request, _knobs(request, path), seed)


def _expect(method: str, wanted: str, path: str) -> None:
    if method != wanted:
        raise _RefusedError(405, f"{path} takes {wanted}, not {method}.", code="method_not_allowed")


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        request = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _RefusedError(400, f"The body is not readable JSON: {error}.", code="invalid_json") from error
    if not isinstance(request, dict):
        raise _RefusedError(400, "The body must be a JSON object.", code="invalid_json")
    return request


def _knobs(request: dict[str, Any], path: str) -> _Knobs:
    name = request.get("model") or ("omni-moderation-latest" if path == "/moderations" else None)
    if not isinstance(name, str):
        raise _RefusedError(
            400, "You must provide a model parameter.", param="model", code="missing_required_parameter"
        )
    found: dict[str, int] = {}
    while match := _KNOB.search(name):
        found.setdefault(match[1], int(match[2]))
        name = name[: match.start()]
    if status := found.get("e"):
        raise _RefusedError(status, f"The model's name asked for status {status}.")
    return _Knobs(name, found.get("t", 2), max(1, found.get("p", 1)), found.get("c"))


# --- chat completions ---


def _chat(request: dict[str, Any], knobs: _Knobs, seed: str) -> Simulated:
    messages = _messages(request)
    count = request.get("n")
    if count is None:
        count = 1
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 128:
        raise _RefusedError(400, "'n' must be an integer from 1 to 128.", param="n", code="invalid_value")
    choices = [_choice(request, messages, knobs, _digest(seed, index)) for index in range(count)]
    tools = [request[key] for key in ("tools", "functions") if request.get(key)]
    usage = _usage(len(_canonical([messages, *tools])), sum(choice.size() for choice in choices))
    if request.get("stream"):
        return Simulated(200, (_SSE, _request_id(seed)), tuple(_stream(request, choices, usage, knobs, seed)))
    shown = [
        {"index": index, "message": _message(choice), "logprobs": None, "finish_reason": choice.finish}
        for index, choice in enumerate(choices)
    ]
    return _plain(_envelope("chat.completion", knobs, seed) | {"choices": shown, "usage": usage}, seed)


def _messages(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The checked messages: known roles, and each tool result answers exactly one call of the turn before it."""
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _RefusedError(400, "'messages' must be a list that is not empty.", param="messages", code="empty_array")
    unanswered: set[str] = set()
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, dict) or str(message.get("role")) not in _ROLES:
            raise _RefusedError(400, f"'{where}.role' must be one of {', '.join(sorted(_ROLES))}.", param=where)
        if message["role"] == "tool":
            if str(message.get("tool_call_id")) not in unanswered:
                raise _RefusedError(400, f"'{where}.tool_call_id' answers no call of the turn before it.", param=where)
            unanswered.discard(str(message["tool_call_id"]))
            continue
        if unanswered:
            missing = ", ".join(sorted(unanswered))
            raise _RefusedError(400, f"Before '{where}' results are missing for the tool calls {missing}.", param=where)
        if message["role"] == "assistant":
            unanswered = {str(call.get("id")) for call in _dicts(message.get("tool_calls"))}
        elif message.get("content") is None:
            raise _RefusedError(400, f"'{where}.content' is missing.", param=where, code="missing_required_parameter")
    if unanswered:
        missing = ", ".join(sorted(unanswered))
        raise _RefusedError(400, f"Results are missing for the tool calls {missing}.", param="messages")
    return messages


def _choice(request: dict[str, Any], messages: list[dict[str, Any]], knobs: _Knobs, seed: str) -> _Choice:
    results = sum(message["role"] in ("tool", "function") for message in messages)
    calls, finish = _calls(request, messages, knobs, seed, results)
    if calls:
        return _Choice(None, calls, finish)
    text = _structured(request, seed)
    if text is None:
        text = f"Simulated answer {seed[:8]} to “{_quote(messages)}” after {results} tool results."
        text += "".join(f" word{number}" for number in range(0 if knobs.pieces is None else knobs.pieces // 4))
    limit = request.get("max_completion_tokens") or request.get("max_tokens")
    if isinstance(limit, int) and len(text.encode()) > 4 * limit > 0:
        return _Choice(text.encode()[: 4 * limit].decode(errors="ignore"), (), "length")
    return _Choice(text, (), "stop")


def _calls(
    request: dict[str, Any], messages: list[dict[str, Any]], knobs: _Knobs, seed: str, results: int
) -> tuple[tuple[_Call, ...], str]:
    """The calls of this turn and the finish reason that goes with them; no calls when the turn is one of text."""
    legacy = not request.get("tools") and bool(request.get("functions"))
    offered = _offered(request, legacy)
    mode, names, named = _wanted(request.get("function_call" if legacy else "tool_choice"), offered)
    offered = [tool for tool in offered if tool[1] in names]
    if not offered or mode == "none" or (mode == "auto" and results >= knobs.results):
        return (), "stop"
    count = 1 if legacy or named or request.get("parallel_tool_calls") is False else knobs.parallel
    if mode == "auto":
        count = min(count, knobs.results - results)
    turn = sum(message["role"] == "assistant" for message in messages)
    calls = []
    for index in range(count):
        kind, name, schema = offered[(turn + index) % len(offered)]
        digest = _digest(seed, index)
        text = f"input {digest[:8]}" if kind == "custom" else _canonical(fit(schema, digest)).decode()
        calls.append(_Call(f"call_{digest[:24]}", kind, name, text))
    # A call forced by name finishes with `stop` at the real provider too (recorded 2025-09), and clients must cope.
    return tuple(calls), "stop" if named else "function_call" if legacy else "tool_calls"


def _offered(request: dict[str, Any], legacy: bool) -> list[tuple[str, str, dict[str, Any]]]:
    """Offered tools as (kind, name, schema)."""
    if legacy:
        rows = [("legacy", tool) for tool in _dicts(request["functions"])]
    else:
        rows = [(kind, tool[kind]) for tool in _dicts(request.get("tools")) for kind in _KINDS if kind in tool]
    found = []
    for kind, tool in rows:
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            raise _RefusedError(400, "Every tool needs a name.", param="functions" if legacy else "tools")
        schema = tool.get("parameters")
        found.append((kind, tool["name"], schema if isinstance(schema, dict) else {"type": "object"}))
    return found


def _wanted(choice: Any, offered: list[tuple[str, str, dict[str, Any]]]) -> tuple[str, set[str], bool]:
    """What ``tool_choice`` asks for: mode (none, auto, required), the tools allowed, and whether one was named."""
    every = {name for _, name, _ in offered}
    if not isinstance(choice, dict):
        return (choice if choice in ("none", "required") else "auto"), every, False
    if choice.get("type") == "allowed_tools":
        allowed = _dict(choice.get("allowed_tools"))
        names = {_name_of(tool) for tool in _dicts(allowed.get("tools"))}
        return ("required" if allowed.get("mode") == "required" else "auto"), every & names, False
    name = _name_of(choice)
    if name not in every:
        raise _RefusedError(400, f"The tool '{name}' that tool_choice names is not offered.", param="tool_choice")
    return "required", {name}, True


def _name_of(tool: dict[str, Any]) -> str:
    inner = _dict(tool.get(str(tool.get("type"))))
    return str((inner or tool).get("name", ""))


def _structured(request: dict[str, Any], seed: str) -> str | None:
    wanted = _dict(request.get("response_format"))
    kind = wanted.get("type")
    if kind == "json_object":
        return _canonical({"answer": f"simulated {seed[:8]}"}).decode()
    if kind != "json_schema":
        return None
    schema = _dict(wanted.get("json_schema")).get("schema")
    if not isinstance(schema, dict):
        raise _RefusedError(400, "'response_format.json_schema.schema' is missing.", param="response_format")
    return _canonical(fit(schema, seed)).decode()


def _quote(messages: list[dict[str, Any]]) -> str:
    """The first 60 characters of what the user said last."""
    content = next((message["content"] for message in reversed(messages) if message["role"] == "user"), "")
    if isinstance(content, list):
        content = " ".join(str(part.get("text", "")) for part in _dicts(content))
    return " ".join(str(content).split())[:60]


def _message(choice: _Choice) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": choice.text, "refusal": None, "annotations": []}
    if choice.calls and choice.calls[0].kind == "legacy":
        message["function_call"] = {"name": choice.calls[0].name, "arguments": choice.calls[0].text}
    elif choice.calls:
        message["tool_calls"] = [_shown(call, call.text) | {"id": call.id} for call in choice.calls]
    return message


def _shown(call: _Call, text: str) -> dict[str, Any]:
    field = "input" if call.kind == "custom" else "arguments"
    return {"type": call.kind, call.kind: {"name": call.name, field: text}}


def _stream(
    request: dict[str, Any], choices: list[_Choice], usage: dict[str, Any], knobs: _Knobs, seed: str
) -> list[bytes]:
    """One SSE event a chunk: role, pieces and finish reason, choice by choice; then usage if asked for; then [DONE]."""
    counted = bool(_dict(request.get("stream_options")).get("include_usage"))
    head = _envelope("chat.completion.chunk", knobs, seed)
    events = []
    for index, choice in enumerate(choices):
        deltas = [*_deltas(choice, knobs.pieces or 8), {}]
        for number, delta in enumerate(deltas):
            finish = choice.finish if number == len(deltas) - 1 else None
            shown = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
            events.append(head | {"choices": [shown]} | ({"usage": None} if counted else {}))
    if counted:
        events.append(head | {"choices": [], "usage": usage})
    return [b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events] + [b"data: [DONE]\n\n"]


def _deltas(choice: _Choice, pieces: int) -> list[dict[str, Any]]:
    first: dict[str, Any] = {"role": "assistant", "content": None if choice.calls else "", "refusal": None}
    deltas = [first]
    for number, call in enumerate(choice.calls):
        if call.kind == "legacy":
            deltas.append({"function_call": {"name": call.name, "arguments": ""}})
            deltas += [{"function_call": {"arguments": piece}} for piece in _cut(call.text, pieces)]
            continue
        field = "input" if call.kind == "custom" else "arguments"
        deltas.append({"tool_calls": [{"index": number, "id": call.id} | _shown(call, "")]})
        deltas += [{"tool_calls": [{"index": number, call.kind: {field: part}}]} for part in _cut(call.text, pieces)]
    return deltas + [{"content": piece} for piece in _cut(choice.text or "", pieces)]


def _cut(text: str, pieces: int) -> list[str]:
    """``text`` in ``pieces`` parts of nearly equal length; in fewer where it has fewer characters."""
    count = min(max(1, pieces), len(text))
    edges = [len(text) * number // count for number in range(count + 1)] if count else [0]
    return [text[start:end] for start, end in itertools.pairwise(edges)]


# --- embeddings, moderations, models ---


def _embeddings(request: dict[str, Any], knobs: _Knobs, seed: str) -> Simulated:
    given = request.get("input")
    if isinstance(given, str) or (isinstance(given, list) and given and isinstance(given[0], int)):
        given = [given]
    if not isinstance(given, list) or not given or not all(isinstance(item, (str, list)) and item for item in given):
        raise _RefusedError(400, "'input' must be text or tokens, or a list of them, not empty.", param="input")
    size = request.get("dimensions")
    if size is None:
        size = DIMENSIONS
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= 8192:
        raise _RefusedError(400, "'dimensions' must be an integer from 1 to 8192.", param="dimensions")
    packed = request.get("encoding_format") == "base64"
    rows = []
    for index, item in enumerate(given):
        vector = _vector(_digest(knobs.model, item), size)
        shown = base64.b64encode(struct.pack(f"<{size}f", *vector)).decode() if packed else vector
        rows.append({"object": "embedding", "index": index, "embedding": shown})
    tokens = sum(math.ceil(len(item.encode()) / 4) if isinstance(item, str) else len(item) for item in given)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return _plain({"object": "list", "data": rows, "model": knobs.model, "usage": usage}, seed)


def _vector(seed: str, size: int) -> list[float]:
    """A direction of length 1 that depends on ``seed`` alone: equal texts are near, others are about orthogonal."""
    raw = struct.unpack(f"<{size}h", hashlib.shake_256(seed.encode()).digest(2 * size))
    length = math.sqrt(sum(number * number for number in raw)) or 1.0
    return [number / length for number in raw]


def _moderations(request: dict[str, Any], knobs: _Knobs, seed: str) -> Simulated:
    given = request.get("input")
    if not isinstance(given, (str, list)) or not given:
        raise _RefusedError(400, "'input' must be text or a list, not empty.", param="input")
    clean = {
        "flagged": False,
        "categories": dict.fromkeys(_CATEGORIES, False),
        "category_scores": dict.fromkeys(_CATEGORIES, 0.0001),
    }
    results = [clean] * (1 if isinstance(given, str) or isinstance(given[0], dict) else len(given))
    return _plain({"id": f"modr-{seed[:24]}", "model": knobs.model, "results": results}, seed)


def _models(name: str) -> dict[str, Any]:
    if not name:
        return {"object": "list", "data": [_models(model) for model in MODELS]}
    return {"id": name, "object": "model", "created": CREATED, "owned_by": "simulator"}


# --- shared ---


def _plain(body: dict[str, Any], seed: str, status: int = 200) -> Simulated:
    return Simulated(status, (_JSON, _request_id(seed)), (msgspec.json.encode(body),))


def _request_id(seed: str) -> tuple[str, str]:
    return "x-request-id", f"req_{seed[:32]}"


def _envelope(kind: str, knobs: _Knobs, seed: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{seed[:29]}",
        "object": kind,
        "created": CREATED,
        "model": knobs.model,
        "service_tier": "default",
        "system_fingerprint": "fp_simulated",
    }


def _usage(prompt_bytes: int, completion_bytes: int) -> dict[str, Any]:
    prompt, completion = math.ceil(prompt_bytes / 4), math.ceil(completion_bytes / 4)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _canonical(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _digest(*parts: Any) -> str:
    return hashlib.sha256(_canonical(parts)).hexdigest()
