"""A form of arguments says what they say, and what cannot stand in a field stands in it as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.forms import Field, FieldKind, fields_of, filled, refilled

SCHEMA = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "description": "Whom to write to"},
        "body": {"type": "string"},
        "count": {"type": "integer"},
        "amount": {"type": "number"},
        "urgent": {"type": "boolean"},
        "kind": {"enum": ["plain", "html"]},
        "more": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["to"],
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def form(arguments: Any, schema: Any = SCHEMA) -> dict[str, Field]:
    found = fields_of(json.dumps(schema), json.dumps(arguments))
    assert found is not None
    return {field.name: field for field in found}


def test_each_argument_is_a_field_of_its_kind_in_the_models_order_then_what_the_schema_knows() -> None:
    found = form({"body": "two\nlines", "to": "a@b.test", "count": 3, "amount": 1.5, "urgent": False, "kind": "html"})
    assert list(found) == ["body", "to", "count", "amount", "urgent", "kind", "more"]
    assert [field.kind.value for field in found.values()] == [
        "long", "text", "whole", "number", "boolean", "choice", "json",
    ]  # fmt: skip
    assert found["to"].required and found["to"].help == "Whom to write to" and found["kind"].choices == (
        "plain", "html",
    )  # fmt: skip
    assert found["more"].value == "" and not found["more"].there


@given(st.dictionaries(st.sampled_from(sorted(SCHEMA["properties"])) | st.text(), VALUES, max_size=6))  # type: ignore[call-overload]
def test_a_form_sent_back_as_it_was_shown_says_the_same_arguments(arguments: dict[str, Any]) -> None:
    fields = fields_of(json.dumps(SCHEMA), json.dumps(arguments))
    if fields is None:
        return
    sent = {at: field.value.replace("\n", "\r\n") for at, field in enumerate(fields)}  # as a browser does
    assert filled(fields, sent) == (arguments, ())


def test_what_does_not_fit_its_kind_or_cannot_be_seen_stands_there_as_json() -> None:
    found = form({"to": "a\u202eb", "body": "a\r\nb", "count": "three", "kind": "other", "new": 1})
    assert {name: found[name].kind for name in ("to", "body", "count", "kind", "new")} == dict.fromkeys(
        ("to", "body", "count", "kind", "new"), FieldKind.JSON
    )
    assert found["to"].value == r'"a\u202eb"'


def test_an_empty_field_leaves_the_argument_out_but_for_a_text_that_is_there() -> None:
    fields = tuple(form({"to": "a", "body": "b", "count": 1}).values())
    arguments, faults = filled(fields, dict.fromkeys(range(len(fields)), ""))
    assert (arguments, faults) == ({"to": "", "body": ""}, ())


@pytest.mark.parametrize(
    ("name", "typed", "said"),
    [
        ("count", "3.5", "a whole number"),
        ("count", "many", "a whole number"),
        ("count", "true", "a whole number"),
        ("amount", "NaN", "a number"),
        ("urgent", "maybe", "true or false"),
        ("more", "[", "JSON"),
    ],
)
def test_what_cannot_be_read_is_told_at_its_field_and_stays_typed(name: str, typed: str, said: str) -> None:
    fields = tuple(form({"to": "a"}).values())
    at = [field.name for field in fields].index(name)
    arguments, faults = filled(fields, {at: typed})
    assert name not in arguments and [fault.at for fault in faults] == [at] and said in faults[0].message
    assert refilled(fields, {at: typed})[at].value == typed


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ("", "{}"),
        ("{}", "{}"),
        ('{"type":"string","properties":{"a":{}}}', "{}"),
        ('{"properties":[]}', "{}"),
        (json.dumps(SCHEMA), "[1]"),
        (json.dumps(SCHEMA), '{"to": "a", "to": "b"}'),
        (json.dumps(SCHEMA), '{"amount": 1.00000000000000000001}'),
        (json.dumps(SCHEMA), "{"),
    ],
)
def test_there_is_no_form_without_a_schema_of_members_or_where_something_would_be_lost(
    schema: str, arguments: str
) -> None:
    assert fields_of(schema, arguments) is None
