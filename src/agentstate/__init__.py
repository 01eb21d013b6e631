"""Owns the public names. Must not import a framework, nor anything else of weight: every name is loaded on first use.

Invariant: ``import agentstate`` reads this file alone and costs a few milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentstate.sdk.anthropic import AgentStateAnthropic, AsyncAgentStateAnthropic
    from agentstate.sdk.crewai import wrap_crewai
    from agentstate.sdk.langchain import wrap_langchain
    from agentstate.sdk.openai import AgentStateOpenAI, AsyncAgentStateOpenAI
    from agentstate.sdk.session import session
    from agentstate.sdk.tool import tool, tool_key

__version__ = "0.1.0"

__all__ = [
    "AgentStateAnthropic",
    "AgentStateOpenAI",
    "AsyncAgentStateAnthropic",
    "AsyncAgentStateOpenAI",
    "__version__",
    "session",
    "tool",
    "tool_key",
    "wrap_crewai",
    "wrap_langchain",
]

_HOME = {
    "AgentStateAnthropic": "agentstate.sdk.anthropic",
    "AgentStateOpenAI": "agentstate.sdk.openai",
    "AsyncAgentStateAnthropic": "agentstate.sdk.anthropic",
    "AsyncAgentStateOpenAI": "agentstate.sdk.openai",
    "session": "agentstate.sdk.session",
    "tool": "agentstate.sdk.tool",
    "tool_key": "agentstate.sdk.tool",
    "wrap_crewai": "agentstate.sdk.crewai",
    "wrap_langchain": "agentstate.sdk.langchain",
}


def __getattr__(name: str) -> Any:
    """Load a public name from the module that defines it (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'agentstate' has no attribute {name!r}; it offers {', '.join(__all__)}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
