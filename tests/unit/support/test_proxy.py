"""The process helper passes on nothing of the developer's shell and says why a process did not start."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.proxy import Proxy, clean_environment, variables


def test_environment_of_a_proxy_holds_none_of_the_shell_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AGENTSTATE_PORT", "OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTPS_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "from-the-shell")
    found = clean_environment(tmp_path, {"EXTRA": "1"})
    assert "from-the-shell" not in found.values()
    assert found["AGENTSTATE_DATA"] == found["HOME"] == str(tmp_path)
    assert found["EXTRA"] == "1"
    assert found["PATH"] == os.environ["PATH"]


def test_settings_become_long_variables() -> None:
    assert variables({"upstream.idle_timeout_s": 0.5}) == {"AGENTSTATE_UPSTREAM__IDLE_TIMEOUT_S": "0.5"}


def test_process_that_does_not_start_fails_with_its_own_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no port for you')"]
    with pytest.raises(AssertionError, match="no port for you"):
        Proxy(tmp_path, command=command).start()


def test_process_is_ended_and_started_again_on_the_same_data(tmp_path: Path) -> None:
    script = "import time\nprint('AgentState listening on http://127.0.0.1:1', flush=True)\ntime.sleep(600)"
    with Proxy(tmp_path, command=[sys.executable, "-c", script]) as running:
        first = running.pid
        assert running.alive
        assert running.port == 1
        running.restart()
        assert running.pid != first
        assert running.alive
    assert not running.alive
