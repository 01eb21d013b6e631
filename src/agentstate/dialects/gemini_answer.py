"""Owns judging a Gemini answer, whole or while it streams. Must not change its bytes.

Invariant: an answer is finished only when every candidate seen has a finish reason, or when the prompt was blocked; the
SSE form has no end marker, and the array's ``]`` alone proves nothing. Text may be shown while it streams; function
calls, finish reasons and whatever follows may not.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from agentstate.core.model import ToolCall, Verdict
from agentstate.dialects import sse
from agentstate.dialects.base import UNREADABLE
from agentstate.dialects.gemini_shape import Elements, event_data, grow
from agentstate.errors import AgentStateError

# The token limit, by its name and as the number that clients of the REST transport of gRPC ask for.
_CUT_BY_LIMIT = frozenset({"MAX_TOKENS", "2"})
# Values that an enum has when nothing was said.
_UNSAID = (None, "", 0, "0", "FINISH_REASON_UNSPECIFIED", "BLOCK_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED")
_NOTHING = (b"", b"null")
_Kind = TypeVar("_Kind")


class Function(msgspec.Struct, rename="camel"):
    """A function call as a part holds it. Vertex may send its arguments piece by piece: ``partial_args``."""

    id: str | None = None
    name: str | None = None
    args: msgspec.Raw = msgspec.Raw(b"")
    partial_args: list[dict[str, Any]] | None = None
    will_continue: bool | None = None


class _Part(msgspec.Struct, rename="camel"):
    function_call: Function | None = None


class _Content(msgspec.Struct):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    index: int | None = None
    content: _Content | None = None
    finish_reason: str | int | None = None


class _Feedback(msgspec.Struct, rename="camel"):
    block_reason: str | int | None = None


class _Chunk(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: msgspec.Raw = msgspec.Raw(b"")
    prompt_feedback: _Feedback | None = None
    model_version: str | None = None
    error: msgspec.Raw = msgspec.Raw(b"")


_decode_chunk = msgspec.json.Decoder(_Chunk)


class _Growing:
    """A function call while its pieces come."""

    __slots__ = ("call_id", "name", "open", "partial", "text")

    def __init__(self, call: Function) -> None:
        self.call_id = self.name = self.text = ""
        self.partial: dict[str, Any] | None = None
        self.open = False
        self.add(call)

    def add(self, call: Function) -> None:
        self.call_id = self.call_id or call.id or ""
        self.name = self.name or call.name or ""
        if bytes(call.args) not in _NOTHING:
            self.text = bytes(call.args).decode("utf-8", "replace")
        if call.partial_args:
            self.partial = self.partial or {}
            for piece in call.partial_args:
                grow(self.partial, piece)
        self.open = call.will_continue is True

    @property
    def arguments(self) -> str:
        return self.text if self.partial is None else msgspec.json.encode(self.partial).decode()


class _Reading:
    """What has been read of an answer, chunk by chunk."""

    __slots__ = ("_blocked", "_calls", "_finish", "_model", "_seen", "_usage", "fault")

    def __init__(self) -> None:
        self.fault = ""
        self._model = ""
        self._usage = b""
        self._blocked = ""
        self._seen: set[int] = set()
        self._finish: dict[int, str] = {}
        self._calls: dict[int, list[_Growing]] = {}

    def read(self, data: bytes) -> bool:
        """Take note of a chunk; whether it may be shown before the commit."""
        if b'"function_call"' in data:
            return self._read_odd(data)  # requests may spell it so, and clients read an answer that does
        try:
            return self._take(_decode_chunk.decode(data))
        except msgspec.ValidationError:
            return self._read_odd(data)
        except UNREADABLE:
            self.fault = self.fault or "the answer holds a chunk that is not JSON"
            return False

    def verdict(self, what: str) -> Verdict:
        """``what``: how the answer is called in a fault, "stream" or "answer"."""
        calls = tuple(
            ToolCall(candidate, index, call.call_id, call.name, call.arguments)
            for candidate, found in sorted(self._calls.items())
            for index, call in enumerate(found)
        )
        finish = tuple(self._finish.get(candidate, "") for candidate in sorted(self._seen))
        if self._blocked and not finish:
            finish = (self._blocked,)
        torn, broken = self._torn()
        fault = self.fault or self._unfinished(what) or torn
        return Verdict(fault, self._model, self._usage.decode("utf-8", "replace"), calls, finish, broken)

    def _unfinished(self, what: str) -> str:
        if not self._seen and not self._blocked:
            return f"the {what} ended without any candidate"
        open_ = sorted(self._seen - set(self._finish))
        return f"the {what} ended before candidate {open_[0]} was finished" if open_ else ""

    def _torn(self) -> tuple[str, bool]:
        """(fault, whether a token limit cut arguments) of calls whose arguments did not come to their end."""
        broken = False
        for candidate, found in self._calls.items():
            for call in found:
                if call.open and self._finish.get(candidate) not in _CUT_BY_LIMIT:
                    return f"the arguments of the call of tool {call.name!r} are not whole", False
                broken = broken or call.open
        return "", broken

    def _take(self, chunk: _Chunk) -> bool:
        if bytes(chunk.error) not in _NOTHING:
            said = bytes(chunk.error)[:500].decode("utf-8", "replace")
            self.fault = self.fault or f"the provider broke off: {said}"
            return False
        if chunk.model_version:
            self._model = chunk.model_version
        if bytes(chunk.usage_metadata) not in _NOTHING:
            self._usage = bytes(chunk.usage_metadata)
        free = True
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason not in _UNSAID:
            self._blocked = str(chunk.prompt_feedback.block_reason)
            free = False
        for candidate in chunk.candidates or ():
            free = self._candidate(candidate) and free
        return free

    def _candidate(self, candidate: _Candidate) -> bool:
        index = candidate.index or 0
        self._seen.add(index)
        free = True
        if candidate.finish_reason not in _UNSAID:
            self._finish[index] = str(candidate.finish_reason)
            free = False
        for part in (candidate.content.parts if candidate.content is not None else None) or ():
            if part.function_call is not None:
                free = False
                self._call(index, part.function_call)
        return free

    def _call(self, candidate: int, call: Function) -> None:
        known = self._calls.setdefault(candidate, [])
        if known and known[-1].open:
            known[-1].add(call)
        else:
            known.append(_Growing(call))

    def _read_odd(self, data: bytes) -> bool:
        """A JSON chunk whose fields have unusual types or names: held, and judged by what is usual in it."""
        try:
            value = msgspec.json.decode(data)
        except UNREADABLE:
            value = None
        if not isinstance(value, dict):
            self.fault = self.fault or "the answer holds a chunk that is not a JSON object"
            return False
        candidates = value.get("candidates")
        usage, model = value.get("usageMetadata"), value.get("modelVersion")
        error = value.get("error")
        self._take(
            _Chunk(
                [_usual(found) for found in candidates if isinstance(found, dict)]
                if isinstance(candidates, list)
                else None,
                msgspec.Raw(msgspec.json.encode(usage) if usage else b""),
                _converted(value.get("promptFeedback"), _Feedback),
                model if isinstance(model, str) else None,
                msgspec.Raw(msgspec.json.encode(error) if error else b""),
            )
        )
        return False


def _usual(candidate: dict[str, Any]) -> _Candidate:
    """What can be understood of a candidate with fields of unusual types or names."""
    index, reason = candidate.get("index"), candidate.get("finishReason", candidate.get("finish_reason"))
    content = candidate.get("content")
    parts = content.get("parts") if isinstance(content, dict) else None
    found_parts = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    calls = [part.get(name) for part in found_parts for name in ("functionCall", "function_call")]
    found = [_Part(_function(call)) for call in calls if call is not None]
    return _Candidate(
        index if isinstance(index, int) else 0,
        _Content(found),
        reason if reason is None or isinstance(reason, str | int) else str(reason),
    )


def _function(call: Any) -> Function:
    """What can be understood of a function call with fields of unusual types or names."""
    if not isinstance(call, dict):
        return Function()
    args, pieces = call.get("args"), call.get("partialArgs", call.get("partial_args"))
    return Function(
        str(call.get("id") or ""),
        str(call.get("name") or ""),
        msgspec.Raw(b"" if args is None else msgspec.json.encode(args)),
        [piece for piece in pieces if isinstance(piece, dict)] if isinstance(pieces, list) else None,
        call.get("willContinue", call.get("will_continue")) is True,
    )


def _converted(value: Any, kind: type[_Kind]) -> _Kind | None:
    try:
        return msgspec.convert(value, kind, strict=False) if value is not None else None
    except msgspec.ValidationError:
        return None


class StreamGate(sse.Holding):
    """Reads a stream of server-sent events; see ``dialects.base.Gate``."""

    __slots__ = ("_done", "_reading")

    def __init__(self) -> None:
        super().__init__()
        self._reading = _Reading()
        self._done = False

    @property
    def done(self) -> bool:
        """Gemini itself has no end marker; gateways that speak its format may send ``[DONE]``."""
        return self._done

    def finish(self) -> Verdict:
        self._read_rest()
        return self._reading.verdict("stream")

    def heartbeat(self) -> bytes:
        """A blank line: Google's SDK breaks on comments."""
        return b"\r\n"

    def _read(self, event: bytes) -> bool:
        data = event_data(event)
        if data is None:
            return True
        if data.strip() == b"[DONE]":
            self._done = True
            return False
        return self._reading.read(data)


