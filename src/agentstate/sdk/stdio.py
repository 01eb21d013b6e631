"""Owns the shim between an MCP client and a server over stdio: ``python -m agentstate.sdk.stdio NAME -- CMD…``.

Lines go both ways as they come, but for calls of tools: each is sent to the server under a claim, and what it comes to
is kept before the client is told. Must not need anything beyond the standard library. Invariant: no call of a tool
reaches the server without leave; whatever cannot be told apart from one is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections import deque
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from agentstate.errors import AgentStateError
from agentstate.sdk.claims import Claim, Claims
from agentstate.sdk.session import session

KEY_META = "io.agentstate/idempotency-key"
_VERSION_META = "io.modelcontextprotocol/protocolVersion"
_CALL, _LIST, _CANCELLED = "tools/call", "tools/list", "notifications/cancelled"
_INTERNAL, _INVALID, _PARSE = -32603, -32600, -32700
_ENVELOPE = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})
_MOST_UNSEEN = 100  # outcomes that came when their clients had given the calls up
_GRACE_S = 10.0  # for calls under way when the client leaves, and for the server to end


@dataclass(slots=True)
class _Work:
    """A call on its way. ``message``: the latest request that asks for it; ``waits``: whether its client still does;
    ``claim`` ``None``: leave is being asked for; ``sent``: the message itself, where it has credentials perhaps."""

    message: dict[str, Any]
    waits: bool = True
    claim: Claim | None = None
    sent: str = ""


class Shim:
    """``run`` is its life. The process ends with the server's exit code."""

    def __init__(self, claims: Claims, command: list[str], agent: str) -> None:
        self._claims = claims
        self._agent = agent
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._lock = threading.Lock()  # of all that follows, and of both outputs
        self._under_way: dict[str, _Work] = {}  # by the id that the server knows
        self._unseen: deque[tuple[str, str]] = deque(maxlen=_MOST_UNSEEN)  # (what was asked, its outcome)
        self._lists: set[str] = set()
        self._listed: dict[str, dict[str, Any]] = {}
        self._idle = threading.Condition(self._lock)

    def run(self) -> int:
        reader = threading.Thread(target=self._read_server, name="mcp-server", daemon=True)
        reader.start()
        for line in sys.stdin.buffer:
            if line.strip():
                self._from_client(line)
        self._claims.give_up()
        with self._idle:
            self._idle.wait_for(lambda: not self._under_way, _GRACE_S)
        assert self._server.stdin is not None
        with contextlib.suppress(OSError):
            self._server.stdin.close()
        reader.join(_GRACE_S)  # it ends this process as soon as the server has ended
        self._server.terminate()
        reader.join(_GRACE_S)
        self._server.kill()
        return 1

    # --- from the client ---

    def _from_client(self, line: bytes) -> None:
        try:
            message = _read(line)
        except ValueError as error:
            self._to_client(_error(None, _PARSE, f"the message was not passed on: {error}"))
            return
        if isinstance(message, list):
            if any(isinstance(part, dict) and part.get("method") == _CALL for part in message):
                self._to_client(_error(None, _INVALID, "tool calls in a batch are not taken; send each by itself"))
                return
        elif message.get("method") == _CALL:
            if not isinstance(message.get("id"), str | int | float) or isinstance(message["id"], bool):
                self._to_client(_error(None, _INVALID, "a tool call needs an id"))
                return
            self._begin(line, message)
            return
        elif message.get("method") == _CANCELLED and self._given_up(message):
            return  # it goes on if it was sent: what it comes to is for whoever asks again
        elif message.get("method") == _LIST:
            with self._lock:
                self._lists.add(_named(message.get("id")))
        self._to_server(line)

    def _begin(self, line: bytes, message: dict[str, Any]) -> None:
        """A call that was given up before is gone on with; any other begins."""
        name, what = _named(message["id"]), _what(message)
        with self._lock:
            works = self._under_way
            taken = any(name in (known, _named(work.message["id"])) for known, work in works.items())
            left = next((work for work in works.values() if not work.waits and _what(work.message) == what), None)
            unseen = next((one for one in self._unseen if one[0] == what), None)
            if not taken and left is not None:
                left.message, left.waits = message, True
            elif not taken and unseen is not None:
                self._unseen.remove(unseen)
            elif not taken:
                works[name] = work = _Work(message)
                thread = threading.Thread(target=self._call, args=(line, work, name), name="tool-call", daemon=True)
        if taken:  # whose answer would be whose could not be told
            self._to_client(_error(None, _INVALID, f"a tool call with the id {message['id']} is under way already"))
        elif left is None and unseen is not None:
            self._to_client(_response(message, unseen[1]))
        elif left is None:
            thread.start()

    def _given_up(self, message: dict[str, Any]) -> bool:
        """Whether a client does not wait any more for a call of a tool."""
        params = message.get("params")
        name = _named(params.get("requestId")) if isinstance(params, dict) else ""
        with self._lock:
            found = next((one for one in self._under_way.values() if _named(one.message["id"]) == name), None)
            if found is not None:
                found.waits = False
        return found is not None

    def _told(self, work: _Work, outcome: str) -> None:
        """To whoever waits; else it is kept for the next who asks."""
        with self._lock:
            waits, message = work.waits, work.message
            if not waits:
                self._unseen.append((_what(message), outcome))
        if waits:
            self._to_client(_response(message, outcome))

    def _failed(self, work: _Work, text: str) -> None:
        if work.waits:
            self._to_client(_error(work.message["id"], _INTERNAL, text))

    def _call(self, line: bytes, work: _Work, name: str) -> None:
        """One call of a tool, in a thread of its own."""
        message, sent = work.message, False
        try:
            asked = self._asked(line, message)
            beats = 0

            def held(answer: dict[str, Any]) -> None:
                nonlocal beats
                beats += 1
                token = _meta(work.message).get("progressToken") if work.waits else None
                if isinstance(token, str | int):
                    self._to_client(_progress(token, beats, answer))

            claim = self._claims.claim(asked, held)
            if isinstance(claim, dict):
                self._told(work, json.dumps(claim))
                return
            with self._lock:
                if sent := work.waits:
                    work.claim, work.sent = claim, json.dumps(message) if _meta(message) else ""
                else:  # who asks again begins anew
                    del self._under_way[name]
            if sent:
                self._to_server(_sent(message, claim))
            else:
                self._claims.hand_back(claim)
        except AgentStateError as error:
            self._failed(work, error.message)
        except OSError as error:  # the server is gone; what was under way is given up by its reader
            self._failed(work, f"the server is gone: {error}")
        finally:
            with self._idle:
                if not sent:
                    self._under_way.pop(name, None)
                self._idle.notify_all()

    def _asked(self, line: bytes, message: dict[str, Any]) -> dict[str, Any]:
        params = message.get("params")
        with self._lock:
            known = self._listed.get(str(params.get("name")), {}) if isinstance(params, dict) else {}
        return {"message": line.decode("utf-8").strip(), "agent": self._agent, **known}

    # --- from the server ---

    def _read_server(self) -> None:
        assert self._server.stdout is not None
        for line in self._server.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                message = None
            except RecursionError:  # it may be a result, which must not be told before it is kept
                sys.stderr.write("agentstate: a message of the server is nested too deeply, and was not passed on\n")
                continue
            if isinstance(message, dict) and "method" not in message and "id" in message:
                name = _named(message["id"])
                with self._lock:
                    found = self._under_way.get(name)
                    listed = name in self._lists
                    self._lists.discard(name)
                if found is not None and found.claim is not None:
                    self._outcome(name, found, found.claim, message)
                if found is not None:
                    continue
                if listed:
                    self._note(message)
            self._to_client(line)
        self._gone()

    def _outcome(self, name: str, work: _Work, claim: Claim, message: dict[str, Any]) -> None:
        """The server's answer to a call: kept, then told."""
        kind = "result" if isinstance(message.get("result"), dict) else "error"
        told = message.get(kind)
        outcome = json.dumps({kind: told if isinstance(told, dict) else {"code": _INTERNAL, "message": str(told)}})
        try:
            self._claims.report(claim, outcome, work.sent)
        except AgentStateError as error:
            self._failed(work, error.message)
        else:
            self._told(work, outcome)
        with self._idle:
            self._under_way.pop(name, None)
            self._idle.notify_all()

    def _note(self, message: dict[str, Any]) -> None:
        """What the server says of its tools goes with their calls."""
        result = message.get("result")
        tools = result.get("tools") if isinstance(result, dict) else None
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                with self._lock:
                    self._listed[tool["name"]] = _described(tool)

    def _gone(self) -> None:
        """The server has ended: what became of the calls that it had is not known."""
        with self._lock:
            left = list(self._under_way.values())
        for work in left:
            if work.claim is not None:
                self._claims.abandon(work.claim)
                self._failed(work, "the server ended before it answered")
        with self._idle:
            self._under_way.clear()
            self._idle.notify_all()
        code = self._server.wait()
        os._exit(code if code >= 0 else 128 - code)  # without waiting for the client, whose input may stay open

    # --- writing ---

    def _to_server(self, line: bytes) -> None:
        assert self._server.stdin is not None
        with self._lock:
            self._server.stdin.write(line if line.endswith(b"\n") else line + b"\n")
            self._server.stdin.flush()

    def _to_client(self, line: bytes) -> None:
        with self._lock, contextlib.suppress(BrokenPipeError):
            sys.stdout.buffer.write(line if line.endswith(b"\n") else line + b"\n")
            sys.stdout.buffer.flush()


