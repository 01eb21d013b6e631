"""Owns the Anthropic clients: the vendor's own classes, pointed at the proxy and naming their session.

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

    from anthropic import Anthropic, AsyncAnthropic

MISSING_KEY = "ANTHROPIC_API_KEY-is-not-set"
"""Sent as the API key where there is none, so that the provider itself answers 401 and its message shows the reason."""

# What stands in for an API key: of the environment, of the vendor's keywords, of the headers.
_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
_OTHER_CREDENTIALS = ("auth_token", "credentials", "config", "profile")
_CREDENTIAL_HEADERS = ("authorization", "x-api-key")


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
        if _lacks_key(api_key, options, default_headers or {}):
            api_key = MISSING_KEY
        self.session_id, self.run_id, self.step_number = where.session_id, where.run_id, where.step_number
        self._session_options: dict[str, Any] = {
            "session_id": where.session_id,
            "step_number": step_number,
            "require_approval": require_approval,
            "fallback_model": fallback_model,
        }
        super().__init__(  # type: ignore[call-arg]
            # The vendor's client puts /v1 before every path by itself.
            base_url=where.base_url.removesuffix("/v1"),
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

    class AgentStateAnthropic(_SessionClient, Anthropic):
        """See ``_define``."""

    class AsyncAgentStateAnthropic(_SessionClient, AsyncAnthropic):
        """See ``_define``."""


_DOC = """``anthropic.{vendor}`` whose calls are journaled by the proxy under one session.

``session_id``: the durable name of the work, 1 to 256 characters of any script; None takes ``AGENTSTATE_SESSION_ID``.
``step_number``: a hint only, from 0; leave it alone unless the agent counts its own steps.
``base_url``: the proxy's address, with ``/v1`` or without; None takes ``AGENTSTATE_URL``, else
``http://localhost:8080/v1``.
``api_key``: the provider's key; None takes ``ANTHROPIC_API_KEY``, else ``ANTHROPIC_AUTH_TOKEN``. Where there is none,
the placeholder ``ANTHROPIC_API_KEY-is-not-set`` is sent, and the provider answers 401 unless the proxy holds a key of
its own. Credentials that the vendor's client would look for on disk are taken only when named: ``profile=…``.
``require_approval``: hold every request of this client until a person approves it.
``fallback_model``: model names to try in order when the asked one fails, as a list or separated by commas.
Every other keyword is ``anthropic.{vendor}``'s own.

Raises ``ValueError`` or ``TypeError`` for a session id, address or step that cannot be sent.
"""

_VENDOR = {"AgentStateAnthropic": "Anthropic", "AsyncAgentStateAnthropic": "AsyncAnthropic"}


def __getattr__(name: str) -> Any:
    """Define a client class on first use (PEP 562), since only then the vendor's package is needed."""
    if name not in _VENDOR:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, _define(name))


def _define(name: str) -> type:
    try:
        import anthropic
    except ModuleNotFoundError as error:
        if error.name != "anthropic":
            raise
        raise ModuleNotFoundError(
            f"{name} needs the anthropic package: pip install 'agentstate-proxy[anthropic]'", name="anthropic"
        ) from error
    vendor = _VENDOR[name]
    body = {"__module__": __name__, "__doc__": _DOC.format(vendor=vendor)}
    return type(name, (_SessionClient, getattr(anthropic, vendor)), body)


def _lacks_key(given: Any, options: Mapping[str, Any], headers: Mapping[str, Any]) -> bool:
    if given or any(os.environ.get(name) for name in _VARIABLES):
        return False
    if any(options.get(name) is not None for name in _OTHER_CREDENTIALS):
        return False
    return not any(name.lower() in _CREDENTIAL_HEADERS for name in headers)
