"""Owns the words in which routes of the control plane are described: operations, parameters, schemas. Must not know a
route, nor serve anything.

Invariant: a description is data and complete in itself; what all operations share (the token, the errors of every
route) is said once, where the document is put together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentstate.core.approval import Role
from agentstate.errors import AgentStateError

Schema = dict[str, Any]
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one route.

    ``path``: as in the document, ``/api/sessions/{id}``; ``does``: one sentence; ``more``: what else is to be known;
    ``answer``: the schema of the body, ``None``: it has none to speak of; ``role``: the least that may call it,
    ``None``: no token is asked for; ``query``: its parameters; ``body``: the schema of what is sent; ``example``: of
    that; ``errors``: those of its own; ``kind``, ``body_kind``: content types; ``paged``: the header ``link`` leads on;
    ``status``: of a good answer; ``statuses``: further answers than the errors, by status: (meaning, schema).
    """

    method: str
    path: str
    does: str
    answer: Schema | None = None
    role: Role | None = Role.VIEWER
    tag: str = ""
    query: tuple[Schema, ...] = ()
    body: Schema | None = None
    example: Any = None
    errors: tuple[type[AgentStateError], ...] = ()
    more: str = ""
    kind: str = JSON
    body_kind: str = JSON
    paged: bool = False
    status: int = 200
    statuses: Mapping[int, tuple[str, Schema]] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """As generators of clients call it: ``get_api_sessions_id``."""
        words = [part.strip("{}").replace("-", "_") for part in self.path.split("/") if part]
        return "_".join((self.method.lower(), *words))


# --- schemas ---


def text(meaning: str = "", **more: Any) -> Schema:
    return _of("string", meaning, more)


def whole(meaning: str = "", **more: Any) -> Schema:
    return _of("integer", meaning, more)


def number(meaning: str = "", **more: Any) -> Schema:
    return _of("number", meaning, more)


def flag(meaning: str = "", **more: Any) -> Schema:
    return _of("boolean", meaning, more)


def moment(meaning: str = "") -> Schema:
    """A time: ISO 8601 in UTC."""
    return _of("string", meaning, {"format": "date-time"})


def day(meaning: str = "") -> Schema:
    return _of("string", meaning, {"format": "date"})


def anything(meaning: str = "") -> Schema:
    return {"description": meaning} if meaning else {}


def options(values: Iterable[str], meaning: str = "") -> Schema:
    """One of these texts."""
    return _of("string", meaning, {"enum": [str(value) for value in values]})


def many(items: Schema, meaning: str = "", **more: Any) -> Schema:
    return _of("array", meaning, {"items": items, **more})


def mapped(values: Schema, meaning: str = "") -> Schema:
    """An object with any names."""
    return _of("object", meaning, {"additionalProperties": values})


def record(fields: Mapping[str, Schema], meaning: str = "", optional: Iterable[str] = ()) -> Schema:
    """An object with these fields, all of which are there but for the ``optional`` ones."""
    left = set(optional)
    required = [name for name in fields if name not in left]
    return _of("object", meaning, {"properties": dict(fields), **({"required": required} if required else {})})


def maybe(schema: Schema) -> Schema:
    """The same, or null."""
    if "type" not in schema:
        told = {"description": schema["description"]} if "description" in schema else {}
        bare = {name: value for name, value in schema.items() if name != "description"}
        return {"anyOf": [bare, {"type": "null"}], **told}
    more = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, "type": [schema["type"], "null"], **more}


def ref(name: str, meaning: str = "") -> Schema:
    """A schema of the document's components."""
    return {"$ref": f"#/components/schemas/{name}", **({"description": meaning} if meaning else {})}


def _of(kind: str, meaning: str, more: Mapping[str, Any]) -> Schema:
    return {"type": kind, **({"description": meaning} if meaning else {}), **more}


# --- parameters ---


def query(name: str, schema: Schema, example: Any = None, many_times: bool = False, required: bool = False) -> Schema:
    """A parameter of the query. ``many_times``: it may be given several times."""
    told = dict(schema)
    meaning = told.pop("description", "")
    found: Schema = {"name": name, "in": "query", "description": meaning, "schema": told}
    if required:
        found["required"] = True
    if many_times:
        found |= {"schema": {"type": "array", "items": told}, "explode": True}
    return found if example is None else {**found, "example": example}


def limit(most: int, default: int) -> Schema:
    """How many entries a page has."""
    return query("limit", whole(f"How many, 1 to {most}.", minimum=1, maximum=most, default=default))


def after(meaning: str, kind: Schema | None = None) -> Schema:
    """Where a page begins."""
    told = f"{meaning} of the last entry of the page before; follow the header `link` instead of making it yourself."
    return query("after", {**(kind or text()), "description": told})
