"""Owns what happens before pictures are taken: agents that ask, crash, go on, are held, fall back and fail.

Must not be used for tests. Invariant: all of it goes through the running proxy, as agents and people would.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.error
import urllib.request
from typing import Any, NamedTuple
from urllib.parse import quote

from scripts.provider import DOWN, Said

SYSTEM = "You keep the books of a small company. Answer in one or two sentences; use tools for every fact."
TOOLS = {
    "search_invoices": {"status": {"type": "string"}},
    "read_ledger": {"account": {"type": "string"}, "month": {"type": "string"}},
    "convert": {"amount": {"type": "number"}, "to": {"type": "string"}},
    "send_email": {"to": {"type": "string"}, "subject": {"type": "string"}, "body": {"type": "string"}},
    "refund_payment": {"invoice": {"type": "string"}, "amount": {"type": "number"}},
}


class Turn(NamedTuple):
    """What a person asks, the call that the model makes of it, what the tool says, what the model says then."""

    asked: str
    tool: str = ""
    arguments: dict[str, Any] | None = None
    result: str = ""
    said: str = ""


BOOKS = (
    Turn(
        "Which invoices are open?", "search_invoices", {"status": "open"},
        '[{"id": 4711, "due": "2026-11-12", "eur": 1240.0}, {"id": 4714, "due": "2026-12-02", "eur": 310.5}]',
        "Two are open: **4711** over € 1,240.00, due 12 November, and **4714** over € 310.50, due 2 December.",
    ),
    Turn(
        "Was anything paid on 4711?", "read_ledger", {"account": "4711", "month": "2026-11"},
        '{"payments": [], "reminders": ["2026-11-19"]}',
        "Nothing was paid on 4711. One reminder went out on 19 November.",
    ),
    Turn(
        "What is it in US dollars?", "convert", {"amount": 1240.0, "to": "USD"}, '{"usd": 1302.0, "rate": 1.05}',
        "€ 1,240.00 are **$1,302.00** at today's rate of 1.05.",
    ),
    Turn("How many days is it late?", said="Eighteen days: it was due on 12 November, and today is 30 November."),
    Turn(
        "And 4714, is it late too?", "read_ledger", {"account": "4714", "month": "2026-11"}, '{"payments": []}',
        "No: 4714 is due on 2 December, in two days.",
    ),
)  # fmt: skip
MORE = (Turn("Summarise it for the file.", said="4711 is eighteen days late and unpaid; 4714 is not due yet."),)
LETTER = Turn(
    "Remind Lindqvist AB of 4711.", "send_email",
    {"to": "accounts@lindqvist.example", "subject": "Invoice 4711 is overdue",
     "body": "Dear colleagues,\n\ninvoice 4711 over € 1,240.00 was due on 12 November.\nPlease pay it by 7 December."},
)  # fmt: skip
REFUND = Turn("Give the customer of 0921 the money back.", "refund_payment", {"invoice": "0921", "amount": 180.0})
BRIEF = Turn("Summarise it for the file, in five words.", said="4711 late and unpaid; 4714 open.")
_ALL = {turn.asked: turn for turn in (*BOOKS, *MORE, LETTER, REFUND, BRIEF)}


def says(messages: list[dict[str, Any]]) -> Said:
    """What the model says to messages: the call of a turn, and after its result the sentence."""
    asked: dict[str, Any] = next((one for one in reversed(messages) if one.get("role") == "user"), {})
    turn = _ALL.get(str(asked.get("content")), Turn("", said="I cannot tell."))
    if turn.tool and messages[-1].get("role") == "user":
        return "", [(turn.tool, turn.arguments or {})]
    return turn.said or "Done.", []


class Teller:
    """Plays agents and people against a proxy."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token

    def tell(self) -> None:
        """Everything that is seen in the pictures, apart from the past."""
        self.agent("invoice-4711", "run-1", BOOKS)
        self._ended("invoice-4711", "run-1", 137, "run-2")
        self.agent("invoice-4711", "run-2", (*BOOKS, *MORE))
        self.agent("invoice-brief", "run-1", (*BOOKS, BRIEF))
        self.agent("exchange-rates", "run-1", BOOKS[:3], DOWN)
        self.control("POST", "/api/sessions/invoice-4711/labels", {"add": ["billing", "prod"]})
        self.control("POST", "/api/sessions/exchange-rates/status", {"status": "FAILED"})
        for session, turns in (("reminder-4711", (*BOOKS[:2], LETTER)), ("refund-0921", (REFUND,))):
            threading.Thread(target=self._waits, args=(session, turns), name=session, daemon=True).start()
        until = time.monotonic() + 30
        while len(self.control("GET", "/api/approvals/pending")) < 2:
            if time.monotonic() > until:
                raise RuntimeError("the calls that are to be held were not, within 30 s")
            threading.Event().wait(0.05)

    def _waits(self, session: str, turns: tuple[Turn, ...]) -> None:
        # It waits for a person until the proxy ends, which cuts it off.
        with contextlib.suppress(OSError, ValueError):
            self.agent(session, "run-1", turns)

    def _ended(self, session: str, run: str, code: int, following: str) -> None:
        at = f"/api/sessions/{quote(session)}/runs"
        self.control("POST", f"{at}/{run}/end", {"exit_code": code})
        self.control("POST", at, {"run": following, "replaces": run})

    def agent(self, session: str, run: str, turns: tuple[Turn, ...], model: str = "gpt-5.4-mini") -> None:
        """One life of an agent: it asks each turn, and makes the calls that it is given."""
        messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
        for turn in turns:
            messages.append({"role": "user", "content": turn.asked})
            said = self._asked(session, run, messages, model)
            messages.append(said)
            if calls := said.get("tool_calls"):
                messages.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": turn.result or "done"})
                messages.append(self._asked(session, run, messages, model))

    def _asked(self, session: str, run: str, messages: list[dict[str, Any]], model: str) -> dict[str, Any]:
        tools = [
            {"type": "function", "function": {"name": name, "parameters": {
                "type": "object", "properties": fields, "required": list(fields)}}}
            for name, fields in TOOLS.items()
        ]  # fmt: skip
        body = {"model": model, "messages": messages, "tools": tools}
        path = f"/s/{quote(session)}/r/{run}/v1/chat/completions"
        answer = self._sent("POST", path, body, {"authorization": "Bearer sk-test-of-the-pictures"}, 600)
        message: dict[str, Any] = answer["choices"][0]["message"]
        return message

    def control(self, method: str, path: str, body: Any = None) -> Any:
        """A call of the control plane."""
        return self._sent(method, path, body, {"authorization": f"Bearer {self._token}"}, 30)

    def _sent(self, method: str, path: str, body: Any, headers: dict[str, str], within: float) -> Any:
        data = None if body is None else json.dumps(body).encode()
        sent = urllib.request.Request(self._url + path, data, {"content-type": "application/json", **headers})
        sent.method = method
        with urllib.request.urlopen(sent, timeout=within) as answer:
            return json.loads(answer.read())
