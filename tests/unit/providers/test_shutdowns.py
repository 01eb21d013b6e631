"""A route that leads to a model whose vendor shuts it down is warned of; the settings may name other days."""

from __future__ import annotations

from datetime import date

import pytest

from agentstate import clock
from agentstate.engine.routes import Routes
from agentstate.providers.provider import Registry
from agentstate.providers.shutdowns import _ANTHROPIC, _OPENAI, SHUTDOWNS
from agentstate.settings import Settings


def routes(**more: object) -> Routes:
    route = {"model": "gpt-6*", "fallback": ["gpt-5", "anthropic/claude-sonnet-5-5", "my-model"]}
    settings = Settings(routes=[route], **more)  # type: ignore[list-item, arg-type]
    return Routes(settings, Registry(settings.providers))


def test_no_model_has_two_days() -> None:
    named = [model for vendor in (_OPENAI, _ANTHROPIC) for models in vendor.values() for model in models.split()]
    assert len(named) == len(set(named)) == len(SHUTDOWNS)


def test_a_known_shutdown_is_warned_of_sixty_days_before_and_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    days = {60: 1, 61: 0, -1: 1}
    end = date(2026, 12, 11)
    for before, count in days.items():
        noon = (end.toordinal() - before - date(1970, 1, 1).toordinal()) * 86400.0 + 43200
        monkeypatch.setattr(clock, "now", lambda noon=noon: noon)
        assert len(routes().warnings()) == count, before


def test_the_settings_may_name_other_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now", lambda: 1_600_000_000.0)
    ends = [{"model": "my-model", "on": date(2020, 10, 1)}, {"model": "gpt-5", "on": date(2030, 1, 1)}]
    [warning] = routes(shutdowns=ends).warnings()
    assert "my-model" in warning
