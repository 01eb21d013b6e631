"""A chat answer with calls edited or taken out: what was shown stays, nothing refused is left, clients take it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.model import Call, Change, Shape, ToolCall, Verdict
from agentstate.dialects import openai_shape, sse
from agentstate.dialects.openai_chat import OpenAIChat
from tests.support import chat
from tests.unit.core.profile import examples
from tests.unit.dialects.amendments import NEW, SAID, chosen, expected, fates_of, shown
from tests.unit.dialects.test_gate import UNFINISHED, choices_asked, fed, objects, recorded_streams
from tests.unit.dialects.test_shape import answer_of, recorded_plain, seen_plain, seen_stream

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
CHAT = OpenAIChat()
PLAIN, STREAM = Shape(), Shape(True)
ASKED = CHAT.parse("POST", "chat/completions", chat.request("hi", stream=True))


def amended(stream: bytes, changes: Sequence[Change], said: str = SAID, shape: Shape = STREAM) -> bytes:
    return CHAT.amended(ASKED, shape, stream, changes, said)


def verdict_of(stream: bytes, choices: int = 1) -> Verdict:
    return fed([stream], choices)[1]


def value_of(plain: bytes) -> Any:
    """A plain answer as JSON; content that is absent is null."""
    value = json.loads(plain)
    for choice in value["choices"]:
        choice.setdefault("message", {}).setdefault("content", None)
        if choice.get("logprobs") is None:
            choice.pop("logprobs", None)
    return value


def renamed(calls: Sequence[ToolCall], plain: Sequence[ToolCall], changes: Sequence[Change]) -> list[Change]:
    """Changes of a stream's calls as changes of those of the plain answer, which has them in the same order."""
    places = {(one.choice, one.index): (two.choice, two.index) for one, two in zip(calls, plain, strict=True)}
    return [Change(*places[change.choice, change.index], change.arguments) for change in changes]


def check(stream: bytes, changes: Sequence[Change], said: str, choices: int = 1) -> bytes:
    """Everything that holds of an amended stream; the stream."""
    made = amended(stream, changes, said)
    free, before, _ = fed([stream], choices)
    _, after, _ = fed([made], choices)
    assert made.startswith(free)
    assert after.fault == "" and (after.usage, after.model) == (before.usage, before.model)
    wanted = expected(before.calls, changes)
    assert shown(after.calls) == shown(wanted)
    lost = {change.choice for change in changes if change.arguments is None}
    ended = lost - {call.choice for call in wanted}
    for choice, was, is_ in zip(range(9), before.finish, after.finish, strict=False):
        assert is_ == ("stop" if choice in ended else was)
    gone = {call.call_id for call in before.calls} - {call.call_id for call in wanted} - {"", "function"}
    assert not any(json.dumps(call_id).encode() in made for call_id in gone)
    plain = openai_shape.to_plain(made)
    assert value_of(plain) == value_of(amended_plain(stream, before.calls, changes, said))
    for choice in value_of(plain)["choices"]:
        content = choice["message"]["content"]
        if said and choice["index"] in lost:
            assert (content[-1]["text"] if isinstance(content, list) else content).endswith(said)
    return made


def amended_plain(stream: bytes, calls: Sequence[ToolCall], changes: Sequence[Change], said: str) -> bytes:
    plain = openai_shape.to_plain(stream)
    found = CHAT.judge(ASKED, plain)
    made = amended(plain, renamed(calls, found.calls, changes), said, PLAIN)
    assert CHAT.judge(ASKED, made).fault == ""
    return made


def check_sdk(made: bytes) -> None:
    """The official SDK adds the stream up to the object that the plain answer is."""
    assert answer_of(seen_stream(made)) == answer_of(seen_plain(openai_shape.to_plain(made)))


def readable(stream: bytes) -> bool:
    """Whether the SDK itself can add a stream up: not where calls have no index, or not each its place in order."""
    try:
        seen_stream(stream)
    except (TypeError, RuntimeError, IndexError):
        return False
    return True


