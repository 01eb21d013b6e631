"""What is counted: rows that clients cannot multiply, tokens that are there when somebody looks."""

from __future__ import annotations

import json

from agentstate.engine.metrics import OTHER, Metrics


def attempt(metrics: Metrics, model: str, status: int = 200, usage: str = "", usd: float | None = None) -> None:
    metrics.attempt("openai", model, status, 0.1, 0.2, usage, usd)


def test_models_beyond_the_first_ones_share_a_row() -> None:
    metrics = Metrics()
    for number in range(1000):
        attempt(metrics, f"model-{number}")
    assert len(metrics.models) <= 201
    assert metrics.models["openai", OTHER].statuses[2] == 800


def test_a_name_under_which_nobody_has_answered_gets_no_row() -> None:
    metrics = Metrics()
    for name in ("sk-test-typed-in-the-wrong-field", "gpt-4o"):
        attempt(metrics, name, 404)
    attempt(metrics, "gpt-4o")
    attempt(metrics, "gpt-4o", 500)
    attempt(metrics, "x" * 101)
    attempt(metrics, "a\nb")
    assert set(metrics.models) == {("openai", OTHER), ("openai", "gpt-4o")}
    assert metrics.models["openai", "gpt-4o"].statuses == [0, 0, 1, 0, 0, 1]
    assert metrics.models["openai", OTHER].statuses == [0, 0, 2, 0, 2, 0]


def test_tokens_are_whole_after_a_fold_however_many_came_before() -> None:
    metrics = Metrics()
    usage = json.dumps({"prompt_tokens": 10, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}})
    for _ in range(1300):
        attempt(metrics, "gpt-4o", usage=usage, usd=0.5)
    attempt(metrics, "gpt-4o", usage=usage)
    row = metrics.models["openai", "gpt-4o"]
    assert len(row.usages) < 1300
    metrics.fold()
    assert (row.read, row.written, row.stored) == (13010, 3903, 5204)
    assert (row.usd, row.unpriced) == (650.0, 1)


def test_an_attempt_without_a_status_has_no_first_byte() -> None:
    metrics = Metrics()
    attempt(metrics, "gpt-4o")
    attempt(metrics, "gpt-4o", 0)
    row = metrics.models["openai", "gpt-4o"]
    assert (sum(row.first.counts), sum(row.whole.counts), row.statuses[0]) == (1, 2, 1)
