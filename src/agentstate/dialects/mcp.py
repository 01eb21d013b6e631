"""Owns the Model Context Protocol's JSON-RPC messages: which one is a tool call, how it is sent and answered. Pure.

Must not know HTTP. Invariant: what is not understood beyond doubt is refused, never taken for something harmless: a
message that two parsers could read differently, a batch with a call in it. Arguments and results are handed on as they
were spelled.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from agentstate.core.effects import Hints
from agentstate.core.model import Call
from agentstate.dialects import sse
from agentstate.dialects.base import canonical, digest_of
from agentstate.dialects.concealing import conceal
from agentstate.errors import AgentStateError, BadRequest

NAME = "mcp"
CALL = "tools/call"
LIST = "tools/list"
CANCELLED = "notifications/cancelled"
KEY_META = "io.agentstate/idempotency-key"
PARAM_HEADER = "mcp-param-"
_VERSION_META = "io.modelcontextprotocol/protocolVersion"
_INTERNAL = -32603  # the only code of JSON-RPC that is left for faults of a server
_INVALID = -32600
_MOST_DEPTH = 20  # of the schema that is searched for header annotations
_SAFE_HEADER = re.compile(r"[\x20-\x7e]*")

_ENVELOPE = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})
_PARAMS = frozenset({"name", "arguments", "_meta", "task"})

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Message(NamedTuple):
    """What a client posts. ``method``: empty for an answer of the client's own; ``name`` and ``arguments``: of a tool
    call. ``token``: under which it wants progress; ``None``: it does not; ``stateless``: it speaks a revision without
    sessions, in which every result names its type. ``cancels``: the id of the request that is not waited for any more;
    ``None``: it says no such thing."""

    body: bytes
    method: str
    id: Any = None
    name: str = ""
    arguments: dict[str, Any] = {}  # noqa: RUF012 - never changed
    token: str | int | None = None
    stateless: bool = False
    cancels: str | int | float | None = None

    @property
    def is_call(self) -> bool:
        return self.method == CALL and self.id is not None


class Offered(NamedTuple):
    """A tool as its server lists it. ``schema``: of its arguments, JSON text; ``output``: of what its results hold for
    programs; ``None``: they need not hold anything."""

    name: str
    hints: Hints = Hints()
    schema: str = ""
    output: dict[str, Any] | None = None


def read(body: bytes) -> Message:
    """Raises ``BadRequest`` for what is no message, or holds a call that cannot be told apart."""
    value = _strict(body)
    for part in value if isinstance(value, list) else [value]:
        if isinstance(part, dict):
            _check_spelling(part, _ENVELOPE, "a JSON-RPC message")
    if isinstance(value, list):
        if any(isinstance(part, dict) and part.get("method") == CALL for part in value) or not value:
            raise BadRequest("tool calls in a batch are not taken; send each in a request of its own")
        return Message(body, "")
    if not isinstance(value, dict):
        raise BadRequest("the body must be a JSON-RPC message")
    method = value.get("method", "")
    if not isinstance(method, str):
        raise BadRequest("the method of a JSON-RPC message must be a text")
    if method == CANCELLED and isinstance(value.get("params"), dict):
        ident = value["params"].get("requestId")
        known = ident if isinstance(ident, str | int | float) and not isinstance(ident, bool) else None
        return Message(body, method, value.get("id"), cancels=known)
    if method != CALL:
        return Message(body, method, value.get("id"))
    return _call(body, value)


def check_encoding(headers: Iterable[tuple[str, str]]) -> None:
    """A message is read as plain UTF-8. Raises ``BadRequest`` where its server is told to read it as something else."""
    for name, value in headers:
        low, told = name.lower(), value.lower()
        charset = told.partition("charset=")[2].partition(";")[0].strip().strip('"')
        if low == "content-encoding" and told.strip() not in ("", "identity"):
            raise BadRequest(f"content-encoding is {value[:40]!r}; send the message as it is")
        if low == "content-type" and charset not in ("", "utf-8", "utf8", "us-ascii"):
            raise BadRequest(f"the charset of the message is {charset[:40]!r}; send it in utf-8")


def _call(body: bytes, value: dict[str, Any]) -> Message:
    ident, params = value.get("id"), value.get("params")
    if isinstance(ident, bool) or not isinstance(ident, str | int | float):
        raise BadRequest("a tool call needs an id; without one its result could not be told")
    if not isinstance(params, dict) or not isinstance(params.get("name"), str) or not params["name"]:
        raise BadRequest("a tool call needs params with the name of a tool")
    _check_spelling(params, _PARAMS, "a tool call")
    arguments = params.get("arguments")
    if arguments is not None and not isinstance(arguments, dict):
        raise BadRequest("the arguments of a tool call must be an object")
    meta = params.get("_meta")
    if meta is not None and not isinstance(meta, dict):
        raise BadRequest("the _meta of a tool call must be an object")
    token = (meta or {}).get("progressToken")
    known = token if isinstance(token, str | int) and not isinstance(token, bool) else None
    return Message(body, CALL, ident, params["name"], arguments or {}, known, _VERSION_META in (meta or {}))


def _check_spelling(members: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    """Some parsers know a member in any case, and in letters that only look so. Raises ``BadRequest`` for what such a
    one would take for a member that it is not."""
    for name in members:
        if name not in known and name.casefold() in known:
            raise BadRequest(f"{what} has no member {name[:40]!r}; did you mean {name.casefold()}?")


def _strict(body: bytes) -> Any:
    """The value of a text that every parser reads alike."""
    try:
        text = body.decode("utf-8")
        if text.startswith("\ufeff"):
            raise ValueError("it begins with a byte order mark")
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant, parse_float=_finite)
        if isinstance(value, dict):
            _fields.decode(body)
        return value
    except RecursionError:
        raise BadRequest("the message is nested too deeply") from None
    except (ValueError, msgspec.DecodeError) as error:
        raise BadRequest(f"the body is not a JSON-RPC message: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("an object names a member twice")
    return made


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text[:40]} is out of range")
    return value


def parse(method: str, path: str, body: bytes) -> Call:
    """A tool call as a step. Everything that it asks counts but ``_meta``, which speaks of the transport."""
    message = read(body)
    if not message.is_call:
        raise BadRequest("this is no tool call")
    return call_of(method, path, message)


def call_of(method: str, path: str, message: Message) -> Call:
    """The same of a message that was read already."""
    params = json.loads(message.body)["params"]
    asked = {name: part for name, part in params.items() if name not in ("_meta", "arguments") and part is not None}
    asked["arguments"] = message.arguments
    frame = digest_of((b"tools/call", canonical(asked)))
    kept, secrets = _kept(message.body)
    return Call(NAME, method, path, kept, frame, model=message.name, secrets=secrets)


def _kept(body: bytes) -> tuple[bytes, tuple[bytes, ...]]:
    """(a call as it may be kept, the credentials in it). They may stand in what speaks of the transport; arguments are
    data, in which nothing is called a credential."""
    message = _fields.decode(body)
    params = _fields.decode(message["params"])
    if not _given(params, "_meta"):
        return body, ()
    meta = bytes(params["_meta"])
    kept, secrets = conceal(meta)
    if kept == meta:
        return body, ()
    changed: dict[str, Any] = dict(params) | {"_meta": msgspec.Raw(kept)}
    return msgspec.json.encode(dict(message) | {"params": changed}), secrets


def sent(body: bytes, key: str, edited: str | None = None) -> bytes:
    """A call as the server is sent it: with its key, and with the arguments that a person gave it where there are."""
    message = _fields.decode(body)
    params = _fields.decode(message["params"])
    meta: dict[str, Any] = dict(_fields.decode(params["_meta"])) if _given(params, "_meta") else {}
    changed: dict[str, Any] = dict(params)
    changed["_meta"] = meta | {KEY_META: key}
    if edited is not None:
        changed["arguments"] = msgspec.Raw(edited.encode())
    return msgspec.json.encode(dict(message) | {"params": changed})


def _given(params: Mapping[str, msgspec.Raw], name: str) -> bool:
    return name in params and bytes(params[name]).strip() != b"null"


def param_headers(schema: str, arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The headers in which the schema wants arguments repeated (``x-mcp-header``)."""
    found: list[tuple[str, str]] = []

    def walk(node: Any, value: Any, depth: int) -> None:
        properties = node.get("properties") if isinstance(node, dict) else None
        if not isinstance(properties, dict) or not isinstance(value, Mapping) or depth > _MOST_DEPTH:
            return
        for name, part in properties.items():
            given = value.get(name)
            token = part.get("x-mcp-header") if isinstance(part, dict) else None
            if isinstance(token, str) and isinstance(given, str | int):
                text = str(given).lower() if isinstance(given, bool) else str(given)
                found.append((PARAM_HEADER + token.lower(), _header(text)))
            walk(part, given, depth + 1)

    walk(json.loads(schema) if schema else {}, arguments, 0)
    return found


