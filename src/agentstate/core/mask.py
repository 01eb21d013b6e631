"""Owns what counts as volatile text, and when two texts differ in nothing else. Must not forward masked text.

Invariant: a masked match needs equal skeletons, a one-to-one renaming of old literals to new ones, and an answer that
quotes no old literal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_MONTHS = "January February March April May June July August September October November December".split()  # noqa: SIM905
_MONTH = "|".join([*_MONTHS, *(name[:3] for name in _MONTHS)])
_DAY = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday|Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_HOUR = r"(?:[01]?\d|2[0-3]):[0-5]\d"
_SECONDS = r":[0-5]\d(?:[.,]\d+)?"
_HALF = r"\s?[AaPp]\.?[Mm]\b\.?"
_CLOCK = rf"{_HOUR}(?:{_SECONDS})?(?:{_HALF})?"
_ZONE = r"(?:\s?(?:Z\b|UTC|GMT|[+-]\d\d:?\d\d))"

VOLATILE = re.compile(
    "|".join(
        (
            r"(?P<uuid>\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b)",
            rf"(?P<stamp>\b\d{{4}}-\d\d-\d\d(?:[T ]{_CLOCK}{_ZONE}?)?)",
            rf"(?P<day>\b(?:(?:{_DAY}),? )?"
            rf"(?:(?:{_MONTH})\.? \d{{1,2}}(?:st|nd|rd|th)?|\d{{1,2}} (?:{_MONTH})),? \d{{4}}\b)",
            rf"(?P<month>\b(?:{_MONTH}) \d{{4}}\b)",
            r"(?P<slashed>(?<![\d/])\d{1,2}/\d{1,2}/\d{4}(?![\d/]))",
            # "10:30" alone may be a score or a ratio: it is a clock where it says so.
            rf"(?P<clock>(?<![\d:.])(?:{_HOUR}{_SECONDS}(?:{_HALF})?{_ZONE}?|{_HOUR}(?:{_HALF}|{_ZONE}))(?![\d:])"
            rf"|\b(?:[Tt]ime|[Nn]ow|[Cc]lock)(?: is)?[:=]? {_HOUR}(?![\d:]))",
            r"(?P<temp>(?:/private)?/(?:tmp|var/folders|var/tmp)/[^\s\"'<>|]+)",
        )
    )
)


def scrub(text: str) -> tuple[str, tuple[str, ...]]:
    """The text with each volatile literal replaced by its kind, and the literals in order."""
    literals: list[str] = []

    def take(found: re.Match[str]) -> str:
        literals.append(found[0])
        return f"\x00{found.lastgroup}\x00"

    return VOLATILE.sub(take, text), tuple(literals)


def renaming(old: Sequence[str], new: Sequence[str]) -> dict[str, str] | None:
    """The one-to-one mapping of old literals to new ones, place by place; ``None`` where there is none."""
    if len(old) != len(new):
        return None
    forth: dict[str, str] = {}
    back: dict[str, str] = {}
    for was, is_ in zip(old, new, strict=True):
        if forth.setdefault(was, is_) != is_ or back.setdefault(is_, was) != was:
            return None
    return forth


def quotes(answer: str, old_to_new: dict[str, str]) -> bool:
    """Whether the recorded answer speaks of a literal that has changed since, in any spelling known here."""
    return any(spelling in answer for was, is_ in old_to_new.items() if was != is_ for spelling in _spellings(was))


def _spellings(literal: str) -> set[str]:
    """Ways in which an answer may repeat a literal: whole, its clock, its date in words."""
    found = {literal}
    if date := re.match(r"(\d{4})-(\d\d)-(\d\d)", literal):
        year, month, day = date[0][:4], int(date[2]), int(date[3])
        found.add(date[0])
        if 1 <= month <= 12:
            for name in (_MONTHS[month - 1], _MONTHS[month - 1][:3]):
                found |= {f"{name} {day}", f"{day} {name}", f"{name} {year}"}
        found |= {f"{month}/{day}/{year}", f"{day}.{month}.{year}", f"{month:02}/{day:02}/{year}"}
    elif words := re.search(rf"({_MONTH})\.? (\d{{1,2}})(?:st|nd|rd|th)?\b(?!\d)|(\d{{1,2}}) ({_MONTH})", literal):
        name, day_text = (words[1], words[2]) if words[1] else (words[4], words[3])
        found |= {f"{name[:3]} {day_text}", f"{day_text} {name[:3]}", f"{name} {day_text}", f"{day_text} {name}"}
        index = [month[:3] for month in _MONTHS].index(name[:3])
        full = _MONTHS[index]
        found |= {f"{full} {day_text}", f"{day_text} {full}"}
        if year_text := re.search(r"\d{4}", literal):
            found.add(f"{year_text[0]}-{index + 1:02}-{int(day_text):02}")
    if clock := re.search(r"\d{1,2}:\d\d", literal):
        found.add(clock[0])
    return found
