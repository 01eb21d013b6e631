"""``agentstate demo`` as a user sees it: its numbers, its time, and nothing left behind."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from agentstate.cli import demo, demo_gate
from agentstate.cli.demo import KILLS, Life
from agentstate.cli.demo_agent import STEPS
from agentstate.cli.demo_gate import EDITED, Held
from agentstate.cli.demo_mailer import CALLS, PROPOSED
from tests.support.proxy import CLI, clean_environment

pytestmark = pytest.mark.xdist_group("demo")  # each is timed, and has several processes of its own

BOUND_S = 120.0


def run_demo(data: Path, **more: str) -> tuple[subprocess.CompletedProcess[str], float]:
    temporary = data / "tmp"
    temporary.mkdir()
    variables = clean_environment(data, {"TMPDIR": str(temporary), "COLUMNS": "120", "NO_COLOR": "1"} | more)
    started = time.monotonic()
    done = subprocess.run(
        [*CLI, "demo"], cwd=data, env=variables, capture_output=True, text=True, timeout=BOUND_S, check=False
    )
    assert list(temporary.iterdir()) == [], "the demo left files behind"
    return done, time.monotonic() - started


def test_demo_pays_each_call_once_over_three_kills_and_leaves_nothing_behind(tmp_path: Path) -> None:
    # A user's own settings must not reach the demo: this port is nobody's, this provider is not there.
    done, seconds = run_demo(tmp_path, AGENTSTATE_OPENAI_URL="http://127.0.0.1:9", OPENAI_BASE_URL="http://127.0.0.1:9")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"calls paid\s+{STEPS} of {STEPS} needed", done.stdout), done.stdout
    assert re.search(r"money saved\s+\$0\.0", done.stdout), done.stdout
    assert done.stdout.count("killed") >= len(KILLS) and "agentstate run" in done.stdout
    assert re.search(r"tool\s+send_email", done.stdout) and re.search(rf"to\s+{PROPOSED}", done.stdout), done.stdout
    assert re.search(rf"sent to\s+{EDITED};", done.stdout), done.stdout
    assert re.search(r"effects\s+1\n", done.stdout), done.stdout
    assert re.search(r"approvals asked\s+1\n", done.stdout), done.stdout
    assert re.search(rf"calls paid\s+{CALLS} of {CALLS} needed", done.stdout), done.stdout
    assert seconds < 60, "it is promised in less than 30 s on a machine that does nothing else"
    assert not (tmp_path / "agentstate.db").exists()


def test_demo_fails_and_says_why_when_the_gate_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "from agentstate.core import policy\n"
        "from agentstate.core.model import Action\n"
        "policy.rule_on = lambda *given: policy.Ruling(Action.ALLOW, None, 'switched off')\n"
    )
    usual = clean_environment(tmp_path)["PYTHONPATH"]
    done, _ = run_demo(tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{usual}")
    assert done.returncode == 1, done.stdout + done.stderr
    broken = [line for line in done.stdout.splitlines() if line.startswith("not as promised: ")]
    assert f"not as promised: one mail to {EDITED} was to be sent" in "\n".join(broken)
    assert len(broken) == 5, broken
    assert re.search(rf"calls paid\s+{STEPS} of {STEPS} needed", done.stdout), done.stdout
    assert "agentstate run" not in done.stdout


def lives() -> list[Life]:
    """Four lives as they should be: each goes through what the ones before have done, then on to its kill."""
    made = []
    done = 0
    for number, kill in enumerate((*KILLS, None)):
        end = STEPS if kill is None else kill.step + (kill.place == "after")
        life = Life(f"run_{number}", kill, done=kill is None)
        for step in range(end):
            outcome = "replay" if step < done else "live"
            life.answered[step] = {"step": step, "outcome": outcome, "ms": 1.5, "digest": f"d{step}"}
        done = end + (kill is not None and kill.place != "after")
        made.append(life)
    return made


def paid(*live: int) -> list[dict[str, int]]:
    return [{"live": number} for number in live]


STEPS_DONE = [{"state": "completed"}] * STEPS


def test_promises_hold_when_each_step_is_paid_once() -> None:
    assert demo._broken_promises(lives(), paid(3, 3, 4, 2), STEPS_DONE) == []


@pytest.mark.parametrize(
    "fault", ["paid twice", "changed answer", "slow", "not killed", "not finished", "step missing"]
)
def test_each_broken_promise_is_noticed(fault: str) -> None:
    told, runs, steps = lives(), paid(3, 3, 4, 2), list(STEPS_DONE)
    if fault == "paid twice":
        runs = paid(3, 3, 4, 3)
    elif fault == "changed answer":
        told[2].answered[1]["digest"] = "other"
    elif fault == "slow":
        for life in told:
            for event in life.answered.values():
                event["ms"] = 1000.0
    elif fault == "not killed":
        told[1].done = True
    elif fault == "not finished":
        told[-1].done = False
    else:
        steps.pop()
    assert len(demo._broken_promises(told, runs, steps)) == 1


def mail() -> Held:
    """What comes of the mail where all is as promised."""
    return Held(True, True, True, 0, [{"status": "EDITED"}], [{"to": EDITED}], CALLS)


def test_promises_of_the_mail_hold_when_it_is_held_edited_and_sent_once() -> None:
    assert demo_gate.broken_promises(mail()) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("killed", False),
        ("waited", False),
        ("done", False),
        ("early", 1),
        ("approvals", []),
        ("approvals", [{"status": "EDITED"}, {"status": "EDITED"}]),
        ("approvals", [{"status": "APPROVED"}]),
        ("sent", []),
        ("sent", [{"to": PROPOSED}]),
        ("sent", [{"to": EDITED}, {"to": EDITED}]),
        ("paid", CALLS + 1),
    ],
)
def test_each_broken_promise_of_the_mail_is_noticed(field: str, value: object) -> None:
    found = mail()
    setattr(found, field, value)
    assert len(demo_gate.broken_promises(found)) == 1


def test_demo_without_the_openai_package_says_how_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "real = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'openai' else real(name, *rest)\n"
    )
    usual = clean_environment(tmp_path)["PYTHONPATH"]
    variables = clean_environment(tmp_path, {"PYTHONPATH": f"{tmp_path}{os.pathsep}{usual}"})
    done = subprocess.run([*CLI, "demo"], env=variables, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert done.returncode == 1
    assert "pip install 'agentstate-proxy[openai]'" in done.stdout