def _read(line: bytes) -> Any:
    """A message that every parser reads alike. Raises ``ValueError``."""
    if b"\r" in line.removesuffix(b"\n").removesuffix(b"\r"):
        raise ValueError("it holds a line break within, where some servers would begin another message")
    try:
        value = json.loads(line.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict | list):
        raise ValueError("it is no JSON-RPC message")
    for part in value if isinstance(value, list) else [value]:
        for name in part if isinstance(part, dict) else ():
            if name not in _ENVELOPE and name.casefold() in _ENVELOPE:
                raise ValueError(f"it has a member {name[:40]!r}; did you mean {name.casefold()}?")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("an object names a member twice")
    return made


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _named(ident: Any) -> str:
    """An id as a key: 1 and "1" are two."""
    return json.dumps(ident)


def _what(message: dict[str, Any]) -> str:
    """What a call asks, equal for equal calls."""
    params = message.get("params")
    asked = {name: value for name, value in params.items() if name != "_meta"} if isinstance(params, dict) else params
    return json.dumps(asked, sort_keys=True)


def _meta(message: dict[str, Any]) -> dict[str, Any]:
    params = message.get("params")
    found = params.get("_meta") if isinstance(params, dict) else None
    return found if isinstance(found, dict) else {}


def _described(tool: dict[str, Any]) -> dict[str, Any]:
    hints = tool.get("annotations")
    hints = hints if isinstance(hints, dict) else {}
    kind = "once"
    if hints.get("readOnlyHint") is True and hints.get("destructiveHint") is not True:
        kind = "read"
    elif hints.get("idempotentHint") is True and hints.get("readOnlyHint") is not True:
        kind = "idempotent"
    return {"class": kind, "schema": tool.get("inputSchema"), "output": tool.get("outputSchema")}


