"""Owns ``agentstate events``: what changes in the proxy that runs, line by line. Must not keep anything.

Invariant: texts from agents are printed as text; a stream that ends is taken up where it ended, and what was missed
meanwhile is said.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from agentstate.cli.control import Control, ProxyUnreachable
from agentstate.cli.people import Config, Url, connected

_REST_S = 2.0
_FIELDS = ("session", "run", "step", "approval", "subject", "state", "action")


def events(
    session: Annotated[str, typer.Option(help="Only what is about this session.")] = "",
    kinds: Annotated[str, typer.Option(help="Only these kinds, as `step,approval.asked`.")] = "",
    after: Annotated[str, typer.Option(help="The id of the last event that is known.")] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with whatever comes, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line instead of words.")] = False,
    config: Config = None,
    url: Url = None,
) -> None:
    """Show what changes: sessions, runs, steps, approvals, breakers, budgets, alerts."""
    # Who follows sees what comes from now on; who does not, what the proxy still knows.
    known = after or ("" if follow else "first")
    for event in _told(partial(connected, config, url), {"session": session, "kinds": kinds}, known, follow):
        print(json.dumps(event) if as_json else _line(event), flush=True)


def _told(reached: Callable[[], Control], query: dict[str, str], after: str, follow: bool) -> Iterator[dict[str, Any]]:
    """The events, with their ``id``. Raises ``AgentStateError`` where there is no proxy, or none any more."""
    lost = False
    while True:
        try:
            wanted = {**query, "after": after, "follow": "true" if follow else "false"}
            asked = {name: value for name, value in wanted.items() if value}
            for event in parsed(reached().lines("/api/events?" + urlencode(asked))):
                lost = False
                after = event["id"]
                if event.get("kind"):
                    yield event
        except ProxyUnreachable:
            if not follow or lost:
                raise
        if not follow:
            return
        lost = True  # it stopped, or let go of us: it gets a moment, once
        threading.Event().wait(_REST_S)


def parsed(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Server-sent events as objects, each with its ``id``."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif "id" in fields:
            yield {"id": fields["id"], **json.loads(fields.get("data", "{}"))}
            fields = {}


def _line(event: dict[str, Any]) -> str:
    from agentstate.cli.show import _plain

    if event["kind"] == "resync":
        return f"{event['at']}  (events were missed)"
    said = [f"{name}={_plain(str(event[name]))}" for name in _FIELDS if name in event]
    return f"{event['at']}  {event['kind']:<18} {' '.join(said)}"
