"""Owns what a session may look up at its provider: answers that it keeps, and that agents were not given as they came.

Must not ask the provider. Invariant: an answer that is held, refused or edited is not looked up behind the gate's back.
"""

from __future__ import annotations

import re

from agentstate.core.model import Release
from agentstate.engine.core import Parts
from agentstate.engine.request import Request
from agentstate.errors import ApprovalUnavailable

_RESPONSE = re.compile(r"(?:.*/)?responses/([^/]+)(?:/.*)?")
# They list what was said in whole conversations, or answers by names that the journal does not keep.
_OTHERS = re.compile(r"(?:.*/)?(?:chat/completions(?:/.*)?|conversations/[^/]+/items(?:/.*)?)")


def check(parts: Parts, request: Request) -> None:
    """Refuse a look at what the gate keeps back. Raises ``ApprovalUnavailable``."""
    session = parts.journal.facts.session(request.session) if request.session else None
    if session is None or request.method == "DELETE":
        return
    if (found := _RESPONSE.fullmatch(request.normal)) is not None:
        held = parts.journal.read.held(session.id, found[1])
        withheld = held is not None and not held.job and _is_withheld(parts, held.step)
        what = f"answer {found[1]} is held, or was given otherwise than its provider keeps it"
    else:
        withheld = _OTHERS.fullmatch(request.normal) is not None and parts.journal.read.has_withheld(session.id)
        what = "an answer of this session is held, or was given otherwise than its provider keeps it"
    if withheld:
        raise ApprovalUnavailable(
            f"{what}, and it cannot be looked up there; ask again for the answer itself to be given what was released"
        )


def _is_withheld(parts: Parts, step: int) -> bool:
    answer = parts.journal.read.answer(step)
    if answer.release is None:
        return False
    return answer.release is not Release.ANSWER or answer.body != parts.journal.read.received(step).body
