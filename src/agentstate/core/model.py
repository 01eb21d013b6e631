"""Owns the frozen data that every layer shares. Must not compute: rules live beside it.

Invariant: nothing here can be changed after it was made, so it may cross threads and tasks freely. What every call
makes anew is a named tuple: made in a sixth of the time that a frozen dataclass of as many fields takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """State of a step; legal moves are in ``core.lifecycle``."""

    IN_FLIGHT = "in_flight"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    HELD = "held"


class SessionStatus(StrEnum):
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    COMPLETED = "COMPLETED"


class RunState(StrEnum):
    OPEN = "open"
    ENDED = "ended"
    FENCED = "fenced"


class BreakerState(StrEnum):
    """State of a breaker. ``closed``: calls pass; ``open``: the provider is left alone; ``half_open``: one call tries
    whether it is back."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Outcome(StrEnum):
    """Why an answer is what it is; the value of ``x-agentstate-outcome``."""

    LIVE = "live"
    REPLAY = "replay"
    JOINED = "joined"
    EDITED = "edited"
    DIVERGED = "diverged"
    HELD = "held"
    MEMO = "memo"


class Match(StrEnum):
    """How surely the request equals the recorded one, surest first."""

    STRICT = "strict"
    MASKED = "masked"
    POINTER = "pointer"


class ReplayMode(StrEnum):
    """``x-agent-replay``: as the settings say, never diverge silently, or never replay."""

    AUTO = "auto"
    STRICT = "strict"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Item:
    """One message of a request.

    ``raw``: its bytes as sent; ``key``: their sha256. ``digest``: sha256 of its canonical form, in which each tool-call
    id is replaced by its place in ``call_ids``. ``answers``: the call id whose result this whole message is, else
    ``None``.
    """

    raw: bytes
    key: bytes
    digest: bytes
    role: str
    call_ids: tuple[str, ...] = ()
    answers: str | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """In which form an answer is wanted or was recorded.

    ``usage``: a stream that ends with a usage chunk. ``array``: a stream that is one growing JSON array.
    """

    stream: bool = False
    usage: bool = False
    array: bool = False


class Call(NamedTuple):
    """One request as its dialect understood it.

    ``path`` is normalised (no session prefix, no version, the same for a stream and a plain answer), and ends with what
    counts of the query, if anything does: ``responses?tenant=a``;
    ``frame`` is the digest of everything that can change the answer except ``context`` and the messages. ``context``:
    what stands beside the messages and may hold volatile text, as the system text and the tools do where they are
    fields of their own. ``body``: what was sent but for the credentials in it, which are never to be stored and count
    in no digest; ``before`` + the items joined + ``after`` are its exact bytes. ``secrets``: those credentials, as an
    answer might repeat them. ``pure``: equal requests have equal answers, so an answer may be given any number of
    times. ``previous``: the id of the answer at the provider that this request goes on from; ``background``: the answer
    is a job to be asked for.
    """

    dialect: str
    method: str
    path: str
    body: bytes
    frame: bytes
    items: tuple[Item, ...] = ()
    before: bytes = b""
    separator: bytes = b""
    after: bytes = b""
    model: str = ""
    choices: int = 1
    shape: Shape = Shape()
    pure: bool = False
    context: tuple[Item, ...] = ()
    previous: str = ""
    background: bool = False
    secrets: tuple[bytes, ...] = ()


