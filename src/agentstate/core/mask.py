"""Owns what counts as volatile text, and when two texts differ in nothing else. Must not forward masked text.

Invariant: a masked match needs equal skeletons, a one-to-one renaming of old literals to new ones that keeps the order
of dates, and an answer that speaks of no old literal in any spelling known here. What might be data is not masked:
numbers are only where a client says that it has measured how long something took, "10:30" is a clock only where it says
so, and a path is volatile only if the request itself names it as the folder in which the agent works or lives.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from datetime import date
from functools import lru_cache

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
# A path has at least one name: the root of all folders is none in which an agent lives.
# Bounded, since data in base64 looks like one long path.
_PATH = r"(?:/[\w.@+-]{0,100}[\w@+-]){1,32}"
_EDGE = r"(?<![\w.~/@+-])"
_UNITS = {"Wall time: ": 1.0, "<duration_ms>": 0.001}  # seconds

# Where any of them may begin: looked at first, since most places of a text are none.
_BEGINNING = r"(?=[</\d]|\b[a-fA-FJMNOSTWntw])"

_KINDS = (
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
    # What clients number and measure, told by the words before it: those belong to the literal.
    r"(?P<agent>(?:agentId: |\bto: '|<task-id>|/tasks/)a[0-9a-f]{16}\b)",
    r"(?P<chunk>\AChunk ID: [0-9a-f]{6}(?=\nWall time: |\Z))",
    r"(?P<took>(?m:^Wall time: \d+\.\d+ seconds$)|<duration_ms>\d+</duration_ms>)",
)
# Where an agent works, and where its client keeps its files; only where the client itself says so.
_PLACES = (rf"(?P<folder>(?:[Ww]orking directory: |<cwd>){_PATH})", rf"(?P<home>{_EDGE}{_PATH}?/\.(?:claude|codex)/)")


def _any_of(kinds: Iterable[str]) -> re.Pattern[str]:
    return re.compile(f"{_BEGINNING}(?:{'|'.join(kinds)})")


VOLATILE = _any_of((*_KINDS, *_PLACES))
_VOLATILE_DATA = _any_of(_KINDS)
_VALUE = re.compile(
    rf"(?P<before>[Ww]orking directory: |<cwd>)(?P<folder>{_PATH})"
    rf"|(?P<home>{_PATH}?)(?P<after>/\.(?:claude|codex)/)"
    r"|(?P<words>agentId: |to: '|<task-id>|/tasks/|Chunk ID: )(?P<id>[0-9a-f]+)"
    r"|(?P<unit>Wall time: |<duration_ms>)(?P<took>[\d.]+)(?: seconds|</duration_ms>)"
)


def scrub(text: str, folders: tuple[str, ...] = (), named: bool = True) -> tuple[str, tuple[str, ...]]:
    """The text with each volatile literal replaced by its kind, and the literals in order.

    ``named``: the client itself speaks, so that a folder of which it says that the agent is there is volatile.
    ``folders``: paths that are volatile wherever they stand (see ``folders_in``), as such or with dashes for slashes.
    """
    literals: list[str] = []

    def take(found: re.Match[str]) -> str:
        kind = found.lastgroup
        # With dashes it is the same folder: they are renamed together or not at all.
        literals.append(next(path for path in folders if _dashed(path) == found[0]) if kind == "dashed" else found[0])
        return f"\x00{kind}\x00"

    return _pattern(folders, named).sub(take, text), tuple(literals)


@lru_cache(maxsize=256)
def _pattern(folders: tuple[str, ...], named: bool) -> re.Pattern[str]:
    known = VOLATILE if named else _VOLATILE_DATA
    if not folders:
        return known
    longest = sorted(folders, key=len, reverse=True)
    paths, dashed = ("|".join(re.escape(path) for path in found) for found in (longest, map(_dashed, longest)))
    end = r"(?![\w-]|\.\w)"
    return re.compile(f"{known.pattern}|(?P<path>(?<![\\w.~-])(?:{paths}){end})|(?P<dashed>(?<=/)(?:{dashed}){end})")


def _dashed(path: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "-", path)


def folders_in(literals: Iterable[str]) -> tuple[str, ...]:
    """The folders of an agent that some literals name: where it works, and where its client keeps its own files."""
    return tuple(sorted({value for words, value in map(_value, literals) if words and value.startswith("/")}))


def renaming(old: Sequence[str], new: Sequence[str]) -> dict[str, str] | None:
    """The one-to-one mapping of old literals to new ones, place by place; ``None`` where there is none.

    A new id that is also an old one is no renaming: ids that change places are another question. Time moves on, so that
    what was new may be old later. Dates must keep their order: with "due the 14th, today the 13th" it matters when
    today becomes the 15th. How long something took is no name: it need not be one to one.
    """
    if len(old) != len(new):
        return None
    told: dict[str, str] = {}
    forth: dict[str, str] = {}
    back: dict[str, str] = {}
    for was, is_ in zip(old, new, strict=True):
        (was_words, was_value), (is_words, is_value) = _value(was), _value(is_)
        if was_words != is_words:
            return None
        if was != is_ or was not in told:
            told[was] = is_
        if was_words in _UNITS:
            continue
        if forth.setdefault(was_value, is_value) != is_value or back.setdefault(is_value, was_value) != was_value:
            return None
    swapped = any(
        is_ in forth and (forth[is_] == was or not _tells_time(was)) for was, is_ in forth.items() if was != is_
    )
    return told if not swapped and _keeps_order(forth) else None


def _value(literal: str) -> tuple[str, str]:
    """The words that tell what a literal is, and what is named; no words where it tells so itself."""
    found = _VALUE.fullmatch(literal)
    if found is None:
        return "", literal
    words = found["before"] or found["after"] or found["words"] or found["unit"]
    return words, found["folder"] or found["home"] or found["id"] or found["took"]


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
    words, value = _value(literal)
    if words in _UNITS:
        return _of_seconds(value, _UNITS[words])
    if words or literal.startswith("/"):
        literal = value
    found = {literal.lower()}
    if literal.startswith("/"):
        found |= _of_path(literal.lower())
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


def _of_path(path: str) -> set[str]:
    """A path, and the names in it less that of the top folder, which tells nothing ("/home")."""
    names = path.strip("/").split("/")
    told = {name for name in (names[1:] or names) if len(name) > 1}
    return told | {re.sub(r"[-_.]+", " ", name).strip() for name in told} | {path, _dashed(path)}


def _of_seconds(number: str, unit: float) -> set[str]:
    """A duration as it was printed, in seconds and in milliseconds; a short number only together with its unit."""
    seconds = float(number) * unit
    found = {number} if len(number) > 2 else set()
    for places in range(5):
        text = f"{seconds:.{places}f}"
        if float(text):
            found |= {text} if places and len(text) > 3 else set()
            found |= {f"{text}{mark}" for mark in ("s", " s", " sec", " second", " seconds", "-second")}
    for text in {f"{seconds * 1000:.{places}f}" for places in range(2)}:
        found |= {f"{text}{mark}" for mark in ("ms", " ms", " msec", " milliseconds", " millisecond")}
    return found
