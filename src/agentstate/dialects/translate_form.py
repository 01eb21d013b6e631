"""Owns the one form between dialects in which questions and answers are translated. Must not know any dialect.

Everything in it is frozen. JSON that the translator only hands on, such as schemas and arguments, stays JSON text.
Invariant: what a dialect can say and this form cannot hold is put down as a loss by whoever reads or writes it.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple

Role = Literal["system", "user", "assistant"]
End = Literal["stop", "tools", "length", "refusal"]

NOT_TOLD: Final = -1  # a count that the provider does not give at all; ``None`` is one that it gives as null

_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")  # Anthropic takes only these characters, OpenAI's chat no more than 40 of them
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # what OpenAI takes as a tool's name; Anthropic takes 128 of the same
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_PREFIXES = ("toolu_", "call_", "fc_", "chatcmpl-", "msg_", "resp_")
_ODD_IN_A_LOSS = re.compile(r"[^ -~]|;")


class Text(NamedTuple):
    text: str


class Image(NamedTuple):
    """``data``: base64 of ``media``, or else ``url``."""

    media: str = ""
    data: str = ""
    url: str = ""


class File(NamedTuple):
    """A document: base64 ``data`` of ``media``, or its ``url``."""

    name: str = ""
    media: str = ""
    data: str = ""
    url: str = ""


class Refusal(NamedTuple):
    """What a model said when it declined."""

    text: str


class ToolUse(NamedTuple):
    """A call of a tool. ``arguments``: JSON text, or free text where the tool is ``custom``. ``space``: the namespace
    that the tool is in, if any."""

    id: str
    name: str
    arguments: str
    custom: bool = False
    space: str = ""


class Result(NamedTuple):
    """What a call gave. ``custom``: the tool takes free text."""

    id: str
    parts: tuple[Text | Image | File, ...]
    failed: bool = False
    custom: bool = False


Part = Text | Image | File | Refusal | ToolUse | Result


class Message(NamedTuple):
    role: Role
    parts: tuple[Part, ...]


class Tool(NamedTuple):
    """A tool that the agent runs. ``schema``: JSON text of the schema of its arguments; empty: it takes free text."""

    name: str
    description: str = ""
    schema: bytes = b""
    strict: bool | None = None
    space: str = ""


class Choice(NamedTuple):
    """Which tools may be called: ``kind`` is ``auto``, ``none``, ``required`` or ``tool`` (``name`` alone). ``only``:
    the names of those that may be, where not all may."""

    kind: str
    name: str = ""
    only: tuple[str, ...] = ()


class Format(NamedTuple):
    """The JSON that an answer is to be. ``schema``: JSON text; empty: any object."""

    schema: bytes = b""
    name: str = ""
    description: str = ""
    strict: bool | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A question. ``effort``: how much to reason, in OpenAI's words; empty: as the model likes; ``None``: not said.

    ``shared``: fields that OpenAI's two dialects have in common, as (name, JSON text).
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    choice: Choice | None = None
    parallel: bool | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    format: Format | None = None
    effort: str | None = None
    verbosity: str = ""
    user: str = ""
    tier: str = ""
    shared: tuple[tuple[str, bytes], ...] = ()


class Usage(NamedTuple):
    """Tokens. ``input``: all of them, cached or not; ``output``: reasoning included. The others are parts of these;
    see ``NOT_TOLD``."""

    input: int
    output: int
    cached: int | None = NOT_TOLD
    written: int | None = NOT_TOLD
    reasoning: int | None = NOT_TOLD


class Quote(NamedTuple):
    """A page that a text cites, and where in the text (in characters)."""

    url: str
    title: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Said:
    """An answer. ``created``: seconds since the epoch; ``None``: it does not tell. ``reasoning``: what can be read of
    how the model came to it. ``quotes``: of the texts joined. ``stopped_by``: the stop sequence that ended it."""

    id: str
    model: str
    parts: tuple[Part, ...]
    end: End
    usage: Usage | None = None
    created: int | None = None
    reasoning: str = ""
    quotes: tuple[Quote, ...] = ()
    stopped_by: str = ""
    tier: str = ""

    def texts(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    def refusal(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Refusal))

    def calls(self) -> list[ToolUse]:
        return [part for part in self.parts if isinstance(part, ToolUse)]


class Losses:
    """What could not be carried over, put down by whoever notices."""

    def __init__(self) -> None:
        self._found: set[str] = set()

    def add(self, what: str) -> None:
        self._found.add(_ODD_IN_A_LOSS.sub("?", what)[:80])

    def rest(self, value: Mapping[str, Any], known: Iterable[str], where: str = "") -> None:
        """Every field of an object that is not ``known`` and says something. ``where``: what stands before its name."""
        for name, said in value.items():
            if said is not None and name not in known:
                self.add("cache_control" if name == "cache_control" else where + name)

    def own_fields(self, answer: Mapping[str, Any], known: Iterable[str]) -> None:
        """Whether an answer, or what it counts, has fields of its provider's own: one loss for all of them."""
        if any(name not in known and said not in (None, 0, "", {}, []) for name, said in answer.items()):
            self.add("answer (fields of its provider's own)")

    def told(self) -> tuple[str, ...]:
        return tuple(sorted(self._found))