# --- recorded answers -------------------------------------------------------------------------------------------------


def with_calls() -> Iterator[tuple[str, bytes, int, Verdict]]:
    for exchange in recorded_streams():
        verdict = verdict_of(exchange.response, choices_asked(exchange))
        if exchange.id not in UNFINISHED and verdict.calls:
            yield exchange.id, exchange.response, choices_asked(exchange), verdict


def test_recorded_streams_are_amended_as_their_plain_answers_are_and_the_sdk_takes_them() -> None:
    count = 0
    for name, stream, choices, verdict in with_calls():
        count += 1
        for fates in fates_of(len(verdict.calls)):
            changes = chosen(verdict.calls, fates)
            for said in (SAID, ""):
                made = check(stream, changes, said, choices)
                if said and readable(stream):
                    check_sdk(made)
                kept = untouched(stream)
                assert kept == [event for event in sse.events(made) if event in set(kept)], name
    assert count > 140


def untouched(stream: bytes) -> list[bytes]:
    """The events that hold no piece of a call, nothing signed for one, and no end."""
    words = (b'"tool_calls"', b'"function_call"', b"reasoning.encrypted", b'finish_reason":"', b'finish_reason": "')
    return [event for event in sse.events(stream) if not any(word in event for word in words)]


def test_recorded_plain_answers_are_amended_and_only_what_is_changed_changes() -> None:
    count = 0
    for exchange in recorded_plain():
        before = CHAT.judge(ASKED, exchange.response)
        for fates in fates_of(len(before.calls)) if before.calls else ():
            count += 1
            changes = chosen(before.calls, fates)
            made = amended(exchange.response, changes, SAID, PLAIN)
            after = CHAT.judge(ASKED, made)
            assert after.fault == "" and shown(after.calls) == shown(expected(before.calls, changes)), exchange.id
            assert after.usage == before.usage
            was, is_ = json.loads(exchange.response), json.loads(made)
            lost = {change.choice for change in changes if change.arguments is None}
            for place, (old, new) in enumerate(zip(was["choices"], is_["choices"], strict=True)):
                ended = place in lost and not any(call.choice == place for call in after.calls)
                assert new["finish_reason"] == ("stop" if ended else old["finish_reason"])
                if place in lost:
                    assert new["message"].pop("content").endswith(SAID)
                    old["message"].pop("content", None)
                for part in (old, new):
                    for key in ("finish_reason", "native_finish_reason"):
                        part.pop(key, None)
                    for key in ("tool_calls", "function_call"):
                        part["message"].pop(key, None)
                    details = part["message"].pop("reasoning_details", [])
                    gone = {call.call_id for call in before.calls} - {call.call_id for call in after.calls}
                    part["kept"] = [detail for detail in details if part is new or detail.get("id") not in gone]
            assert was == is_, exchange.id
            seen_plain(made)
    assert count > 100


@pytest.mark.parametrize("shape", [PLAIN, STREAM])
def test_no_change_gives_the_very_bytes(shape: Shape) -> None:
    body = b"".join(chat.chunks("hi", tool_calls=[chat.tool_call("mail")])) if shape.stream else chat.completion("x")
    assert amended(body, [], "", shape) == body
    assert amended(body, [], SAID, shape) == body  # no call is lost in whose place it could be said


# --- any stream -------------------------------------------------------------------------------------------------------


def piece(**fields: Any) -> dict[str, Any]:
    return {"tool_calls": [fields]}


