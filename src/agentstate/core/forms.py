"""Owns how the arguments of a call become the fields of a form, by the schema that the agent gave, and back again.

Must not check them against the schema, which is done where an edit is decided. Invariant: a form that is sent back as
it was shown says exactly the arguments that it was made of; what a field cannot hold without loss stands in it as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from agentstate.core.visible import laid_out, visible

_LONG = 60  # characters of a text that is given more than a line
_MOST_FIELDS = 60


class FieldKind(StrEnum):
    """How a field is filled in. ``json``: as JSON text, which every value can be."""

    TEXT = "text"
    LONG = "long"
    WHOLE = "whole"
    NUMBER = "number"
    BOOLEAN = "boolean"
    CHOICE = "choice"
    JSON = "json"


class Field(NamedTuple):
    """One argument. ``value``: what stands in the field, empty: the argument is left out (of a text that is ``there``:
    it is an empty text). ``help``: what the schema says of it; ``choices``: the texts that it may be."""

    name: str
    kind: FieldKind
    value: str
    there: bool
    required: bool = False
    help: str = ""
    choices: tuple[str, ...] = ()


class FieldFault(NamedTuple):
    """``at``: the field's place in the form; ``message``: what is wrong with what stands in it."""

    at: int
    message: str


def fields_of(schema: str, arguments: str) -> tuple[Field, ...] | None:
    """The fields of a call's arguments, in the order in which the model gave them, then those that the schema knows.

    ``None``: there is no form for them. The schema is none of an object with known members, or the arguments are no
    object, or would not be the same laid out.
    """
    described = _loaded(schema)
    value = _loaded(arguments) if arguments.strip() else {}
    if not isinstance(described, dict) or not isinstance(value, dict) or (arguments.strip() and laid_out(arguments)[1]):
        return None
    known = described.get("properties")
    if not isinstance(known, dict) or not known or described.get("type", "object") != "object":
        return None
    names = [*value, *(name for name in known if name not in value)]
    if len(names) > _MOST_FIELDS:
        return None
    wanted = described.get("required")
    required = {one for one in wanted if isinstance(one, str)} if isinstance(wanted, list) else set()
    return tuple(_field(name, known.get(name), value, name in required) for name in names)


def filled(fields: Sequence[Field], given: Mapping[int, str]) -> tuple[dict[str, Any], tuple[FieldFault, ...]]:
    """(the arguments, what cannot be read) of a form that was sent. ``given``: by the field's place; those that are
    missing stand as they were."""
    found: dict[str, Any] = {}
    faults: list[FieldFault] = []
    for at, field in enumerate(fields):
        text = given.get(at, field.value)
        if _left_out(field, text):
            continue
        try:
            found[field.name] = _value(field, text)
        except ValueError as error:
            faults.append(FieldFault(at, str(error)))
    return found, tuple(faults)


def refilled(fields: Sequence[Field], given: Mapping[int, str]) -> tuple[Field, ...]:
    """The fields with what somebody typed into them."""
    return tuple(field._replace(value=given.get(at, field.value)) for at, field in enumerate(fields))


def spelled(value: Any) -> str:
    """A value as JSON text that can be edited: what cannot be seen, or moves other characters, is escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return json.dumps(value, indent=2) if visible(text) != text else text


def _left_out(field: Field, text: str) -> bool:
    if field.kind in (FieldKind.TEXT, FieldKind.LONG):
        return not text and not field.there
    return not text.strip()


def _value(field: Field, text: str) -> Any:
    """Raises ``ValueError``."""
    if field.kind in (FieldKind.TEXT, FieldKind.LONG, FieldKind.CHOICE):
        return text.replace("\r\n", "\n")  # a browser sends lines so, whatever they were
    if field.kind is FieldKind.BOOLEAN and text not in ("true", "false"):
        raise ValueError("true or false is wanted")
    try:
        value = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        wanted = {FieldKind.WHOLE: "a whole number", FieldKind.NUMBER: "a number"}.get(field.kind, "JSON")
        raise ValueError(f"{wanted} is wanted") from None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if field.kind is FieldKind.NUMBER and not number:
        raise ValueError("a number is wanted")
    if field.kind is FieldKind.WHOLE and not (isinstance(value, int) and number):
        raise ValueError("a whole number is wanted")
    return value


def _field(name: str, described: Any, arguments: Mapping[str, Any], required: bool) -> Field:
    about: Mapping[str, Any] = described if isinstance(described, dict) else {}
    there = name in arguments
    kind, choices = _kind(about, arguments.get(name), there)
    value = ""
    if there:
        given = arguments[name]
        as_text = kind in (FieldKind.TEXT, FieldKind.LONG, FieldKind.CHOICE)
        value = given if as_text else spelled(given)
    told = about.get("description")
    return Field(name, kind, value, there, required, told if isinstance(told, str) else "", choices)


def _kind(about: Mapping[str, Any], value: Any, there: bool) -> tuple[FieldKind, tuple[str, ...]]:
    """How an argument is filled in, and what may be chosen; as JSON where its value does not fit the simpler ways."""
    options = about.get("enum")
    if isinstance(options, list) and options and all(isinstance(one, str) and _plain(one) and one for one in options):
        fits = not there or value in options
        return (FieldKind.CHOICE, tuple(options)) if fits else (FieldKind.JSON, ())
    said = about.get("type")
    if said == "string" and (not there or (isinstance(value, str) and _plain(value))):
        long = there and (len(value) > _LONG or "\n" in value)
        return (FieldKind.LONG if long else FieldKind.TEXT), ()
    if said == "boolean" and (not there or isinstance(value, bool)):
        return FieldKind.BOOLEAN, ()
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if said == "integer" and (not there or (number and isinstance(value, int))):
        return FieldKind.WHOLE, ()
    if said == "number" and (not there or number):
        return FieldKind.NUMBER, ()
    return FieldKind.JSON, ()


def _plain(text: str) -> bool:
    """Whether a field holds it to the letter: all of it is seen, and a browser sends it back as it is."""
    return visible(text) == text and "\r" not in text


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON")