# --- names and ids ----------------------------------------------------------------------------------------------------


def short(text: str, length: int = 24) -> str:
    """Letters and digits that stand for a text; equal for equal texts."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def wire_id(name: str) -> str:
    """The id of a call as every provider takes it; the same each time."""
    return name if _ID.fullmatch(name) else "call_" + short(name)


def wire_name(name: str, space: str = "") -> str:
    """The name of a tool as every provider takes it; the same each time."""
    full = f"{space}__{name}" if space else name
    return full if _NAME.fullmatch(full) else f"{_NO_NAME.sub('_', full)[:55]}_{short(full, 8)}"


def given_ids(calls: Sequence[ToolUse], answer: str, prefix: str) -> list[str]:
    """An id for each call of an answer, in the form of the asker's dialect (``call_``, ``toolu_``), no two alike.

    ``answer``: what tells this answer from others; ids that are missing or said twice are made from it.
    """
    found: list[str] = []
    for place, call in enumerate(calls):
        stem = stem_of(call.id)
        name = prefix + stem
        if not stem or name in found:
            name = prefix + short(f"{answer}\0{place}\0{call.id}")
        found.append(name)
    return found


def stem_of(name: str) -> str:
    """An id without the prefix that a dialect gives it; empty: nothing of it can be used in another."""
    stem = next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), name)
    return stem if len(stem) <= 34 and (not stem or _ID.fullmatch(stem)) else short(name)


# --- conversations ----------------------------------------------------------------------------------------------------


def restored(calls: Sequence[ToolUse], tools: Sequence[Tool]) -> list[ToolUse]:
    """The calls by the names under which the agent knows its tools, with the free text that a custom tool takes."""
    known = {wire_name(tool.name, tool.space): tool for tool in tools}
    found = []
    for call in calls:
        tool = known.get(call.name)
        if tool is not None:
            free = not tool.schema
            text = _free_text(call.arguments) if free and not call.custom else call.arguments
            call = call._replace(name=tool.name, space=tool.space, custom=free, arguments=text)
        found.append(call)
    return found


def _free_text(arguments: str) -> str:
    """What a model wrote for a tool of free text, which it was told to be an object with one text in it."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return arguments
    text = value.get("input") if isinstance(value, dict) else None
    return text if isinstance(text, str) else arguments


