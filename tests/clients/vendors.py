"""Owns the scripted model for clients that the simulator cannot speak to: OpenAI's formats, Anthropic's, Gemini's.

Must not know any client. Invariant: an offered tool is called until two results are there, then comes a text; no answer
is like another, so equal output after a restart proves that nothing was paid twice.
"""

from __future__ import annotations

from typing import Any

from tests.clients.matrix.model import read
from tests.clients.matrix.spelling import Said, plain, streamed
from tests.support import upstream
from tests.support.upstream import Reply, Seen

TURNS = 2


def answer(seen: Seen) -> Reply:
    """A script for ``Upstream``: the next answer, in the format and shape that the request asks for."""
    wire, stream, model = read(seen)
    if not wire:
        return upstream.plain(b'{"error":{"message":"no such path"}}', 404)
    said = _said(seen, model)
    return upstream.stream(*streamed(wire, said)) if stream else upstream.plain(plain(wire, said))


def _said(seen: Seen, model: str) -> Said:
    name = f"call-{seen.number}"
    asked: dict[str, Any] = seen.json()
    results = seen.body.count(b'"tool_result"')
    tools = asked.get("tools") or []
    if not tools or results >= TURNS:
        return Said(name, model, text=f"Answer {name} after {results} tool results.")
    tool = tools[results % len(tools)]
    fields = {field: f"{field} {seen.number}" for field in tool["input_schema"]["properties"]}
    return Said(name, model, tool=tool["name"], arguments=fields)
