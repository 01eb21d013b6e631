"""A command is there at once: what one needs, no other waits for."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("agentstate.engine", "agentstate.store", "agentstate.dialects", "agentstate.server", "starlette", "jinja2")


def test_the_command_line_is_there_before_the_engine_is_loaded() -> None:
    code = f"import sys, agentstate.cli.main; print([one for one in sys.modules if one.startswith({HEAVY!r})])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"
