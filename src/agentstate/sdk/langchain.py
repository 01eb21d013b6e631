"""Owns the keywords that point LangChain's OpenAI classes at the proxy.

Must not: import LangChain; a plain dict is enough for it.
Invariant: the keys are ``ChatOpenAI``'s own, so the dict can be unpacked into it as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentstate.sdk import http


def wrap_langchain(
    session_id: str | None = None,
    step_number: int = 0,
    base_url: str | None = None,
    *,
    api_key: str | None = None,
    require_approval: bool = False,
    fallback_model: str | Iterable[str] | None = None,
    default_headers: Mapping[str, str] | None = None,
    **extra: Any,
) -> dict[str, Any]:
    """Keywords for ``ChatOpenAI(**…)`` or ``OpenAIEmbeddings(**…)``: ``openai_api_base``, ``openai_api_key``,
    ``default_headers``, and ``extra`` as given.

    ``session_id``, ``step_number``, ``base_url``, ``api_key``, ``require_approval`` and ``fallback_model`` mean what
    they mean in ``AgentStateOpenAI``; ``default_headers`` are kept beside ours.

    Raises ``ValueError`` or ``TypeError`` for a session id, address or step that cannot be sent.
    """
    if "openai_api_base" in extra:
        raise TypeError("openai_api_base would lead past the proxy: give the proxy's address as base_url")
    where = http.target(
        session_id, step_number, base_url, require_approval=require_approval, fallback_model=fallback_model
    )
    return {
        "openai_api_base": where.base_url,
        "openai_api_key": http.api_key(api_key),
        "default_headers": http.merged(where.headers, default_headers),
    } | extra
