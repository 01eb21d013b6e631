"""Owns short words for exports: agents that make a session worth exporting, and how an export is fetched.

Must not check anything. Invariant: the same script gives the same conversation in every wire format.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from typing import Any

from tests.support import chat
from tests.support.client import BOUND_S
from tests.support.proxy import Proxy
from tests.support.upstream import Reply, Seen, plain

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SYSTEM, ASKED, TOLD, SUNNY = "You are terse.", "Weather in Rome?", "It is sunny in Rome.", "sunny, 31 degrees"


def fetched(proxy: Proxy, path: str) -> bytes:
    """The body of a GET of the control plane; raises ``urllib.error.HTTPError``."""
    call = urllib.request.Request(proxy.url + path, headers={"Authorization": f"Bearer {proxy.admin_token}"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(call, timeout=BOUND_S) as reply:
        return bytes(reply.read())


def lines(proxy: Proxy, path: str = "/api/export/dataset") -> list[Any]:
    """The lines of an export."""
    return [json.loads(line) for line in fetched(proxy, path).splitlines()]


def weather_model(seen: Seen) -> Reply:
    """A model that calls the tool once for each result that it was not given, then tells what it was given."""
    messages: Any = seen.json()["messages"]
    results = [message for message in messages if message["role"] == "tool"]
    if results:
        return plain(chat.completion(TOLD))
    return plain(chat.completion(None, tool_calls=[chat.tool_call("weather", '{"city": "Rome"}')]))


def with_result(
    messages: Sequence[dict[str, Any]], answer: dict[str, Any], result: str = SUNNY
) -> list[dict[str, Any]]:
    """The conversation with an answer and the result of its first call behind it."""
    call = answer["tool_calls"][0]["id"]
    return [*messages, answer, {"role": "tool", "tool_call_id": call, "content": result}]


def weather_agent(proxy: Proxy, session: str, question: str = ASKED, **more: Any) -> list[dict[str, Any]]:
    """An agent that asks, runs the tool, and is told; the whole conversation."""
    messages = [chat.system(SYSTEM), chat.user(question)]
    first = proxy.client.ask(session, messages, tools=[WEATHER], **more).json()["choices"][0]["message"]
    messages = with_result(messages, first)
    second = proxy.client.ask(session, messages, tools=[WEATHER], **more).json()["choices"][0]["message"]
    return [*messages, second]
