"""Environments of clients are made once, and a client without one says how to make it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.clients.matrix import environments
from tests.clients.matrix.clients import CLIENTS, Client

LIGHT = next(client for client in CLIENTS if client.light)
HEAVY = next(client for client in CLIENTS if not client.light)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The commands that would install, in a folder where nothing is installed."""
    called: list[tuple[str, ...]] = []

    def call(*command: str) -> None:
        called.append(command)
        (tmp_path / HEAVY.environment).mkdir(exist_ok=True)

    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    monkeypatch.setattr(environments, "_call", call)
    return called


def _pins(client: Client) -> set[str]:
    return {requirement for requirement in client.requirements if "==" in requirement}


def test_every_environment_pins_the_package_that_is_tested() -> None:
    for client in CLIENTS:
        if not client.light:
            assert any(pin.partition("==")[0].partition("[")[0] == client.package for pin in _pins(client)), client.name


def test_a_client_without_its_environment_says_how_to_make_it(made: list[tuple[str, ...]]) -> None:
    assert environments.missing(LIGHT) == ""
    assert f"environments {HEAVY.environment}" in environments.missing(HEAVY)


def test_an_environment_is_made_once_and_again_when_a_pin_changes(made: list[tuple[str, ...]]) -> None:
    assert environments.main([HEAVY.environment]) == 0
    first = len(made)
    assert first and any(set(HEAVY.requirements) <= set(command) for command in made)
    assert environments.missing(HEAVY) == ""
    assert environments.main([HEAVY.environment]) == 0
    assert len(made) == first
    (environments.FOLDER / HEAVY.environment / ".ready-for").write_text("something==older")
    assert environments.missing(HEAVY)
    assert environments.main([HEAVY.environment]) == 0
    assert len(made) == 2 * first


def test_one_that_cannot_be_made_is_told_and_does_not_stop_the_others(
    made: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[str] = []

    def install(name: str, requirements: object) -> None:
        tried.append(name)
        raise subprocess.CalledProcessError(1, "install")

    monkeypatch.setattr(environments, "install", install)
    names = list(environments.wanted())[:2]
    assert environments.main(names) == 1
    assert tried == names
    assert f"{names[1]}: FAILED" in capsys.readouterr().err


def test_an_unknown_environment_is_refused_with_the_names_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert environments.main(["nonsense"]) == 2
    assert HEAVY.environment in capsys.readouterr().err