class ArrayGate:
    """Reads a stream that is one growing JSON array; see ``dialects.base.Gate``."""

    __slots__ = ("_elements", "_held", "_reading", "_shown")

    def __init__(self) -> None:
        self._elements = Elements()
        self._reading = _Reading()
        self._held = False
        self._shown = False

    @property
    def done(self) -> bool:
        return self._elements.closed

    def feed(self, data: bytes) -> bytes:
        free = []
        for piece, element in self._elements.feed(data):
            visible = self._reading.read(element) and not self._elements.fault
            if self._held or not visible:
                self._held = True
            else:
                free.append(piece)
        self._shown = self._shown or bool(free)
        return b"".join(free)

    def finish(self) -> Verdict:
        self._reading.fault = self._reading.fault or self._elements.fault or self._elements.unclosed()
        return self._reading.verdict("stream")

    def heartbeat(self) -> bytes:
        """White space between two elements, where what was shown always ends.

        Nothing before the first one: the reader of Google's older clients takes only ``[`` as the first byte, though
        white space there is good JSON.
        """
        return b"\n" if self._shown else b""

    def failure(self, error: AgentStateError) -> bytes:
        """An error of ours as the last element; what was shown ends behind one."""
        return (b"," if self._shown else b"[") + gemini_error(error) + b"]"


# Names that Google's clients look up; others go by the hundred of their status.
_STATUS = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ABORTED",
    429: "RESOURCE_EXHAUSTED", 501: "UNIMPLEMENTED", 502: "UNAVAILABLE", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip
_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


def gemini_error(error: AgentStateError) -> bytes:
    """The error object that Google's clients understand; our stable code is its reason."""
    name = _STATUS.get(error.status, "FAILED_PRECONDITION" if error.status < 500 else "INTERNAL")
    fields: dict[str, Any] = {"code": error.status, "message": error.message, "status": name}
    fields["details"] = [{"@type": _INFO, "reason": error.code, "domain": "agentstate"}]
    if error.detail:
        fields["agentstate"] = error.detail
    return msgspec.json.encode({"error": fields})


def judge_plain(body: bytes) -> Verdict:
    """Judge a whole response object."""
    start = body.lstrip()[:1]
    if start == b"<":
        return Verdict("the answer is an HTML page")
    reading = _Reading()
    reading.read(body)
    return reading.verdict("answer")
