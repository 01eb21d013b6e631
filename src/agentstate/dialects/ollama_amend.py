"""Owns amending a finished answer of Ollama's chat, and the request that goes on from one. Must not judge.

Invariant: a line that concerns no changed call stays byte for byte; of a call that was taken out nothing is left, of
one that was edited none of its old arguments; each line stays one JSON object.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentstate.core.model import Change, ToolCall, ToolResult
from agentstate.dialects.openai_amend import Plan, plan, said_after
from agentstate.dialects.openai_follow import pair, taken_back
from agentstate.dialects.openai_signs import spelling
from agentstate.dialects.splice import (
    NOTHING,
    NULL,
    appended,
    around,
    elements,
    members,
    of_elements,
    of_members,
    one_line,
    spelled,
    value_of,
)

_ENDED = b'"stop"'
# What every line of a stream repeats; one that holds no more than this, and nothing that was said, may go.
_COMMON = ("model", "created_at")
_DISPENSABLE = frozenset({*_COMMON, "done", "message", "logprobs"})


def amended(stream: bool, body: bytes, calls: Sequence[ToolCall], changes: Sequence[Change], said: str) -> bytes:
    """See ``dialects.base.Amending``; ``calls``: those of the answer. Raises ``ValueError`` for a change of a call that
    is not there, and for arguments that are no JSON object."""
    if not changes:
        return body
    amending = _Answer(plan(calls, changes), said)
    lines = list(_lines(body)) if stream else [body]
    amending.count(lines)
    out = []
    for line in lines:
        made = amending.line(line, stream) if line.strip() else line
        out.append(line if made is None else made)
    return b"".join(out)


def _lines(body: bytes) -> Iterator[bytes]:
    """The lines with their ends; LF alone ends one."""
    at = 0
    while at < len(body):
        end = body.find(b"\n", at) + 1 or len(body)
        yield body[at:end]
        at = end


class _Answer:
    """Amends the lines of an answer; a plain one is one line."""

    def __init__(self, planned: Plan, said: str) -> None:
        self._plan = planned
        self._said = said
        self._seen = 0  # calls in the lines before
        self._gone: list[int] = []  # the numbers that providers gave the calls which are taken out
        self._spoken = b'""'  # the last content that said something

    def count(self, lines: Sequence[bytes]) -> None:
        """Take note of how the calls are numbered, before any line is amended."""
        calls = [call for line in lines for call in elements(_message(members(line)).get("tool_calls"))]
        numbers = [value_of(_function(members(call)).get("index")) for call in calls]
        taken = [number for at, number in enumerate(numbers) if self._plan.texts.get((0, at), b"") is None]
        self._gone = [number for number in taken if isinstance(number, int)]

    def line(self, raw: bytes, stream: bool) -> bytes | None:
        """A line amended, with what goes before it; ``None``: nothing in it changes."""
        fields = members(raw)
        if fields is None:
            return None
        message = _message(fields)
        changed = self._calls(message)
        if changed:
            _trim_logprobs(fields, message)
        if message.get("content", NULL) not in NOTHING:
            self._spoken = message["content"]
        done = value_of(fields.get("done")) is True
        before = b""
        if done and self._plan.lost:
            ends = bool(self._plan.ended) and fields.get("done_reason", _ENDED) != _ENDED
            if ends:
                fields["done_reason"] = _ENDED
            before = self._say(fields, message, raw, stream)
            changed = changed or ends or (bool(self._said) and not before)
        if not changed:
            return before + raw if before else None
        if not done and stream and _is_empty(fields, message):
            return b""
        made = of_members({**fields, "message": of_members(message)})
        return before + around(raw, one_line(made) if stream else made)

    def _say(self, fields: dict[str, bytes], message: dict[str, bytes], raw: bytes, stream: bool) -> bytes:
        """Say what is to be said: in the message that ends the answer where it says something itself, else in a line of
        its own, which is returned."""
        if not self._said:
            return b""
        own = any(message.get(name, NULL) not in NOTHING for name in ("content", "thinking"))
        if own or not stream:
            content = message.get("content", NULL)
            message["content"] = said_after(content, self._spoken, self._said)
            return b""
        shown = {name: fields[name] for name in _COMMON if name in fields}
        shown["message"] = of_members({"role": b'"assistant"', "content": said_after(NULL, self._spoken, self._said)})
        end = b"\r\n" if raw.endswith(b"\r\n") else b"\n"
        return one_line(of_members({**shown, "done": b"false"})) + end

    def _calls(self, message: dict[str, bytes]) -> bool:
        """Amend the calls of a message; whether there was anything to amend."""
        calls = elements(message.get("tool_calls"))
        kept = []
        for call in calls:
            text = self._plan.texts.get((0, self._seen), b"")
            self._seen += 1
            if text is not None:
                kept.append(self._call(call, text))
        if kept == calls:
            return False
        if kept:
            message["tool_calls"] = of_elements(kept)
        else:
            del message["tool_calls"]
        return True

    def _call(self, raw: bytes, text: bytes) -> bytes:
        """A call that stays; ``text``: its new arguments, empty: the old ones."""
        call = members(raw)
        if call is None:
            return raw
        function = _function(call)
        number = value_of(function.get("index"))
        before = sum(other < number for other in self._gone) if isinstance(number, int) else 0
        if not text and not before:
            return raw
        if text:
            # Ollama wants an object; some servers that speak its language send text.
            is_text = function.get("arguments", b"").startswith(b'"')
            function["arguments"] = spelled(text.decode()) if is_text else text
        if before:
            function["index"] = b"%d" % (number - before)
        return of_members({**call, "function": of_members(function)})


def _message(fields: dict[str, bytes] | None) -> dict[str, bytes]:
    return members((fields or {}).get("message")) or {}


def _function(call: dict[str, bytes] | None) -> dict[str, bytes]:
    return members((call or {}).get("function")) or {}


def _is_empty(fields: dict[str, bytes], message: dict[str, bytes]) -> bool:
    """Whether a line says nothing that the others do not say."""
    said = any(value not in NOTHING for name, value in message.items() if name != "role")
    more = any(value not in NOTHING for name, value in fields.items() if name not in _DISPENSABLE)
    return not said and not more


def _trim_logprobs(fields: dict[str, bytes], message: dict[str, bytes]) -> None:
    """Keep of the log probabilities what spells the text of the message, and none of a call."""
    tokens = elements(fields.get("logprobs"))
    texts = [value_of(message.get(name)) for name in ("thinking", "content")]
    kept = spelling(tokens, "".join(text for text in texts if isinstance(text, str)))
    if len(kept) < len(tokens):
        fields["logprobs"] = of_elements(kept)


# --- the request that goes on -----------------------------------------------------------------------------------------


def continued(body: bytes, plain: bytes, calls: Sequence[ToolCall], given: Sequence[ToolResult]) -> bytes:
    """The body that goes on from a plain answer. Raises ``ValueError`` unless each of its calls has one result, and
    each result a call; calls without ids have theirs in their order."""
    _, answered = pair(calls, given)
    message = (members(plain) or {}).get("message") or b'{"role":"assistant","content":""}'
    results = [
        of_members(
            {
                "role": b'"tool"',
                "tool_name": spelled(call.name),
                **({"tool_call_id": spelled(call.call_id)} if call.call_id else {}),
                "content": spelled(result.content),
            }
        )
        for call, result in answered
    ]
    return appended(body, "messages", [taken_back(message), *results])
