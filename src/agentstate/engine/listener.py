"""Owns what one client that waits for a tool call of an MCP server is sent, in the form that it takes. Must not decide.

Invariant: what it is sent is one answer to its own request, whatever came before: news of the call, heartbeats, a
stream or none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agentstate.core.model import Outcome, Shape
from agentstate.dialects import mcp, sse
from agentstate.engine.headers import live_headers
from agentstate.engine.pausing import Pauses, Rest
from agentstate.engine.recording import Recording
from agentstate.engine.request import Answer, Request
from agentstate.errors import AgentStateError, Refused, UpstreamFault
from agentstate.providers.client import Headers
from agentstate.store.rows import ApprovalRow

_JSON = ("content-type", "application/json")
_STREAM = [("content-type", "text/event-stream"), ("cache-control", "no-cache, no-transform")]


class Listener:
    """``request``: with which it asked; ``streams``: it takes events; ``told``: our headers for an outcome; ``gone``:
    it does not wait any more, whatever its socket says."""

    def __init__(
        self, message: mcp.Message, request: Request, streams: bool, told: Callable[[Outcome], Headers]
    ) -> None:
        self.gone = False
        self._message = message
        self._client = _client_of(request)
        self._streams = streams
        self._told = told
        self._beats = 0
        self.recording = Recording()
        self.recording.heartbeat = self._beat

    def _beat(self) -> bytes:
        if not self.recording.shape.stream:
            return b" "
        if self._message.token is None:
            return sse.KEEP_ALIVE
        self._beats += 1
        return mcp.progress(self._message.token, self._beats, "held until it is decided" if self._held else "under way")

    _held = False

    def wait(self, row: ApprovalRow) -> None:
        """The call waits for a person. From now on the status is out."""
        self._held = True
        if self.recording.begun or self.recording.done:
            return
        if self._streams:
            self.recording.begin(200, [*_STREAM, *self._told(Outcome.HELD)], Shape(stream=True))
            self.recording.append(b": held: approval " + row.id.encode() + b"\n\n")
            if self._message.token is not None:
                self.recording.append(self._beat())
        else:
            self.recording.begin(200, [_JSON, *self._told(Outcome.HELD)], Shape())
            self.recording.append(b" ")

    def event(self, event: bytes, headers: Headers) -> None:
        """News from the server, as it came."""
        self._held = False
        if not self._streams or self.recording.done:
            return
        if not self.recording.begun:
            kept = [pair for pair in live_headers(headers) if pair[0].lower() not in ("content-type", "cache-control")]
            self.recording.begin(200, [*kept, *_STREAM, *self._told(Outcome.LIVE)], Shape(stream=True))
        self.recording.append(event)

    def finish(self, outcome: bytes, headers: Headers, how: Outcome) -> None:
        """What the call came to; it is in the journal."""
        kept = [pair for pair in live_headers(headers) if pair[0].lower() != "content-type"]
        self._end(mcp.response(self._message, outcome), 200, [*kept, _JSON, *self._told(how)])

    def relay(self, status: int, headers: Headers, body: bytes) -> None:
        """The server, or what stands before it, refused the request itself."""
        if self.recording.begun:
            body = self._refusal(status, body)
        self._end(body, status, [*live_headers(headers), *self._told(Outcome.LIVE)])

    def _refusal(self, status: int, body: bytes) -> bytes:
        """The same within a stream, which has no status of its own any more."""
        try:
            outcome = mcp.outcome_of(body, self._message.id)
        except ValueError:
            outcome = None
        if outcome is not None:
            return mcp.response(self._message, outcome)
        text = body[:300].decode("utf-8", "replace")
        return mcp.error(self._message.id, UpstreamFault(f"the MCP server answered with status {status}: {text}"))

    def is_of(self, request: Request, ident: str | int | float) -> bool:
        """Whether it waits for what the client of ``request`` asked under that id."""
        mine = self._message.id == ident and type(self._message.id) is type(ident)
        return mine and not self.recording.done and self._client == _client_of(request)

    def give_up(self) -> None:
        """The client has said that it does not wait any more: as if it had hung up."""
        self.gone = True
        self.fail(Refused("the client gave this call up"))

    def fail(self, error: AgentStateError) -> None:
        """It came to nothing that is known."""
        if self.recording.done:
            return
        if self.recording.begun:
            self._end(mcp.error(self._message.id, error), 200, [])
        else:
            self.recording.fail(error)

    def _end(self, body: bytes, status: int, headers: Headers) -> None:
        if self.recording.done:
            return
        if not self.recording.begun:
            self.recording.begin(status, headers, Shape())
        self.recording.end(mcp.event(body) if self.recording.shape.stream else body)


def resting(
    pauses: Pauses, key: str, message: mcp.Message, streams: bool, told: Headers,
    again: Callable[[], Awaitable[Answer | None]],
) -> Rest:  # fmt: skip
    """A call that waits, not begun, while its session is paused."""
    beats = 0

    def beat() -> bytes:
        nonlocal beats
        beats += 1
        if not streams:
            return b" "
        return sse.KEEP_ALIVE if message.token is None else mcp.progress(message.token, beats, "the session is paused")

    def failed(error: AgentStateError) -> bytes:
        return _in_form(mcp.error(message.id, error), streams)

    def fitted(answer: Answer) -> bytes:
        body = answer.body or b""
        if answer.status >= 300 and b'"jsonrpc"' not in body:
            raise UpstreamFault(f"the MCP server answered with status {answer.status}")
        answer.status = 200  # the error is in the message
        return _in_form(body, streams)

    headers = [*(_STREAM if streams else [_JSON]), *told]
    return Rest(pauses, key, headers, beat, again, fitted, failed)


def _in_form(body: bytes, streams: bool) -> bytes:
    return mcp.event(body) if streams else body


def _client_of(request: Request) -> tuple[str, str, str]:
    """What tells MCP clients apart, among those that the journal takes for one agent."""
    ident = next((value for name, value in request.headers if name.lower() == "mcp-session-id"), "")
    return request.session, request.run, ident
