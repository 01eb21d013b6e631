"""Owns asking another candidate: what it is sent, and its answer in the agent's own wire format. Must not send.

Invariant: a candidate is sent the agent's bytes but for the name of the model where it speaks the agent's wire format,
else their translation; never credentials that were meant for another provider; and why one cannot be asked is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from agentstate import clock
from agentstate.core.model import Call, Verdict
from agentstate.core.routing import Candidate
from agentstate.dialects import query as query_of
from agentstate.dialects import registry
from agentstate.dialects.base import Dialect
from agentstate.dialects.credentials import HEADERS
from agentstate.dialects.responses_context import conversation_of
from agentstate.dialects.rewriting import with_members
from agentstate.engine import held
from agentstate.errors import AgentStateError, SettingsError
from agentstate.providers.client import Headers, Question
from agentstate.providers.provider import Provider

if TYPE_CHECKING:
    from agentstate.engine.core import Parts

# Wire formats into which a question may be translated, and what their providers want to be told.
_TARGETS = ("openai_chat", "anthropic_messages", "openai_responses")
_WANTED: dict[str, Headers] = {"anthropic": [("anthropic-version", "2023-06-01")]}
_PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_completions": "/v1/completions",
    "openai_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
}
# Who the agent is to the provider that it asked; no concern of another one.
_PERSONAL = HEADERS | {"openai-organization", "openai-project", "x-goog-user-project"}
_OF_GEMINI = re.compile(r"((?:^|/)(?:models|tunedModels)/)[^/:]+(:\w+)$")
_HERE = ("127.0.0.1", "::1", "localhost")
_ASKED_TO_BE_PLAIN = {"stream": None, "stream_options": None}


@dataclass(frozen=True, slots=True)
class Foreign:
    """A question in another wire format than the agent's. ``asked``: the agent's own body."""

    dialect: Dialect
    call: Call
    asked: bytes
    losses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Switch:
    """A candidate that can be asked, and how. ``lost``: where it is asked in the agent's own wire format."""

    candidate: Candidate
    provider: Provider
    question: Question
    foreign: Foreign | None = None
    lost: tuple[str, ...] = ()

    @property
    def losses(self) -> tuple[str, ...]:
        return self.foreign.losses if self.foreign is not None else self.lost


class Unfit(Exception):
    """A candidate cannot be asked this; why, in words."""


class Asking(NamedTuple):
    """A call as it is asked of candidates. ``session``: of the journal; ``None``: it is not journaled; ``retold``: a
    request with the whole transcript as its model is to be told it, see ``engine.overlay``; ``key``: for this
    call alone, in the place of the provider's own."""

    parts: Parts
    dialect: Dialect
    call: Call
    session: int | None
    retold: Callable[[held.Whole], bytes] | None = None
    key: str = ""


def switch_to(job: Asking, candidate: Candidate, asked: Provider, question: Question, strict: bool) -> Switch:
    """How a candidate is asked what ``asked`` was sent as ``question``. ``strict``: nothing may be lost. Raises
    ``Unfit``."""
    provider = job.parts.providers.named(candidate.provider)
    if provider is None:
        raise Unfit(f"no provider of the settings is called {candidate.provider}")
    if provider.name == asked.name:
        return _own_format(job, candidate, provider, question, question.body, strict)
    if job.call.secrets:
        raise Unfit("the request holds credentials that are for its own provider")
    if job.call.path.partition("?")[0].endswith("responses/compact"):
        raise Unfit("what a provider makes of a conversation in its own form is of no use to another")
    body = _standing_alone(job, question.body)
    if job.dialect.provider in provider.dialects:
        path = _PATHS.get(job.dialect.name, question.path)
        query = query_of.without_credentials(question.query) if job.dialect.name == "gemini" else ""
        moved = question._replace(path=path, query=query, headers=headers_for(job, provider, question.headers))
        return _own_format(job, candidate, provider, moved, body, strict, elsewhere=True)
    return _translated(job, candidate, provider, question, body, strict)


def _own_format(
    job: Asking, candidate: Candidate, provider: Provider, question: Question, body: bytes, strict: bool,
    elsewhere: bool = False,
) -> Switch:  # fmt: skip
    """One that speaks the agent's wire format is sent its bytes, less thoughts that only their author can check."""
    lost: tuple[str, ...] = ()
    thinking = _thinking()
    if thinking.bound(job.dialect.name, job.call.model, candidate.model, elsewhere):
        try:
            body, lost = thinking.without(job.dialect.name, body, candidate.model)
        except (ValueError, IndexError) as error:
            raise Unfit("the request cannot be read well enough to take another model's thinking out of it") from error
    if strict and lost:
        raise Unfit(f"this would be lost: {', '.join(lost)}")
    asked = _same_place(job, question._replace(body=body), candidate.model)
    return Switch(candidate, provider, asked, lost=lost)


