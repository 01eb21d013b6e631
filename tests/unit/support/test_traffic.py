"""Recorded traffic is loaded whole, in order, and its absence is never silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import traffic


def test_openai_chat_traffic_is_loaded_with_streams_and_errors() -> None:
    traffic.require()
    exchanges = [exchange for found in traffic.provider_chat() for exchange in found.exchanges]
    assert len(exchanges) > 350
    assert sum(exchange.streamed for exchange in exchanges) > 100
    assert {200, 400, 404} <= {exchange.status for exchange in exchanges}
    assert all(exchange.request.startswith(b"{") for exchange in exchanges)
    assert {exchange.fidelity for exchange in exchanges} == {"raw", "parsed"}


def test_client_traffic_has_both_processes_of_each_client() -> None:
    traffic.require()
    first, second = traffic.client_chat("run1"), traffic.client_chat("run2")
    assert len(first) > 20
    assert {found.id for found in second} <= {found.id for found in first}
    streamed = {found.id for found in first if any(exchange.streamed for exchange in found.exchanges)}
    assert "openai-py-3-chat-stream" in streamed
    assert "openai-py-3-chat" not in streamed


def test_missing_traffic_skips_or_fails_as_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(traffic, "FOLDER", tmp_path / "nowhere")
    monkeypatch.setattr(traffic, "REQUIRED", False)
    with pytest.raises(pytest.skip.Exception):
        traffic.require()
    monkeypatch.setattr(traffic, "REQUIRED", True)
    with pytest.raises(pytest.fail.Exception):
        traffic.require()
