"""Owns running the conformance tool's suites against one address. Runs in the tool's environment, as a process:

    .venv-clients/conformance/bin/python tester.py '{"openai-chat": "http://127.0.0.1:8080/v1", …}'

Must not import this project: what is judged here is seen from outside. Prints one JSON object: for each suite the
tool's results, and with each the answer and the events that the tool judged. Invariant: one process, the suites in the
order in which they were given, one connection pool: an agent's life as the proxy sees it.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import llm_comply
from llm_comply.cli import _SPEC_FILES
from llm_comply.config import ComplianceConfig
from llm_comply.runner import TestRunner
from llm_comply.schema import SpecLoader
from llm_comply.test_case import TestCase, TestCategory
from llm_comply.tests import get_tests

KEY = "sk-test-0123456789abcdef"
BOUND_S = 20.0  # for one request
EMBEDDINGS = "embeddings"  # the tool has the schema of these answers but no suite; this one is ours
_PLAIN: dict[str, Any] = {"auth_header": "Authorization"}
_GOOGLE: dict[str, Any] = {"auth_header": "x-goog-api-key", "use_bearer_prefix": False, "model": "gemini-2.5-flash"}
# Models that the tool takes for reasoning ones, so that it skips nothing.
HOW: dict[str, dict[str, Any]] = {
    "openai-chat": _PLAIN | {"model": "gpt-5-mini"},
    "open-responses": _PLAIN | {"model": "gpt-5-mini"},
    EMBEDDINGS: _PLAIN | {"model": "text-embedding-3-small"},
    "anthropic": {
        "auth_header": "x-api-key",
        "use_bearer_prefix": False,
        "model": "claude-sonnet-4-6",
        "extra_headers": {"anthropic-version": "2023-06-01"},
    },
    "google-genai": _GOOGLE,
    "google-interactions": _GOOGLE,
}


def _embedding(case: str, wanted: str | None = "CreateEmbeddingResponse", **fields: Any) -> TestCase:
    return TestCase(
        id=f"embeddings-{case}",
        name=case,
        description="",
        category=TestCategory.BASIC if wanted else TestCategory.ERROR_HANDLING,
        endpoint="/embeddings",
        schema_name=wanted,
        expected_statuses=[200] if wanted else [400, 422],
        build_request=lambda config: {"model": config.model, **fields},
    )


def _cases(suite: str) -> list[TestCase]:
    if suite != EMBEDDINGS:
        return list(get_tests(suite))
    return [
        _embedding("text", input="A sentence."),
        _embedding("texts", input=["A sentence.", "Another, with ümläuts and 漢字."]),
        _embedding("same-text-again", input="A sentence."),
        _embedding("without-input", wanted=None),
    ]


def run(suite: str, base: str) -> list[dict[str, Any]]:
    """The tool's report on one suite; ``base`` is what the tool puts before the endpoint."""
    config = dataclasses.replace(
        ComplianceConfig(base_url=base, api_key=KEY, verbose=True, timeout=BOUND_S), **HOW[suite]
    )
    schemas = _SPEC_FILES["openai-chat" if suite == EMBEDDINGS else suite]
    specification = str(Path(llm_comply.__file__).parent / "specs" / schemas) if schemas else None
    runner = TestRunner(config, _cases(suite), SpecLoader(specification))
    return [
        result.to_dict() | {"answer": result.response, "events": result.stream_events}
        for result in runner.run_all().results
    ]


if __name__ == "__main__":
    json.dump({suite: run(suite, base) for suite, base in json.loads(sys.argv[1]).items()}, sys.stdout)
