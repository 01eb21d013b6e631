"""Owns the OpenAI clients: the vendor's own classes, pointed at the proxy and naming their session.

Must not: change what the vendor's client does otherwise, or need its package before a client class is asked for.
Invariant: a copy made by ``copy()`` or ``with_options()`` belongs to the same session and run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from agentstate.sdk import http

if TYPE_CHECKING:
    from typing import Self

    from openai import AsyncOpenAI, OpenAI

# Credentials that replace an API key; with one of these there is nothing to fill in.
_OTHER_CREDENTIALS = ("admin_api_key", "workload_identity", "provider")


class _SessionClient:
    """The part that is equal in the plain and the async client; stands before the vendor's class."""

    session_id: str
    run_id: str
    step_number: int

    def __init__(
        self,
        session_id: str | None = None,
        step_number: int = 0,
        base_url: Any = None,
        api_key: Any = None,
        require_approval: bool = False,
        fallback_model: str | Iterable[str] | None = None,
        *,
        default_headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(fallback_model, str | None):
            fallback_model = tuple(fallback_model)  # read here and again by every copy
        where = http.target(
            session_id, step_number, base_url, require_approval=require_approval, fallback_model=fallback_model
        )
        if _lacks_key(api_key, options):
            api_key = http.MISSING_KEY
        self.session_id, self.run_id, self.step_number = where.session_id, where.run_id, where.step_number
        self._session_options: dict[str, Any] = {
            "session_id": where.session_id,
            "step_number": step_number,
            "require_approval": require_approval,
            "fallback_model": fallback_model,
        }
        super().__init__(  # type: ignore[call-arg]
            base_url=where.base_url,
            api_key=api_key,
            default_headers=http.merged(where.headers, default_headers),
            **options,
        )

    # Left to the vendor's class while types are checked, whose signature is the true one.
    if not TYPE_CHECKING:

        def copy(self, *, _extra_kwargs: Mapping[str, Any] | None = None, **options: Any) -> Self:
            """The vendor's ``copy``: another client of the same session with some options changed."""
            return super().copy(_extra_kwargs={**self._session_options, **(_extra_kwargs or {})}, **options)

        with_options = copy


if TYPE_CHECKING:

    class AgentStateOpenAI(_SessionClient, OpenAI):
        """See ``_define``."""

    class AsyncAgentStateOpenAI(_SessionClient, AsyncOpenAI):
        """See ``_define``."""


_DOC = """``openai.{vendor}`` whose calls are journaled by the proxy under one session.

``session_id``: the durable name of the work, 1 to 256 characters of any script; None takes ``AGENTSTATE_SESSION_ID``.
``step_number``: a hint only, from 0; leave it alone unless the agent counts its own steps.
``base_url``: the proxy's address; None takes ``AGENTSTATE_URL``, else ``http://localhost:8080/v1``.
``api_key``: the provider's key; None takes ``OPENAI_API_KEY``. Where there is none, the placeholder
``OPENAI_API_KEY-is-not-set`` is sent, and the provider answers 401 unless the proxy holds a key of its own.
``require_approval``: hold every request of this client until a person approves it.
``fallback_model``: model names to try in order when the asked one fails, as a list or separated by commas.
Every other keyword is ``openai.{vendor}``'s own.

Raises ``ValueError`` or ``TypeError`` for a session id, address or step that cannot be sent.
"""

_VENDOR = {"AgentStateOpenAI": "OpenAI", "AsyncAgentStateOpenAI": "AsyncOpenAI"}


def __getattr__(name: str) -> Any:
    """Define a client class on first use (PEP 562), since only then the vendor's package is needed."""
    if name not in _VENDOR:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, _define(name))


def _define(name: str) -> type:
    try:
        import openai
    except ModuleNotFoundError as error:
        if error.name != "openai":
            raise
        raise ModuleNotFoundError(
            f"{name} needs the openai package: pip install 'agentstate-proxy[openai]'", name="openai"
        ) from error
    vendor = _VENDOR[name]
    body = {"__module__": __name__, "__doc__": _DOC.format(vendor=vendor)}
    return type(name, (_SessionClient, getattr(openai, vendor)), body)


def _lacks_key(given: Any, options: Mapping[str, Any]) -> bool:
    if given or os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_ADMIN_KEY"):
        return False
    return not any(options.get(name) for name in _OTHER_CREDENTIALS)
