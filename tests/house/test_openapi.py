"""The OpenAPI document is held to the routes, and the routes' real answers to the document."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from starlette.routing import Route

from agentstate.core.approval import Role
from agentstate.engine.core import Parts
from agentstate.server.api import Api
from agentstate.server.openapi import document, operations
from agentstate.server.openapi_schemas import COMPONENTS
from agentstate.settings import Settings
from tests.house.pages import REFERENCE, fences, headings, section, table
from tests.support.contract import faults, schema_of
from tests.support.people import Person
from tests.support.proxy import Proxy

PAGE = REFERENCE / "http-api.md"
DOCUMENT = document()


def test_every_route_is_described_and_nothing_else() -> None:
    app = Api(Parts(Settings()), "token").app()
    routes = {
        (method, re.sub(":(?:path|int)", "", route.path))
        for route in app.routes
        if isinstance(route, Route)
        for method in (route.methods or ()) - {"HEAD"}
    }
    described = [(operation.method, operation.path) for operation in operations()]
    assert len(described) == len(set(described)), "an operation is described twice"
    assert set(described) == routes


def test_the_document_keeps_to_the_specification() -> None:
    assert DOCUMENT["openapi"].startswith("3.1.")
    ids = [operation["operationId"] for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert len(set(ids)) == len(ids)
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"].endswith("."), (method, path)
            named = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
            assert named == set(re.findall(r"{(\w+)}", path))
            assert {"400", "403", "503"} <= set(operation["responses"]), (method, path)
            assert {"200", "201"} & set(operation["responses"]), (method, path)


def _schemas(value: Any) -> list[Any]:
    if isinstance(value, dict):
        found = [value["schema"]] if isinstance(value.get("schema"), dict) and "type" in value["schema"] else []
        return found + [one for part in value.values() for one in _schemas(part)]
    return [one for part in value for one in _schemas(part)] if isinstance(value, list) else []


def test_every_schema_is_one_and_every_reference_leads_somewhere() -> None:
    for schema in [*COMPONENTS.values(), *_schemas(DOCUMENT["paths"])]:
        Draft202012Validator.check_schema(schema)
    refs = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(DOCUMENT)))
    assert refs == set(COMPONENTS)


def test_every_example_of_a_body_fits_its_schema() -> None:
    given = [operation for operation in operations() if operation.example is not None]
    assert len(given) > 10
    for operation in given:
        assert operation.body is not None
        assert not faults(operation.body, operation.example), operation.path


EXAMPLES = [title for title in headings(PAGE) if re.fullmatch(r"(GET|POST|DELETE) /\S+", title)]


@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_of_the_page_fits_the_schema(title: str) -> None:
    method, path = title.split()
    example = next(fence.text for fence in fences(section(PAGE, title)) if fence.kind == "json")
    schema = schema_of(method, path, 200) or schema_of(method, path, 201)
    assert schema is not None
    assert not faults(schema, json.loads(example))


@pytest.mark.parametrize(
    ("title", "component"),
    [
        ("Session", "Session"),
        ("Step", "Step"),
        ("Attempt", "Attempt"),
        ("Tool call", "ToolCall"),
        ("Asked about a step", "Asked"),
        ("Given to", "Served"),
        ("Run", "Run"),
        ("Approval", "Approval"),
        ("Approver", "Approver"),
        ("Entry", "Entry"),
        ("Message", "Message"),
    ],
)
def test_the_fields_of_the_page_are_those_of_the_schema(title: str, component: str) -> None:
    assert sorted(row[0].strip("`") for row in table(PAGE, title)) == sorted(COMPONENTS[component]["properties"])


FILLED = {"id": "s", "run": "r", "name": "nobody", "number": "0", "token": "t"}
ENOUGH = {Role.VIEWER: 0, Role.APPROVER: 1, Role.ADMIN: 2}


def test_the_described_roles_are_those_that_are_asked_for(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Proxy(tmp_path_factory.mktemp("roles"), arguments=["--simulate"]) as proxy:
        tokens = {
            role: proxy.control.post("/api/approvers", {"name": f"a-{role}", "role": role})["token"] for role in Role
        }
        for operation in operations():
            path = operation.path.format(**FILLED)
            if path == "/api/events":
                path += "?follow=false"
            statuses = {}
            for role, token in {None: "", **tokens}.items():
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                statuses[role] = proxy.client.send(operation.method, path, headers).status
            if operation.role is None:
                assert len(set(statuses.values())) == 1, operation
                continue
            assert statuses.pop(None) == 401, operation
            refused = {role for role, status in statuses.items() if status == 403}
            assert refused == {role for role in Role if ENOUGH[role] < ENOUGH[operation.role]}, operation


def test_the_document_is_served_to_viewers(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Proxy(tmp_path_factory.mktemp("document"), arguments=["--simulate"]) as proxy:
        viewer = Person(proxy, "vera", "viewer")
        assert viewer._control.get("/api/openapi.json") == json.loads(json.dumps(DOCUMENT))
