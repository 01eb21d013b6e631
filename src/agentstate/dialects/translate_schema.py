"""Owns what JSON schemas providers take where they promise to keep to one. Must not judge values by a schema.

Both vendors take a part of JSON Schema only, and refuse a request with more. Invariant: a schema that is changed still
allows every value that the target would produce by the original, and what it no longer says is named.
"""

from __future__ import annotations

from typing import Any

import msgspec

# What Anthropic keeps to: the keywords that its SDK leaves in a schema, and the formats of strings.
_KEPT = frozenset(
    {
        "$defs", "$ref", "type", "anyOf", "allOf", "enum", "const", "description", "title", "properties", "required",
        "additionalProperties", "items", "format", "minItems",
    }
)  # fmt: skip
_SAYS_NOTHING = ("$schema", "$id", "$comment")
_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)  # fmt: skip
_NAMED = ("properties", "$defs", "definitions", "patternProperties")  # objects of schemas by name
_LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")
_ONE = ("items", "not", "if", "then", "else", "contains")


def for_anthropic(schema: bytes) -> tuple[bytes, tuple[str, ...]]:
    """(the schema as Anthropic takes it for an answer, the keywords that were left out of it)."""
    lost: set[str] = set()
    return msgspec.json.encode(_kept(msgspec.json.decode(schema), lost)), tuple(sorted(lost))


def strict_for_anthropic(schema: bytes) -> bool:
    """Whether Anthropic takes a tool with this schema as ``strict``."""
    value = msgspec.json.decode(schema)
    return bool(_kept(value, set()) == value)


def strict_for_openai(schema: bytes) -> bool:
    """Whether OpenAI takes this schema as ``strict``: objects say all their properties, and require each of them."""
    return _closed(msgspec.json.decode(schema))


def _kept(schema: Any, lost: set[str]) -> Any:
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED and key in _KEPT and isinstance(value, dict):
            out[key] = {name: _kept(part, lost) for name, part in value.items()}
        elif key in ("anyOf", "oneOf", "allOf") and isinstance(value, list):
            out["anyOf" if key == "oneOf" else key] = [_kept(part, lost) for part in value]
        elif key == "items":
            out[key] = _kept(value, lost)
        elif not _says_too_much(key, value):
            out[key] = value
        elif key not in _SAYS_NOTHING:
            lost.add(key)
    if _is_object(schema):
        if schema.get("additionalProperties") not in (None, False):
            lost.add("additionalProperties")
        out["additionalProperties"] = False
    return out


def _says_too_much(key: str, value: Any) -> bool:
    if key == "format":
        return value not in _FORMATS
    if key == "minItems":
        return value not in (0, 1)
    return key not in _KEPT


def _is_object(schema: dict[str, Any]) -> bool:
    kind = schema.get("type")
    return kind == "object" or "properties" in schema or (isinstance(kind, list) and "object" in kind)


def _closed(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return True
    if _is_object(schema):
        properties = schema.get("properties")
        named = set(properties) if isinstance(properties, dict) else set()
        required = schema.get("required")
        if schema.get("additionalProperties") is not False:
            return False
        if named != (set(required) if isinstance(required, list) else set()):
            return False
    below = [part for key in _NAMED if isinstance(schema.get(key), dict) for part in schema[key].values()]
    below += [part for key in _LISTS if isinstance(schema.get(key), list) for part in schema[key]]
    below += [schema[key] for key in _ONE if key in schema]
    return all(map(_closed, below))
