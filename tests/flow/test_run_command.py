"""``agentstate run`` with the real proxy and real agent processes: what is paid, replayed, ended and started again."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import ControlPlane
from tests.support.proxy import CLI, Proxy, clean_environment, lock_of
from tests.support.upstream import Gate, Reply, Seen, Upstream, model
from tests.support.waiting import until

BOUND_S = 40.0
PYTHON = CLI[0]

# Asks the model ``steps`` times, each time with all that was said before, and writes a line a step: outcome and text.
# Before step ``crash`` it ends with exit code 3: the first time it gets there, or each time if ``how`` is "always".
AGENT = """
import json, os, pathlib, sys, urllib.request
name, steps, crash, how = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
base, crashed = os.environ["OPENAI_BASE_URL"], pathlib.Path(f"{name}.crashed")
with open(f"{name}.urls", "a") as urls:
    urls.write(base + "\\n")
messages = [{"role": "user", "content": f"job {name}"}]
for step in range(steps):
    if step == crash and (how == "always" or not crashed.exists()):
        crashed.touch()
        os._exit(3)
    body = json.dumps({"model": "gpt-4o-mini", "messages": messages}).encode()
    headers = {"Authorization": "Bearer sk-test-0", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(base + "/chat/completions", body, headers), timeout=30) as reply:
        outcome, text = reply.headers["x-agentstate-outcome"], json.load(reply)["choices"][0]["message"]["content"]
    print(outcome, text, flush=True)
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": f"go on {step}"}]
"""


class House:
    """A data folder, a provider, and the supervisors and proxies that a test leaves there."""

    def __init__(self, data: Path, provider: Upstream) -> None:
        self.data = data
        self.provider = provider
        self.processes: list[subprocess.Popen[bytes]] = []
        (data / "agent.py").write_text(AGENT)

    def variables(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        # Port 0: no proxy of whoever runs the tests is found at the usual port.
        ours = {"AGENTSTATE_PORT": "0", "AGENTSTATE_OPENAI_URL": self.provider.url}
        return clean_environment(self.data, ours | dict(more or {}))

    def start(self, *arguments: str, name: str = "one", variables: Mapping[str, str] | None = None) -> Any:
        with (self.data / f"{name}.out").open("ab") as out, (self.data / f"{name}.err").open("ab") as err:
            process = subprocess.Popen(
                [*CLI, "run", "--backoff", "0.05", *arguments],
                cwd=self.data,
                env=self.variables(variables),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def run(self, *arguments: str, name: str = "one", variables: Mapping[str, str] | None = None) -> int:
        return int(self.start(*arguments, name=name, variables=variables).wait(BOUND_S))

    def agent(self, steps: int, crash: int = -1, how: str = "once", name: str = "one") -> list[str]:
        return ["--", PYTHON, "agent.py", name, str(steps), str(crash), how]

    def said(self, name: str = "one") -> list[list[str]]:
        return [line.split(" ", 1) for line in (self.data / f"{name}.out").read_text().splitlines()]

    def log(self, name: str = "one") -> str:
        return (self.data / f"{name}.err").read_text(errors="replace")

    @property
    def control(self) -> ControlPlane:
        return ControlPlane(lock_of(self.data)["url"], (self.data / "admin_token").read_text().strip())

    @property
    def proxy_pid(self) -> int | None:
        """The proxy that serves the journal now, if one does."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            pid = int(lock_of(self.data)["pid"])
            if alive(pid):
                return pid
        return None

    def close(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(BOUND_S)
        if (pid := self.proxy_pid) is not None:
            os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    return True


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with Upstream() as provider:
        house = House(tmp_path, provider)
        yield house
        house.close()


def test_crashed_agent_goes_on_and_every_call_is_paid_once(house: House) -> None:
    with Proxy(house.data, house.provider.url):
        assert house.run("--session", "work", *house.agent(5, crash=3)) == 0, house.log()
        seen = house.control.session("work")
    said = house.said()
    assert [outcome for outcome, _ in said] == ["live"] * 3 + ["replay"] * 3 + ["live"] * 2
    assert [text for _, text in said[:3]] == [text for _, text in said[3:6]]
    assert house.provider.calls == 5
    assert seen["session"]["status"] == "COMPLETED" and len(seen["runs"]) == 2
    last = house.log().splitlines()[-1]
    assert "3 steps replayed, 5 calls paid" in last and "1 restart" in last


def test_summary_names_the_money_that_was_not_paid_again(house: House) -> None:
    with Proxy(house.data, arguments=["--simulate"]):
        assert house.run("--session", "work", *house.agent(3, crash=2)) == 0, house.log()
    assert re.search(r"2 steps replayed, 3 calls paid, 0 joined, \$0\.0000\d+ saved, 1 restart", house.log()), (
        house.log()
    )


def test_proxy_that_runs_already_is_found_by_its_lock_and_by_its_port(house: House) -> None:
    with Proxy(house.data, house.provider.url) as proxy:
        assert house.run("--session", "by-lock", *house.agent(1, name="a"), name="a") == 0, house.log("a")
        port = {"AGENTSTATE_PORT": str(proxy.port)}
        assert house.run("--session", "by-port", *house.agent(1, name="b"), name="b", variables=port) == 0
        urls = (house.data / "a.urls").read_text() + (house.data / "b.urls").read_text()
        assert urls.count(proxy.url + "/s/") == 2
        assert proxy.alive


def test_proxy_is_started_when_none_runs_and_ends_by_itself_when_it_is_not_needed(house: House) -> None:
    assert house.run("--session", "work", *house.agent(3, crash=1)) == 0, house.log()
    assert [outcome for outcome, _ in house.said()] == ["live", "replay", "live", "live"]
    assert house.provider.calls == 3
    until(lambda: house.proxy_pid is None, "the proxy that was started ends", BOUND_S)


def test_two_supervisors_started_at_once_share_one_proxy(house: House) -> None:
    both = [house.start("--session", name, *house.agent(2, name=name), name=name) for name in ("a", "b")]
    assert [process.wait(BOUND_S) for process in both] == [0, 0], house.log("a") + house.log("b")
    ports = {line.split("/s/")[0] for name in ("a", "b") for line in (house.data / f"{name}.urls").read_text().split()}
    assert len(ports) == 1
    assert house.provider.calls == 4


def test_proxy_that_is_killed_meanwhile_comes_back_at_the_address_the_agent_knows(house: House) -> None:
    gate = Gate()

    def script(seen: Seen) -> Reply:
        return [gate, *model(seen)] if seen.number == 2 else model(seen)

    house.provider.reset(script)
    process = house.start("--session", "work", "--backoff", "0.2", *house.agent(4))
    gate.wait_reached(BOUND_S)
    killed = house.proxy_pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    gate.open()
    assert process.wait(BOUND_S) == 0, house.log()
    # The call in flight was lost with the proxy, and the agent with it; nothing else was paid again.
    assert house.provider.calls == 5
    assert "started again" in house.log()
    assert len({line.split("/s/")[0] for line in (house.data / "one.urls").read_text().split()}) == 1
    assert [text for _, text in house.said()][-4:] == ["sample 0", "sample 1", "sample 3", "sample 4"]


def test_finished_session_is_not_replayed_into_by_the_next_run(house: House) -> None:
    with Proxy(house.data, house.provider.url):
        for _ in range(2):
            assert house.run("--session", "daily", *house.agent(2)) == 0, house.log()
    assert [outcome for outcome, _ in house.said()] == ["live"] * 4
    assert house.provider.calls == 4


def test_session_that_was_given_up_is_failed_and_goes_on_when_it_is_run_again(house: House) -> None:
    with Proxy(house.data, house.provider.url):
        crash = house.agent(3, crash=2, how="always")
        assert house.run("--session", "work", "--max-restarts", "1", *crash) == 3
        # The first life made progress, so the restarts that count are those after the second.
        assert [outcome for outcome, _ in house.said()] == ["live"] * 2 + ["replay"] * 2
        assert house.control.session("work")["session"]["status"] == "FAILED"
        assert house.run("--session", "work", *house.agent(3)) == 0, house.log()
    assert [outcome for outcome, _ in house.said()][-3:] == ["replay", "replay", "live"]
    assert house.provider.calls == 3


def test_stopped_session_stays_running_and_goes_on_next_time(house: House) -> None:
    gate = Gate()

    def script(seen: Seen) -> Reply:
        return [gate, *model(seen)] if seen.number == 3 else model(seen)

    house.provider.reset(script)
    with Proxy(house.data, house.provider.url):
        process = house.start("--session", "work", *house.agent(4))
        gate.wait_reached(BOUND_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_S) == 128 + signal.SIGTERM
        assert house.control.session("work")["session"]["status"] == "RUNNING"
        gate.open()
        assert house.run("--session", "work", *house.agent(4)) == 0, house.log()
    assert house.provider.calls == 4, "the call that was in flight is not paid again"


def test_late_request_of_a_replaced_run_is_refused(house: House) -> None:
    with Proxy(house.data, house.provider.url):
        assert house.run("--session", "work", *house.agent(3, crash=1)) == 0, house.log()
        dead, living = (house.data / "one.urls").read_text().split()
        assert dead != living
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "late"}]}).encode()
        call = urllib.request.Request(dead + "/chat/completions", body, {"Content-Type": "application/json"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(call, timeout=BOUND_S)
        assert refused.value.code == 400
        assert json.loads(refused.value.read())["error"]["code"] == "run_fenced"


def test_proxy_that_cannot_start_is_explained_with_the_end_of_its_log(house: House) -> None:
    (house.data / "folder.db").mkdir()
    broken = {"AGENTSTATE_DB": str(house.data / "folder.db")}
    assert house.run("--session", "work", *house.agent(1), variables=broken) == 1
    assert "could not be started" in house.log() and "folder.db" in house.log()
    assert "Traceback" not in house.log() and house.provider.calls == 0


def test_agents_own_options_and_odd_names_pass_through_the_command_line(house: House) -> None:
    show = "import os, sys; print(sys.argv[1:], os.environ['AGENTSTATE_SESSION_ID'])"
    with Proxy(house.data, house.provider.url):
        assert house.run("--session", "zurück/1 %", PYTHON, "-c", show, "--session", "x", "--help") == 0, house.log()
    assert (house.data / "one.out").read_text() == "['--session', 'x', '--help'] zurück/1 %\n"


def test_session_name_is_made_up_and_printed_when_none_is_given(house: House) -> None:
    with Proxy(house.data, house.provider.url):
        assert house.run(*house.agent(1)) == 0, house.log()
        (session,) = house.control.get("/api/sessions")
    assert session["id"].startswith("agent-") and f"--session {session['id']}" in house.log()


def test_missing_command_is_explained(house: House) -> None:
    assert house.run() == 2
    assert "Traceback" not in house.log()
