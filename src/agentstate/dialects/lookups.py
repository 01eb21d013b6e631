"""Owns which requests look up what a provider keeps, and by which names providers keep an answer. Must not judge them.

Invariant: a name is found in a path however deep below it the request asks; of an answer, every name is found under
which its provider may give a call of it to somebody else.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from agentstate.core.model import Shape
from agentstate.dialects import sse
from agentstate.dialects.responses_answer import loaded

RESPONSE, COMPLETION, CONVERSATION = "response", "completion", "conversation"
_PATHS = (
    (RESPONSE, re.compile(r"(?:.*/)?responses/([^/]+)(?:/(.*))?")),
    (COMPLETION, re.compile(r"(?:.*/)?chat/completions(?:/([^/]+)(?:/(.*))?)?")),
    (CONVERSATION, re.compile(r"(?:.*/)?conversations/([^/]+)/(items(?:/.*)?)")),
)
_NEITHER = frozenset({"compact", "input_tokens"})  # below ``responses``, and no answers
_MOST = 64  # names of one answer, far above what any has


class Lookup(NamedTuple):
    """``kind``: of what is looked up; ``name``: the provider's for it, empty where all are listed; ``below``: what of
    it, empty: all."""

    kind: str
    name: str
    below: str = ""

    @property
    def history(self) -> bool:
        """Whether it shows what was said before that answer, in answers that it does not name."""
        return self.kind is RESPONSE and self.below.startswith("input_items")


def lookup(path: str) -> Lookup | None:
    """What a normalised path looks up, whatever the method; ``None``: no answer."""
    for kind, pattern in _PATHS:
        found = pattern.fullmatch(path)
        if found is not None and not (kind is RESPONSE and found[1] in _NEITHER):
            return Lookup(kind, found[1] or "", found[2] or "")
    return None


def names(request: bytes, shape: Shape, answer: bytes) -> tuple[str, ...]:
    """The names under which a provider may keep an answer: its own, and that of the conversation it is a part of."""
    found: dict[str, None] = {}
    told = loaded(request)
    _add(found, told.get("conversation") if isinstance(told, dict) else None)
    for data in map(sse.data_of, sse.events(answer)) if shape.stream else (answer,):
        value = loaded(data or b"null")
        if isinstance(value, dict):
            inner = value.get("response")
            for one in (value, inner if isinstance(inner, dict) else {}):
                _add(found, one.get("id"))
                _add(found, one.get("conversation"))
        if len(found) >= _MOST:
            break
    return tuple(found)


def _add(found: dict[str, None], name: object) -> None:
    """A name, or the object that has it."""
    text = name.get("id") if isinstance(name, dict) else name
    if isinstance(text, str) and text:
        found[text] = None
