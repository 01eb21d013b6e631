"""Owns what counts as a secret or as personal in a text that leaves the journal, and what stands in its place.

Must not touch what is stored or sent to a provider: only copies that people take out are redacted. Invariant: every
pattern takes time in proportion to the text, whatever the text; what was taken out is counted by kind.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

_EDGE = r"(?<![A-Za-z0-9_])"
# Keys by the marks that their vendors give them.
_KEYS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk-[A-Za-z0-9_-]{16,}"  # OpenAI, Anthropic, OpenRouter and those who copied them
    r"|(?:sk|rk|pk|whsec)_(?:live_|test_)?[A-Za-z0-9]{16,}"  # Stripe
    r"|(?:AKIA|ASIA|AROA)[0-9A-Z]{16}"  # AWS
    r"|AIza[0-9A-Za-z_-]{30,}|ya29\.[0-9A-Za-z_-]{20,}"  # Google
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{22,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|xox[abeprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}"  # Slack
    r"|hf_[A-Za-z0-9]{20,}|gsk_[A-Za-z0-9]{20,}|xai-[A-Za-z0-9]{20,}|pplx-[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}"
    r"|pypi-[A-Za-z0-9_-]{30,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|dop_v1_[a-f0-9]{40,}"
    r")"
)
_JWT = re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?")
_BEARER = re.compile(r"(?<![A-Za-z])((?:Bearer|bearer|BEARER|Basic|basic) {1,3})([A-Za-z0-9._~+/=-]{12,})")
_IN_URL = re.compile(r"(://)([^\s/@:\"'<>]{0,128}:[^\s/@\"'<>]{1,256})(?=@)")
_HOOK = re.compile(
    r"https://(?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks)/[\w/.-]+"
)
_NAMES = (
    r"pass(?:word|wd|phrase|code)|secret(?:[_-]?(?:access[_-]?)?key)?|api[_-]?(?:key|token)|access[_-]?(?:key|token)"
    r"|auth[_-]?token|refresh[_-]?token|session[_-]?token|client[_-]?secret|private[_-]?key|credentials?|pwd|token"
)
# A name and what is assigned to it; what has neither digit nor sign is most likely a word about it.
_ASSIGNED = re.compile(
    rf"(?<![A-Za-z])((?:{_NAMES})[\"']?\s{{0,4}}(?:=>|:=|[:=])\s{{0,4}}[\"']?)"
    r"(?=[^\s\"',;<>(){}\[\]]{0,128}[0-9!#$%^&*+@])([^\s\"',;<>(){}\[\]]{6,512})",
    re.IGNORECASE,
)
_NAMED = re.compile(rf"(?:\w*[_-])?(?:{_NAMES}|authorization|cookie|apikey)", re.IGNORECASE)
_EMAIL = re.compile(
    r"(?<![A-Za-z0-9.!#$%&*+=?^_{|}~-])[A-Za-z0-9.!#$%&*+=?^_{|}~-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9])"
)
_CARD = re.compile(
    r"(?<![\dA-Za-z.])(?:\d{13,19}|\d{4}([ -])\d{4}\1\d{4}\1\d{4}(?:\1\d{1,3})?|\d{4}([ -])\d{6}\2\d{4,5})"
    r"(?![\dA-Za-z])"
)
_IBAN = re.compile(rf"{_EDGE}[A-Z]{{2}}\d{{2}}(?: ?[A-Z0-9]{{4}}){{2,7}}(?: ?[A-Z0-9]{{1,3}})?(?![A-Za-z0-9])")
_SSN = re.compile(r"(?<![\d-])(?!000|666|9\d\d)\d{3}-(?!00)\d\d-(?!0000)\d{4}(?![\d-])")
_PHONE = re.compile(
    r"(?<![\w+.])\+\d(?:[ ().-]{0,2}\d){7,14}(?!\d)"  # international
    r"|(?<![\w.+-])\(\d{3,5}\)[ -]?\d{3,4}[ -]?\d{3,5}(?![\w-])"  # an area in brackets
    r"|(?<![\w.+-])\d{3}[.-]\d{3}[.-]\d{4}(?![\w.-])"  # North America
)
_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_EMBEDDED = re.compile(r"data:[\w.+/-]{0,100}(?:;[\w.+=-]{0,100}){0,5};base64,[A-Za-z0-9+/=\s]*")
_KEY_LINES = re.compile(r"(?:[A-Za-z0-9+/=]{16,}|\s|\\[nr])*")


class Kind(NamedTuple):
    """One kind of what is taken out. ``hints``: one of these must be in a text for the pattern to have a chance.
    ``holds``: whether what was found is one; else its beginning may be, up to a blank or dash in it, or what stands
    further on. ``group``: of the pattern, that is taken out."""

    name: str
    pattern: re.Pattern[str]
    hints: tuple[str, ...] = ()
    holds: Callable[[str], bool] | None = None
    group: int = 0


def _digits(text: str) -> str:
    return "".join(char for char in text if char in "0123456789")


def is_card(text: str) -> bool:
    """Whether its digits are the number of a card: as long as one, of a known network's range, with its check digit."""
    digits = _digits(text)
    if not 13 <= len(digits) <= 19 or digits[0] not in "3456":
        return False
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(map(int, digits[-1::-2])) + sum(doubled)) % 10 == 0


# Characters of an account number, by country.
_IBAN_LENGTHS = {
    code: length
    for length, codes in {
        15: "NO", 16: "BE", 18: "DK FI FO GL NL", 19: "MK SI", 20: "AT BA EE KZ LT LU XK", 21: "CH HR LI LV",
        22: "BG BH CR DE GB GE IE ME RS", 23: "AE GI IL IQ TL", 24: "AD CZ ES MD PK RO SA SE SK TN VG", 25: "PT",
        26: "IS TR", 27: "FR GR IT MC MR SM", 28: "AL AZ BY CY DO GT HU LB PL SV", 29: "BR EG PS QA UA",
        30: "JO KW MU", 31: "MT SC", 32: "LC", 33: "RU",
    }.items()
    for code in codes.split()
}  # fmt: skip


