"""``agentstate run`` around real agent processes, against a stand-in for the control plane."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest

from agentstate import clock
from agentstate.cli.run import Tally, environment, generated_session, money
from tests.unit.cli.conftest import TOKEN, FakeProxy, Supervisor, until

Start = Callable[..., Supervisor]
PYTHON = sys.executable
LINUX = sys.platform == "linux"


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody has collected does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    if not LINUX:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except FileNotFoundError:
        return False


def pid_in(file: Path) -> int:
    return int(until(lambda: file.exists() and file.read_text().strip(), f"a pid in {file}"))


# --- what the agent gets ---


def test_agent_gets_every_variable_with_session_and_run_in_the_path(fake: FakeProxy, supervise: Start) -> None:
    supervisor = supervise(
        PYTHON,
        "-c",
        "import json, os; print(json.dumps(dict(os.environ)))",
        session="ä b/1",
        variables={"OPENAI_API_KEY": "sk-test-mine", "OPENAI_CUSTOM_HEADERS": "x-mine: 1", "NO_PROXY": "example.com"},
    )
    assert supervisor.end() == 0, supervisor.log
    got = json.loads(supervisor.output)
    (registered,) = fake.runs
    root = f"http://127.0.0.1:{fake.port}/s/%C3%A4%20b%2F1/r/{registered['run']}"
    assert got["OPENAI_BASE_URL"] == got["OPENAI_API_BASE"] == f"{root}/v1"
    for name in ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE", "ANTHROPIC_API_URL", "GOOGLE_GEMINI_BASE_URL"):
        assert got[name] == root
    assert got["AGENTSTATE_URL"] == f"http://127.0.0.1:{fake.port}/v1"
    assert (got["AGENTSTATE_SESSION_ID"], got["AGENTSTATE_RUN_ID"]) == ("ä b/1", registered["run"])
    assert got["OPENAI_CUSTOM_HEADERS"].splitlines() == ["x-mine: 1", f"x-agent-run-id: {registered['run']}"]
    assert got["NO_PROXY"] == "example.com,127.0.0.1,localhost" and got["no_proxy"] == "127.0.0.1,localhost"
    assert got["OPENAI_API_KEY"] == "sk-test-mine"
    assert registered == {"run": registered["run"], "replaces": None, "supervisor_pid": supervisor.process.pid}


def test_ids_of_an_outer_run_are_replaced_in_the_headers_and_a_plain_session_is_added() -> None:
    outer = "x-mine: 1\nX-Agent-Session-Id: old\nx-agent-run-id: run_old"
    made = environment({"ANTHROPIC_CUSTOM_HEADERS": outer}, "http://127.0.0.1:1", "s-1", "run_new")
    lines = made["ANTHROPIC_CUSTOM_HEADERS"].splitlines()
    assert lines == ["x-mine: 1", "x-agent-session-id: s-1", "x-agent-run-id: run_new"]


def test_the_agent_is_given_no_token_of_a_person() -> None:
    of_people = {"AGENTSTATE_TOKEN": "sk-test-ann", "AGENTSTATE_ADMIN_TOKEN": "sk-test-admin", "KEPT": "yes"}
    made = environment(of_people, "http://127.0.0.1:1", "s", "r")
    assert made["KEPT"] == "yes" and not {"AGENTSTATE_TOKEN", "AGENTSTATE_ADMIN_TOKEN"} & set(made)


def test_agent_key_stands_in_the_path_and_never_in_the_users_part() -> None:
    made = environment({}, "http://127.0.0.1:1", "s", "r", agent_key="k/1")
    assert made["OPENAI_BASE_URL"] == "http://127.0.0.1:1/k/k%2F1/s/s/r/r/v1"


def test_own_flags_blanks_and_bytes_that_are_no_text_arrive_unchanged(supervise: Start) -> None:
    show = "import os, sys; sys.stdout.buffer.write(b'|'.join(os.fsencode(a) for a in sys.argv[1:]))"
    supervisor = supervise(PYTHON, "-c", show, "--session", "a b", b"\xff\xfe", "--", "-x", "")
    assert supervisor.end() == 0, supervisor.log
    assert supervisor.out.read_bytes() == b"--session|a b|\xff\xfe|--|-x|"


def test_agent_reads_our_standard_input(supervise: Start) -> None:
    reading, writing = os.pipe()
    supervisor = supervise(PYTHON, "-c", "print(input())", stdin=reading)
    os.write(writing, b"from outside\n")
    os.close(writing)
    os.close(reading)
    assert supervisor.end() == 0
    assert supervisor.output == "from outside\n"


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_agent_starts_with_no_signal_blocked_and_none_ignored_that_only_python_ignores(supervise: Start) -> None:
    supervisor = supervise("cat", "/proc/self/status")
    assert supervisor.end() == 0, supervisor.log
    sets = dict(re.findall(r"^(Sig\w+):\s+([0-9a-f]+)$", supervisor.output, re.M))
    assert int(sets["SigBlk"], 16) == 0
    assert not int(sets["SigIgn"], 16) & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


# --- how it ends ---


def test_success_completes_the_session_and_ends_the_run(fake: FakeProxy, supervise: Start) -> None:
    fake.facts |= {"replayed": 5, "live": 7, "joined": 1, "saved": 0.0123}
    supervisor = supervise("true")
    assert supervisor.end() == 0
    assert fake.bodies("/end") == [{"exit_code": 0}]
    assert fake.bodies("/status") == [{"status": "COMPLETED"}]
    last = supervisor.log.splitlines()[-1]
    assert "5 steps replayed, 7 calls paid, 1 joined, $0.012 saved, 0 restarts" in last and "session work" in last


def test_crash_is_restarted_as_a_new_run_that_replaces_the_dead_one(
    fake: FakeProxy, supervise: Start, tmp_path: Path
) -> None:
    once = (
        f"import pathlib, sys; f = pathlib.Path({str(tmp_path / 'once')!r}); b = f.exists(); f.touch(); sys.exit(not b)"
    )
    supervisor = supervise(PYTHON, "-c", once)
    assert supervisor.end() == 0, supervisor.log
    first, second = fake.runs
    assert first["run"] != second["run"]
    assert (first["replaces"], second["replaces"]) == (None, first["run"])
    assert fake.bodies("/end") == [{"exit_code": 1}, {"exit_code": 0}]
    assert "1 restart " in supervisor.log.splitlines()[-1]


def test_agent_that_crashes_on_and_on_without_a_new_step_is_given_up_and_fails(
    fake: FakeProxy, supervise: Start
) -> None:
    supervisor = supervise("sh", "-c", "exit 7", restarts=2)
    assert supervisor.end() == 7
    assert len(fake.runs) == 3
    assert fake.bodies("/status") == [{"status": "FAILED"}]
    assert "gave up" in supervisor.log and "Traceback" not in supervisor.log


def test_lives_that_bring_new_steps_do_not_use_up_the_restarts(
    fake: FakeProxy, supervise: Start, tmp_path: Path
) -> None:
    fake.facts["live"] = 1
    count = "n=$(cat n 2>/dev/null || echo 0); echo $((n+1)) > n; [ $n -ge 4 ]; exit $?"
    supervisor = supervise("sh", "-c", count, restarts=1)
    assert supervisor.end() == 0, supervisor.log
    assert len(fake.runs) == 5


def test_no_restarts_means_none(fake: FakeProxy, supervise: Start) -> None:
    assert supervise("false", restarts=0).end() == 1
    assert len(fake.runs) == 1


def test_killed_agent_gives_128_and_the_signal(supervise: Start) -> None:
    assert supervise("sh", "-c", "kill -SEGV $$", restarts=0).end() == 128 + signal.SIGSEGV


@pytest.mark.parametrize(("name", "code"), [("no-such-command-here", 127), ("./nowhere/x", 127), ("./plain", 126)])
def test_command_that_cannot_be_run_says_so_and_starts_nothing(
    fake: FakeProxy, supervise: Start, tmp_path: Path, name: str, code: int
) -> None:
    (tmp_path / "plain").write_text("text")
    supervisor = supervise(name)
    assert supervisor.end() == code
    assert name in supervisor.log and "Traceback" not in supervisor.log
    assert not fake.calls


def test_file_that_is_no_program_is_126_and_its_run_is_ended(fake: FakeProxy, supervise: Start, tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(b"\x00\x01 not a program")
    (tmp_path / "odd").chmod(0o755)
    supervisor = supervise("./odd")
    assert supervisor.end() == 126
    assert "no program" in supervisor.log and "Traceback" not in supervisor.log
    assert fake.bodies("/end") == [{"exit_code": 126}]


def test_session_name_with_control_characters_is_refused(fake: FakeProxy, supervise: Start) -> None:
    supervisor = supervise("true", session="a\nb")
    assert supervisor.end() == 2
    assert "control characters" in supervisor.log and not fake.calls


def test_proxy_that_refuses_our_own_token_is_named(fake: FakeProxy, supervise: Start) -> None:
    fake.refuse = True
    supervisor = supervise("true")
    assert supervisor.end() == 1
    assert "refuses the token" in supervisor.log and "Traceback" not in supervisor.log
    assert TOKEN not in supervisor.log


def test_unknown_setting_is_told_in_one_line(supervise: Start) -> None:
    supervisor = supervise("true", variables={"AGENTSTATE_PROT": "1"})
    assert supervisor.end() == 2
    assert "AGENTSTATE_PROT" in supervisor.log and "Traceback" not in supervisor.log


# --- signals ---

POLITE = """
import os, pathlib, signal, sys, time
def leave(number, frame):
    pathlib.Path("heard").open("a").write(f"{number}\\n")
    sys.exit(3)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, leave)
