"""Owns what becomes of tools that only one vendor's models know. Must not know any dialect's fields.

Invariant: a tool that the agent itself runs never goes missing without the question being refused; one that the
provider runs goes missing only where the agent offers others, and is a loss.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentstate.dialects.translate_form import Losses
from agentstate.errors import Untranslatable

# Beginnings of the types of tools that a provider runs: Anthropic's, then OpenAI's.
_RUN_BY_PROVIDER = (
    "web_search", "web_fetch", "code_execution", "tool_search", "mcp", "advisor",
    "file_search", "code_interpreter", "image_generation", "programmatic_tool_calling",
)  # fmt: skip


def unknown_tools(kinds: Iterable[str], others: bool, losses: Losses) -> None:
    """Put down the types of tools that the target does not have. ``others``: the question offers tools that it has."""
    for kind in kinds:
        if not kind.startswith(_RUN_BY_PROVIDER):
            raise Untranslatable(f"a tool of type {kind!r} is known to its own vendor's models only")
        if not others:
            raise Untranslatable(f"{kind}: the fallback does not have this tool, and the request offers no other")
        losses.add(f"tools ({kind})")