def settled(messages: Sequence[Message]) -> list[Message]:
    """The conversation as strict providers want it, whatever the order in which the agent wrote it down.

    The results of an answer's calls come right after it, in the order of the calls; answers that follow each other are
    one; no two calls have the same id, and each id is one that every provider takes.
    """
    joined = list(_joined(messages, "assistant"))
    known = {part.id for message in joined for part in message.parts if isinstance(part, ToolUse)}
    waiting = _waiting(joined)
    used: set[tuple[int, int]] = set()
    taken: dict[str, int] = {}
    out: list[Message] = []
    for at, message in enumerate(joined):
        parts = [part for place, part in enumerate(message.parts) if (at, place) not in used]
        calls = [part for part in parts if isinstance(part, ToolUse)]
        found = [_result(waiting.get(call.id), at, used) for call in calls]
        if None in found:
            found = _paired(found, joined, at, known, used)
        names = [_free(wire_id(call.id), taken) for call in calls]
        named = iter(zip(calls, names, strict=True))
        parts = [part._replace(id=next(named)[1]) if isinstance(part, ToolUse) else part for part in parts]
        parts = [part._replace(id=wire_id(part.id)) if isinstance(part, Result) else part for part in parts]
        out += [Message(message.role, tuple(parts))] if parts else []
        results = tuple(
            result._replace(id=name, custom=call.custom)
            for call, name, result in zip(calls, names, found, strict=True)
            if result is not None
        )
        out += [Message("user", results)] if results else []
    return out


def joined_users(messages: Sequence[Message]) -> list[Message]:
    """Messages of the user that follow each other as one."""
    return list(_joined(messages, "user"))


def _joined(messages: Sequence[Message], role: Role) -> Iterator[Message]:
    last: Message | None = None
    for message in messages:
        if last is not None and last.role == message.role == role:
            last = last._replace(parts=last.parts + message.parts)
            continue
        if last is not None:
            yield last
        last = message
    if last is not None:
        yield last


_Waiting = deque[tuple[int, int, Result]]


def _waiting(messages: Sequence[Message]) -> dict[str, _Waiting]:
    """The results by the call that they name: (message, place in it, result), first ones first."""
    found: dict[str, _Waiting] = {}
    for at, message in enumerate(messages):
        for place, part in enumerate(message.parts):
            if isinstance(part, Result):
                found.setdefault(part.id, deque()).append((at, place, part))
    return found


def _result(waiting: _Waiting | None, after: int, used: set[tuple[int, int]]) -> Result | None:
    """The first of the results that stands after a call; it is then ``used``."""
    while waiting:
        at, place, result = waiting.popleft()
        if at > after:
            used.add((at, place))
            return result
    return None


def _paired(
    found: list[Result | None], messages: Sequence[Message], at: int, known: set[str], used: set[tuple[int, int]]
) -> list[Result | None]:
    """The results with those of no call at all for those that are missing, in their order, where there are as many.

    Some clients make up an id for a call that has none, and another one for its result.
    """
    strays: list[tuple[tuple[int, int], Result]] = []
    for later in range(at + 1, len(messages)):
        if messages[later].role == "assistant":
            break
        for place, part in enumerate(messages[later].parts):
            if isinstance(part, Result) and part.id not in known and (later, place) not in used:
                strays.append(((later, place), part))
    if len(strays) != found.count(None):
        return found
    used |= {where for where, _ in strays}
    left = iter(strays)
    return [next(left)[1] if result is None else result for result in found]


def _free(name: str, taken: dict[str, int]) -> str:
    """The id, or one like it that no call before has. ``taken``: how often each was wanted."""
    found = name
    while found in taken:
        taken[name] += 1
        found = f"{name[:32]}_{taken[name]}"
    taken[found] = 1
    return found


def with_tools_of_history(asked: Asked) -> Asked:
    """The question with the tools that its history calls, where it offers none: some providers want them defined. None
    of them may be called."""
    if asked.tools:
        return asked
    names = {wire_name(part.name, part.space): part for message in asked.messages for part in message.parts
             if isinstance(part, ToolUse)}  # fmt: skip
    tools = tuple(Tool(part.name, "", b'{"type":"object"}', None, part.space) for part in names.values())
    return replace(asked, tools=tools, choice=Choice("none")) if tools else asked
