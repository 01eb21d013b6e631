"""The scripted provider: answers a real client's parser accepts, steered by the request's own text."""

from __future__ import annotations

import asyncio
import http.client
import json
from typing import Any

from bench import upstream


async def ask(*bodies: dict[str, Any]) -> list[tuple[int, bytes]]:
    provider = upstream.Provider()
    server = await asyncio.get_running_loop().create_server(lambda: upstream.Connection(provider), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    def talk() -> list[tuple[int, bytes]]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        answers = []
        for body in bodies:
            connection.request("POST", "/v1/chat/completions", json.dumps(body))
            answer = connection.getresponse()
            answers.append((answer.status, answer.read()))
        connection.request("GET", "/count")
        answers.append((200, connection.getresponse().read()))
        connection.close()
        return answers

    try:
        return await asyncio.to_thread(talk)
    finally:
        server.close()
        await server.wait_closed()


def message(knobs: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": f"[bench {knobs}] Be careful."}]


def events(body: bytes) -> list[bytes]:
    return [line.removeprefix(b"data: ") for line in body.split(b"\n\n") if line]


async def test_answers_are_complete_and_all_different() -> None:
    one, two, count = await ask({"messages": message("bytes=500")}, {"messages": message("bytes=500")})
    first, second = json.loads(one[1]), json.loads(two[1])
    assert first["id"] != second["id"]
    texts = [answer["choices"][0]["message"]["content"] for answer in (first, second)]
    assert [len(text) for text in texts] == [500, 500]
    assert texts[0] != texts[1]
    assert first["choices"][0]["finish_reason"] == "stop"
    assert json.loads(count[1]) == {"requests": 2}


async def test_stream_has_as_many_chunks_as_asked_and_ends_whole() -> None:
    (_, body), _ = await ask({"stream": True, "messages": message("chunks=7")})
    *chunks, done = events(body)
    parsed = [json.loads(chunk) for chunk in chunks]
    assert done == b"[DONE]"
    assert sum("@" in chunk["choices"][0]["delta"].get("content", "") for chunk in parsed) == 7
    assert [chunk["choices"][0]["finish_reason"] for chunk in parsed] == [None] * 8 + ["stop"]


async def test_stream_tells_usage_when_asked_for_it() -> None:
    (_, body), _ = await ask(
        {"stream": True, "stream_options": {"include_usage": True}, "messages": message("chunks=1 gap_ms=1")}
    )
    last = json.loads(events(body)[-2])
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == last["usage"]["prompt_tokens"] + last["usage"]["completion_tokens"]