def _header(text: str) -> str:
    plain = _SAFE_HEADER.fullmatch(text) and text == text.strip() and not text.startswith("=?base64?")
    return text if plain else f"=?base64?{base64.b64encode(text.encode()).decode()}?="


# --- answers ---


def outcome_of(message: bytes, ident: Any) -> bytes | None:
    """What a server's message says about the request ``ident``, as it is kept: ``{"result": …}`` or ``{"error": …}``.
    ``None``: it is no answer to it. Raises ``ValueError`` for what is no JSON-RPC message."""
    try:
        fields = _fields.decode(message)
        told = msgspec.json.decode(fields["id"]) if "id" in fields else None
        if "method" in fields or not _same(told, ident, "error" in fields):
            return None
        for name in ("result", "error"):
            if name in fields:
                if not isinstance(msgspec.json.decode(fields[name]), dict):
                    raise ValueError(f"its {name} is no object")
                return msgspec.json.encode({name: fields[name]})
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return None


def _same(told: Any, ident: Any, error: bool) -> bool:
    """Whether an answer's id is that of the request; an error may have none."""
    return (told == ident and type(told) is type(ident)) or (told is None and error)


def failed(outcome: bytes) -> bool:
    """Whether a kept outcome says that the tool did not do what it was asked."""
    value = msgspec.json.decode(outcome)
    return "error" in value or value["result"].get("isError") is True


