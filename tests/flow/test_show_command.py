"""``agentstate show`` tells what people were asked about a step, which tool calls agents were given, what came back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import chat
from tests.support.people import Asking, decide, pending
from tests.support.proxy import Proxy

pytestmark = pytest.mark.xdist_group("show-command")
SESSION = "mails"
LONG = "x" * 60


def tool(name: str, field: str, value: str = LONG) -> dict[str, Any]:
    """A tool that the simulated model calls with this value."""
    schema = {"type": "object", "properties": {field: {"type": "string", "examples": [value]}}, "required": [field]}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def ask(proxy: Proxy, question: Any, *tools: dict[str, Any], headers: dict[str, str] | None = None) -> Any:
    return proxy.client.ask(
        SESSION, question, run="run-1", model="gpt-4o-mini-t1", tools=list(tools), headers=headers or {}
    )


def call_of(body: bytes) -> tuple[dict[str, Any], str]:
    """The message of an answer and the id of the call in it."""
    message = json.loads(body)["choices"][0]["message"]
    return message, message["tool_calls"][0]["id"]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """Steps: 0 looked up and answered, 1 with the result of 0, 2 looked up without a result, 3 edited, 4 rejected, 5
    pending, 6 a request that is pending."""
    with Proxy(tmp_path_factory.mktemp("show") / "data", arguments=["--simulate"]) as running:
        look, mail = tool("look_up", "order"), tool("send_email", "to")
        message, key = call_of(ask(running, "zero", look).body)
        failed = {"role": "tool", "tool_call_id": key, "content": "order\x1b[31m not found " + LONG}
        ask(running, [chat.user("zero"), message, failed], look)
        ask(running, "two", look)
        waiting = Asking(lambda: ask(running, "three", mail))
        decide(running, pending(running)[0], "EDITED", arguments={"to": "kim"}, reason="one is enough")
        waiting.answer()
        waiting = Asking(lambda: ask(running, "four", tool("send_email", "to", "all")))
        decide(running, pending(running)[0], "REJECTED", reason="never")
        waiting.answer()
        for count, headers in enumerate(({}, {"x-agent-require-approval": "true"}), 1):
            Asking(lambda headers=headers: ask(running, f"last {headers}", mail, headers=headers))  # type: ignore[misc]
            pending(running, count)
        yield running


def rows(proxy: Proxy, *arguments: str) -> list[str]:
    return proxy.cli("show", SESSION, *arguments).stdout.splitlines()


def below(shown: list[str], step: int) -> list[list[str]]:
    """The cells of the rows under a step's own."""
    start = next(number for number, line in enumerate(shown) if line.split()[:1] == [str(step)])
    found = []
    for line in shown[start + 1 :]:
        cells = line.split()
        if cells[:1] not in (["tool"], ["approval"]):
            break
        found.append(cells)
    return found


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch, proxy: Proxy) -> None:
    proxy._environment["COLUMNS"] = "250"


@pytest.mark.usefixtures("wide")
def test_tool_calls_stand_under_their_step_with_arguments_and_result_cut_short(proxy: Proxy) -> None:
    shown = rows(proxy)
    [looked] = below(shown, 0)
    assert looked[:2] == ["tool", "look_up"]
    assert looked[2] == ('{"order":"' + LONG)[:39] + "…"
    assert " ".join(looked[3:]).startswith("order·[31m not found x") and looked[-1].endswith("…")
    assert below(shown, 1) == []
    [unanswered] = below(shown, 2)
    assert (unanswered[:2], unanswered[3:]) == (["tool", "look_up"], ["no", "result", "yet"])


@pytest.mark.usefixtures("wide")
def test_approvals_of_a_step_say_what_was_decided_by_whom_and_why(proxy: Proxy) -> None:
    shown = rows(proxy)
    asked, given = below(shown, 3)
    assert asked[:2] == ["approval", "send_email"] and " ".join(asked[3:]) == "edited by admin: one is enough"
    assert " ".join(given) == 'tool send_email {"to": "kim"} no result yet'
    [refused] = below(shown, 4)
    assert refused[:2] == ["approval", "send_email"] and " ".join(refused[3:]) == "rejected by admin: never"
    [waits] = below(shown, 5)
    assert waits[:2] == ["approval", "send_email"] and waits[3:] == ["pending"]
    assert below(shown, 6) == [["approval", "request", "pending"]]
    states = {line.split()[0]: line.split()[1] for line in shown if line[:1].isdigit()}
    assert (states["4"], states["5"], states["6"]) == ("completed", "held", "held")


def test_json_passes_calls_approvals_and_what_was_proposed_through(proxy: Proxy) -> None:
    asked = proxy.control.steps(SESSION)
    assert json.loads("\n".join(rows(proxy, "--json")))["steps"] == asked
    edited = asked[3]
    assert (edited["release"], edited["state"]) == ("answer", "completed")
    assert LONG in edited["proposed"] and LONG not in edited["response"] and "kim" in edited["response"]
    assert [row["status"] for row in edited["approvals"]] == ["EDITED"]
    assert LONG in edited["approvals"][0]["arguments"]
    assert (asked[4]["release"], asked[4]["calls"]) == ("message", [])
    assert "send_email was refused by admin: never" in asked[4]["response"]
    assert (asked[5]["release"], asked[5]["proposed"], asked[5]["calls"]) == ("held", None, [])
    assert (asked[6]["release"], asked[6]["approvals"][0]["arguments"]) == (None, "")
    assert (asked[0]["release"], asked[0]["proposed"]) == (None, None)


@pytest.mark.usefixtures("wide")
def test_one_step_is_shown_with_its_calls_and_both_answers(proxy: Proxy) -> None:
    text = "\n".join(rows(proxy, "--step", "3"))
    assert "edited by admin: one is enough" in text and "no result yet" in text
    assert text.index("kim") < text.index(" proposed ")
    assert " proposed " not in "\n".join(rows(proxy, "--step", "0"))


def test_failed_result_of_a_tool_says_that_it_failed() -> None:
    from agentstate.cli.show import _result

    assert _result({"result": "no such order", "failed": True, "made_at": None}) == "failed: no such order"