def is_iban(text: str) -> bool:
    """Whether it is the number of a bank account, by its country's length and its check digits."""
    plain = text.replace(" ", "")
    if len(plain) != _IBAN_LENGTHS.get(plain[:2]):
        return False
    return int("".join(str(int(char, 36)) for char in plain[4:] + plain[:4])) % 97 == 1


KINDS = (
    Kind("key", _HOOK, ("https://",)),
    Kind("key", _KEYS, ("-", "_", "AIza", "AKIA", "ASIA", "AROA", ".")),
    Kind("token", _JWT, ("eyJ",)),
    Kind("token", _BEARER, ("earer ", "BEARER ", "asic "), group=2),
    Kind("password", _IN_URL, ("://",), group=2),
    Kind("password", _ASSIGNED, ("=", ":"), group=2),
    Kind("email", _EMAIL, ("@",)),
    Kind("card", _CARD, (), is_card),
    Kind("account", _IBAN, (), is_iban),
    Kind("ssn", _SSN, ("-",)),
    Kind("phone", _PHONE, ("+", "(", "-", ".")),
)
NAMES = ("private_key", *dict.fromkeys(kind.name for kind in KINDS), "custom")


def mark(name: str) -> str:
    """What stands in the place of what was taken out."""
    return f"[redacted {name}]"


def _length(kind: Kind, said: str) -> int:
    """How much of what a pattern found is to go; 0: nothing."""
    if said.startswith("[redacted"):
        return 0
    if kind.holds is None or kind.holds(said):
        return len(said)
    ends = [place for place, char in enumerate(said) if char in " -"]
    return next((end for end in reversed(ends) if kind.holds(said[:end])), 0)


class Redactor:
    """Takes secrets out of texts and counts them. ``extra``: patterns of the operator's own, of the kind ``custom``."""

    def __init__(self, extra: Iterable[str] = ()) -> None:
        self.counts: Counter[str] = Counter()
        self._kinds = [Kind("custom", re.compile(pattern)) for pattern in extra] + list(KINDS)

    def text(self, text: str) -> str:
        """The text less what is secret in it. A picture or document in base64 is left as it is."""
        if len(text) < 6 or (text.startswith("data:") and _EMBEDDED.fullmatch(text)):
            return text
        if "PRIVATE KEY" in text:
            text = self._keyless(text)
        for kind in self._kinds:
            if kind.hints and not any(hint in text for hint in kind.hints):
                continue
            text = self._without(text, kind)
        return text

    def _without(self, text: str, kind: Kind) -> str:
        out: list[str] = []
        done = at = 0
        while found := kind.pattern.search(text, at):
            start, end = found.start(kind.group), found.start(kind.group) + _length(kind, found[kind.group])
            if end == start:
                at = found.start() + 1
                continue
            self.counts[kind.name] += 1
            out += [text[done:start], mark(kind.name)]
            done = at = end
        return "".join([*out, text[done:]]) if out else text

    def _keyless(self, text: str) -> str:
        """The text without private keys; one whose end is missing ends where its lines do."""
        out: list[str] = []
        at = 0
        open_ended = False
        while begun := _BEGIN.search(text, at):
            ended = None if open_ended else _END.search(text, begun.end())
            open_ended = ended is None
            lines = _KEY_LINES.match(text, begun.end())
            end = ended.end() if ended is not None else lines.end() if lines is not None else begun.end()
            out += [text[at : begun.start()], mark("private_key")]
            self.counts["private_key"] += 1
            at = end
        return "".join([*out, text[at:]])

    def value(self, value: Any) -> Any:
        """A JSON value with every text in it redacted, names of members and long numbers too; the very value where
        nothing was taken out. What stands under a name such as ``password`` goes as a whole."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(part) for part in value]
        if isinstance(value, dict):
            return {self.text(name): self._member(name, part) for name, part in value.items()}
        if isinstance(value, int) and not isinstance(value, bool) and value > 10**12:
            said = str(value) if value < 10**19 else ""
            told = self.text(said)
            return value if told == said else told
        return value

    def _member(self, name: str, part: Any) -> Any:
        return self._secret(part) if _NAMED.fullmatch(name) else self.value(part)

    def _secret(self, part: Any) -> Any:
        """What stands under the name of a secret: each text and number in it goes."""
        if isinstance(part, list):
            return [self._secret(one) for one in part]
        if isinstance(part, dict):
            return {self.text(name): self._secret(one) for name, one in part.items()}
        if part is None or isinstance(part, bool) or part == "" or str(part).startswith("[redacted"):
            return part
        self.counts["password"] += 1
        return mark("password")

    def json(self, text: str) -> str:
        """JSON text, redacted so that it stays JSON; the very text where nothing was taken out, or it is none."""
        try:
            value = json.loads(text)
            told = self.value(value)
            if told == value:
                return text
            return json.dumps(told, ensure_ascii=False)
        except (ValueError, RecursionError):
            return self.text(text)

    def schema(self, text: str) -> str:
        """The JSON schema of a tool, redacted; names of properties tell nothing of what stands under them here."""
        try:
            value = json.loads(text) if text else None
            told = self._texts(value)
            return text if told == value else json.dumps(told, ensure_ascii=False)
        except (ValueError, RecursionError):
            return self.text(text)

    def _texts(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._texts(part) for name, part in value.items()}
        if isinstance(value, list):
            return [self._texts(part) for part in value]
        return self.text(value) if isinstance(value, str) else value
