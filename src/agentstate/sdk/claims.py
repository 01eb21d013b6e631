"""Owns speaking to the proxy about calls that this process makes under a claim. Must not make any.

Must not need anything beyond the standard library. Invariant: it says ``claimed`` only where the proxy did, and returns
from a report only when the outcome is kept; a proxy that is away is waited for, within bounds.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from agentstate.errors import AgentStateError, Unauthorized
from agentstate.sdk import http as ours

_TRIES = 60  # about a minute: a proxy that is started again is back by then
_PAUSE_S = 1.0
_READ_S = 60.0  # the proxy keeps a call that is held waiting for less
_pause = threading.Event()  # never set: it is waited on


@dataclass(frozen=True, slots=True)
class Claim:
    """Leave to make one call. ``key``: passed on with it; ``arguments``: in the place of the proposed ones, ``None``:
    as they were proposed; ``sending``: the call's name in this process."""

    step: int
    attempt: int
    key: str
    arguments: dict[str, Any] | None
    sending: str


class Claims:
    """The calls of one kind. ``base``: the proxy's address with session and run; ``place``: ``tools/NAME``, or
    ``mcp/NAME``."""

    def __init__(self, base: str, place: str) -> None:
        parts = urlsplit(base)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port
        kind, _, name = place.partition("/")
        self._path = f"{parts.path}/{kind}/{quote(name, safe='')}"
        self._where = f"{parts.scheme}://{parts.netloc}"
        self._given_up = False
        self._open: http.client.HTTPConnection | None = None

    def claim(
        self, body: dict[str, Any], held: Callable[[dict[str, Any]], None] | None = None
    ) -> Claim | dict[str, Any]:
        """Leave, or the outcome that the call has already. Waits for people as long as it takes; ``held`` is told so
        (the proxy's answer) every twenty seconds.

        Raises ``AgentStateError``; the call must not be made then.
        """
        sending = ours.sending_name()
        whole = body | {"process": ours.process_name(), "sending": sending}
        retry = 0
        while True:
            answer, tries = self._ask("claim", whole | {"retry": retry})
            retry += tries
            if answer["state"] == "claimed":
                return Claim(answer["step"], answer["attempt"], answer["key"], answer["arguments"], sending)
            if answer["state"] == "done":
                return dict(answer["outcome"])
            if self._given_up:
                raise AgentStateError("the call is not wanted any more; it was not made")
            if held is not None:
                held(answer)

    def report(self, claim: Claim, outcome: str, message: str = "") -> None:
        """Have an outcome (JSON text of an object with ``result`` or ``error``) kept. ``message``: the call as it was
        sent, where it may hold credentials that the outcome repeats. Raises ``AgentStateError``: then it is not known
        to be kept."""
        said = json.dumps(self._said(claim) | ({"message": message} if message else {}))
        self._ask("result", f'{said[:-1]}, "outcome": {outcome}}}')

    def abandon(self, claim: Claim) -> None:
        """The call broke off, and what it came to is not known. Tried once: a call whose outcome is never told is in
        doubt all the same, when it is asked for again by another process."""
        self._tell("result", self._said(claim))

    def hand_back(self, claim: Claim) -> None:
        """The call was not made, and will not be. Tried once."""
        self._tell("result", self._said(claim) | {"made": False})

    def give_up(self) -> None:
        """From another thread: do not wait for leave any more."""
        self._given_up = True
        if (connection := self._open) is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _tell(self, verb: str, body: dict[str, Any]) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException, AgentStateError):
            self._send(verb, json.dumps(body))

    def _said(self, claim: Claim) -> dict[str, Any]:
        return {
            "step": claim.step,
            "attempt": claim.attempt,
            "process": ours.process_name(),
            "sending": claim.sending,
        }

    def _ask(self, verb: str, body: dict[str, Any] | str) -> tuple[dict[str, Any], int]:
        """(answer, sendings before it). Raises ``AgentStateError``."""
        text = body if isinstance(body, str) else json.dumps(body)
        fault: Exception | None = None
        for tries in range(_TRIES):
            try:
                return self._send(verb, text), tries
            except AgentStateError as error:
                if error.retry_after is None:
                    raise
                fault = error
            except (OSError, http.client.HTTPException) as error:
                fault = error
            if self._given_up and verb == "claim":
                raise AgentStateError("the call is not wanted any more; it was not made")
            _pause.wait(_PAUSE_S)
        what = "the call was not made" if verb == "claim" else "what the call came to could not be kept"
        raise AgentStateError(
            f"the proxy at {self._where} does not answer ({fault}), so {what}; start it, then run the agent again"
        ) from fault

    def _send(self, verb: str, text: str) -> dict[str, Any]:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = self._open = kind(self._host, self._port, timeout=_READ_S)
        try:
            connection.request("POST", f"{self._path}/{verb}", text.encode(), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            content = reply.read()
        finally:
            connection.close()
        if reply.status == 200:
            return dict(json.loads(content))
        raise _fault(reply.status, content)


def _fault(status: int, content: bytes) -> AgentStateError:
    try:
        told = json.loads(content)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        told = content[:200].decode("utf-8", "replace")
    error = (Unauthorized if status == 401 else AgentStateError)(f"the proxy refuses this call: {told}")
    error.status = status
    error.retry_after = 1.0 if status == 503 else None
    return error
