"""docs/guides/gate.md is held to the code: its settings govern as it says, its commands decide, its texts are given."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from agentstate import settings
from agentstate.core.model import Action, ApprovalState, OnReject, Release, ToolCall
from agentstate.core.policy import Place
from agentstate.dialects import registry
from agentstate.engine.policies import Policies
from agentstate.engine.settling import PASSES
from tests.house.pages import ROOT, fences, section, table, text
from tests.support.people import Asking, pending
from tests.support.proxy import Proxy

PAGE = ROOT / "docs" / "guides" / "gate.md"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "send_email",
            "parameters": {
                "type": "object",
                "properties": {"to": {"type": "string", "format": "email"}},
                "required": ["to"],
            },
        },
    }
]


def loaded(folder: Path) -> settings.Settings:
    """All examples of the page as one settings file."""
    file = folder / "agentstate.toml"
    file.write_text("\n".join(fence.text for fence in fences(text(PAGE)) if fence.kind == "toml"))
    return settings.load(file, environ={})


@pytest.mark.parametrize(
    ("tool", "arguments", "place", "action"),
    [
        ("send_email", "{}", Place("s"), Action.HOLD),
        ("refund", '{"amount": 20}', Place("s"), Action.ALLOW),
        ("refund", '{"amount": 19.5}', Place("s"), Action.ALLOW),
        ("refund", '{"amount": 21}', Place("s"), Action.HOLD),
        ("refund", "{}", Place("s"), Action.HOLD),
        ("refund", '{"amount": "20"}', Place("s"), Action.HOLD),
        ("delete_all", "{}", Place("s", ("production",)), Action.HOLD),
        ("delete_all", "{}", Place("s"), Action.ALLOW),
        ("execute_command", "{}", Place("sandbox-3"), Action.ALLOW),
        ("execute_command", "{}", Place("s"), Action.HOLD),
        ("stripe_charge", "{}", Place("s"), Action.ALLOW),  # the default is replaced
        ("search", "{}", Place("s"), Action.ALLOW),
        ("search", "[]", Place("s"), Action.ALLOW),
        ("search", '{"q": "cut', Place("s"), Action.ALLOW),
        ("refund", "[]", Place("s"), Action.HOLD),
        ("execute_command", "[]", Place("sandbox-3"), Action.HOLD),
        ("functions.Refund", '{"amount": 20}', Place("s"), Action.HOLD),
        ("", "{}", Place("s"), Action.HOLD),
    ],
)
def test_the_policies_of_the_guide_govern_as_it_says(
    tmp_path: Path, tool: str, arguments: str, place: Place, action: Action
) -> None:
    found = Policies(loaded(tmp_path).policies).ruling(ToolCall(0, 0, "call_1", tool, arguments), place)
    assert found.action is action, found.why


def test_the_other_settings_of_the_guide_are_read(tmp_path: Path) -> None:
    known = loaded(tmp_path)
    rule = next(rule for rule in known.policies if rule.tools == ["delete_*"])
    assert (rule.quorum, rule.approvers, rule.expires_s) == (2, ["ann", "bob", "admin"], 3600)
    assert rule.on_reject == "error"
    assert known.tools.read and known.tools.idempotent


@pytest.mark.parametrize(
    "condition",
    re.findall(
        r"`((?:args|session|\")[^`]*(?:\)|\"|labels))`", " ".join(section(PAGE, "Which calls are held").split())
    ),
)
def test_a_condition_of_the_guide_can_be_told(condition: str) -> None:
    one = settings.PolicySettings(tools=["x"], when=condition)  # type: ignore[call-arg]
    here = Place("nightly", ("production",))
    ruling = Policies([one]).ruling(ToolCall(0, 0, "call_1", "x", '{"to": "ann@example.com"}'), here)
    assert ruling.action is Action.HOLD and "condition failed" not in ruling.why


def test_the_commands_of_the_guide_list_and_decide(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed here")
    [script] = [fence.text for fence in fences(section(PAGE, "In 30 seconds")) if fence.kind == "sh"]
    with Proxy(tmp_path, arguments=["--simulate"]) as proxy:
        asking = Asking(lambda: proxy.client.ask("s", "hi", run="r", model="gpt-4o-mini", tools=TOOLS))
        [approval] = pending(proxy)
        for ours, here in (("DATA", str(tmp_path)), ("http://localhost:8080", proxy.url), ("APPROVAL", approval["id"])):
            assert ours in script
            script = script.replace(ours, here)
        done = subprocess.run(["sh", "-eu", "-c", script], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        given = json.loads(asking.answer().body)["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(given) == {"to": "kim@example.com"}


def test_the_guide_tells_every_decision_and_every_way_of_refusing() -> None:
    told = section(PAGE, "What the agent sees")
    for mode in OnReject:
        assert f'"{mode.value}"' in told
    assert {state for state in ApprovalState if state.value in told} >= {*PASSES, ApprovalState.EXPIRED}
    assert {mode.value for mode in Release} - {"held", "answer"} == {mode.value for mode in OnReject}


def test_what_a_waiting_stream_is_sent_is_what_the_guide_says() -> None:
    said = {row[0].partition(",")[0]: row[1] for row in table(PAGE, "What the agent sees")}
    for name, path, beat, words in (
        ("chat completions", "chat/completions", b": keep-alive\n\n", "`: keep-alive`"),
        ("Anthropic's messages", "messages", b'event: ping\ndata: {"type": "ping"}\n\n', "`ping`"),
        ("Gemini", "models/x:streamGenerateContent", b"\r\n", "an empty line"),
        ("Ollama", "api/chat", b" ", "a blank"),
    ):
        dialect = registry.for_path("POST", path)
        assert dialect is not None
        body = b'{"model": "x", "stream": true, "messages": [], "contents": []}'
        call = dialect.parse("POST", path, body, "alt=sse" if name == "Gemini" else "")
        assert dialect.gate(call).heartbeat() == beat, name
        assert words in said[name], name


def test_the_guide_is_short_and_says_what_is_not_gated() -> None:
    assert len(text(PAGE).splitlines()) <= 190
    told = section(PAGE, "What is not gated")
    for hole in ("without a session", "provider runs itself", "hidden in text", "in the background"):
        assert hole in told.replace("\n", " ")
