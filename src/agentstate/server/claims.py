"""Owns the agent plane's addresses of claims: ``/tools/NAME/…`` for functions, ``/mcp/NAME/…`` for servers over stdio.
Must not decide anything.

Invariant: every answer is a JSON object with a ``state``; a call is made by its process only after ``claimed``.
"""

from __future__ import annotations

import json
import re
from functools import partial
from hashlib import sha256
from typing import Any
from urllib.parse import unquote

import msgspec

from agentstate.core import fingerprint
from agentstate.core.effects import Hints, Holder
from agentstate.core.model import ApprovalKind, Outcome
from agentstate.dialects import function, mcp
from agentstate.dialects.concealing import scrubbed
from agentstate.engine.asked_call import AskedCall, Leave
from agentstate.engine.claims import Claims, Held, Report
from agentstate.engine.readers import left
from agentstate.engine.request import Answer, Request
from agentstate.engine.tools import Tools
from agentstate.errors import BadRequest
from agentstate.providers.client import Headers

_WAIT_S = 20.0  # how long a process is kept waiting before it asks again; below the shortest read timeout in use
_VERBS = ("claim", "result")
_PROCESS = re.compile(r"\d{1,10}:\d{1,20}")
_HINTS = {"read": Hints(read_only=True), "idempotent": Hints(idempotent=True), "once": Hints()}
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def is_claim(request: Request) -> bool:
    """Whether a request is for these addresses."""
    parts = request.normal.split("/")
    return bool(request.session) and len(parts) == 3 and parts[0] in ("tools", "mcp") and parts[2] in _VERBS


class ClaimPlane:
    """One for each serving process."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._claims = Claims(tools.parts, tools)

    async def answer(self, request: Request) -> Answer:
        """Raises ``AgentStateError``."""
        kind, name, verb = request.normal.split("/")
        if request.method != "POST":
            raise BadRequest(f"{request.method} is not offered here; use POST")
        said = _object(request.body)
        if verb == "result":
            await self._claims.report(request, _report(said, request.body))
            return _told({"state": "done"})
        asked = await self._asked(request, kind, unquote(name), said)
        got = await self._claims.claim(asked, _WAIT_S)
        if isinstance(got, Held):
            return _told(_held(got))
        if isinstance(got, Leave):
            begun, edited = got.begun, got.edited
            self._tools.parts.insight.claimed(begun.step, request.headers)
            told = {"state": "claimed", "step": begun.step, "attempt": begun.attempt, "key": got.key,
                    "arguments": None if edited is None else json.loads(edited)}  # fmt: skip
            return _told(told, asked, begun.number)
        run, step, connection = asked.run.id, got.step, request.connection
        self._tools.parts.floating.reads(run, step, request.retry)
        answer = _told({"state": "done", "outcome": msgspec.Raw(got.outcome)}, asked, got.number)
        answer.close = partial(left, self._tools.parts, run, step, None, connection)
        return answer

    async def _asked(self, request: Request, kind: str, name: str, said: dict[str, Any]) -> AskedCall:
        process, sending = _text(said, "process"), _text(said, "sending")
        agent = said.get("agent")
        if request.connection.local and isinstance(agent, str) and _PROCESS.fullmatch(agent):
            request.connection.speaks_as(agent)
        request = request._replace(retry=_count(said, "retry"), retry_key=sha256(sending.encode()).digest())
        message = None
        if kind == "mcp":
            message = mcp.read(_text(said, "message").encode())
            if not message.is_call:
                raise BadRequest("message must be a tool call")
            call, tool, arguments = mcp.call_of("POST", f"mcp/{name}", message), message.name, message.arguments
        else:
            tool, arguments = name, _arguments(said)
            call = function.parse("POST", f"tools/{name}", function.body_of(arguments))
        print_ = fingerprint.of(call)
        session, run = await self._tools.whose(request, print_)
        owner = await request.connection.owner() if request.connection.local else ""
        schema, output = said.get("schema"), said.get("output")
        return AskedCall(
            request, call, print_, session, run, name if message is not None else "", tool, arguments, _hints(said),
            json.dumps(schema) if isinstance(schema, dict) else "", output if isinstance(output, dict) else None,
            Holder(process, sha256(sending.encode()).digest(), True), owner,
        )  # fmt: skip


def _held(got: Held) -> dict[str, Any]:
    if got.row is None:
        why = got.why or "it is being looked what became of the call"
        return {"state": "held", "approval": None, "why": why}
    doubt = got.row.kind is ApprovalKind.DOUBT
    return {"state": "held", "approval": got.row.id, "why": json.loads(got.row.rule).get("why", ""), "in_doubt": doubt}


def _told(told: dict[str, Any], asked: AskedCall | None = None, number: int | None = None) -> Answer:
    headers: Headers = [("content-type", "application/json")]
    said = None
    if asked is not None:
        replayed = told["state"] == "done"
        said = asked.told(Outcome.REPLAY if replayed else Outcome.LIVE, number, replayed)
        headers += said.headers()
    return Answer(200, headers, msgspec.json.encode(told), told=said)


def _report(said: dict[str, Any], body: bytes) -> Report:
    step, attempt = _count(said, "step"), _count(said, "attempt")
    outcome = None
    if "outcome" in said:
        outcome = scrubbed(bytes(_fields.decode(body)["outcome"]), _secrets(said))
        known = said["outcome"]
        if not isinstance(known, dict) or len(known) != 1 or not {"result", "error"} & set(known):
            raise BadRequest("outcome must be an object with result or error")
    sending = sha256(_text(said, "sending").encode()).digest()
    return Report(step, attempt, _text(said, "process"), sending, outcome, said.get("made") is not False)


def _secrets(said: dict[str, Any]) -> list[bytes]:
    """The credentials in the call of an MCP server that is reported on; its result may repeat them."""
    if "message" not in said:
        return []
    message = mcp.read(_text(said, "message").encode())
    return list(mcp.call_of("POST", "mcp", message).secrets) if message.is_call else []


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body.decode("utf-8"))
        if isinstance(value, dict):
            _fields.decode(body)
            return value
    except (ValueError, RecursionError, msgspec.DecodeError):
        raise BadRequest("the body is not JSON") from None
    raise BadRequest("the body must be a JSON object")


def _arguments(said: dict[str, Any]) -> dict[str, Any]:
    value = said.get("arguments")
    if not isinstance(value, dict):
        raise BadRequest("arguments must be an object")
    return value


def _text(said: dict[str, Any], name: str) -> str:
    value = said.get(name)
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{name} must be a text")
    return value


def _count(said: dict[str, Any], name: str) -> int:
    value = said.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise BadRequest(f"{name} must be a whole number")
    return value


def _hints(said: dict[str, Any]) -> Hints | None:
    value = said.get("class")
    if value is not None and value not in _HINTS:
        raise BadRequest(f"class must be one of {', '.join(_HINTS)}")
    return _HINTS[value] if value is not None else None