pathlib.Path("pid").write_text(str(os.getpid()))
while True:
    signal.pause()
"""
DEAF = POLITE.replace("sys.exit(3)", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_are_passed_on_and_a_stopped_agent_is_not_restarted(
    fake: FakeProxy, supervise: Start, tmp_path: Path, number: signal.Signals
) -> None:
    supervisor = supervise(PYTHON, "-c", POLITE)
    pid_in(tmp_path / "pid")
    supervisor.stop(number)
    assert supervisor.end() == 3, supervisor.log
    assert (tmp_path / "heard").read_text().split() == [str(int(number))]
    assert len(fake.runs) == 1 and fake.bodies("/end") == [{"exit_code": 3}]
    assert not fake.bodies("/status"), "a session whose agent was stopped stays RUNNING"


def test_agent_that_ignores_signals_is_killed_by_the_second(fake: FakeProxy, supervise: Start, tmp_path: Path) -> None:
    supervisor = supervise(PYTHON, "-c", DEAF)
    agent = pid_in(tmp_path / "pid")
    supervisor.stop(signal.SIGTERM)
    until(lambda: (tmp_path / "heard").exists(), "the agent heard the first signal")
    supervisor.stop(signal.SIGTERM)
    assert supervisor.end() == 128 + signal.SIGKILL
    assert not alive(agent)
    assert fake.bodies("/end") == [{"exit_code": 128 + signal.SIGKILL}]


def test_stop_during_the_wait_for_a_restart_ends_at_once(fake: FakeProxy, supervise: Start) -> None:
    supervisor = supervise("false", backoff=600.0)
    until(lambda: "restart 1 of 2" in supervisor.log, "it waits")
    supervisor.stop(signal.SIGTERM)
    assert supervisor.end() == 128 + signal.SIGTERM
    assert "Traceback" not in supervisor.log and not fake.bodies("/status")
    assert "0 restarts" in supervisor.log.splitlines()[-1]


def test_terminal_gives_the_agent_ctrl_c_once_and_lets_it_read(
    fake: FakeProxy, supervise: Start, tmp_path: Path
) -> None:
    keyboard, terminal = pty.openpty()
    loop = "while not pathlib.Path('go').exists(): time.sleep(0.01)\nsys.exit(3)\n"
    typed = DEAF.split("while True")[0] + "pathlib.Path('line').write_text(input())\n" + loop

    def own_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    supervisor = supervise(PYTHON, "-c", typed, stdin=terminal, preexec_fn=own_terminal)
    os.close(terminal)
    try:
        pid_in(tmp_path / "pid")
        os.write(keyboard, b"typed\n")
        until(lambda: (tmp_path / "line").exists(), "the agent read the terminal")
        os.write(keyboard, b"\x03")
        until(lambda: (tmp_path / "heard").exists(), "the agent heard Ctrl-C")
        until(lambda: "SIGINT: waiting" in supervisor.log, "the supervisor heard it too")
        (tmp_path / "go").touch()
        assert supervisor.end() == 3, supervisor.log
    finally:
        os.close(keyboard)
    assert (tmp_path / "line").read_text() == "typed"
    assert (tmp_path / "heard").read_text().split() == [str(int(signal.SIGINT))]
    assert len(fake.runs) == 1


# --- nothing is left behind ---

PARENT = """
import os, pathlib, subprocess, sys
inner = "import os, pathlib, signal; pathlib.Path('new').write_text(str(os.getpid())); "
inner += "os.rename('new', 'child'); signal.pause()"  # the file is never seen before it says who
if not pathlib.Path("child").exists():
    {how}
    while not pathlib.Path("child").exists(): pass
    os._exit(9)
