"""Owns ``session()``: where one session's calls go, in every form that a client without a wrapper of ours may want.

Must not: know any framework, or open a connection but to mark a session as completed at its end, where that is wanted.
Invariant: every address, header and variable it gives names the same session and the same run.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit, urlunsplit

from agentstate.errors import AgentStateError, Unauthorized
from agentstate.sdk import http

if TYPE_CHECKING:
    from typing import Self

TOKEN_VARIABLE = "AGENTSTATE_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
BOUND_S = 10.0
"""How long the proxy may take to note that a session is completed."""

_IDS_IN_PATH = re.compile(r"/s/[^/]+(?:/r/[^/]+)?$")
# The same variables as of `agentstate run`, which cannot be imported from here; a test compares the two.
_OPENAI = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
_BARE = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE", "ANTHROPIC_API_URL", "GOOGLE_GEMINI_BASE_URL", "OLLAMA_HOST")
_CUSTOM_HEADERS = ("OPENAI_CUSTOM_HEADERS", "ANTHROPIC_CUSTOM_HEADERS")
_NO_PROXY = ("NO_PROXY", "no_proxy")


_current: ContextVar[session | None] = ContextVar("agentstate_session", default=None)


def current() -> session | None:
    """The session in whose block this is called, else the one of ``AGENTSTATE_SESSION_ID``; ``None``: neither."""
    found = _current.get()
    if found is None and os.environ.get("AGENTSTATE_SESSION_ID"):
        found = session()
    return found


class session:
    """Addresses, headers and variables by which any client works within one session of the proxy.

    Use it with ``with``, with ``async with``, or without either; entering it neither connects nor waits.

    ``session_id``: the durable name of the work, 1 to 256 characters of any script; None takes
    ``AGENTSTATE_SESSION_ID``.
    ``base_url``: the proxy's address, with ``/v1`` or without; None takes ``AGENTSTATE_URL``, else
    ``http://localhost:8080/v1``.
    ``complete``: mark the session as completed when the block ends without an exception, so that the same questions
    under the same name are new work and not replayed. Left off, the session stays open: a later run replays it. Needs
    the admin token.
    ``admin_token``: None takes ``AGENTSTATE_ADMIN_TOKEN``. Used for ``complete`` alone.

    Raises ``ValueError`` or ``TypeError`` for a session id or address that cannot be sent, and for ``complete`` without
    a token. With ``complete``, leaving the block raises ``AgentStateError`` when the proxy could not be told.
    """

    id: str
    """The session's id."""
    run: str
    """The run id: ``AGENTSTATE_RUN_ID``, else one made at random once per process."""
    base_url: str
    """For clients that speak OpenAI's formats: ends in ``/v1``, names session and run."""
    anthropic_base_url: str
    """For clients that add ``/v1`` by themselves, Anthropic's for one: the same without it."""
    gemini_base_url: str
    """For Gemini clients, which add ``/v1beta`` or ``/v1`` by themselves."""

    def __init__(
        self,
        session_id: str | None = None,
        base_url: str | None = None,
        *,
        complete: bool = False,
        admin_token: str | None = None,
    ) -> None:
        where = http.target(session_id, 0, base_url)
        self.id, self.run = where.session_id, where.run_id
        parts = urlsplit(where.base_url)
        proxy = _IDS_IN_PATH.sub("", parts.path.removesuffix("/v1"))
        root = f"{proxy}/s/{quote(self.id, safe='')}/r/{quote(self.run, safe='')}"
        self._proxy = urlunsplit(parts._replace(path=proxy))
        self.base_url = urlunsplit(parts._replace(path=root + "/v1"))
        self.anthropic_base_url = self.gemini_base_url = urlunsplit(parts._replace(path=root))
        self._headers = {
            name: value for name, value in where.headers.items() if name in (http.SESSION_HEADER, http.RUN_HEADER)
        }
        self._within: list[Token[session | None]] = []
        self._complete = complete
        self._token = (admin_token or os.environ.get(TOKEN_VARIABLE) or "").strip() if complete else ""
        if complete and not self._token:
            raise ValueError(f"complete=True needs the proxy's admin token: give admin_token, or set {TOKEN_VARIABLE}")

    @property
    def headers(self) -> dict[str, str]:
        """Session and run id for a client whose address names neither; a session that no header carries is left out.

        A new dict each time, names in lower case.
        """
        return dict(self._headers)

    @property
    def environ(self) -> dict[str, str]:
        """The variables by which client libraries find a provider, for ``env=os.environ | s.environ`` of a child.

        Lines that ``OPENAI_CUSTOM_HEADERS`` and ``ANTHROPIC_CUSTOM_HEADERS`` hold now, and names in ``NO_PROXY``, are
        kept. The child belongs to this run, so one that is started again within it is no new run.
        """
        made = dict.fromkeys(_OPENAI, self.base_url) | dict.fromkeys(_BARE, self.anthropic_base_url)
        made |= {name: _with_headers(os.environ.get(name, ""), self._headers) for name in _CUSTOM_HEADERS}
        host = urlsplit(self._proxy).hostname or ""
        made |= {name: _without_proxy(os.environ.get(name, ""), host) for name in _NO_PROXY}
        ids = {"AGENTSTATE_SESSION_ID": self.id, "AGENTSTATE_RUN_ID": self.run}
        return made | {"AGENTSTATE_URL": self._proxy + "/v1"} | ids

    def mcp_url(self, server: str) -> str:
        """The address of an MCP server of the proxy's settings, for a client that speaks streamable HTTP."""
        return f"{self.anthropic_base_url}/mcp/{quote(server, safe='')}"

    def __enter__(self) -> Self:
        self._within.append(_current.set(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        if self._complete and kind is None:
            self._mark_completed()

    def _leave(self) -> None:
        """Tools that are called from here on do not belong to this session any more."""
        before = self._within.pop()
        try:
            _current.reset(before)
        except ValueError:  # left in another context than it was entered in
            _current.set(None)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        if self._complete and kind is None:
            import asyncio

            await asyncio.to_thread(self._mark_completed)

    def __repr__(self) -> str:
        return f"session({self.id!r}, run={self.run!r})"

    def _mark_completed(self) -> None:
        import urllib.error
        import urllib.request
        from http.client import HTTPException

        request = urllib.request.Request(  # noqa: S310 - the scheme was checked with the address
            f"{self._control}/api/sessions/{quote(self.id, safe='')}/status",
            data=json.dumps({"status": "COMPLETED"}).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
            method="POST",
        )
        # No HTTP proxy of the environment stands between an agent and its own proxy.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=BOUND_S) as reply:
                reply.read()
        except urllib.error.HTTPError as error:
            with error:
                code = _code(error.read())
            if (error.code, code) == (404, "not_found"):
                return  # no call of the session was journaled: a later run has nothing to be replayed
            raise self._refusal(error.code) from error
        except (OSError, HTTPException) as error:
            raise AgentStateError(
                f"session {self.id!r} is done but could not be marked so: the proxy at {self._control} does not answer "
                f"({error}). Until it is marked, the same questions under this name are replayed"
            ) from error

    @property
    def _control(self) -> str:
        """Where the control plane is: the proxy's address without an agent's key."""
        parts = urlsplit(self._proxy)
        return urlunsplit(parts._replace(path=re.sub(r"/k/[^/]+$", "", parts.path)))

    def _refusal(self, status: int) -> AgentStateError:
        if status == 401:
            return Unauthorized(
                f"the proxy refuses the admin token, so session {self.id!r} is not marked as completed: "
                f"give the token of its data folder as admin_token, or set {TOKEN_VARIABLE}"
            )
        return AgentStateError(
            f"{self._control} answered {status} instead of marking session {self.id!r} as completed: is it the proxy's "
            "address? Until the session is marked, the same questions under its name are replayed"
        )


def _code(body: bytes) -> str:
    """The code of an error of the proxy's; empty for a body of another shape."""
    try:
        return str(json.loads(body)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return ""


def _with_headers(given: str, ours: Mapping[str, str]) -> str:
    """``name: value`` lines: those that were there, without an outer run's ids, and ours."""
    kept = [line for line in given.splitlines() if line.strip()]
    names = (http.SESSION_HEADER, http.RUN_HEADER)
    kept = [line for line in kept if line.partition(":")[0].strip().lower() not in names]
    return "\n".join([*kept, *(f"{name}: {value}" for name, value in ours.items())])


def _without_proxy(given: str, host: str) -> str:
    """A NO_PROXY list with this machine and the proxy's host in it."""
    names = [name.strip() for name in given.split(",") if name.strip()]
    if "*" in names:
        return given
    return ",".join(names + [name for name in dict.fromkeys(("127.0.0.1", "localhost", host)) if name not in names])
