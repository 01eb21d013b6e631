"""Whatever is sent to the control plane, it answers as its OpenAPI document says: no fault of its own, no status and no
field that is not described. The requests are made up from the document alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from agentstate.server.openapi import document
from tests.support import contract
from tests.support.approvals import Held, prepared
from tests.support.proxy import Proxy

pytestmark = pytest.mark.xdist_group("api-contract")

SCHEMA = schemathesis.openapi.from_dict(json.loads(json.dumps(document())))
OPERATIONS = {result.ok().label: result.ok() for result in SCHEMA.get_all_operations()}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
LAST = ("DELETE", "POST /api/prune")  # they leave nothing to ask about
KNOWN = {"id": "s", "run": "a", "number": 0, "name": "ann"}
EXAMPLES = int(os.environ.get("AGENTSTATE_API_EXAMPLES", "4"))  # of each operation, in each way


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """Sessions with steps, runs, replays, held calls and people."""
    folder = tmp_path_factory.mktemp("contract") / "data"
    prepared(folder, [Held()], [Held(key="apr_5d1c8e0b7a42f39c60d8e1b2", quorum=2)], session="s")
    with Proxy(folder, arguments=["--simulate"]) as running:
        for run, question in (("a", "one"), ("a", "two"), ("b", "one")):
            assert running.client.ask("s", question, run=run, model="gpt-4o-mini").status == 200
        running.control.post("/api/approvers", {"name": "ann", "role": "approver"})
        yield running


def sent(proxy: Proxy, case: Any) -> None:
    """Send one request, and hold the answer to the document."""
    headers = {"Authorization": f"Bearer {proxy.admin_token}"}
    if case.operation.path == "/api/events":
        case.query = {**(case.query or {}), "follow": "false"}  # it ends
    response = case.call(base_url=proxy.url, headers=headers, timeout=20)
    case.validate_response(response, checks=CHECKS)
    if response.headers.get("content-type") == "application/json":
        contract.check(case.method, case.operation.path, response.status_code, response.json())


@pytest.mark.parametrize("known", [True, False], ids=["of what is there", "of anything"])
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["as described", "otherwise"])
@pytest.mark.parametrize("label", sorted(OPERATIONS, key=lambda label: (label.startswith(LAST), label)))
def test_answers_are_as_described(proxy: Proxy, label: str, mode: GenerationMode, known: bool) -> None:
    operation = OPERATIONS[label]
    if known and "{" not in label:
        pytest.skip("it names nothing that could be there")

    @settings(
        max_examples=EXAMPLES, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def attempt(case: Any) -> None:
        if known:
            case.path_parameters = {name: KNOWN.get(name, "t") for name in case.path_parameters or {}}
            if "approvals" in label:
                case.path_parameters["id"] = "apr_5d1c8e0b7a42f39c60d8e1b2"
        sent(proxy, case)

    try:
        attempt()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE
        pytest.skip("nothing in it could be otherwise")


def test_the_journal_is_sound_after_all_that(proxy: Proxy) -> None:
    assert proxy.doctor()


def test_a_document_that_lags_behind_is_seen() -> None:
    session = {"id": "s", "labels": []}
    with pytest.raises(AssertionError, match="otherwise than described"):
        contract.check("GET", "/api/sessions", 200, [session])
    with pytest.raises(AssertionError, match="may not answer 418"):
        contract.check("GET", "/api/sessions", 418, {})
    with pytest.raises(AssertionError, match="not in the OpenAPI document"):
        contract.check("GET", "/api/weather", 200, {})
    with pytest.raises(AssertionError, match="otherwise than described"):
        contract.check("GET", "/api/whoami", 200, {"name": "ann", "role": "viewer", "shoe": 43})