class Fingerprint(NamedTuple):
    """``key``: 32 bytes, equal exactly for equal questions. ``chain[i]``: digest of the first ``i + 1`` messages."""

    key: bytes
    chain: tuple[bytes, ...]

    @property
    def tip(self) -> bytes:
        return self.chain[-1] if self.chain else b""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that a model's answer proposes. ``arguments`` is the text as the model wrote it.

    ``also``: other names under which some client may run it, where a stream tells the name in pieces. Clients add such
    pieces up differently; policies rule on every reading. ``name`` empty: it cannot be told what is called.
    """

    choice: int
    index: int
    call_id: str
    name: str
    arguments: str
    also: tuple[str, ...] = field(default=(), compare=False)


class Verdict(NamedTuple):
    """What a dialect says of a whole answer. ``fault`` empty: it is finished and may be recorded as an answer.

    ``usage``: the provider's own usage object, as JSON text, or empty when it gave none. ``broken``: a token limit cut
    the arguments of a tool call, so that they do not parse. ``failed``: the provider ended the answer by saying that it
    failed, and why: the agent is told so in the provider's bytes, but it is no answer.

    ``answer_id``: the name under which the provider holds the answer for later requests; empty: it does not. ``tier``:
    the service tier in which it says that it served the call, where it says so beside the usage.
    """

    fault: str = ""
    model: str = ""
    usage: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish: tuple[str, ...] = ()
    broken: bool = False
    failed: str = ""
    answer_id: str = ""
    tier: str = ""


@dataclass(frozen=True, slots=True)
class Deletion:
    """That an answer was deleted at its provider, as a run sees it.

    ``upto``: the last run that had begun by then; ``mine``: the run has deleted it too; ``done``: the provider said
    that it did, and not only that there is none.
    """

    upto: int
    mine: bool
    done: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """A recorded step with the asked fingerprint, as seen by the run that asks now.

    ``started``/``finished`` are ticks of the session's own counter (0: not finished). ``mine``: this run was given it.
    ``cut``: this run's reader of it left before the last byte. ``excluded``: it belongs to a living sibling.
    ``live``: a recording of it is growing in this process; ``watched``: somebody reads that recording.
    ``went_on``: the run that received it started another step afterwards. ``deaths``: runs that ended right after it.
    ``retry_key``: digest of the idempotency key of its request. ``broken``: its tool arguments do not parse. ``tries``:
    how often the request had been sent to get it, as far as this proxy knows. ``fresh``: it was completed a moment ago,
    and the proxy has been up since. ``lost``: the proxy ended before it was known whether the run's reader had it all.
    ``unreleased``: a person has yet to decide about its answer, so nobody has it.
    """

    step: int
    number: int
    run: int
    state: State
    status: int = 200
    started: int = 0
    finished: int = 0
    mine: bool = False
    cut: bool = False
    excluded: bool = False
    live: bool = False
    watched: bool = False
    went_on: bool = False
    deaths: int = 0
    hint: int | None = None
    retry_key: bytes = b""
    broken: bool = False
    tries: int = 0
    fresh: bool = False
    lost: bool = False
    unreleased: bool = False


class Action(StrEnum):
    """What a policy does with a tool call, mildest first."""

    ALLOW = "allow"
    HOLD = "hold"
    DENY = "deny"


class OnReject(StrEnum):
    """How an agent hears that a call was refused.

    ``message``: the call is replaced by a text turn; ``continue``: the model is told, and its next answer is given;
    ``error``: a refusal with status 403, or an error event.
    """

    MESSAGE = "message"
    CONTINUE = "continue"
    ERROR = "error"


class Release(StrEnum):
    """How an answer that was held is given: as it came or with edited calls, with a text in the place of refused calls,
    by what the model says to the refusal, or as an error."""

    HELD = "held"
    ANSWER = "answer"
    MESSAGE = "message"
    CONTINUE = "continue"
    ERROR = "error"


class ApprovalKind(StrEnum):
    """What a person is asked about: a proposed call, a request before it is sent, a call that seems to have been made
    already, a call of which it is not known whether it was made, a request for which the budget has no room."""

    CALL = "call"
    REQUEST = "request"
    DUPLICATE = "duplicate"
    DOUBT = "doubt"
    BUDGET = "budget"


class ApprovalState(StrEnum):
    """State of an approval; legal moves are in ``core.lifecycle``. ``reused``: the recorded result of an equal call is
    given instead of making the call."""

    PENDING = "pending"
    APPROVED = "approved"
    EDITED = "edited"
    REUSED = "reused"
    REJECTED = "rejected"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one proposed call of an answer; ``choice`` and ``index`` as in ``ToolCall``.

    ``arguments``: the JSON text of an object, which replaces the proposed one; ``None``: the call is taken out.
    """

    choice: int
    index: int
    arguments: str | None = None


class OfferedTool(NamedTuple):
    """A tool that a request offers the model. ``schema``: JSON text of the schema of its arguments; empty: none."""

    name: str
    schema: str = ""


class ToolResult(NamedTuple):
    """The result of a call as a request carries it back. ``content``: as the agent wrote it, JSON text or plain text;
    ``failed``: it is marked as an error."""

    call_id: str
    content: str
    failed: bool = False