def _thinking() -> Any:
    """The module that takes thinking out, loaded when it is first needed."""
    from agentstate.dialects import foreign_thinking

    return foreign_thinking


def _same_place(job: Asking, question: Question, model: str) -> Question:
    """The same question about another model, byte for byte but for its name."""
    if job.dialect.name == "gemini":
        path, changed = _OF_GEMINI.subn(rf"\g<1>{quote(model, safe='')}\g<2>", question.path)
        if not changed:
            raise Unfit("its address does not say where the model's name stands")
        return question._replace(path=path)
    if "/deployments/" in question.path:
        raise Unfit("the model is named by a deployment in the address")
    try:
        return question._replace(body=with_members(question.body, {"model": msgspec.json.encode(model)}))
    except (ValueError, IndexError) as error:
        raise Unfit("the request cannot be read well enough to name another model in it") from error


def _standing_alone(job: Asking, body: bytes) -> bytes:
    """The body without pointers to what only the first provider holds."""
    if job.dialect.name == "openai_responses" and conversation_of(body):
        raise Unfit("it is a part of a conversation that only its own provider holds")
    # What was made whole already, as its own provider holds something else, has no pointer any more.
    if not job.call.previous or not job.dialect.parse(job.call.method, job.call.path, body).previous:
        return body
    whole = None if job.session is None else held.whole(job.parts, job.session, job.call.previous, body)
    if whole is None or job.retold is None:
        raise Unfit("it goes on from an answer that only its own provider holds")
    return job.retold(whole)


def headers_for(job: Asking, provider: Provider, headers: Headers) -> Headers:
    """The agent's headers for another provider, with our key for that one; none where it is on this host. Raises
    ``Unfit`` where there is no key."""
    try:
        ours = provider.carrying(job.key) if job.key else provider.credentials()
    except SettingsError as error:
        raise Unfit(error.message) from None
    if not ours and "ollama" not in provider.dialects and urlsplit(provider.root).hostname not in _HERE:
        raise Unfit(f"there is no key for it: set providers.{provider.name}.key_env")
    return [pair for pair in headers if pair[0].lower() not in _PERSONAL] + ours


def _translator() -> Any:
    """The module that translates, loaded when it is first needed."""
    from agentstate.dialects import translate

    return translate


def _translated(
    job: Asking, candidate: Candidate, provider: Provider, question: Question, body: bytes, strict: bool
) -> Switch:
    translate, source = _translator(), job.dialect.name
    fitting = (
        name
        for name in _TARGETS
        if registry.BY_NAME[name].provider in provider.dialects and translate.translatable(source, name)
    )
    target = next(fitting, None)
    if target is None:
        raise Unfit("it speaks no wire format that the request can be translated into")
    try:
        made = translate.question(source, target, body, candidate.model)
        dialect = registry.BY_NAME[target]
        path = "/v1/" + made.path.strip("/").removeprefix("v1/")
        plain = made.body
        call = dialect.parse("POST", registry.normalise(path), plain)
        if call.shape.stream:
            plain = with_members(plain, _ASKED_TO_BE_PLAIN)
            call = dialect.parse("POST", registry.normalise(path), plain)
    except AgentStateError as error:
        raise Unfit(error.message) from None
    if strict and made.losses:
        raise Unfit(f"this would be lost: {', '.join(made.losses)}")
    agent = next((value for name, value in question.headers if name.lower() == "user-agent"), "AgentState")
    headers: Headers = [("content-type", "application/json"), ("accept", "application/json"), ("user-agent", agent)]
    headers += [*_WANTED.get(dialect.provider, []), ("accept-encoding", "identity")]
    sent = Question("POST", path, "", headers_for(job, provider, headers), plain)
    return Switch(candidate, provider, sent, Foreign(dialect, call, body, tuple(made.losses)))


def answered(dialect: Dialect, call: Call, foreign: Foreign, body: bytes) -> tuple[bytes, Verdict, tuple[str, ...]]:
    """A foreign answer in the agent's wire format, plain: (body, what it says, everything that was lost). What it used
    is told as its own provider does. Raises ``Unfit`` for an answer that cannot be carried over."""
    received = foreign.dialect.judge(foreign.call, body)
    if received.fault or received.failed:
        return body, received, foreign.losses
    try:
        made = _translator().answer(dialect.name, foreign.dialect.name, foreign.asked, body, created=int(clock.now()))
    except AgentStateError as error:
        raise Unfit(error.message) from None
    verdict = dialect.judge(call, made.body)
    lost = tuple(sorted({*foreign.losses, *made.losses}))
    return made.body, verdict._replace(model=received.model, usage=received.usage, answer_id=""), lost


def warned(losses: tuple[str, ...]) -> bool:
    """Whether what is lost are tools or the structure of the answer, so that people should hear of it."""
    return bool(losses) and bool(_translator().loses_tools_or_structure(losses))