"""


@pytest.mark.parametrize(
    "how",
    [
        "subprocess.Popen([sys.executable, '-c', inner])",
        "subprocess.Popen([sys.executable, '-c', inner], start_new_session=True, env={})",
        "os.fork() or (os.setsid(), os.fork() and os._exit(0), os.execv(sys.executable, ['python', '-c', inner]))",
    ],
    ids=["child", "own session and no environment", "daemon"],
)
def test_processes_of_a_crashed_life_are_killed_before_the_next_starts(
    fake: FakeProxy, supervise: Start, tmp_path: Path, how: str
) -> None:
    if not LINUX and "env={}" in how:
        pytest.skip("without /proc such a process cannot be found")
    check = "import os, pathlib; pid = int(pathlib.Path('child').read_text()); print(pid)"
    code = PARENT.format(how=how) + check
    supervisor = supervise(PYTHON, "-c", code)
    assert supervisor.end() == 0, supervisor.log
    assert len(fake.runs) == 2
    assert not alive(pid_in(tmp_path / "child"))


def test_child_of_a_stopped_agent_gets_time_to_end_and_is_ended(supervise: Start, tmp_path: Path) -> None:
    inner = POLITE.replace('"pid"', '"child"').replace('"heard"', '"child-heard"')
    outer = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {inner!r}])\n" + POLITE
    supervisor = supervise(PYTHON, "-c", outer)
    child = pid_in(tmp_path / "child")
    pid_in(tmp_path / "pid")
    supervisor.stop()
    assert supervisor.end() == 3, supervisor.log
    assert not alive(child)
    assert (tmp_path / "child-heard").read_text().split() == [str(int(signal.SIGTERM))]


def test_process_that_a_successful_agent_leaves_on_purpose_is_left_alone(supervise: Start, tmp_path: Path) -> None:
    inner = "import os, pathlib, signal; pathlib.Path('child').write_text(str(os.getpid())); signal.pause()"
    code = (
        "import pathlib, subprocess, sys;"
        f"subprocess.Popen([sys.executable, '-c', {inner!r}])\nwhile not pathlib.Path('child').exists(): pass"
    )
    assert supervise(PYTHON, "-c", code).end() == 0
    child = pid_in(tmp_path / "child")
    assert alive(child)
    os.kill(child, signal.SIGKILL)


# --- words ---


@pytest.mark.parametrize(
    ("usd", "text"), [(0, "$0"), (12.341, "$12.34"), (0.0123, "$0.012"), (0.00000567, "$0.0000057"), (0.1, "$0.10")]
)
def test_money_shows_digits_that_say_something(usd: float, text: str) -> None:
    assert money(usd) == text


def test_tally_without_a_price_says_so_and_one_without_savings_does_not() -> None:
    tally = Tally()
    tally.add({"replayed": 0, "joined": 0, "live": 3, "saved": None})
    assert "$0 saved" in tally.summary()
    tally.add({"replayed": 3, "joined": 0, "live": 0, "saved": None})
    tally.add({"replayed": 3, "joined": 0, "live": 0, "saved": 0.5})
    assert "price unknown" in tally.summary() and "6 steps replayed, 3 calls paid" in tally.summary()


@pytest.mark.parametrize(
    ("command", "stem"),
    [(["python", "-u", "/x/my_agent.py"], "my-agent"), (["/usr/bin/node", "--x"], "node"), (["\udcff"], "agent")],
)
def test_generated_session_is_readable_and_new_each_time(
    monkeypatch: pytest.MonkeyPatch, command: list[str], stem: str
) -> None:
    monkeypatch.setattr(clock, "now", lambda: 1_700_000_000.0)
    first, second = generated_session(command), generated_session(command)
    assert first.startswith(f"{stem}-20231114-221320-") and first != second
    assert unquote(first) == first


def test_delay_before_a_restart_doubles_and_half_of_it_is_chance(supervise: Start) -> None:
    supervisor = supervise("false", restarts=3, backoff=0.4)
    assert supervisor.end() == 1
    waits = [float(wait) for wait in re.findall(r"restart \d of 3 in ([\d.]+) s", supervisor.log)]
    assert len(waits) == 3
    for wait, longest in zip(waits, (0.4, 0.8, 1.6), strict=True):
        assert longest / 2 - 0.05 <= wait <= longest + 0.05
