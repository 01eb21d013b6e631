"""Owns what a session may have passed through: what would be no way around the gate.

Must not ask the provider. Invariant: an answer that is held, refused or edited is not looked up behind the gate's back,
in its own session or another, and no call of a tool that policies name is asked for on a path that the gate does not
read.
"""

from __future__ import annotations

from typing import Any

from agentstate.core.model import Release
from agentstate.core.policy import Place
from agentstate.dialects.lookups import RESPONSE, Lookup, lookup
from agentstate.dialects.multipart import fields
from agentstate.dialects.responses_answer import loaded
from agentstate.engine.core import Parts
from agentstate.engine.request import Request
from agentstate.errors import ApprovalUnavailable, NotFound
from agentstate.store.rows import SessionRow

_FILE = "file"
_OFFERING = ("tools", "functions")
_SCHEMAS = frozenset({"parameters", "parametersJsonSchema", "input_schema", "inputSchema", "output_schema", "response"})


def check(parts: Parts, request: Request) -> None:
    """Refuse a look at what the gate keeps back, and to offer what it cannot. Raises ``ApprovalUnavailable``, and
    ``NotFound`` for what is kept back from another session."""
    if not request.session:
        return
    session = parts.journal.facts.session(request.session)
    asked = lookup(request.normal) if request.method != "DELETE" else None
    if asked is not None:
        _check_lookup(parts, session, asked)
    if request.body:
        _check_tools(parts, request, parts.gate.place_of(session) if session is not None else Place(request.session))


def _check_lookup(parts: Parts, session: SessionRow | None, asked: Lookup) -> None:
    read = parts.journal.read
    view = parts.view(session) if session is not None else None
    held = None
    if session is not None and view is not None and asked.kind is RESPONSE:
        held = read.held_shown(session.id, asked.name, view.shared)
    withheld = False
    what = "an answer of this session is held, or was given otherwise than its provider keeps it"
    if session is not None and view is not None and (asked.kind is not RESPONSE or asked.history):
        # It lists what was said in whole conversations, or answers by names that the journal need not know.
        withheld = bool(view.edits) or read.has_withheld(session.id, view.shared)
    elif held is not None and not held.job:  # what is given of a job is for ``jobs`` to say
        withheld = (view is not None and held.step in view.edits) or _is_withheld(parts, held.step)
        what = f"answer {asked.name} is held, or was given otherwise than its provider keeps it"
    if withheld:
        raise ApprovalUnavailable(
            f"{what}, and it cannot be looked up there; ask again for the answer itself to be given what was released"
        )
    if held is None and _is_of_others(parts, asked):
        raise NotFound(
            f"there is no {asked.kind} {asked.name[:80] or 'to list'} in this session: it is of one in which an answer "
            "is held, or was given otherwise than its provider keeps it; ask in that session"
        )


def _is_of_others(parts: Parts, asked: Lookup) -> bool:
    """Whether a look shows, or may show, what is kept back from another session."""
    read = parts.journal.read
    if asked.history:
        return read.withholds_in("openai_responses")
    if not asked.name:
        return read.withholds_in("openai_chat")
    if asked.kind is RESPONSE and read.job_owner(asked.name):
        return False
    return read.withheld_as(asked.name)


def _check_tools(parts: Parts, request: Request, place: Place) -> None:
    held = [tool for tool in _offered(_said(request)) if parts.gate.policies.may_hold(tool, place)]
    if held:
        raise ApprovalUnavailable(
            f"the request offers {', '.join(held[:5])}, which policies hold, and an answer on this route cannot be "
            "held: use a route that is journaled, leave the tool out, or have a policy allow it here"
        )


def _said(request: Request) -> Any:
    """The body of a request as a JSON value, or those in the fields of a form. Of a file only one of requests is read:
    what others hold is for nobody to answer."""
    kinds = [value for name, value in request.headers if name.lower() == "content-type"]
    form = [field for kind in kinds for field in fields(kind, request.body)]
    if not form:
        return loaded(request.body)
    said: list[Any] = [{name: loaded(content)} for name, content in form if name != _FILE]
    if any((name, content.strip()) == ("purpose", b"batch") for name, content in form):
        said += [loaded(line) for name, content in form if name == _FILE for line in content.splitlines()]
    return said


def _offered(body: Any) -> list[str]:
    """The names of all tools that a request of any kind offers."""
    found: dict[str, None] = {}
    left: list[tuple[Any, bool]] = [(body, False)]  # a value, and whether it is one of tools
    while left:
        value, tools = left.pop()
        if isinstance(value, list):
            left += [(one, tools) for one in value]
        elif isinstance(value, dict):
            named = [value.get("name"), *([] if "name" in value else [value.get("type")])] if tools else []
            found |= {name: None for name in named if isinstance(name, str)}
            left += [(one, tools or key in _OFFERING) for key, one in value.items() if key not in _SCHEMAS]
    return list(found)


def _is_withheld(parts: Parts, step: int) -> bool:
    answer = parts.journal.read.answer(step)
    if answer.release is None:
        return False
    return answer.release is not Release.ANSWER or answer.body != parts.journal.read.received(step).body