@st.composite
def choice_deltas(draw: st.DrawFn, choice: int) -> list[dict[str, Any]]:
    """The deltas of one choice in order: pieces of calls that take turns, and text anywhere. The arguments of each call
    are of a letter that stands nowhere else."""
    base = draw(st.sampled_from((0, 1)))
    queues: list[list[dict[str, Any]]] = []
    for at in draw(st.permutations(range(draw(st.integers(0, 3))))):
        kind, field = draw(st.sampled_from((("function", "arguments"), ("function", "arguments"), ("custom", "input"))))
        letter = chr(0x4E00 + 16 * choice + at)
        text = json.dumps({"a": letter * 5, "b": [letter, 1]}, ensure_ascii=False)
        cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
        parts = [text[one:two] for one, two in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        index = base + at
        names = draw(st.sampled_from((["mail"], ["ma", "il"])))
        call_id = f"call-{choice}-{at}" if draw(st.booleans()) else None
        first: dict[str, Any] = {"index": index, "type": kind, kind: {"name": names[0]}}
        if draw(st.booleans()):
            first[kind][field] = ""
        queue = [first | ({"id": call_id} if call_id else {})]
        queue += [{"index": index, kind: {"name": name}} for name in names[1:]]
        queue += [{"index": index, kind: {field: part}} for part in parts]
        queues.append([piece(**part) for part in queue])
    queues.append(
        [{"content": word} for word in draw(st.lists(st.sampled_from(("ok", "\n", "é\u2028", "")), max_size=3))]
    )
    found: list[dict[str, Any]] = [{"role": "assistant", "content": None}] if draw(st.booleans()) else []
    while any(queues):
        queue = draw(st.sampled_from([queue for queue in queues if queue]))
        found.append(queue.pop(0))
    return found


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, int]:
    choices = draw(st.integers(1, 2))
    events = []
    for choice in range(choices):
        deltas = draw(choice_deltas(choice))
        calls = any("tool_calls" in delta for delta in deltas)
        reason = draw(st.sampled_from(("tool_calls", "stop"))) if calls else "stop"
        last = deltas.pop() if deltas and draw(st.booleans()) else {}
        more = {"obfuscation": "xyz", "usage": None} if draw(st.booleans()) else {}
        events += [chat.chunk(delta, index=choice, **more) for delta in deltas]
        events.append(chat.chunk(last, index=choice, finish=reason, **more))
    if draw(st.booleans()):
        events.append(chat.chunk({}, choices=[], usage={"total_tokens": 3}))
    events.append(chat.DONE)
    between = draw(st.sampled_from((b"", b": wait\n\n", b"\n")))
    stream = between.join(events)
    stream = stream.removesuffix(draw(st.sampled_from((b"", b"\n", b"\n\n"))))
    return (stream.replace(b"\n", b"\r\n") if draw(st.booleans()) else stream), choices


@examples(300)
@given(streams(), st.lists(st.integers(0, 2), min_size=6, max_size=6), st.sampled_from((SAID, "no", "")))
def test_any_stream_is_amended_so_that_nothing_old_is_left_and_nothing_else_changes(
    found: tuple[bytes, int], fates: list[int], said: str
) -> None:
    stream, choices = found
    calls = verdict_of(stream, choices).calls
    changes = chosen(calls, fates)
    made = check(stream, changes, said, choices)
    for call in calls:
        letter = chr(0x4E00 + 16 * call.choice + _letter(call))
        left = letter in made.decode() or json.dumps(letter)[1:-1] in made.decode()
        assert left is not any((call.choice, call.index) == (one.choice, one.index) for one in changes)
    if b"\r\n" in stream and changes:
        assert b"\n" not in made.replace(b"\r\n", b"")
    if readable(stream):
        check_sdk(made)
    assert not any(b"\n" in (sse.data_of(event) or b"") for event in sse.events(made))


def _letter(call: ToolCall) -> int:
    """Which call of its choice it was made as, by the letter of its arguments."""
    found = next(char for char in call.arguments.replace("\\", "") if ord(char) >= 0x4E00)
    return (ord(found) - 0x4E00) % 16


# --- places, ends and forms -------------------------------------------------------------------------------------------


