"""Owns what a tool call may do to the world: its class, its key, what becomes of it after a crash. Must not send one.

A call is proposed → held → claimed → its result is seen, or it is in doubt until that is settled. Invariant: a claim of
a `once` tool without a result is never sent again, nor taken for done, by itself: a person or a probe says which.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, NamedTuple

from agentstate.core import policy, replay
from agentstate.core.approval import Decision
from agentstate.core.model import ApprovalState, Entry, ReplayMode, State
from agentstate.core.replay import Ask, Execute


class ToolClass(StrEnum):
    """What calling a tool twice does: nothing ever, nothing more, or the same once more."""

    READ = "read"
    IDEMPOTENT = "idempotent"
    ONCE = "once"


class Hints(NamedTuple):
    """What a tool's server says of it; ``None``: nothing. Hints are believed where the settings say nothing."""

    read_only: bool | None = None
    idempotent: bool | None = None
    destructive: bool | None = None


class Patterns(NamedTuple):
    """The settings' tool-name patterns."""

    read: tuple[str, ...] = ()
    idempotent: tuple[str, ...] = ()


def class_of(tool: str, patterns: Patterns, hints: Hints | None = None, claimed: ToolClass | None = None) -> ToolClass:
    """The class of a tool: by the settings, else by its server's hints, else `once`. ``claimed``: what it was when the
    call was claimed of which this is asked; hints that have become milder since do not count for that call.

    A tool that says both that it only reads and that it destroys is believed in neither.
    """
    if any(fnmatchcase(tool, pattern) for pattern in patterns.read):
        return ToolClass.READ
    if any(fnmatchcase(tool, pattern) for pattern in patterns.idempotent):
        return ToolClass.IDEMPOTENT
    if hints is None:
        return claimed or ToolClass.ONCE
    if claimed is ToolClass.ONCE:
        return claimed
    if hints.read_only and not hints.destructive:
        return ToolClass.READ
    if hints.idempotent and not hints.read_only:
        return ToolClass.IDEMPOTENT
    return ToolClass.ONCE


def spelled(arguments: Mapping[str, Any]) -> str:
    """Arguments as JSON, equal for equal ones."""
    return json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def readable(arguments: Mapping[str, Any]) -> str:
    """The same for people; equal for equal ones too, as a decision is bound to it."""
    return json.dumps(arguments, sort_keys=True, ensure_ascii=False)


def names(server: str, tool: str) -> tuple[str, ...]:
    """The names by which models may be offered a tool of an MCP server, its own first; clients put the server before
    it. Of a function, ``server`` is empty."""
    if not server:
        return (tool,)
    return (
        tool,
        f"mcp__{server}__{tool}",
        *(f"{server}{between}{tool}" for between in ("__", "_", "-", ".", ":", "/")),
    )


def key_of(session: str, branch: int, server: str, tool: str, arguments: str, occurrence: int) -> str:
    """The idempotency key of a call: the same for every attempt, another on another branch. ``arguments``: ``spelled``;
    ``occurrence``: how many equal calls there were on the branch before, from 0."""
    whole = json.dumps([session, branch, server, tool, arguments, occurrence], ensure_ascii=True)
    return "key_" + sha256(b"agentstate/effect/1\0" + whole.encode()).hexdigest()[:48]


class Holder(NamedTuple):
    """Who executes a claimed call outside the proxy. ``process``: a text that its process made up once; empty: the
    proxy itself; ``sending``: digest of what names this very call in it; ``alive``: whether that process is known to
    live, ``None``: not known."""

    process: str = ""
    sending: bytes = b""
    alive: bool | None = None


THE_PROXY = Holder()


def decide(
    ask: Ask,
    run: int,
    entries: Iterable[Entry],
    asker: Holder = THE_PROXY,
    holders: Mapping[int, Holder] | None = None,
) -> replay.Decision:
    """What to do with a call of ``run``. ``holders``: who executes those entries that are claimed, by step.

    As for a model call, except where doubt would send a call twice: an equal call of an earlier run that is still
    under way is followed, whoever reads it, and a result that perhaps did not arrive is given again, unless its process
    would say that it asks once more.
    """
    if ask.mode is ReplayMode.OFF:
        return Execute()
    known = holders or {}
    again = not asker.process or ask.retry > 0
    seen = [_as_tool(entry, again) for entry in entries if not _another(entry, asker, known.get(entry.step, THE_PROXY))]
    return replay.decide(ask, run, seen)


_UNDER_WAY = frozenset({State.HELD, State.IN_FLIGHT, State.INTERRUPTED})


def _as_tool(entry: Entry, again: bool) -> Entry:
    if entry.live and entry.state in _UNDER_WAY:
        entry = replace(entry, state=State.IN_FLIGHT)  # somebody waits here with a call that is held, or in doubt
    if not entry.mine:
        return replace(entry, watched=False) if not entry.excluded else entry
    if again and entry.lost and entry.state is State.COMPLETED:
        return replace(entry, cut=True)
    return entry


