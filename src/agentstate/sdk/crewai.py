"""Owns the keywords that point a CrewAI ``LLM`` at the proxy.

Must not: import CrewAI; a plain dict is enough for it.
Invariant: unpacked, the dict holds keywords of ``LLM`` only; the older ``["config"]`` look-up is answered beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentstate.sdk import http


class LLMKeywords(dict[str, Any]):
    """A dict for ``LLM(**…)`` that also answers ``["config"]``, the form that early CrewAI releases took.

    ``config`` is no key of the dict: ``**`` and iteration do not show it, since today's ``LLM`` would send it on.
    """

    def __missing__(self, key: str) -> Any:
        if key != "config":
            raise KeyError(key)
        return {"base_url": self["base_url"], "api_key": self["api_key"], "extra_headers": self["default_headers"]}


def wrap_crewai(
    session_id: str | None = None,
    step_number: int = 0,
    base_url: str | None = None,
    *,
    api_key: str | None = None,
    require_approval: bool = False,
    fallback_model: str | Iterable[str] | None = None,
    default_headers: Mapping[str, str] | None = None,
    **extra: Any,
) -> LLMKeywords:
    """Keywords for ``LLM(model=…, **…)``: ``base_url``, ``api_key``, ``default_headers``, and ``extra`` as given.

    Pass the ``LLM`` to ``Agent(llm=…)``. ``Agent(llm_config=…)`` is silently ignored by CrewAI 1.15, and the agent
    then calls the provider past the proxy.

    ``session_id``, ``step_number``, ``base_url``, ``api_key``, ``require_approval`` and ``fallback_model`` mean what
    they mean in ``AgentStateOpenAI``; ``default_headers`` are kept beside ours.

    Raises ``ValueError`` or ``TypeError`` for a session id, address or step that cannot be sent.
    """
    if "api_base" in extra:
        raise TypeError("api_base would lead past the proxy: give the proxy's address as base_url")
    where = http.target(
        session_id, step_number, base_url, require_approval=require_approval, fallback_model=fallback_model
    )
    return LLMKeywords(
        {
            "base_url": where.base_url,
            "api_key": http.api_key(api_key),
            "default_headers": http.merged(where.headers, default_headers),
        }
        | extra
    )
