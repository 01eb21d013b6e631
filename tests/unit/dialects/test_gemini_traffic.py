"""Every recorded exchange with Gemini and Vertex is read, judged and converted as what it is, however it is cut."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.model import Call, Shape, Verdict
from agentstate.dialects import gemini, registry
from agentstate.dialects.base import Dialect
from agentstate.dialects.gemini import Gemini
from agentstate.dialects.pure import Pure
from tests.support import traffic
from tests.unit.core.profile import examples
from tests.unit.dialects.test_sse import cut

GEMINI = Gemini()
PURE = Pure("gemini_pure", "gemini", gemini.gemini_error)


@dataclass(frozen=True)
class Recorded:
    """One exchange as bytes; ``path`` is normalised. Bodies that were stored parsed are rendered once, here."""

    id: str
    path: str
    query: str
    request: bytes
    status: int
    response: bytes

    @property
    def asked(self) -> Any:
        return json.loads(self.request)


def recorded(pattern: str, services: Sequence[str], clients: str = "") -> list[Recorded]:
    """The recorded exchanges whose normalised path matches, of services and of clients whose names match."""
    traffic.require()
    found = []
    for service in services:
        for row in _rows(traffic.FOLDER / "providers" / f"{service}.jsonl"):
            answer = row["response"]
            said = next((answer[key] for key in ("sse", "text") if key in answer), answer.get("body"))
            found.append(_of(row["id"], row["request"], answer["status"], said))
    for path in sorted((traffic.FOLDER / "clients").glob(f"{clients}*.jsonl")) if clients else ():
        for at, row in enumerate(_rows(path)):
            answer = row["response"]
            found.append(_of(f"{path.stem}#{at}", row, answer["status"], answer["body"]))
    return [exchange for exchange in found if re.fullmatch(pattern, exchange.path)]


def _rows(path: Any) -> Iterator[Any]:
    with path.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines)


def _of(name: str, request: Any, status: int, said: Any) -> Recorded:
    path, _, query = request["path"].partition("?")
    path = registry.normalise(re.sub(r"^/s/[^/]+/", "/", path))
    return Recorded(name, path, query, _bytes(request["body"]), status, _bytes(said))


def _bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else json.dumps(body, ensure_ascii=False).encode()


def parse(dialect: Dialect, exchange: Recorded) -> Call:
    return dialect.parse("POST", exchange.path, exchange.request, exchange.query)


def fed(dialect: Dialect, call: Call, pieces: Sequence[bytes]) -> tuple[bytes, Verdict, bool]:
    """(bytes that may be seen, verdict, whether the end marker came) of a stream."""
    gate = dialect.gate(call)
    free = b"".join(gate.feed(piece) for piece in pieces)
    return free, gate.finish(), gate.done


def judged(dialect: Dialect, call: Call, body: bytes) -> Verdict:
    """The verdict as the proxy comes to it."""
    if call.shape.stream and dialect.is_stream(call, body.lstrip(b" \t\r\n")):
        return fed(dialect, call, [body])[1]
    return dialect.judge(call, body)


def whole(call: Call) -> bytes:
    """The body put together again from its parts."""
    return call.before + call.separator.join(item.raw for item in call.items) + call.after


# --- Gemini ---------------------------------------------------------------------------------------------------------


def generated() -> list[Recorded]:
    found = recorded(r".*:(generateContent|streamGenerateContent)", ("gemini", "vertex"), "google-")
    assert len(found) > 380
    return found


def streams() -> list[tuple[Recorded, Call]]:
    """The recorded streams that are no error, with their calls."""
    found = [(exchange, parse(GEMINI, exchange)) for exchange in generated() if exchange.status == 200]
    return [(exchange, call) for exchange, call in found if call.shape.stream]


def test_each_recorded_request_is_parsed_and_put_together_byte_for_byte() -> None:
    for exchange in generated():
        call = parse(GEMINI, exchange)
        assert call.items, exchange.id
        assert whole(call) == call.body == exchange.request, exchange.id
        assert call.path.partition("?")[0].endswith(":generateContent"), exchange.id
        assert call.model in exchange.path, exchange.id
        assert len(call.items) == len(exchange.asked["contents"]), exchange.id
        beside = [name for name in ("systemInstruction", "tools") if exchange.asked.get(name) is not None]
        assert [item.role for item in call.context] == ["system"] * len(beside), exchange.id


def test_each_recorded_success_is_finished_and_each_recorded_error_is_a_fault() -> None:
    wrong = []
    for exchange in generated():
        verdict = judged(GEMINI, parse(GEMINI, exchange), exchange.response)
        if bool(verdict.fault) != (exchange.status != 200):
            wrong.append(f"{exchange.id}: {verdict.fault or 'taken for finished'}")
    assert wrong == []


def test_verdict_on_recorded_answers_names_their_calls_usage_and_model() -> None:
    for exchange in generated():
        if exchange.status != 200:
            continue
        call = parse(GEMINI, exchange)
        verdict = judged(GEMINI, call, exchange.response)
        chunks = [json.loads(chunk) for chunk in chunks_of(call.shape, exchange.response)]
        parts = [
            part
            for chunk in chunks
            for candidate in chunk.get("candidates", ())
            for part in candidate.get("content", {}).get("parts", ())
        ]
        proposed = [part["functionCall"] for part in parts if "functionCall" in part]
        assert [(c.call_id, c.name, json.loads(c.arguments)) for c in verdict.calls] == [
            (found.get("id", ""), found["name"], found["args"]) for found in proposed
        ], exchange.id
        usages = [chunk["usageMetadata"] for chunk in chunks if "usageMetadata" in chunk]
        assert (json.loads(verdict.usage) if verdict.usage else None) == (usages[-1] if usages else None), exchange.id
        models = [chunk["modelVersion"] for chunk in chunks if "modelVersion" in chunk]
        assert verdict.model == (models[-1] if models else ""), exchange.id


def chunks_of(shape: Shape, body: bytes) -> list[bytes]:
    """The chunks of an answer, cut in the plainest way."""
    if not shape.stream:
        return [body]
    if shape.array:
        return [json.dumps(chunk).encode() for chunk in json.loads(body)]
    return [event.removeprefix(b"data:") for event in re.split(rb"\r\n\r\n|\n\n", body) if event.strip()]


def test_no_finish_and_no_function_call_of_a_recorded_stream_is_seen_too_early() -> None:
    found = streams()
    assert len(found) > 75
    assert sum(call.shape.array for _, call in found) > 10
    shown = 0
    for exchange, call in found:
        free = fed(GEMINI, call, [exchange.response])[0]
        assert exchange.response.startswith(free), exchange.id
        assert b'"functionCall"' not in free, exchange.id
        assert b'"finishReason"' not in free, exchange.id
        shown += bool(free)
    assert shown > 40, "text is held back too"


@examples(8)
@given(st.lists(st.integers(0, 2**20), min_size=1, max_size=12))
def test_recorded_streams_are_judged_and_shown_alike_however_they_are_cut(places: list[int]) -> None:
    for exchange, call in streams():
        once = fed(GEMINI, call, [exchange.response])
        assert fed(GEMINI, call, cut(exchange.response, places)) == once, exchange.id


def test_recorded_streams_cut_before_the_finish_are_a_fault() -> None:
    for exchange, call in streams():
        end = exchange.response.find(b'"finishReason"')
        for place in range(0, end, max(1, end // 15)):
            free, verdict, _ = fed(GEMINI, call, [exchange.response[:place]])
            assert verdict.fault, (exchange.id, place)
            assert b'"functionCall"' not in free, (exchange.id, place)


def test_recorded_streams_keep_their_chunks_byte_for_byte_between_the_two_framings() -> None:
    events, array = Shape(True), Shape(True, array=True)
    for exchange, call in streams():
        other = array if call.shape == events else events
        converted = GEMINI.convert(call.shape, other, exchange.response)
        again = GEMINI.convert(other, call.shape, converted)
        assert GEMINI.convert(call.shape, other, again) == converted, exchange.id
        assert [json.loads(chunk) for chunk in chunks_of(other, converted)] == [
            json.loads(chunk) for chunk in chunks_of(call.shape, exchange.response)
        ], exchange.id
        if call.shape == events:
            for chunk in chunks_of(events, exchange.response):
                assert chunk.strip() in converted, exchange.id


def test_recorded_answers_say_the_same_in_every_shape() -> None:
    shapes = (Shape(), Shape(True), Shape(True, array=True))
    for exchange in generated():
        if exchange.status != 200:
            continue
        call = parse(GEMINI, exchange)
        before = judged(GEMINI, call, exchange.response)
        plain = GEMINI.convert(call.shape, Shape(), exchange.response)
        for asked in shapes:
            body = GEMINI.convert(call.shape, asked, exchange.response)
            assert (body == exchange.response) == (asked == call.shape), exchange.id
            after = judged(GEMINI, Call("gemini", "POST", "", b"", b"", shape=asked), body)
            assert meant(after) == meant(before), exchange.id
            assert json.loads(GEMINI.convert(asked, Shape(), body)) == json.loads(plain), exchange.id


def meant(verdict: Verdict) -> Any:
    """A verdict, whatever the spelling of its JSON."""
    calls = [(c.choice, c.index, c.call_id, c.name, json.loads(c.arguments)) for c in verdict.calls]
    usage = json.loads(verdict.usage) if verdict.usage else None
    return verdict.fault, verdict.model, usage, calls, verdict.finish


def test_recorded_countings_and_embeddings_are_pure_questions() -> None:
    found = recorded(r".*:(countTokens|embedContent|batchEmbedContents)", ("gemini", "vertex"))
    assert len(found) > 15
    for exchange in found:
        named = gemini.gemini_operation(exchange.path)
        assert named is not None and named[1] in gemini.PURE, exchange.id
        call = parse(PURE, exchange)
        assert call.pure and call.body == exchange.request
        assert bool(PURE.judge(call, exchange.response).fault) == (exchange.status != 200), exchange.id


def test_second_process_of_each_recorded_client_asks_the_same_questions() -> None:
    for name in ("google-genai", "google-genai-stream", "google-adk-gemini"):
        runs = [recorded(r".*Content", (), f"{name}.run{run}") for run in (1, 2)]
        assert len(runs[0]) == len(runs[1]) == 3
        for first, second in zip(*runs, strict=True):
            one, two = parse(GEMINI, first), parse(GEMINI, second)
            assert (one.path, one.frame) == (two.path, two.frame)
            assert [item.digest for item in one.items] == [item.digest for item in two.items]
            assert [item.digest for item in one.context] == [item.digest for item in two.context]
