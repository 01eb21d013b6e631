"""Owns what a session may have passed through: what would be no way around the gate.

Must not ask the provider. Invariant: an answer that is held, refused or edited is not looked up behind the gate's back,
and no call of a tool that policies name is asked for on a path that the gate does not read.
"""

from __future__ import annotations

import re
from typing import Any

from agentstate.core.model import Release
from agentstate.core.policy import Place
from agentstate.dialects.responses_answer import loaded
from agentstate.engine.core import Parts
from agentstate.engine.request import Request
from agentstate.errors import ApprovalUnavailable

_RESPONSE = re.compile(r"(?:.*/)?responses/([^/]+)(?:/.*)?")
# They list what was said in whole conversations, or answers by names that the journal does not keep.
_OTHERS = re.compile(r"(?:.*/)?(?:chat/completions(?:/.*)?|conversations/[^/]+/items(?:/.*)?)")
_OFFERING = ("tools", "functions")
_SCHEMAS = frozenset({"parameters", "parametersJsonSchema", "input_schema", "inputSchema", "output_schema", "response"})


def check(parts: Parts, request: Request) -> None:
    """Refuse a look at what the gate keeps back, and to offer what it cannot. Raises ``ApprovalUnavailable``."""
    session = parts.journal.facts.session(request.session) if request.session else None
    if session is None or request.method == "DELETE":
        if request.session and request.body:
            _check_tools(parts, request, Place(request.session))
        return
    if (found := _RESPONSE.fullmatch(request.normal)) is not None:
        held = parts.journal.read.held(session.id, found[1])
        withheld = held is not None and not held.job and _is_withheld(parts, held.step)
        what = f"answer {found[1]} is held, or was given otherwise than its provider keeps it"
    else:
        withheld = _OTHERS.fullmatch(request.normal) is not None and parts.journal.read.has_withheld(session.id)
        what = "an answer of this session is held, or was given otherwise than its provider keeps it"
    if not withheld and request.body:
        _check_tools(parts, request, parts.gate.place_of(session))
    if withheld:
        raise ApprovalUnavailable(
            f"{what}, and it cannot be looked up there; ask again for the answer itself to be given what was released"
        )


def _check_tools(parts: Parts, request: Request, place: Place) -> None:
    held = [tool for tool in _offered(loaded(request.body)) if parts.gate.policies.may_hold(tool, place)]
    if held:
        raise ApprovalUnavailable(
            f"the request offers {', '.join(held[:5])}, which policies hold, and an answer on this route cannot be "
            "held: use a route that is journaled, leave the tool out, or have a policy allow it here"
        )


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
