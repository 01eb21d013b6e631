"""Owns what is known of models whose providers refuse, with status 400, what they do not take. Must not know any body.

A model that is not known here takes everything. Invariant: a refusal is avoided by leaving out or lowering, and that is
put down as a loss by whoever asks here; nothing is made up for a model.

Sources: the migration guides and model pages that Anthropic publishes, the model tables of OpenAI's documentation, and
what pydantic-ai 2.68 has measured of Claude models (its profiles say so, model by model).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# As many tokens as can be written in ten minutes, by the rule by which Anthropic's SDK refuses to ask plainly for more
# (``128000`` tokens an hour): what a question that names no limit gets where the target wants one.
DEFAULT_MAX_TOKENS = 21_333

_CLAUDE = re.compile(r"claude-(?:(\d)(?:[-.](\d{1,2}))?-)?([a-z]+)(?:[-.](\d{1,2})(?:[-.](\d{1,2}))?(?!\d))?")
_REASONS = re.compile(r"o\d|gpt-(?:[5-9]|\d\d)(?!\d*-chat)(?![\d.]*-chat)|codex")
_O_SERIES = re.compile(r"o\d")
# Most tokens of an answer, of models of OpenAI's that refuse more; the first that fits.
_MOST_OPENAI = (
    ("gpt-4o", 16_384), ("gpt-4.1", 32_768), ("gpt-4.5", 16_384), ("gpt-4-turbo", 4_096), ("gpt-4-1106", 4_096),
    ("gpt-4-0125", 4_096), ("gpt-4-32k", 8_192), ("gpt-4", 8_192), ("gpt-3.5", 4_096),
)  # fmt: skip
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_GPT = re.compile(r"gpt-(\d+)(?:\.(\d+))?")
_NEWEST = (99, 0)  # a Claude whose name tells no version


@dataclass(frozen=True, slots=True)
class Takes:
    """What a model behind Anthropic's dialect takes.

    ``sampling``: temperature, top_p and top_k; ``together``: the first two at once; ``effort``: the efforts that it
    takes; ``adaptive``: to think as much as it likes; ``budget``: to think by a number of tokens; ``off``: the kind of
    ``thinking`` that keeps it from thinking, empty where it does not think unasked or cannot be kept from it;
    ``forced``: a choice of tools that forces a call; ``structured``: an answer by a schema, tools that are ``strict``;
    ``prefill``: a conversation that ends with an answer; ``most``: tokens of an answer, 0: not known.
    """

    sampling: bool = True
    together: bool = True
    effort: tuple[str, ...] = ()
    adaptive: bool = False
    budget: bool = False
    off: str = ""
    forced: bool = True
    structured: bool = True
    prefill: bool = True
    most: int = 0


def claude(model: str) -> Takes:
    """What a model takes, by its name; whatever stands before ``claude-`` in it does not count."""
    found = _CLAUDE.search(model.lower())
    if found is None:
        return Takes()
    family = found[3]
    version = (int(found[1] or found[4] or 0), int((found[2] if found[1] else found[5]) or 0))
    if version == (0, 0):
        version = _NEWEST
    always = family in ("fable", "mythos") or (family == "opus" and version >= (5, 5))
    return Takes(
        sampling=version < (4, 7),
        together=version < (4, 1),
        effort=_efforts(family, version),
        adaptive=version >= (4, 6),
        budget=(3, 7) <= version < (4, 6),
        off="" if always or version < (5, 0) else _off(family, version),
        forced=not _unforced(family, version),
        structured=version >= (4, 5) or (family == "opus" and version >= (4, 1)),
        prefill=version < (4, 6),
        most=_most(family, version),
    )


def _efforts(family: str, version: tuple[int, int]) -> tuple[str, ...]:
    if not (version >= (4, 6) or (family == "opus" and version >= (4, 5))):
        return ()
    more = ("max",) if version >= (4, 6) else ()
    return ("low", "medium", "high", *(("xhigh",) if version >= (4, 7) else ()), *more)


def _off(family: str, version: tuple[int, int]) -> str:
    return "between_tools" if family == "sonnet" and version >= (5, 5) else "disabled"


def _unforced(family: str, version: tuple[int, int]) -> bool:
    if family in ("fable", "mythos"):
        return version >= (5, 1)
    return family in ("opus", "sonnet") and version >= (5, 5)


def _most(family: str, version: tuple[int, int]) -> int:
    if version >= (4, 6):
        return 128_000
    if version >= (4, 5) or version == (3, 7) or (family == "sonnet" and version >= (4, 0)):
        return 64_000
    if version >= (4, 0):
        return 32_000
    return 8_192 if version >= (3, 5) else 4_096


def nearest(effort: str, taken: tuple[str, ...]) -> str:
    """The effort that is asked for, or the next lower one that is taken, or else the next higher one; never none at all
    for some."""
    at = EFFORTS.index(effort) if effort in EFFORTS else EFFORTS.index("medium")
    lower = [name for name in EFFORTS[: at + 1] if name in taken and (name != "none" or effort == "none")]
    higher = [name for name in EFFORTS[at:] if name in taken]
    return lower[-1] if lower else higher[0]


# --- OpenAI's dialects ------------------------------------------------------------------------------------------------


def _base(model: str) -> str:
    """A model's name without that of its maker before it."""
    return model.lower().rpartition("/")[2]


def reasons(model: str) -> bool:
    """Whether it is a model of OpenAI's that reasons, and so takes an effort, and no temperature or stop sequences."""
    return _REASONS.match(_base(model)) is not None


def efforts(model: str) -> tuple[str, ...]:
    """The efforts that a model of OpenAI's takes; empty: none."""
    if not reasons(model):
        return ()
    found = _GPT.match(_base(model))
    if found is None:
        return ("low", "medium", "high")
    version = (int(found[1]), int(found[2] or 0))
    if version < (5, 1):
        return ("minimal", "low", "medium", "high")
    more = (*(("xhigh",) if version >= (5, 2) else ()), *(("max",) if version >= (5, 6) else ()))
    return ("none", "low", "medium", "high", *more)


def one_call_at_a_time(model: str) -> bool:
    """Whether it does not take ``parallel_tool_calls``."""
    return _O_SERIES.match(_base(model)) is not None


def most_tokens(model: str) -> int:
    """The most tokens of an answer that a model of OpenAI's may be asked for; 0: not known."""
    name = _base(model)
    return next((most for start, most in _MOST_OPENAI if name.startswith(start)), 0)