def stream_of(*deltas: dict[str, Any], finish: str = "tool_calls", **more: Any) -> bytes:
    return b"".join(chat.chunk(delta, **more) for delta in deltas) + chat.chunk({}, finish=finish, **more) + chat.DONE


def function(index: int, name: str, arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"index": index, "id": f"call_{name}", "function": {"name": name, "arguments": arguments}, **more}


def test_following_calls_move_up_from_the_first_place_and_those_before_keep_their_bytes() -> None:
    parts = [piece(**function(at, name)) for at, name in ((1, "one"), (2, "two"), (3, "three"), (7, "four"))]
    stream = stream_of(*parts)
    made = check(stream, [Change(0, 2)], "")
    assert [(call.index, call.name) for call in verdict_of(made).calls] == [(1, "one"), (2, "three"), (3, "four")]
    assert chat.chunk(parts[0]) in made and chat.chunk(parts[1]) not in made


def test_edited_arguments_are_one_verbatim_fragment_in_the_place_of_the_first() -> None:
    call = function(0, "mail", "", extra_content={"google": {"thought_signature": "s1"}})
    rest = [piece(index=0, function={"arguments": part}) for part in ('{"to":', '"old"}')]
    made = amended(stream_of(piece(**call), *rest), [Change(0, 0, NEW)], "")
    call["function"]["arguments"] = NEW
    assert [chunk["choices"][0]["delta"] for chunk in objects(made)] == [piece(**call), {}]


def test_call_that_a_provider_sends_as_an_object_stays_an_object_with_its_numbers_as_written() -> None:
    stream = stream_of(piece(**function(0, "mail", {"to": "old"})))
    made = amended(stream, [Change(0, 0, '{"n":1.50}')], "")
    assert b'"arguments":{"n":1.50}' in made and b"old" not in made


def test_whole_calls_without_an_index_are_amended_by_the_place_that_the_gate_gives_them() -> None:
    calls = [
        {"id": name, "function": {"name": name, "arguments": f'{{"x":"{name}"}}'}} for name in ("one", "two", "six")
    ]
    made = amended(stream_of(*(piece(**call) for call in calls)), [Change(0, 1), Change(0, 2, NEW)], "")
    assert [(call.index, call.call_id, call.arguments) for call in verdict_of(made).calls] == [
        (0, "one", '{"x":"one"}'), (1, "six", NEW),
    ]  # fmt: skip
    assert b"two" not in made


def test_legacy_call_is_edited_and_taken_out_in_both_shapes() -> None:
    parts = [{"function_call": {"name": "look", "arguments": ""}}, {"function_call": {"arguments": '{"a":"old"}'}}]
    stream = stream_of(*parts, finish="function_call")
    plain = openai_shape.to_plain(stream)
    for shape, body in ((STREAM, stream), (PLAIN, plain)):
        edited, gone = (amended(body, [Change(0, -1, text)], SAID, shape) for text in (NEW, None))
        assert b"old" not in edited and b"old" not in gone and b"look" not in gone and b"function_call" not in gone
        edited, gone = (openai_shape.convert(shape, PLAIN, made) for made in (edited, gone))
        assert json.loads(edited)["choices"][0]["message"]["function_call"] == {"name": "look", "arguments": NEW}
        assert json.loads(edited)["choices"][0]["finish_reason"] == "function_call"
        assert json.loads(gone)["choices"][0]["finish_reason"] == "stop"
        assert json.loads(gone)["choices"][0]["message"]["content"] == SAID
    check(stream, [Change(0, -1)], SAID)


