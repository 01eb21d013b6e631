"""Owns conversations that a provider holds, where they are not what this branch was given: sending the whole transcript
in the place of their name. Must not write into one.

Invariant: what is sent is what the journal holds of the branch, behind what the conversation held before this session;
where the provider's list shows that more was put into it, nothing is sent and the agent is told.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from agentstate.core.model import Release, Shape, State
from agentstate.dialects import registry
from agentstate.dialects.responses_answer import loaded
from agentstate.dialects.responses_context import conversation_of, inputs, outputs_of
from agentstate.engine.core import Parts
from agentstate.engine.held import Link, Whole, as_whole, link_of
from agentstate.errors import ApprovalUnavailable, BadRequest
from agentstate.store.branches import is_in
from agentstate.store.rows import SessionRow

_NAME = re.compile(r"[\w-]{1,256}")
_PAGE = 1000  # steps read at a time
_ITEMS = 100  # of a page of the provider's, the most that it gives
_MOST_PAGES = 100

# id of the last item known -> (status, body) of the next page of the conversation's items, oldest first
Look = Callable[[str], Awaitable[tuple[int, bytes]]]


class _Exchange(NamedTuple):
    """``received``: the items that its provider answered with; ``own``: it is not of the session from which this one
    was forked."""

    link: Link
    shown: bool
    release: Release | None
    received: list[bytes]
    own: bool = True


async def whole(parts: Parts, session: SessionRow, step: int, sent: bytes, look: Look) -> Whole | None:
    """The request ``sent``, which ``step`` asks, with the transcript in the place of its conversation's name, where
    that holds what a person edited or refused, or what was rolled back, and in a fork, which never writes into the
    conversations of others. ``None``: it holds what agents were given. Raises ``ApprovalUnavailable`` where the
    transcript cannot be known."""
    name = conversation_of(sent)
    if not name:
        return None
    told = _exchanges(parts, session, name, step)
    if not any(not one.own or not one.shown or one.link.differs or one.release is Release.ERROR for one in told):
        return None
    chain = [one.link for one in told if one.shown and one.release is not Release.ERROR]
    try:
        return as_whole(chain, sent, await _before(name, told, look))
    except BadRequest as error:
        raise _unknown(name, error.message) from None


def _exchanges(parts: Parts, session: SessionRow, name: str, before: int) -> list[_Exchange]:
    """What the session, and those from which it was forked, have said in a conversation, on any branch, before a step;
    in order."""
    branches = parts.journal.read.branches(session.id)
    family = dict.fromkeys(row.session for _, row in sorted(branches.items()))
    return [one for key in family for one in _said_in(parts, session, key, name, before)]


def _said_in(parts: Parts, session: SessionRow, key: int, name: str, before: int) -> list[_Exchange]:
    """The part of it that the session ``key`` has said."""
    read = parts.journal.read
    view = parts.view(session)
    found: list[_Exchange] = []
    start = 0
    while rows := read.steps(key, start=start, limit=_PAGE):
        for row in rows:
            if row.dialect != "openai_responses" or row.state is not State.COMPLETED or row.id == before:
                continue
            *_, body = read.request(row.id)
            if conversation_of(body) == name:
                here = is_in(view.shown, row.branch, row.number) and row.id not in view.barred
                received = read.received(row.id)
                plain = registry.BY_NAME[row.dialect].convert(received.shape, Shape(), received.body)
                release = read.answer(row.id).release
                link = link_of(parts, session, row.id, body)
                found.append(_Exchange(link, here, release, outputs_of(plain), key == session.id))
        start = rows[-1].number + 1
    return found


async def _before(name: str, told: list[_Exchange], look: Look) -> list[bytes]:
    """What the conversation held before the session's first exchange in it. Raises ``ApprovalUnavailable`` unless all
    that it holds now is that and what the session said."""
    held = await _items(name, look)
    ids = [item.get("id") for item in map(loaded, held)]
    first: int | None = None
    said = 0
    for one in told:
        there = [ids.index(item) for raw in one.received if (item := str(loaded(raw).get("id") or "")) in ids]
        if not there:
            continue  # it was sent with its transcript, and is not in there
        asked = len(inputs(one.link.request))
        said += asked + len(one.received)
        first = there[0] - asked if first is None else first
    if first is None or first < 0 or first + said != len(held):
        raise _unknown(name, "it holds items that the journal does not tell of")
    return held[:first]


async def _items(name: str, look: Look) -> list[bytes]:
    if not _NAME.fullmatch(name):
        raise _unknown(name, "its name is none that could be looked up")
    found: list[bytes] = []
    last = ""
    for _ in range(_MOST_PAGES):
        status, body = await look(last)
        page: Any = loaded(body) if 200 <= status < 300 else None
        if not isinstance(page, dict) or not isinstance(page.get("data"), list):
            raise _unknown(name, f"the provider answered status {status} when asked for its items")
        items = [item for item in page["data"] if isinstance(item, dict)]
        found += [json.dumps(item, ensure_ascii=False).encode("utf-8", "surrogatepass") for item in items]
        last = str(items[-1].get("id") or "") if items else ""
        if not page.get("has_more") or not last:
            return found
    raise _unknown(name, f"it has more than {_MOST_PAGES * _ITEMS} items")


def _unknown(name: str, why: str) -> ApprovalUnavailable:
    return ApprovalUnavailable(
        f"conversation {name} holds what was edited, refused, rolled back or forked, and what it should hold instead "
        f"cannot be known: {why}. Go on without `conversation`, with the messages in the input, or in a new one"
    )