def _sent(message: dict[str, Any], claim: Claim) -> bytes:
    """The call as the server is sent it: with its key, and as a person edited it."""
    params = dict(message["params"])
    params["_meta"] = _meta(message) | {KEY_META: claim.key}
    if claim.arguments is not None:
        params["arguments"] = claim.arguments
    return json.dumps(message | {"params": params}).encode()


def _response(message: dict[str, Any], outcome: str) -> bytes:
    """An outcome as the answer to a request, whichever revision it was recorded under."""
    told = json.loads(outcome)
    if _VERSION_META in _meta(message) and isinstance(told.get("result"), dict):
        told["result"].setdefault("resultType", "complete")
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], **told}).encode()


def _error(ident: Any, code: int, text: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": ident, "error": {"code": code, "message": text}}).encode()


def _progress(token: str | int, number: int, answer: dict[str, Any]) -> bytes:
    text = f"held: approval {answer.get('approval')}"
    params = {"progressToken": token, "progress": number * 1e-6, "message": text}
    return json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).encode()


def _agent() -> str:
    """The process that started this one, as "pid:start"; empty where the system does not tell."""
    pid = os.getppid()
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:  # noqa: PTH123 - nothing more is loaded for it
            return f"{pid}:{file.read().rpartition(')')[2].split()[19]}"
    except (OSError, IndexError):
        return ""


def main() -> None:
    """``NAME -- CMD…``; session, run and address come from the environment.

    Where that names no run, it is the life of the process that started this one: an agent that starts its server again
    within its life goes on with the same run.
    """
    name, _, *command = sys.argv[1:]
    agent = _agent()
    if agent and not os.environ.get("AGENTSTATE_RUN_ID"):
        os.environ["AGENTSTATE_RUN_ID"] = "run_" + sha256(agent.encode()).hexdigest()[:24]
    try:
        where = session()
    except (ValueError, TypeError) as error:
        sys.stderr.write(f"agentstate: {error}\n")
        raise SystemExit(2) from None
    claims = Claims(where.anthropic_base_url, f"mcp/{name}")
    try:
        shim = Shim(claims, command, agent)
    except OSError as error:
        sys.stderr.write(f"agentstate: the server cannot be started: {error}\n")
        raise SystemExit(127) from None
    raise SystemExit(shim.run())


if __name__ == "__main__":
    main()