@pytest.mark.parametrize(("arguments", "wanted"), [('{"input":"ls \\u00e9"}', "ls é"), ('{"other":1}', '{"other":1}')])
def test_input_of_a_custom_tool_is_shown_and_edited_as_an_object_with_one_field(arguments: str, wanted: str) -> None:
    call = {"id": "c", "type": "custom", "custom": {"name": "shell", "input": "rm -r old"}}
    stream = stream_of(piece(index=0, **call))
    plain = openai_shape.to_plain(stream)
    for shape, body, calls in (
        (STREAM, stream, verdict_of(stream).calls),
        (PLAIN, plain, CHAT.judge(ASKED, plain).calls),
    ):
        assert [(call.name, json.loads(call.arguments)) for call in calls] == [("shell", {"input": "rm -r old"})]
        made = openai_shape.convert(shape, PLAIN, amended(body, [Change(0, 0, arguments)], "", shape))
        custom = {"name": "shell", "input": wanted}
        assert json.loads(made)["choices"][0]["message"]["tool_calls"] == [{**call, "custom": custom}]


def test_said_comes_after_what_was_said_before_the_end_and_in_each_choice_that_lost_a_call() -> None:
    events = [chat.chunk({"role": "assistant", "content": "Let me see."}, index=0)]
    events += [chat.chunk(piece(**function(0, f"f{choice}")), index=choice) for choice in (0, 1, 2)]
    events += [chat.chunk({"content": "Hm\n"}, index=1)]
    events += [chat.chunk({}, index=choice, finish="tool_calls") for choice in (0, 1, 2)] + [chat.DONE]
    made = check(b"".join(events), [Change(0, 0), Change(1, 0), Change(2, 0, NEW)], SAID, 3)
    messages = [choice["message"] for choice in json.loads(openai_shape.to_plain(made))["choices"]]
    assert [message["content"] for message in messages] == [f"Let me see.\n\n{SAID}", f"Hm\n{SAID}", None]
    ends = [choice["finish_reason"] for choice in json.loads(openai_shape.to_plain(made))["choices"]]
    assert ends == ["stop", "stop", "tool_calls"]


def test_said_goes_into_the_one_chunk_of_a_stream_that_says_all_at_once() -> None:
    call = {"id": "c", "function": {"name": "mail", "arguments": {"to": "x"}}}
    for content, wanted in (("Hm", f"Hm\n\n{SAID}"), ("", SAID), (None, SAID)):
        delta = {"role": "assistant", "content": content, "tool_calls": [call]}
        stream = b": x\n\n" + chat.chunk(delta, finish="tool_calls", usage={"total_tokens": 1}) + chat.DONE
        made = check(stream, [Change(0, 0)], SAID)
        assert len(objects(made)) == 1
        assert objects(made)[0]["choices"][0]["delta"] == {"role": "assistant", "content": wanted}


def test_said_is_a_part_where_the_content_is_a_list_of_parts() -> None:
    part = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    stream = stream_of({"role": "assistant", "content": [part]}, piece(**function(0, "mail")))
    made = check(stream, [Change(0, 0)], SAID)
    content = json.loads(openai_shape.to_plain(made))["choices"][0]["message"]["content"]
    assert content == [part, {"type": "text", "text": SAID}]


def test_end_that_another_provider_named_is_amended_too_and_one_that_stays_is_not() -> None:
    calls = [piece(**function(at, name)) for at, name in enumerate(("one", "two"))]
    end = {"index": 0, "delta": {"content": ""}, "finish_reason": "tool_calls", "native_finish_reason": "tool_use"}
    stream = b"".join(chat.chunk(call) for call in calls) + chat.chunk({}, choices=[end]) + chat.DONE
    assert objects(check(stream, [Change(0, 0)], SAID))[-1]["choices"][0]["native_finish_reason"] == "tool_use"
    last = objects(check(stream, [Change(0, 0), Change(0, 1)], SAID))[-1]["choices"][0]
    assert (last["finish_reason"], last["native_finish_reason"]) == ("stop", "end_turn")


