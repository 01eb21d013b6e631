"""People decide from the command line, with their own tokens, and see all of what they decide on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.approvals import Held, prepared
from tests.support.proxy import CLI, Proxy, clean_environment

BOUND_S = 30.0


@pytest.fixture
def ids(tmp_path: Path) -> list[str]:
    long = Held("send_email", {"to": "ann@example.test", "body": "word " * 100})
    hidden = Held("execute_command", {"file": "gpj.\u202eexe", "note": "[red]no markup[/red]"})
    return prepared(tmp_path, [long], [hidden, Held()], [Held("wire", quorum=2)])


@pytest.fixture
def proxy(tmp_path: Path, ids: list[str]) -> Iterator[Proxy]:
    with Proxy(tmp_path) as running:
        yield running


def run(proxy: Proxy, *words: str, token: str = "", code: int = 0, text: str = "", **more: str) -> str:
    """A command that finds the proxy by its journal; what it printed."""
    environment = clean_environment(proxy.data, {"COLUMNS": "400", **more})
    if token:
        environment["AGENTSTATE_TOKEN"] = token
    done = subprocess.run(
        [*CLI, *words], cwd=proxy.data, env=environment, capture_output=True, text=True, timeout=BOUND_S, input=text
    )
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stderr


def added(proxy: Proxy, name: str, role: str = "approver") -> str:
    return run(proxy, "approvers", "add", name, "--role", role).splitlines()[-1].strip()


def status(proxy: Proxy, key: str) -> tuple[str, str | None]:
    view = proxy.control.get(f"/api/approvals/{key}")
    return view["status"], view["decided_by"]


def test_half_a_character_in_a_call_hides_no_approval(tmp_path: Path) -> None:
    keys = prepared(tmp_path, [Held(arguments='{"to": "\\ud800x"}'), Held()])
    with Proxy(tmp_path) as proxy:
        assert all(key in run(proxy, "approvals") for key in keys)
        assert all("D800" in run(proxy, "approvals", *words).upper() for words in (["--full"], [keys[0]]))
        assert "ud800" in run(proxy, "approvals", "--json")
        run(proxy, "approve", keys[0])
        assert status(proxy, keys[0])[0] == "APPROVED"


def test_the_list_says_how_much_it_leaves_out_and_the_whole_shows_all(proxy: Proxy, ids: list[str]) -> None:
    shown = run(proxy, "approvals")
    assert all(key in shown for key in ids) and "characters, see --full" in shown
    assert all(key in run(proxy, "approvals", COLUMNS="80") for key in ids)  # they are what `approve` is given
    assert "[red]no markup[/red]" in shown
    whole = run(proxy, "approvals", ids[0])
    assert "word " * 100 in whole and "policy 1 (hold send_email)" in whole
    assert "gpj.‹U+202E›exe" in run(proxy, "approvals", "--full")
    assert "\u202e" not in run(proxy, "approvals", ids[1])
    assert [one["id"] for one in json.loads(run(proxy, "approvals", "--json"))] == ids
    assert "nothing waits" in run(proxy, "approvals", "--session", "other")


def test_people_decide_in_their_own_name(proxy: Proxy, ids: list[str]) -> None:
    ann, bob = added(proxy, "ann"), added(proxy, "bob")
    assert "approved by ann" in run(proxy, "approve", ids[0], "--reason", "known", token=ann)
    assert "rejected by bob" in run(proxy, "reject", ids[1], "--reason", "no", token=bob)
    assert "already by ann" in run(proxy, "reject", ids[0], "--reason", "late", token=bob, code=1)
    assert "counted" in run(proxy, "approve", ids[3], token=ann)
    assert "approved by bob" in run(proxy, "approve", ids[3], token=bob)
    assert [status(proxy, key) for key in ids[:2]] == [("APPROVED", "ann"), ("REJECTED", "bob")]
    assert ids[0] in run(proxy, "approvals", "--all") and ids[0] not in run(proxy, "approvals")
    entries = json.loads(run(proxy, "audit", "--json", "--limit", "1000"))
    assert [row["actor"] for row in entries if row["action"] == "approval.decided"] == ["ann", "bob", "ann", "bob"]
    assert "approval.decided" in run(proxy, "audit")
    run(proxy, "reject", ids[2], code=2)  # a rejection says why
    assert "no approval" in run(proxy, "approve", "apr_lost", code=1)
    assert "refuses the token" in run(proxy, "approvals", token="sk-test-nobody", code=1)


def test_a_call_is_edited_by_option_by_file_or_in_the_editor(proxy: Proxy, ids: list[str], tmp_path: Path) -> None:
    fit = '{"to": "bob@example.test"}'
    assert "does not fit" not in run(proxy, "edit", ids[0], "--arguments", fit)
    wrong = run(proxy, "edit", ids[1], "--arguments", '{"to": 1}', code=1)
    assert "still pending" in wrong and status(proxy, ids[1])[0] == "PENDING"
    assert "not JSON" in run(proxy, "edit", ids[1], "--arguments", "{", code=1)
    assert "not with both" in run(proxy, "edit", ids[1], "--arguments", "{}", "--file", "x", code=1)
    assert "cannot be read" in run(proxy, "edit", ids[1], "--file", "none.json", code=1)
    run(proxy, "edit", ids[1], "--file", "-", text=fit)
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import sys, pathlib\np = pathlib.Path(sys.argv[1])\np.write_text(p.read_text().replace('ann', 'eve'))"
    )
    assert "set EDITOR" in run(proxy, "edit", ids[2], code=1)
    assert "nothing was edited" in run(proxy, "edit", ids[2], code=1, EDITOR="true")
    assert "nothing was edited" in run(proxy, "edit", ids[2], code=1, EDITOR="false")
    assert "cannot be started" in run(proxy, "edit", ids[2], code=1, EDITOR="/none/such")
    run(proxy, "edit", ids[2], EDITOR=f"{sys.executable} {editor}")
    views = [proxy.control.get(f"/api/approvals/{key}") for key in ids[:3]]
    assert [view["effective"]["to"] for view in views] == ["bob@example.test", "bob@example.test", "eve@example.test"]


def test_watching_shows_what_comes_and_rings(proxy: Proxy, ids: list[str]) -> None:
    ann = added(proxy, "ann")
    watching = subprocess.Popen(
        [*CLI, "approvals", "--watch", "--session", "s"], cwd=proxy.data,
        env=clean_environment(proxy.data, {"COLUMNS": "200", "AGENTSTATE_TOKEN": ann}), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        assert watching.stdout is not None
        os.set_blocking(watching.stdout.fileno(), False)
        seen = _until(watching, ids[3].encode())
        assert b"\a" not in seen
        run(proxy, "approve", ids[0], token=ann)
        again = _until(watching, ids[3].encode())
        assert ids[0].encode() not in again
        proxy.kill()
        _until(watching, b"does not answer")
    finally:
        watching.send_signal(signal.SIGINT)
        watching.wait(BOUND_S)
        watching.stdout.close()  # type: ignore[union-attr]


def _until(process: subprocess.Popen[bytes], wanted: bytes) -> bytes:
    """What it prints until that stands there."""
    assert process.stdout is not None
    deadline, found = time.monotonic() + BOUND_S, b""
    while wanted not in found:
        assert time.monotonic() < deadline, found
        found += process.stdout.read() or b""
        time.sleep(0.02)
    return found


def test_approvers_come_and_go_by_command(proxy: Proxy) -> None:
    token = added(proxy, "ann", "viewer")
    assert "no approvers yet" not in run(proxy, "approvers", "list")
    assert run(proxy, "approvals", token=token)
    assert "asks for the role admin" in run(proxy, "approvers", "list", token=token, code=1)
    renewed = run(proxy, "approvers", "rotate", "ann").splitlines()[-1]
    assert renewed != token and run(proxy, "approvals", token=renewed)
    run(proxy, "approvers", "disable", "ann")
    assert "refuses the token" in run(proxy, "approvals", token=renewed, code=1)
    assert json.loads(run(proxy, "approvers", "list", "--json"))[0]["disabled_at"]
    assert "cannot be an approver" in run(proxy, "approvers", "add", "admin", "--role", "viewer", code=1)


def test_labels_are_shown_and_changed_by_command(proxy: Proxy) -> None:
    assert run(proxy, "label", "s") == "no labels\n"
    assert run(proxy, "label", "s", "vip", "eu") == "eu, vip\n"
    assert run(proxy, "label", "s", "--remove", "eu") == "vip\n"
    assert "no session" in run(proxy, "label", "none", code=1)


def test_policies_are_tried_on_what_is_recorded_without_a_proxy(proxy: Proxy, ids: list[str]) -> None:
    run(proxy, "label", "s", "vip")
    proxy.stop()
    (proxy.data / "agentstate.toml").write_text(
        '[[policies]]\ntools = ["wire"]\naction = "deny"\nlabels = ["vip"]\n'
        '[[policies]]\ntools = ["send_*"]\nwhen = "args.to.startsWith(\'ann\')"\n'
    )
    met = json.loads(run(proxy, "policy", "test", "s", "--json"))
    assert [(one["step_number"], one["tool_name"], one["action"]) for one in met] == [
        (0, "send_email", "hold"), (1, "execute_command", "allow"), (1, "send_email", "hold"), (2, "wire", "deny"),
    ]  # fmt: skip
    assert met[3]["policy"] == 1 and met[1]["policy"] is None
    assert [one["step_number"] for one in json.loads(run(proxy, "policy", "test", "s", "1", "--json"))] == [1, 1]
    assert "\\u202e" in run(proxy, "policy", "test", "s")
    assert "no step 9" in run(proxy, "policy", "test", "s", "9", code=1)
    assert "no session" in run(proxy, "policy", "test", "none", code=1)


def test_only_a_budget_can_be_raised(proxy: Proxy, ids: list[str]) -> None:
    assert "asks about no budget" in run(proxy, "approve", ids[0], "--raise", "5", code=1)
    assert status(proxy, ids[0]) == ("PENDING", None)
