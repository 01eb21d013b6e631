"""Owns what counts as volatile text, and when two texts differ in nothing else. Must not forward masked text.

Invariant: a masked match needs equal skeletons, a one-to-one renaming of old literals to new ones that keeps the order
of dates, and an answer that speaks of no old literal in any spelling known here. What might be data is not masked:
numbers never are, and "10:30" is a clock only where it says so.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from datetime import date

_MONTHS = "January February March April May June July August September October November December".split()  # noqa: SIM905
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()  # noqa: SIM905
_MONTH = "|".join([*_MONTHS, *(name[:3] for name in _MONTHS)])
_DAY = "|".join([*_DAYS, *(name[:3] for name in _DAYS)])
_ISO = r"(?:19|20)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_HOUR = r"(?:[01]?\d|2[0-3]):[0-5]\d"
_SECONDS = r":[0-5]\d(?:[.,]\d+)?"
_HALF = r"\s?[AaPp]\.?[Mm]\b\.?"
_CLOCK = rf"{_HOUR}(?:{_SECONDS})?(?:{_HALF})?"
_ZONE = r"(?:\s?(?:Z\b|UTC|GMT|[+-]\d\d:?\d\d))"

VOLATILE = re.compile(
    "|".join(
        (
            r"(?P<uuid>\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b)",
            rf"(?P<stamp>(?<![\w.-]){_ISO}(?:[T ]{_CLOCK}{_ZONE}?)?(?![\w-]))",
            rf"(?P<day>\b(?:(?:{_DAY}),? )?"
            rf"(?:(?:{_MONTH})\.? \d{{1,2}}(?:st|nd|rd|th)?|\d{{1,2}} (?:{_MONTH})),? (?:19|20)\d\d\b)",
            rf"(?P<month>\b(?:{_MONTH}) (?:19|20)\d\d\b)",
            r"(?P<slashed>(?<![\d/])\d{1,2}/\d{1,2}/(?:19|20)\d\d(?![\d/]))",
            rf"(?P<clock>(?<![\w:.])(?:{_HOUR}{_SECONDS}(?:{_HALF})?{_ZONE}?|{_HOUR}(?:{_HALF}|{_ZONE}))(?![\d:])"
            rf"|\b(?:[Tt]ime|[Nn]ow|[Cc]lock)(?: is)?[:=]? {_HOUR}(?![\d:]))",
            # The random part alone: what a file in there is called is data.
            r"(?P<temp>/tmp/tmp[._-]?\w{6,}(?=$|[/\s\"'<>|,;:)]))",
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
    """The one-to-one mapping of old literals to new ones, place by place; ``None`` where there is none.

    A new id that is also an old one is no renaming: ids that change places are another question. Time moves on, so that
    what was new may be old later. Dates must keep their order: with "due the 14th, today the 13th" it matters when
    today becomes the 15th.
    """
    if len(old) != len(new):
        return None
    forth: dict[str, str] = {}
    back: dict[str, str] = {}
    for was, is_ in zip(old, new, strict=True):
        if forth.setdefault(was, is_) != is_ or back.setdefault(is_, was) != was:
            return None
    swapped = any(
        is_ in forth and (forth[is_] == was or not _tells_time(was)) for was, is_ in forth.items() if was != is_
    )
    return forth if not swapped and _keeps_order(forth) else None


def _tells_time(literal: str) -> bool:
    return _date(literal) is not None or re.search(_HOUR, literal) is not None


def _keeps_order(forth: dict[str, str]) -> bool:
    dates = [(_date(was), _date(is_)) for was, is_ in forth.items()]
    known = sorted((was, is_) for was, is_ in dates if was is not None and is_ is not None)
    return all(
        (one[0] < two[0]) == (one[1] < two[1]) and (one[0] == two[0]) == (one[1] == two[1])
        for one, two in itertools.pairwise(known)
    )


def quotes(texts: Iterable[str], old_to_new: dict[str, str]) -> bool:
    """Whether any of the texts speaks of a literal that has changed: of the old one in a spelling that the new one
    has not, so that "March" is no quote where only the day has changed."""
    changed = [(was, is_) for was, is_ in old_to_new.items() if was != is_]
    if not changed:
        return False
    told = set().union(*(_spellings(was) - _spellings(is_) for was, is_ in changed))
    patterns = [re.compile(rf"(?<![a-z0-9]){re.escape(text)}(?![a-z0-9])") for text in told]
    return any(pattern.search(text) for text in (text.lower() for text in texts) for pattern in patterns)


def _spellings(literal: str) -> set[str]:
    """Ways in which a text may speak of a literal, in lower case."""
    found = {literal.lower()}
    if day := _date(literal):
        found |= _of_date(day)
    elif month := re.match(rf"({_MONTH}) (\d{{4}})$", literal):
        found |= {month[1].lower(), _MONTHS[_month(month[1]) - 1].lower(), f"{month[2]}-{_month(month[1]):02}"}
    if clock := re.search(rf"(\d{{1,2}}):(\d\d)(?:{_SECONDS})?({_HALF})?", literal):
        found |= _of_clock(int(clock[1]), clock[2], (clock[3] or "").lower())
    if literal.startswith("/tmp/"):  # noqa: S108 - a text is read, no file
        found.add(literal.removeprefix("/tmp/").lower())  # noqa: S108
    if re.fullmatch(r"[0-9a-fA-F-]{36}", literal):
        found |= {literal.replace("-", "").lower(), *(part for part in literal.lower().split("-") if len(part) >= 8)}
    return found


def _date(literal: str) -> date | None:
    """The date in a literal; ``None`` where it has none, or one that can be read in two ways."""
    if iso := re.match(r"(\d{4})-(\d\d)-(\d\d)", literal):
        return _real(int(iso[1]), int(iso[2]), int(iso[3]))
    if words := re.search(
        rf"(?:({_MONTH})\.? (\d{{1,2}})|(\d{{1,2}}) ({_MONTH}))(?:st|nd|rd|th)?,? (\d{{4}})", literal
    ):
        return _real(int(words[5]), _month(words[1] or words[4]), int(words[2] or words[3]))
    if slashed := re.fullmatch(r"(\d{1,2})/(\d{1,2})/(\d{4})", literal):
        first, second, year = (int(part) for part in slashed.groups())
        return _real(year, second, first) if first > 12 else _real(year, first, second)
    return None


def _month(name: str) -> int:
    return next(place for place, month in enumerate(_MONTHS, 1) if month[:3] == name[:3])


def _real(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _of_date(day: date) -> set[str]:
    month, weekday = _MONTHS[day.month - 1].lower(), _DAYS[day.weekday()].lower()
    suffix = "th" if 10 < day.day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
    found = {weekday, weekday[:3], month, f"{day.day}{suffix}"}
    for name in (month, month[:3]):
        for number in (str(day.day), f"{day.day:02}", f"{day.day}{suffix}"):
            found |= {
                f"{name} {number}",
                f"{name}. {number}",
                f"{number} {name}",
                f"{number} of {name}",
                f"{number}. {name}",
            }
    for mark in "-/.":
        for number, name in ((str(day.day), str(day.month)), (f"{day.day:02}", f"{day.month:02}")):
            short = {f"{number}{mark}{name}", f"{name}{mark}{number}"}
            found |= {f"{text}{mark}{day.year}" for text in short} | {f"{day.year}{mark}{name}{mark}{number}"}
            found |= short if mark == "/" else set()
    return found | {f"{day:%Y%m%d}", f"{day:%d%m%Y}", str(day.year)}


def _of_clock(hour: int, minutes: str, half: str) -> set[str]:
    if "p" in half and hour < 12:
        hour += 12
    elif "a" in half and hour == 12:
        hour = 0
    twelve, name = hour % 12 or 12, "pm" if hour >= 12 else "am"
    found = {f"{hour}:{minutes}", f"{hour:02}:{minutes}", f"{hour:02}{minutes}", f"{hour}.{minutes}"}
    for text in (f"{twelve}:{minutes}", f"{twelve:02}:{minutes}", *([str(twelve)] if minutes == "00" else [])):
        found |= {f"{text} {name}", f"{text}{name}", f"{text} {name[0]}.m."}
    return found | {f"{twelve}:{minutes}"}
