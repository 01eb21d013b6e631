"""Owns the making of a value that fits a JSON schema, for the simulator's tool calls and structured answers.

Must not validate, and must not fail: what it cannot honour (``pattern``, ``not``, ``if``) it leaves unhonoured, and a
schema's own ``examples`` it takes at their word.
Invariant: the value depends on the schema and the seed alone, and at most ``LARGEST`` values are made, so that a
schema that refers to itself ends.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

LARGEST = 2000  # values made for one schema
OPTIONAL_DEPTH = 4  # below this depth only required properties are given, which ends most recursive schemas early
DEEPEST = 24
_FORMATS = {
    "date": "2026-01-15",
    "date-time": "2026-01-15T09:30:00Z",
    "time": "09:30:00Z",
    "email": "someone@example.com",
    "uri": "https://example.com/item",
    "url": "https://example.com/item",
    "uuid": "00000000-0000-4000-8000-000000000001",
    "ipv4": "192.0.2.1",
    "hostname": "example.com",
}


def fit(schema: dict[str, Any], seed: str) -> Any:
    """A JSON value that fits ``schema``; other seeds give other values where the schema leaves room. Never raises."""
    return _Maker(schema, seed).value(schema, "value", 0)


class _Maker:
    def __init__(self, root: dict[str, Any], seed: str) -> None:
        self.root = root
        self.seed = seed
        self.left = LARGEST

    def value(self, schema: Any, path: str, depth: int) -> Any:
        self.left -= 1
        if not isinstance(schema, dict) or self.left < 0 or depth > DEEPEST:
            return path.rsplit(".", 1)[-1] if schema is True else None
        schema = self.resolved(schema)
        if "const" in schema:
            return schema["const"]
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return schema["enum"][self.number(path) % len(schema["enum"])]
        if isinstance(schema.get("examples"), list) and schema["examples"]:
            return schema["examples"][self.number(path) % len(schema["examples"])]
        kind = _kind(schema)
        if kind == "object":
            return self.object(schema, path, depth)
        if kind == "array":
            return self.array(schema, path, depth)
        if kind in ("integer", "number"):
            return _within(schema, self.number(path), whole=kind == "integer")
        if kind == "boolean":
            return bool(self.number(path) % 2)
        return None if kind == "null" else self.text(schema, path)

    def resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema with references followed, ``allOf`` merged and, of a choice, the first branch that is not null."""
        for _ in range(DEEPEST):
            if isinstance(schema.get("$ref"), str):
                target = self.target(schema["$ref"])
            elif isinstance(schema.get("allOf"), list) and schema["allOf"]:
                target = _joined([self.followed(part) for part in schema["allOf"] if isinstance(part, dict)])
            elif branches := [part for part in _list(schema.get("anyOf") or schema.get("oneOf")) if _useful(part)]:
                target = branches[0]
            else:
                return schema
            rest = {key: part for key, part in schema.items() if key not in ("$ref", "allOf", "anyOf", "oneOf")}
            schema = _joined([target, rest])
        return {}

    def followed(self, schema: dict[str, Any]) -> dict[str, Any]:
        return self.target(schema["$ref"]) if isinstance(schema.get("$ref"), str) else schema

    def target(self, reference: str) -> dict[str, Any]:
        place: Any = self.root
        for part in reference.removeprefix("#").strip("/").split("/"):
            if part:
                place = place.get(part.replace("~1", "/").replace("~0", "~"), {}) if isinstance(place, dict) else {}
        return place if isinstance(place, dict) else {}

    def object(self, schema: dict[str, Any], path: str, depth: int) -> dict[str, Any]:
        properties = schema.get("properties")
        properties = dict(properties) if isinstance(properties, dict) else {}
        required = [name for name in _list(schema.get("required")) if isinstance(name, str)]
        names = list(properties) if depth < OPTIONAL_DEPTH else [name for name in properties if name in required]
        names += [name for name in required if name not in properties]
        return {name: self.value(properties.get(name, True), f"{path}.{name}", depth + 1) for name in names}

    def array(self, schema: dict[str, Any], path: str, depth: int) -> list[Any]:
        kinds = _list(schema.get("prefixItems"))
        least = max(_int(schema.get("minItems"), 1), len(kinds))
        if depth >= OPTIONAL_DEPTH:
            least = _int(schema.get("minItems"), 0)
        count = min(least, _int(schema.get("maxItems"), least), LARGEST)
        items = schema.get("items", True)
        parts = [kinds[index] if index < len(kinds) else items for index in range(count)]
        made = []
        for index, part in enumerate(parts):
            if self.left < 0:
                break
            made.append(self.value(part, f"{path}[{index}]", depth + 1))
        return made

    def text(self, schema: dict[str, Any], path: str) -> str:
        if str(schema.get("format")) in _FORMATS:
            return _FORMATS[str(schema["format"])]
        text = f"{path.rsplit('.', 1)[-1]}-{self.number(path) % 0x10000:04x}"
        text = text.ljust(min(_int(schema.get("minLength"), 0), 100_000), "x")
        return text[: _int(schema.get("maxLength"), len(text))]

    def number(self, path: str) -> int:
        return int.from_bytes(hashlib.sha256(f"{self.seed}\0{path}".encode()).digest()[:6], "big")


def _kind(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((part for part in kind if part != "null"), "null")
    if isinstance(kind, str):
        return kind
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else "string"


def _useful(branch: Any) -> bool:
    return isinstance(branch, dict) and branch.get("type") != "null"


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Schemas laid over each other: properties and required names add up, of anything else the later one counts."""
    whole: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            before = whole.get(key)
            if key == "properties" and isinstance(value, dict) and isinstance(before, dict):
                whole[key] = before | value
            elif key == "required" and isinstance(value, list):
                whole[key] = [*_list(before), *value]
            else:
                whole[key] = value
    return whole


def _within(schema: dict[str, Any], chance: int, *, whole: bool) -> int | float:
    """A number within the bounds; bounds that exclude each other are not honoured."""
    above, below = _number(schema.get("exclusiveMinimum")), _number(schema.get("exclusiveMaximum"))
    low = _number(schema.get("minimum")) if above is None else above
    high = _number(schema.get("maximum")) if below is None else below
    if low is None:
        low = 0.0 if high is None or high > 0 else high - 100
    if high is None:
        high = low + 100
    step = _number(schema.get("multipleOf")) or (1.0 if whole else 0.0)
    if step < 1e-9:
        return low + (high - low) * (1 + chance % 98) / 99  # strictly between, so that exclusive bounds hold
    first, last = math.ceil(low / step), math.floor(high / step)
    first += above is not None and first * step <= low
    last -= below is not None and last * step >= high
    value = (first + chance % (max(0, min(last - first, 99)) + 1)) * step
    return int(value) if whole else value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**53
    return float(value) if usable else None


def _int(value: Any, default: int) -> int:
    number = _number(value)
    return default if number is None else max(0, int(number))