def test_log_probabilities_of_a_changed_call_go_with_it_and_those_of_the_text_stay() -> None:
    def tokens(*texts: str) -> dict[str, Any]:
        found = [{"token": text, "logprob": -0.50, "bytes": [*text.encode()], "top_logprobs": []} for text in texts]
        return {"content": found, "refusal": None}

    def said(delta: dict[str, Any], *texts: str) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": tokens(*texts), "finish_reason": None}
        return chat.chunk({}, choices=[choice])

    call = piece(**function(0, "mail", '{"to":"old"}'))
    stream = said({"content": "Hé"}, "H", "é") + said(call, '{"to"', ':"old"}')
    stream += chat.chunk({}, finish="tool_calls") + chat.DONE
    for change in (Change(0, 0), Change(0, 0, NEW)):
        made = check(stream, [change], SAID)
        plain = json.loads(openai_shape.to_plain(made))["choices"][0]
        assert [token["token"] for token in plain["logprobs"]["content"]] == ["H", "é"]
        assert b"old" not in made


def test_reasoning_that_is_signed_with_the_id_of_a_call_is_held_and_goes_with_it() -> None:
    def thought(name: str | None) -> dict[str, Any]:
        return {"type": "reasoning.encrypted", "data": f"data of {name}", "format": "google-gemini-v1", "id": name}

    free = [chat.chunk({"role": "assistant", "reasoning_details": [thought(name)]}) for name in (None, "rs_1")]
    signed = chat.chunk({"reasoning_details": [thought("call_one"), thought("call_two")]})
    calls = [chat.chunk(piece(**function(at, name))) for at, name in enumerate(("one", "two"))]
    stream = b"".join([*free, signed, *calls, chat.chunk({}, finish="tool_calls"), chat.DONE])
    assert fed([stream])[0] == b"".join(free)
    made = check(stream, [Change(0, 0), Change(0, 1, NEW)], SAID)
    assert b"data of call_one" not in made and b"data of call_two" in made
    assert b"call_" not in check(stream, [Change(0, 0), Change(0, 1)], SAID)


def test_name_in_pieces_is_put_together_so_that_its_policy_finds_it() -> None:
    parts = [piece(index=0, id="c", function={"name": "send_"}), piece(index=0, function={"name": "email"})]
    assert [call.name for call in verdict_of(stream_of(*parts)).calls] == ["send_email"]
    again = [piece(index=0, id="c", function={"name": "mail", "arguments": part}) for part in ("{", "}")]
    stream = stream_of(*again)
    assert [call.name for call in verdict_of(stream).calls] == ["mail"]
    assert CHAT.judge(ASKED, openai_shape.to_plain(stream)).calls == verdict_of(stream).calls


def test_events_in_several_lines_with_names_and_without_text_keep_what_is_not_changed() -> None:
    start = b'event: chunk\r\nid: 7\r\ndata: {"id": "x", "choices": [{"index": 0, "delta":\r\ndata:  '
    call = json.dumps(piece(**function(0, "mail", '{"to":"old"}'))).encode()
    stream = start + call + b'}],\r\ndata: "u\xff": 1.0}\r\n\r\n'
    stream += b'event: chunk\r\ndata: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]}'
    assert verdict_of(stream).fault == "" and verdict_of(stream).calls
    made = amended(stream, [Change(0, 0, NEW)], SAID)
    assert made.startswith(b'event: chunk\r\nid: 7\r\ndata: {"id":"x","choices":[{')
    assert b"old" not in made and b'":1.0}\r\n\r\nevent: chunk\r\n' in made
    assert [call.arguments for call in verdict_of(made).calls] == [NEW]
    gone = amended(stream, [Change(0, 0)], SAID)
    assert b"mail" not in gone and b"event: chunk\r\ndata: {" in gone
    assert (verdict_of(gone).fault, verdict_of(gone).finish, verdict_of(gone).calls) == ("", ("stop",), ())


