"""Owns a test call: one token of one model, asked with the proxy's own key or where none is needed.

Must not answer an agent. Invariant: it is a call like any other: in the journal before a byte leaves, under the
budgets, counted; it is sent to the provider that was named and to no other, and never with a key of an agent's.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit

from agentstate import clock
from agentstate.core import routing
from agentstate.core.model import ReplayMode, SessionStatus
from agentstate.dialects import registry
from agentstate.dialects.usage import tokens
from agentstate.engine.answer import Answering
from agentstate.engine.presence import Connection
from agentstate.engine.request import Request
from agentstate.engine.standing import untestable
from agentstate.errors import AgentStateError, BadRequest, Conflict, NotFound
from agentstate.providers.provider import Provider

if TYPE_CHECKING:
    from agentstate.engine.core import Parts

_BOUND_S = 120.0
_MOST_MODEL = 200  # characters
_ASKED = "Answer with one word."


class Tested(NamedTuple):
    """How a test call went. ``status``: HTTP, 0 where none came; ``error``: empty where it was answered; ``took_s``:
    seconds; ``cost``: USD, ``None``: not known; ``step`` of ``session``: where it stands in the journal."""

    provider: str
    model: str
    status: int
    error: str
    took_s: float
    tokens: int
    cost: float | None
    session: str
    step: int


async def send_one_token(parts: Parts, name: str, model: str) -> Tested:
    """Ask a provider's model for one token, at most. A fault of the provider's is told, not raised.

    Raises ``NotFound``, ``BadRequest``, ``Conflict`` where it cannot be asked, ``BudgetExceeded``.
    """
    provider = parts.providers.named(name)
    if provider is None:
        raise NotFound(f"no provider of the settings is called {name!r}; there are {', '.join(parts.providers.kinds)}")
    if why := untestable(provider, parts.settings.simulate.enabled):
        raise Conflict(f"{name} cannot be sent a test call: {why}")
    if not model or len(model) > _MOST_MODEL or not model.isprintable():
        raise BadRequest(f"name the model to ask, in 1 to {_MOST_MODEL} characters")
    session = f"test-{name}"
    before = _steps(parts, session)
    fault = await _asked(parts, provider, model, session)
    known = parts.journal.read.session(session)
    if known is None or known.steps <= before:  # nothing was begun
        raise fault or Conflict(f"{name} was not asked; try again")
    await parts.journal.set_status(known.id, SessionStatus.COMPLETED)
    return _found(parts, provider, model, session, known.steps - 1, fault)


def _steps(parts: Parts, session: str) -> int:
    row = parts.journal.read.session(session)
    return row.steps if row is not None else 0


async def _asked(parts: Parts, provider: Provider, model: str, session: str) -> AgentStateError | None:
    """Ask, and wait for the end; the fault that it ended with."""
    kind = "openai" if parts.settings.simulate.enabled else provider.dialects[0]
    request = _request(provider, kind, model, session)
    dialect = registry.for_path(request.method, request.normal)
    assert dialect is not None
    try:
        async with asyncio.timeout(_BOUND_S):
            answer = await Answering(parts).answer(request, dialect)
    except AgentStateError as error:
        return error
    except TimeoutError:
        return Conflict(f"{provider.name} did not answer within {_BOUND_S:g} s; the journal keeps what it still says")
    finally:
        parts.presence.closed(request.connection)
    answer.close(answer.body is not None)
    if answer.body is None:
        return Conflict("it waits for a person, as a budget is reached: see the approvals")
    return None


def _request(provider: Provider, kind: str, model: str, session: str) -> Request:
    path, body = _question(provider, kind, model)
    headers = [("content-type", "application/json"), ("user-agent", "AgentState")]
    if kind == "anthropic":
        headers.append(("anthropic-version", "2023-06-01"))
    return Request(
        "POST", path, registry.normalise(path), "", headers, json.dumps(body).encode(), Connection(None, None), session,
        clock.run_id(), mode=ReplayMode.OFF, fallback=routing.NONE, provider=provider.name,
    )  # fmt: skip


def _question(provider: Provider, kind: str, model: str) -> tuple[str, dict[str, Any]]:
    """(path, body) of a question that asks for one token, in a wire format that the provider speaks."""
    asked: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": _ASKED}]}
    if kind == "anthropic":
        return "/v1/messages", asked | {"max_tokens": 1}
    if kind == "gemini":
        said = {"contents": [{"role": "user", "parts": [{"text": _ASKED}]}], "generationConfig": {"maxOutputTokens": 1}}
        return f"/v1beta/models/{quote(model, safe='')}:generateContent", said
    if kind == "ollama":
        return "/api/chat", asked | {"stream": False, "options": {"num_predict": 1}}
    # OpenAI's own models of today refuse the name by which compatible providers know the limit.
    limit = "max_completion_tokens" if urlsplit(provider.root).hostname == "api.openai.com" else "max_tokens"
    return "/v1/chat/completions", asked | {limit: 1}


def _found(
    parts: Parts, provider: Provider, model: str, session: str, number: int, fault: AgentStateError | None
) -> Tested:  # fmt: skip
    """What the journal says of it."""
    read = parts.journal.read
    row = read.session(session)
    step = read.step_by_number(row.id, number) if row is not None else None
    assert step is not None
    last = read.attempts(step)[-1]
    recorded = read.received(step)
    error = last.error or (fault.message if fault is not None else "")
    if not error and not 200 <= last.status < 300:
        error = f"HTTP {last.status}"
    took = (last.finished_at or clock.now()) - last.started_at
    return Tested(
        provider.name, model, last.status, error, took, tokens(recorded.usage).total, last.cost, session, number
    )  # fmt: skip
