"""Owns holding what the control plane answers to its OpenAPI document. Must not know what an answer should say.

Invariant: here schemas are closed: a field that the document does not name is a fault, so that it cannot lag behind.
"""

from __future__ import annotations

import copy
import re
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator

from agentstate.server.openapi import document


def faults(schema: Any, value: Any) -> list[str]:
    """Where a value does not fit a schema; empty: it does."""
    return _told(_validator(schema), value)


def _told(validator: Draft202012Validator, value: Any) -> list[str]:
    errors = validator.iter_errors(value)
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message[:300]}" for error in errors]


def _validator(schema: Any) -> Draft202012Validator:
    return Draft202012Validator({**closed(schema), "components": _components()})


@cache
def _known(method: str, template: str, status: int) -> Draft202012Validator | None:
    schema = schema_of(method, template, status)
    return None if schema is None else _validator(schema)


@cache
def _components() -> dict[str, Any]:
    schemas = document()["components"]["schemas"]
    return {"schemas": {name: closed(schema) for name, schema in schemas.items()}}


def closed(schema: Any) -> Any:
    """The same with no room for fields that it does not name."""
    found = copy.deepcopy(schema)
    _close(found)
    return found


def _close(schema: Any) -> None:
    if isinstance(schema, list):
        for part in schema:
            _close(part)
    if isinstance(schema, dict):
        if "properties" in schema and "additionalProperties" not in schema:
            schema["additionalProperties"] = False
        for name, part in schema.items():
            if name == "allOf":
                continue  # each part speaks of some fields alone
            _close(part)


def template_of(method: str, path: str) -> str | None:
    """The template of the path of the operation that a path is for: the one with the most fixed parts."""
    bare = urlsplit(path).path
    fitting = [template for template in document()["paths"] if re.fullmatch(_pattern(template), bare)]
    fitting = [template for template in fitting if method.lower() in document()["paths"][template]]
    if not fitting:
        return None
    return max(fitting, key=lambda template: (len(re.sub(r"{\w+}", "", template)), -template.count("{")))


def _pattern(template: str) -> str:
    kinds = {"number": r"(?:\d+|{number})"}
    parts = re.split(r"{(\w+)}", template)
    return "".join(kinds.get(part, ".+") if place % 2 else re.escape(part) for place, part in enumerate(parts))


def schema_of(method: str, path: str, status: int) -> Any:
    """The schema of a JSON answer; ``None``: the document has none."""
    template = template_of(method, path)
    if template is None:
        return None
    answer = document()["paths"][template][method.lower()]["responses"].get(str(status), {})
    return answer.get("content", {}).get("application/json", {}).get("schema")


def check(method: str, path: str, status: int, value: Any) -> None:
    """Hold one answer to the document."""
    template = template_of(method, path)
    assert template is not None, f"{method} {path} is not in the OpenAPI document, see CONTRIBUTING.md"
    answers = document()["paths"][template][method.lower()]["responses"]
    assert str(status) in answers, f"{method} {path} may not answer {status}"
    validator = _known(method, template, status)
    if validator is not None:
        found = _told(validator, value)
        assert not found, f"{method} {path} answered {status} otherwise than described: {found[:5]}"
