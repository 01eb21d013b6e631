"""The scripted model of the matrix answers every wire format, and never says the same thing twice."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentstate.core.model import Shape
from agentstate.dialects import registry
from tests.clients.matrix.clients import CHAT, GEMINI, MESSAGES, RESPONSES
from tests.clients.matrix.model import BEFORE, DURING, Model, decide
from tests.clients.matrix.spelling import Said, plain, streamed
from tests.support.upstream import Gate

PATHS = {
    CHAT: "chat/completions",
    RESPONSES: "responses",
    MESSAGES: "messages",
    GEMINI: "v1beta/models/m:generateContent",
}
TEXT = Said("a-3", "m", text="Answer a-3.")
TOOL = Said("a-1", "m", tool="get_weather", arguments={"city": "Paris-a-1"})


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model() as running:
        yield running


def _post(url: str, body: bytes) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, body), timeout=20) as answer:
        return bytes(answer.read())


@pytest.mark.parametrize("said", [TEXT, TOOL], ids=["text", "tool"])
@pytest.mark.parametrize("wire", PATHS)
def test_a_stream_adds_up_to_the_plain_answer(wire: str, said: Said) -> None:
    dialect = registry.for_path("POST", PATHS[wire])
    assert dialect is not None
    added = json.loads(dialect.convert(Shape(stream=True), Shape(), b"".join(streamed(wire, said))))
    whole = json.loads(plain(wire, said))
    key = {CHAT: "choices", RESPONSES: "output", MESSAGES: "content", GEMINI: "candidates"}[wire]
    assert _without_nothing(added[key]) == _without_nothing(whole[key])


def _without_nothing(value: object) -> object:
    """``None``, an empty text and an empty part say the same in an answer, and so does leaving them out."""
    if isinstance(value, dict):
        return {key: _without_nothing(inner) for key, inner in value.items() if inner not in (None, "", [])}
    if isinstance(value, list):
        return [less for inner in value if (less := _without_nothing(inner)) != {}]
    return value


@pytest.mark.parametrize("wire", PATHS)
def test_no_two_answers_are_alike(wire: str) -> None:
    bodies = [plain(wire, decide(b"{}", f"a-{number}", "m")) for number in (1, 2)]
    assert bodies[0] != bodies[1]
    assert b"a-1" in bodies[0] and b"a-2" in bodies[1]
    streams = [b"".join(streamed(wire, decide(b"{}", f"a-{number}", "m"))) for number in (1, 2)]
    assert streams[0] != streams[1]


def test_a_task_is_two_tools_and_an_answer_that_repeats_what_they_returned() -> None:
    weather = b"[get_weather: Paris-a-1 done]"
    email = b"[send_email: bob-a-2 done]"
    assert decide(b"", "a-1", "m").tool == "get_weather"
    assert decide(weather + weather, "a-2", "m").tool == "send_email"
    assert decide(weather + email, "a-3", "m").text == f"Answer a-3: {weather.decode()} and {email.decode()}."
    asked_by_tool = decide(weather + email + b"final_answer", "a-3", "m")
    assert (asked_by_tool.tool, asked_by_tool.text) == ("final_answer", "")


def test_calls_are_counted_and_other_requests_are_not(model: Model) -> None:
    model.begin("a")
    assert b"Paris-a-1" in _post(f"{model.root}/v1/messages", b'{"model": "m"}')
    assert b"Paris-a-2" in _post(f"{model.root}/v1beta/models/m:generateContent", b"{}")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        _post(f"{model.root}/v1/elsewhere", b"{}")
    assert model.paid == 2
    assert model.odd == ["POST /v1/elsewhere"]


@pytest.mark.parametrize("when", [BEFORE, DURING])
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_an_answer_stands_still_where_it_is_told_to(model: Model, when: str, stream: bool) -> None:
    gate = Gate()
    model.begin("a", {(1, when): gate})
    body = json.dumps({"model": "m", "stream": stream}).encode()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(_post, f"{model.root}/v1/responses", body)
        try:
            gate.wait_reached()
            assert not answer.done()
            with pytest.raises(AssertionError, match="was not asked for"):
                model.wait_answered(2)
        finally:
            gate.open()
        model.wait_answered(1)
        assert (b"response.completed" if stream else b"Paris-a-1") in answer.result(20)
