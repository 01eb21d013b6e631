"""Owns a populated proxy for the dashboard's tests: a scripted provider that does what the question says, and sessions
of every kind made by asking it. Must not reach into the proxy.

Invariant: what is told here is told through the agent plane, as an agent would; the figures are the proxy's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tests.support import chat
from tests.support.people import Asking, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Reply, Seen, Upstream, plain, stream

MODEL = "gpt-4o-mini"
HOSTILE = (
    "<script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'> **bold** "
    "[a link](javascript:window.harmed=1) [another](https://evil.example/path) ![pic](https://evil.example/p.png) "
    "<iframe src='https://evil.example'></iframe> \u202egnp.exe\u202c \u200bhidden"
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"to": {"type": "string"}, "subject": {"type": "string"}},
                "required": ["to"],
            },
        },
    }
    for name in ("send_email", "search")
]
FILE = """
[[routes]]
model = "gpt-4o-down"
fallback = ["gpt-4o-mini"]

[[policies]]
tools = ["send_email"]
action = "hold"
"""
_CALL = re.compile(r"^call (\w+) (\{.*\})$", re.DOTALL)


def provider(seen: Seen) -> Reply:
    """Does what the last user message says: ``call TOOL {…}``, ``fail``, ``say …``; anything else is echoed."""
    asked: dict[str, Any] = seen.json() if seen.body else {}
    messages = asked.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else {}
    text = str(last.get("content") or "")
    if asked.get("model") == "gpt-4o-down" or text.startswith("fail"):
        return plain(b'{"error": {"message": "the model is overloaded", "type": "server_error", "code": null}}', 500)
    name = f"s{seen.number}"
    calls: Sequence[dict[str, Any]] = ()
    if (call := _CALL.match(text)) is not None:
        calls, text = [chat.tool_call(call[1], call[2], call_id=f"call_{seen.number}")], ""
    said = text.removeprefix("say ") if text.startswith("say ") else f"You asked: {text}" if text else ""
    if asked.get("stream"):
        return stream(*chat.chunks(said, name=name, tool_calls=calls))
    body = json.loads(chat.completion(said or None, name=name, tool_calls=calls))
    body["model"] = asked.get("model", MODEL)
    body["usage"] = {"prompt_tokens": 900 + len(text), "completion_tokens": 210, "total_tokens": 1110 + len(text)}
    return plain(json.dumps(body).encode())


class Story:
    """Sessions of every kind: ``invoice-4711`` restarted and fast-forwarded, ``nightly report/7`` failed (an id with a
    slash), ``mail-12`` held, ``translate`` fallen back, ``hostile`` with texts that mean harm, ``done-1`` completed."""

    def __init__(self, proxy: Proxy, upstream: Upstream) -> None:
        self.proxy = proxy
        self.upstream = upstream
        self.waiting: list[Asking] = []

    def tell(self) -> Story:
        """Make them all; the last call of ``mail-12`` waits for a person from then on."""
        self.conversation("invoice-4711", 6, runs=("run-1", "run-2"), more=2)
        self.conversation("done-1", 2)
        self.proxy.control.post("/api/sessions/done-1/status", {"status": "COMPLETED"})
        self.conversation("translate", 1, model="gpt-4o-down")
        self.conversation("nightly%20report%2F7", 2)
        self.ask("nightly%20report%2F7", [chat.user("fail now")], run="run-1")
        self.proxy.control.post("/api/sessions/nightly%20report%2F7/status", {"status": "FAILED"})
        self.proxy.control.post("/api/sessions/invoice-4711/labels", {"add": ["billing", "prod"]})
        self.ask("hostile", [chat.system(HOSTILE), chat.user(f"say {HOSTILE}")], run="run-1")
        self.hold("mail-12")
        return self

    def ask(self, session: str, messages: list[dict[str, Any]], *, run: str, model: str = MODEL, **more: Any) -> Any:
        """One call of an agent; the message that answers it, or nothing."""
        answer = self.proxy.client.ask(session, messages, run=run, model=model, **more)
        if answer.status != 200:
            return None
        return json.loads(answer.body)["choices"][0]["message"]

    def conversation(
        self, session: str, turns: int, *, runs: Sequence[str] = ("run-1",), more: int = 0, model: str = MODEL
    ) -> None:
        """So many turns by each of the runs: the first pays, the others are fast-forwarded; the last goes on for
        ``more``."""
        for number, run in enumerate(runs):
            messages = [chat.system("You keep the books. Answer in one line.")]
            for turn in range(turns + (more if number == len(runs) - 1 else 0)):
                messages.append(chat.user(f"Which invoice is number {turn}, and is it paid?"))
                said = self.ask(session, messages, run=run, model=model)
                if said is not None:
                    messages.append({"role": "assistant", "content": said["content"]})

    def hold(self, session: str, arguments: str = '{"to": "ann@example.test", "subject": "Hello"}') -> dict[str, Any]:
        """A call of a tool that waits for a person; the approval."""
        before = len(self.proxy.control.get("/api/approvals/pending"))
        messages = [chat.user("Write to Ann."), chat.user(f"call send_email {arguments}")]
        self.waiting.append(
            Asking(lambda: self.proxy.client.ask(session, messages, run="run-1", model=MODEL, tools=TOOLS))
        )
        return pending(self.proxy, before + 1)[-1]