def _another(entry: Entry, asker: Holder, holder: Holder) -> bool:
    """Whether the entry is an equal call that somebody makes now beside the asker, so that this is another one."""
    if not entry.mine or entry.live or not holder.process or entry.state not in _UNDER_WAY:
        return False
    if holder.process == asker.process:
        return holder.sending != asker.sending
    return holder.alive is True


class After(StrEnum):
    """What is done with a step that was claimed or held before and has no result."""

    SEND = "send"  # it did not run, or may run again
    GRANT = "grant"  # its own executor asks once more, and has not begun
    WAIT = "wait"  # a person is to decide
    DOUBT = "doubt"  # ask a person, or a probe, whether it ran


def after(state: State, kind: ToolClass, asker: Holder, holder: Holder) -> After:
    """``state``: of the step; ``holder``: who claimed it last."""
    if state is State.HELD:
        return After.WAIT
    if state is State.FAILED:
        return After.SEND
    if asker.process and (asker.process, asker.sending) == (holder.process, holder.sending):
        return After.GRANT
    return After.DOUBT if kind is ToolClass.ONCE else After.SEND


# Statuses by which an MCP server, or what stands before it, says for certain that it did not run a call. 303 is
# also the answer to what was done.
_REFUSED = frozenset(range(300, 500)) - {303, 408, 409, 425}


def did_not_run(status: int) -> bool:
    """Whether an HTTP status proves that the call was not made. Errors of a server prove nothing."""
    return status in _REFUSED


class Settled(StrEnum):
    """How it was found out what became of a call in doubt."""

    RAN = "ran"
    AGAIN = "again"
    ABORTED = "aborted"
    PENDING = "pending"


_SETTLED = {
    ApprovalState.PENDING: Settled.PENDING,
    ApprovalState.APPROVED: Settled.AGAIN,
    ApprovalState.REUSED: Settled.RAN,
    ApprovalState.REJECTED: Settled.ABORTED,
    ApprovalState.EXPIRED: Settled.ABORTED,
}

OUTCOMES = {"ran": Decision.REUSED, "did_not_run": Decision.APPROVED, "abort": Decision.REJECTED}
"""What a person may say of a call in doubt, and the decision that it is."""


def settled_by(state: ApprovalState) -> Settled:
    """What a decision about a call in doubt comes to: approved, it did not run and is sent again; reused, it ran."""
    return _SETTLED.get(state, Settled.PENDING)


def stands(kind: ToolClass, state: State, aborted: bool, decided: Iterable[ApprovalState]) -> bool:
    """Whether a call did something to the world, or may have. ``decided``: what people and policies said of whether it
    may be made. One that was refused, or not made as its duplicate was, did nothing; neither does one that only reads.
    """
    if kind is ToolClass.READ or state not in (State.COMPLETED, State.IN_FLIGHT, State.INTERRUPTED):
        return False
    return aborted or not _UNMADE & set(decided)


_UNMADE = frozenset({ApprovalState.REJECTED, ApprovalState.EXPIRED, ApprovalState.REUSED})


class Found(NamedTuple):
    """What a probe found. ``ran``: ``None``: it cannot tell, so a person is asked. ``result``: JSON value, of a call
    that ran; ``None``: not known."""

    ran: bool | None = None
    result: Any = None


def found_by_status(status: int, body: Any) -> Found:
    """What a probed address says: 200: it ran, and the body (JSON) is its result; 404 or 410: it did not."""
    if status == 200:
        return Found(True, body)
    return Found(False) if status in (404, 410) else Found()


def found_by_tool(answer: Any) -> Found:
    """What a probing tool says: an object with ``ran``: true or false, and ``result`` where it has one."""
    if isinstance(answer, dict) and isinstance(answer.get("ran"), bool):
        return Found(answer["ran"], answer.get("result"))
    return Found()


def first_matching(tool: str, patterns: Sequence[Sequence[str]]) -> int | None:
    """The place of the first list of patterns that names a tool."""
    return next((at for at, some in enumerate(patterns) if any(fnmatchcase(tool, one) for one in some)), None)


class Proposed(NamedTuple):
    """A call in a model's answer that an agent was given, at step ``number``; ``arguments``: JSON text."""

    number: int
    name: str
    arguments: str


class Made(NamedTuple):
    """A call that was made under a claim, at step ``number``; ``arguments``: ``spelled``."""

    number: int
    server: str
    tool: str
    arguments: str


def paired(proposed: Sequence[Proposed], made: Sequence[Made]) -> dict[int, int]:
    """Which of the proposed calls were made under a claim: place in ``proposed`` to the number of the step that made
    it. Each is of the same tool with equal arguments, made after it was proposed, and no two are one; both in order."""
    by_digest: dict[bytes, list[int]] = {}
    for place, call in enumerate(proposed):
        by_digest.setdefault(policy.call_digest(call.name, call.arguments), []).append(place)
    found: dict[int, int] = {}
    for one in made:
        places = [
            place
            for name in names(one.server, one.tool)
            for place in by_digest.get(policy.call_digest(name, one.arguments), ())
            if place not in found and proposed[place].number < one.number
        ]
        if places:
            found[min(places)] = one.number
    return found
