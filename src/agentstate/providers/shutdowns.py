"""Owns the days on which vendors shut models down, as far as they were announced. Must not act on them.

Sources, as of 30 November 2026: OpenAI's page of deprecations (the same days as ``shutdown_date`` in its list of
models), and the table of ends of life in Anthropic's Python library 2.14. A model that is not here may end all the
same; the setting ``[[shutdowns]]`` adds to this. Invariant: a day stands here once, as its vendor announced it.
"""

from __future__ import annotations

from datetime import date

_OPENAI: dict[date, str] = {
    date(2026, 2, 17): "chatgpt-4o-latest",
    date(2026, 10, 23): (
        "gpt-3.5-turbo gpt-3.5-turbo-0125 gpt-4 gpt-4-0613 gpt-4-1106-preview gpt-4-turbo gpt-4-turbo-2024-04-09 "
        "gpt-4o-2024-05-13 o1 o1-2024-12-17 o1-pro o1-pro-2025-03-19 o3-mini o3-mini-2025-01-31 o4-mini "
        "o4-mini-2025-04-16 gpt-4.1-nano gpt-4.1-nano-2025-04-14"
    ),
    date(2026, 12, 11): (
        "gpt-5 gpt-5-2025-08-07 gpt-5-mini gpt-5-mini-2025-08-07 gpt-5-nano gpt-5-nano-2025-08-07 gpt-5-pro o3 o3-pro"
    ),
    date(2027, 1, 14): (
        "gpt-4o gpt-4o-2024-08-06 gpt-4o-2024-11-20 gpt-4o-mini gpt-4o-mini-2024-07-18 gpt-4.1 gpt-4.1-2025-04-14 "
        "gpt-4.1-mini gpt-4.1-mini-2025-04-14"
    ),
    date(2027, 4, 1): "gpt-5.1",
}
_ANTHROPIC: dict[date, str] = {
    date(2026, 6, 30): "claude-mythos-preview",
    date(2026, 11, 30): "claude-sonnet-4-5 claude-sonnet-4-5-20250929",
    date(2027, 1, 22): "claude-opus-4-5 claude-opus-4-5-20251101",
}

SHUTDOWNS: dict[str, date] = {
    model: day for vendor in (_OPENAI, _ANTHROPIC) for day, models in vendor.items() for model in models.split()
}
"""The day by the model's name."""
