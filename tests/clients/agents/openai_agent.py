"""An agent on the OpenAI package: ``openai_agent.py CLIENT SESSION`` with CLIENT one of the keys of ``CLIENTS``."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import openai

from agentstate import AgentStateOpenAI, AsyncAgentStateOpenAI
from tests.clients.agents.tools import OFFERED, TASK, use

MODEL = "gpt-4o-test"
Messages = list[dict[str, Any]]


def _stock(session: str) -> openai.OpenAI:
    """The vendor's client; the session is in the base URL and no run id is sent."""
    return openai.OpenAI(base_url=os.environ["AGENTSTATE_URL"].replace("/v1", f"/s/{session}/v1"))


def _stock_async(session: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=os.environ["AGENTSTATE_URL"].replace("/v1", f"/s/{session}/v1"))


def _plain(client: Any, messages: Messages) -> dict[str, Any]:
    answer = client.chat.completions.create(model=MODEL, messages=messages, tools=OFFERED)
    return dict(answer.choices[0].message.model_dump(exclude_none=True))


def _streamed(client: Any, messages: Messages) -> dict[str, Any]:
    with client.chat.completions.create(model=MODEL, messages=messages, tools=OFFERED, stream=True) as chunks:
        return _joined([chunk.choices[0].delta for chunk in chunks if chunk.choices])


async def _async_plain(client: Any, messages: Messages) -> dict[str, Any]:
    answer = await client.chat.completions.create(model=MODEL, messages=messages, tools=OFFERED)
    return dict(answer.choices[0].message.model_dump(exclude_none=True))


async def _async_streamed(client: Any, messages: Messages) -> dict[str, Any]:
    chunks = await client.chat.completions.create(model=MODEL, messages=messages, tools=OFFERED, stream=True)
    return _joined([chunk.choices[0].delta async for chunk in chunks if chunk.choices])


def _joined(deltas: list[Any]) -> dict[str, Any]:
    """The message that the deltas of a stream make."""
    message: dict[str, Any] = {"role": "assistant", "content": "".join(delta.content or "" for delta in deltas)}
    calls: dict[int, dict[str, Any]] = {}
    for part in (part for delta in deltas for part in delta.tool_calls or []):
        call = calls.setdefault(part.index, {"type": "function", "function": {"name": "", "arguments": ""}})
        if part.id:
            call["id"] = part.id
        call["function"]["name"] += part.function.name or ""
        call["function"]["arguments"] += part.function.arguments or ""
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return message


def _act(message: dict[str, Any], messages: Messages) -> bool:
    """Take a turn into the conversation; whether another one is needed."""
    messages.append(message)
    for call in message.get("tool_calls", []):
        (value,) = json.loads(call["function"]["arguments"]).values()
        result = use(call["function"]["name"], value)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return bool(message.get("tool_calls"))


def _work(client: Any, ask: Any) -> None:
    messages: Messages = [{"role": "user", "content": TASK}]
    while _act(ask(client, messages), messages):
        pass
    print("final", messages[-1]["content"], flush=True)


async def _work_async(client: Any, ask: Any) -> None:
    messages: Messages = [{"role": "user", "content": TASK}]
    while _act(await ask(client, messages), messages):
        pass
    print("final", messages[-1]["content"], flush=True)


CLIENTS: dict[str, tuple[Any, Any]] = {
    "wrapper": (AgentStateOpenAI, _plain),
    "wrapper-stream": (AgentStateOpenAI, _streamed),
    "async-wrapper": (AsyncAgentStateOpenAI, _async_plain),
    "async-wrapper-stream": (AsyncAgentStateOpenAI, _async_streamed),
    "stock": (_stock, _plain),
    "stock-stream": (_stock, _streamed),
    "async-stock-stream": (_stock_async, _async_streamed),
}


def main() -> None:
    name, session = sys.argv[1:]
    make, ask = CLIENTS[name]
    if name.startswith("async"):
        asyncio.run(_work_async(make(session), ask))
    else:
        _work(make(session), ask)


if __name__ == "__main__":
    main()