def response(message: Message, outcome: bytes) -> bytes:
    """A kept outcome as the answer to a request, whichever revision it was recorded under."""
    if message.stateless:
        kept = _fields.decode(outcome)
        if "result" in kept and "resultType" not in (result := _fields.decode(kept["result"])):
            outcome = msgspec.json.encode({"result": result | {"resultType": msgspec.Raw(b'"complete"')}})
    return b'{"jsonrpc":"2.0","id":' + msgspec.json.encode(message.id) + b"," + outcome[1:]


def refusal(text: str) -> bytes:
    """The outcome of a call that was not made: a result that the model can read. An error of the protocol would end
    some agents."""
    content = [{"type": "text", "text": text}]
    return msgspec.json.encode({"result": {"content": content, "isError": True, "resultType": "complete"}})


def of_person(tool: str, value: Any, output: dict[str, Any] | None = None) -> bytes:
    """The outcome of a call that ran, as a person or a probe knows it: a whole result where it looks like one, else its
    content. ``value`` ``None``: not known. ``output``: as in ``Offered``; clients refuse results that do not have it.
    """
    if isinstance(value, dict) and isinstance(value.get("content"), list):
        return msgspec.json.encode({"result": value})
    if value is None:
        value, known = f"The call of {tool} ran; its result is not known.", False
    else:
        known = True
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": False, "resultType": "complete"}
    if isinstance(value, dict):
        result["structuredContent"] = value
    elif output is not None and known and list(output.get("properties") or ()) == ["result"]:
        result["structuredContent"] = {"result": value}
    elif output is not None:
        result["isError"] = True  # the only kind of result of such a tool that may hold a text alone
    return msgspec.json.encode({"result": result})


def error(ident: Any, fault: AgentStateError) -> bytes:
    """An error of ours as the answer to the request ``ident``."""
    code = _INVALID if fault.status in (400, 413) else _INTERNAL
    told = {"code": code, "message": fault.message, "data": {"code": fault.code, **fault.detail}}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": ident, "error": told})


def event(message: bytes) -> bytes:
    """A message as an event of a stream."""
    return b"event: message\ndata: " + message + b"\n\n"


def progress(token: str | int, number: int, text: str) -> bytes:
    """News of a call that waits. Its numbers are far below those by which a tool would tell of its own progress."""
    params = {"progressToken": token, "progress": number * 1e-6, "message": text}
    message = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
    return event(msgspec.json.encode(message))


def structured(outcome: bytes) -> Any:
    """What a result holds for programs: its structured content, else its text as JSON; ``None``: neither."""
    result = msgspec.json.decode(outcome).get("result") or {}
    if result.get("isError"):
        return None
    if "structuredContent" in result:
        return result["structuredContent"]
    texts = [part.get("text") for part in result.get("content") or () if isinstance(part, dict)]
    try:
        return json.loads(texts[0]) if texts and isinstance(texts[0], str) else None
    except ValueError:
        return None


def offered(answer: bytes, streamed: bool) -> Iterator[Offered]:
    """The tools that an answer to `tools/list` lists; nothing where it is something else."""
    for raw in _messages(answer, streamed):
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError):
            continue
        result = value.get("result") if isinstance(value, dict) else None
        tools = result.get("tools") if isinstance(result, dict) else None
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                schema, output = tool.get("inputSchema"), tool.get("outputSchema")
                yield Offered(
                    tool["name"], _hints(tool.get("annotations")), json.dumps(schema) if schema else "",
                    output if isinstance(output, dict) else None,
                )  # fmt: skip


def _messages(answer: bytes, streamed: bool) -> Iterator[bytes]:
    if not streamed:
        yield answer
        return
    for raw in sse.events(answer):
        data = sse.data_of(raw)
        if data:
            yield data


def _hints(annotations: Any) -> Hints:
    if not isinstance(annotations, dict):
        return Hints()
    said = [annotations.get(name) for name in ("readOnlyHint", "idempotentHint", "destructiveHint")]
    return Hints(*[value if isinstance(value, bool) else None for value in said])