def test_plain_answer_keeps_its_blanks_numbers_and_unknown_fields_and_numbers_its_calls_anew() -> None:
    calls = [{**chat.tool_call(name, call_id=name), "index": at} for at, name in enumerate(("one", "two", "six"))]
    body = b" \n " + chat.completion("hi", tool_calls=calls) + b"\n"
    made = amended(body, [Change(0, 1), Change(0, 2, NEW)], "", PLAIN)
    assert made.startswith(b" \n {") and made.endswith(b"}\n") and b"1.1" in made
    found = json.loads(made)["choices"][0]["message"]["tool_calls"]
    assert [(call["id"], call["index"]) for call in found] == [("one", 0), ("six", 1)]
    assert found[1]["function"] == {"name": "six", "arguments": NEW}
    assert json.dumps(calls[0]).encode().replace(b" ", b"") in made.replace(b" ", b"").replace(b"\n", b"")


# --- the SDK's own helper ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fates", [[2, 2], [1, 0], [2, 1], [0, 2]])
def test_stream_helper_of_the_sdk_ends_with_the_amended_completion(fates: list[int]) -> None:
    calls = [chat.tool_call("weather", '{"city":"Oslo"}'), chat.tool_call("mail", '{"to":"x"}', call_id="call_2")]
    stream = b"".join(chat.chunks("let me see", tool_calls=calls))
    changes = chosen(verdict_of(stream).calls, fates)
    made = amended(stream, changes, SAID)

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=made)

    with (
        httpx.Client(transport=httpx.MockTransport(answer)) as transport,
        openai.OpenAI(api_key="sk-test-1", base_url="http://127.0.0.1:9/v1", http_client=transport) as client,
        client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "hi"}]) as events,
    ):
        kinds = {event.type for event in events}
        choice = events.get_final_completion().choices[0]
    wanted = expected(verdict_of(stream).calls, changes)
    assert [(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()] == [
        (call.call_id, call.name, call.arguments) for call in wanted
    ]
    assert choice.message.content == "let me see" + (f"\n\n{SAID}" if 2 in fates else "")
    assert choice.finish_reason == ("tool_calls" if wanted else "stop")
    assert ("tool_calls.function.arguments.done" in kinds) is bool(wanted)


# --- what it must not be asked ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [
    [Change(0, 1)], [Change(1, 0)], [Change(0, -1)], [Change(0, 0), Change(0, 0, "{}")],
    [Change(0, 0, "")], [Change(0, 0, "[]")], [Change(0, 0, "{")], [Change(0, 0, '{"a":NaN}')],
    [Change(0, 0, '{"a":"\ud800"}')],
])  # fmt: skip
@pytest.mark.parametrize("shape", [PLAIN, STREAM])
def test_change_that_cannot_be_made_is_an_error(changes: list[Change], shape: Shape) -> None:
    call = chat.tool_call("mail")
    body = b"".join(chat.chunks("", tool_calls=[call])) if shape.stream else chat.completion(None, tool_calls=[call])
    with pytest.raises(ValueError, match=r"call|arguments"):
        amended(body, changes, SAID, shape)


def test_calls_that_cannot_be_told_apart_once_one_is_gone_are_not_amended() -> None:
    # The last piece belongs to the last call that was begun, and to another one once that is gone.
    parts = [function(0, "one", '{"a":1}'), function(5, "two", "{}")]
    late = {"id": "six", "function": {"name": "six", "arguments": "{}"}}
    stream = stream_of(*(piece(**part) for part in (*parts, late)), piece(index=1, function={"name": "odd"}))
    calls = verdict_of(stream).calls
    assert len(calls) == 4
    try:
        made = amended(stream, [Change(0, 0)], "")
    except ValueError as error:
        assert "told apart" in str(error)
    else:
        assert [call.name for call in verdict_of(made).calls] == [call.name for call in calls[1:]]


def test_call_of_the_dialect_is_what_the_question_was() -> None:
    assert isinstance(ASKED, Call) and ASKED.shape == STREAM
