"""The commands rollback, fork, edit and branches say what they would do, ask before it, and do it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flow.test_steering import POLICIES, Agent, Model
from tests.support import chat
from tests.support.proxy import CLI, Proxy
from tests.support.upstream import Upstream


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with Upstream() as upstream:
        model = Model()
        model.calls["find"] = [chat.tool_call("look_up", '{"to": "bob"}')]
        upstream.reset(model)
        with Proxy(tmp_path_factory.mktemp("commands"), upstream.url, file=POLICIES) as running:
            yield running


def run(proxy: Proxy, *arguments: str, code: int = 0, **variables: str) -> str:
    environment = {**proxy._environment, **variables}
    done = subprocess.run(
        [*CLI, *arguments, "--url", proxy.url], cwd=proxy.data, env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def lived(proxy: Proxy, session: str, *questions: str) -> Agent:
    agent = Agent(proxy, session, "r1")
    for question in questions:
        agent.say(question)
    return agent


def test_rollback_is_shown_asked_for_and_undone(proxy: Proxy) -> None:
    lived(proxy, "back", "q0", "q1", "q2")
    shown = run(proxy, "rollback", "back", "1", "--dry-run")
    assert "superseded: steps 1, 2" in shown
    assert "finds 1 recorded answers" in shown
    assert "say --yes" in run(proxy, "rollback", "back", "1", code=1)
    assert len(json.loads(run(proxy, "branches", "back", "--json"))) == 1
    assert "goes on at step 1, on branch" in run(proxy, "rollback", "back", "1", "--yes")
    listed = run(proxy, "branches", "back")
    assert "goes on here" in listed and "rollback" in listed and "admin" in listed
    root = json.loads(run(proxy, "branches", "back", "--json"))[0]["id"]
    assert "shown again: steps 1, 2" in run(proxy, "rollback", "back", "--branch", str(root), "--dry-run")
    run(proxy, "rollback", "back", "--branch", str(root), "--yes", "--json")
    assert Agent(proxy, "back", "r2").say("q0").outcome == "replay"
    assert "name a step number" in run(proxy, "rollback", "back", "--yes", code=1)
    assert "no session" in run(proxy, "rollback", "nobody", "0", "--yes", code=1)


def test_fork_names_the_new_session(proxy: Proxy) -> None:
    lived(proxy, "tree", "q0", "q1")
    assert "not shared: step 1" in run(proxy, "fork", "tree", "1", "--dry-run")
    assert "session tree-fork-1 shares the steps of tree before 1" in run(proxy, "fork", "tree", "1")
    assert "session twig shares" in run(proxy, "fork", "tree", "2", "--name", "twig")
    assert "another name" in run(proxy, "fork", "tree", "2", "--name", "twig", code=1)
    assert json.loads(run(proxy, "fork", "tree", "2", "--json"))["session"]["id"] == "tree-fork-2"


def test_edit_takes_a_text_arguments_a_file_or_an_editor(proxy: Proxy, tmp_path: Path) -> None:
    lived(proxy, "words", "q0", "find")
    assert "left behind: step 1" in run(proxy, "edit", "words", "0", "--dry-run")
    assert "say --yes" in run(proxy, "edit", "words", "0", "--text", "by option", code=1)
    run(proxy, "edit", "words", "0", "--text", "by option", "--yes")
    assert chat.text_of(Agent(proxy, "words", "r2").say("q0").body) == "by option"
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/by option/by hand/' \"$1\"\n")
    editor.chmod(0o755)
    run(proxy, "edit", "words", "0", "--yes", EDITOR=str(editor))
    assert chat.text_of(Agent(proxy, "words", "r3").say("q0").body) == "by hand"
    assert "nothing was edited" in run(proxy, "edit", "words", "0", "--yes", code=1, EDITOR="true")
    file = tmp_path / "arguments.json"
    file.write_text('{"to": "kim"}')
    run(proxy, "edit", "words", "1", "--file", str(file), "--yes", "--reason", "Bob has left")
    steps = json.loads(run(proxy, "edit", "words", "1", "--arguments", '{"call_1": {"to": "eve"}}', "--yes", "--json"))
    assert steps["step_number"] == 1
    assert "do not fit" in run(proxy, "edit", "words", "1", "--arguments", '{"to": 1}', "--yes", code=1)
    assert "not JSON" in run(proxy, "edit", "words", "1", "--arguments", "{", "--yes", code=1)
    assert "not with both" in run(proxy, "edit", "words", "1", "--arguments", "{}", "--file", "x", code=1)
    assert "name SESSION and STEP" in run(proxy, "edit", "apr_x", "--text", "x", code=1)
    assert os.listdir(tmp_path)
