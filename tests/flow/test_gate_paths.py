"""There is no way around the gate: failed answers, jobs, what a provider keeps, and other spellings of its paths."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import chat, mailing
from tests.support.client import Answer, chat_headers
from tests.support.people import decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Upstream, plain, stream

TO_BOB = '{"to": "bob@example.com"}'
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "send_email", "arguments": TO_BOB,
        "status": "completed"}  # fmt: skip
HARMLESS = CALL | {"id": "fc_2", "call_id": "call_2", "name": "search", "arguments": '{"q": "bees"}'}
TOOLS = [{"type": "function", "name": "send_email", "parameters": {"type": "object"}}]
QUESTION = {"model": "m", "input": "write to Bob", "tools": TOOLS}
SECRET = b"bob@example.com"


@pytest.fixture
def upstream() -> Any:
    with Upstream() as running:
        yield running


proxy = mailing.proxy


def response(status: str, *items: dict[str, Any], name: str = "resp_1") -> dict[str, Any]:
    error = {"code": "server_error", "message": "out of order"} if status == "failed" else None
    return {
        "id": name, "object": "response", "status": status, "model": "m", "output": list(items), "error": error,
        "conversation": {"id": "conv_7"},
    }  # fmt: skip


def body_of(status: str, *items: dict[str, Any]) -> bytes:
    return json.dumps(response(status, *items)).encode()


def events(status: str, *items: dict[str, Any], ended: bool = True) -> list[bytes]:
    """A streamed response that says a text first. ``ended``: its calls are finished before the response is."""
    told: list[dict[str, Any]] = [{"type": "response.created", "response": response("in_progress")}]
    told.append({"type": "response.output_text.delta", "output_index": 9, "content_index": 0, "delta": "Well. "})
    for place, item in enumerate(items):
        told.append({"type": "response.output_item.added", "output_index": place, "item": item | {"arguments": ""}})
        told.append({"type": "response.function_call_arguments.delta", "output_index": place, "item_id": item["id"],
                     "delta": item["arguments"]})  # fmt: skip
        if ended:
            told.append({"type": "response.output_item.done", "output_index": place, "item": item})
    told.append({"type": f"response.{status}", "response": response(status, *(items if ended else ()))})
    numbered = [event | {"sequence_number": number} for number, event in enumerate(told)]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in numbered]


def send(proxy: Proxy, path: str, body: Any = None, *, session: str = "s", method: str = "POST", **more: str) -> Answer:
    sent = b"" if body is None else json.dumps(body).encode()
    return proxy.client.send(method, f"/s/{session}/r/r1{path}", chat_headers(more), sent)


# --- answers that failed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["failed", "cancelled"])
@pytest.mark.parametrize("streamed", [False, True])
def test_answer_that_failed_is_given_without_the_calls_that_policies_hold(
    proxy: Proxy, upstream: Upstream, status: str, streamed: bool
) -> None:
    items = (CALL, HARMLESS)
    upstream.script = lambda seen: stream(*events(status, *items)) if streamed else plain(body_of(status, *items))
    answer = send(proxy, "/v1/responses", QUESTION | {"stream": streamed})
    assert answer.status == 200 and answer.complete
    assert SECRET not in answer.body and b'"send_email"' not in answer.body
    assert b"bees" in answer.body and b"was refused" in answer.body
    last = json.loads(answer.body.rstrip().rpartition(b"data: ")[2])
    assert last.get("response", last)["status"] == status
    assert not streamed or answer.body.startswith(b"".join(events(status)[:2]))
    assert pending(proxy, 0) == []
    assert send(proxy, "/v1/responses", QUESTION | {"stream": streamed}).outcome != "replay"
    assert upstream.calls == 2


def test_stream_that_failed_amid_a_held_call_ends_with_an_error_in_its_place(proxy: Proxy, upstream: Upstream) -> None:
    upstream.script = lambda seen: stream(*events("failed", CALL, ended=False))
    answer = send(proxy, "/v1/responses", QUESTION | {"stream": True})
    assert b"Well. " in answer.body and b"response.failed" in answer.body and b"out of order" in answer.body
    assert SECRET not in answer.body


def test_failed_answer_with_harmless_calls_keeps_its_bytes(proxy: Proxy, upstream: Upstream) -> None:
    upstream.script = lambda seen: plain(body_of("failed", HARMLESS))
    assert send(proxy, "/v1/responses", QUESTION).body == body_of("failed", HARMLESS)


# --- jobs -------------------------------------------------------------------------------------------------------------

MALFORMED = CALL | {"id": "fc_3", "arguments": TO_BOB[:-1]}
LOOKS = ("", "?include[]=x", "/cancel")


def look(proxy: Proxy, path: str, **more: Any) -> Answer:
    return send(proxy, path, method="POST" if path.endswith("/cancel") else "GET", **more)


@pytest.mark.parametrize("how", LOOKS)
@pytest.mark.parametrize("status", ["in_progress", "failed", "cancelled", "unheard-of"])
def test_no_look_at_a_job_that_has_not_ended_well_gives_a_held_call(
    proxy: Proxy, upstream: Upstream, status: str, how: str
) -> None:
    upstream.replies(plain(body_of("queued")))
    send(proxy, "/v1/responses", QUESTION | {"background": True})
    for items in ([CALL], [CALL, MALFORMED]):
        upstream.script = lambda seen, items=items: plain(body_of(status, *items))
        answer = look(proxy, f"/v1/responses/resp_1{how}")
        assert answer.status == 200
        assert SECRET not in answer.body and b'"send_email"' not in answer.body
        assert answer.json()["status"] == status
        assert (b"was refused" in answer.body) is (status != "in_progress")
    assert pending(proxy, 0) == []


def test_first_answer_of_a_job_gives_no_held_call(proxy: Proxy, upstream: Upstream) -> None:
    upstream.script = lambda seen: plain(body_of("in_progress", CALL))
    answer = send(proxy, "/v1/responses", QUESTION | {"background": True})
    assert answer.status == 200 and SECRET not in answer.body
    assert (answer.json()["id"], answer.json()["output"]) == ("resp_1", [])


def test_unfinished_look_at_a_job_with_harmless_calls_keeps_its_bytes(proxy: Proxy, upstream: Upstream) -> None:
    upstream.replies(plain(body_of("queued")))
    send(proxy, "/v1/responses", QUESTION | {"background": True})
    upstream.script = lambda seen: plain(body_of("in_progress", HARMLESS))
    for how in LOOKS:
        assert look(proxy, f"/v1/responses/resp_1{how}").body == body_of("in_progress", HARMLESS)


def test_look_at_a_job_that_cannot_be_read_is_refused(proxy: Proxy, upstream: Upstream) -> None:
    upstream.replies(plain(body_of("queued")))
    send(proxy, "/v1/responses", QUESTION | {"background": True})
    upstream.script = lambda seen: stream(*events("completed", CALL))
    answer = look(proxy, "/v1/responses/resp_1")
    assert (answer.status, answer.error["code"]) == (503, "upstream_invalid_answer")


# --- what a provider keeps --------------------------------------------------------------------------------------------

KEPT = ("/v1/responses/resp_1", "/v1/responses/resp_1?stream=true", "/v1/responses/resp_1?include[]=x",
        "/v1/responses/resp_1/input_items", "/v1/responses/resp_1/cancel", "/v1/chat/completions/chatcmpl-1",
        "/v1/chat/completions", "/v1/chat/completions/chatcmpl-1/messages",
        "/v1/conversations/conv_1/items")  # fmt: skip


def hold(proxy: Proxy, upstream: Upstream, session: str = "s") -> dict[str, Any]:
    """Have an answer held in a session; its approval. The agent that asked is gone."""
    upstream.script = lambda seen: plain(body_of("completed", CALL))
    with proxy.client.connect() as connection:
        connection.request("POST", f"/s/{session}/r/r1/v1/responses", chat_headers(), json.dumps(QUESTION).encode())
        return pending(proxy, 1, session)[0]


@pytest.mark.parametrize("path", KEPT)
def test_answer_that_is_held_or_refused_or_edited_cannot_be_looked_up_at_its_provider(
    proxy: Proxy, upstream: Upstream, path: str
) -> None:
    for action in ("", "REJECTED", "EDITED"):
        session = f"s{action}"
        approval = hold(proxy, upstream, session)
        if action:
            decide(proxy, approval, action, **({"arguments": {"to": "kim"}} if action == "EDITED" else {}))
            assert SECRET not in send(proxy, "/v1/responses", QUESTION, session=session).body
        calls = upstream.calls
        answer = look(proxy, path, session=session)
        assert (answer.status, answer.error["code"]) == (400, "approval_unavailable")
        assert upstream.calls == calls


def test_answer_that_was_approved_can_be_looked_up_in_every_session(proxy: Proxy, upstream: Upstream) -> None:
    decide(proxy, hold(proxy, upstream), "APPROVED")
    assert SECRET in send(proxy, "/v1/responses", QUESTION).body
    for path in KEPT:
        assert look(proxy, path).status == look(proxy, path, session="other").status == 200


@pytest.mark.parametrize("known", [False, True])
def test_other_session_does_not_find_what_is_held_or_was_refused_or_edited(
    proxy: Proxy, upstream: Upstream, known: bool
) -> None:
    for action in ("", "REJECTED", "EDITED"):
        session = f"s{action}"
        approval = hold(proxy, upstream, session)
        if action:
            decide(proxy, approval, action, **({"arguments": {"to": "kim"}} if action == "EDITED" else {}))
            assert SECRET not in send(proxy, "/v1/responses", QUESTION, session=session).body
    if known:
        upstream.script = lambda seen: plain(chat.completion("x"))
        send(proxy, "/v1/chat/completions", CHAT, session="other")
    calls = upstream.calls
    for path in (
        *KEPT[:5],
        "/v1/responses/%72esp_1",
        "/v1/conversations/conv_7/items",
        "/v1/conversations/conv_7/items/m",
    ):
        for method in ("GET", "POST"):
            answer = send(proxy, path, session="other", method=method)
            assert (answer.status, answer.error["code"]) == (404, "not_found"), path
    assert upstream.calls == calls
    for path in ("/v1/responses/resp_2", "/v1/conversations/conv_8/items", "/v1/chat/completions/chatcmpl-2"):
        assert look(proxy, path, session="other").status == 200


@pytest.mark.parametrize("streamed", [False, True])
def test_answer_that_the_journal_does_not_know_is_looked_up_without_the_calls_that_policies_hold(
    proxy: Proxy, upstream: Upstream, streamed: bool
) -> None:
    """It was begun without a session, or its stream was cut and its provider went on."""
    upstream.script = lambda seen: stream(*events("in_progress", CALL)[:-2])
    assert SECRET not in send(proxy, "/v1/responses", QUESTION | {"background": True, "stream": True}).body
    path = "/v1/responses/resp_1" + ("?stream=true&starting_after=1" if streamed else "")
    for items, held in (((CALL, HARMLESS), True), ((HARMLESS,), False)):
        whole = b"".join(events("completed", *items)) if streamed else body_of("completed", *items)
        upstream.script = lambda seen, items=items, whole=whole: (
            stream(*events("completed", *items)) if streamed else plain(whole)
        )
        for session in ("s", "other"):
            answer = look(proxy, path, session=session)
            assert answer.status == 200 and answer.complete and b"bees" in answer.body
            assert SECRET not in answer.body and (b"was refused" in answer.body) is held
            assert held or answer.body == whole
        assert (SECRET in proxy.client.send("GET", path, chat_headers()).body) is held  # without a session


def test_look_at_an_unknown_answer_that_cannot_be_read_is_refused(proxy: Proxy, upstream: Upstream) -> None:
    upstream.script = lambda seen: plain(b"\x1f\x8b packed")
    answer = look(proxy, "/v1/responses/resp_9")
    assert (answer.status, answer.error["code"]) == (503, "upstream_invalid_answer")
    upstream.script = lambda seen: stream(*events("completed", CALL)[:-1])
    answer = look(proxy, "/v1/responses/resp_9?stream=true")
    assert SECRET not in answer.body and not answer.complete
    refusal = b'{"error":{"message":"no such response"}}'
    upstream.script = lambda seen: plain(refusal, 404)
    assert (look(proxy, "/v1/responses/resp_9").status, look(proxy, "/v1/responses/resp_9").body) == (404, refusal)


@pytest.mark.parametrize("streamed", [False, True])
def test_other_session_does_not_find_a_stored_completion_with_a_held_call(
    proxy: Proxy, upstream: Upstream, streamed: bool
) -> None:
    calls = [chat.tool_call("send_email", TO_BOB)]
    upstream.script = lambda seen: (
        stream(*chat.chunks("x", tool_calls=calls)) if streamed else plain(chat.completion("x", tool_calls=calls))
    )
    with proxy.client.connect() as connection:
        connection.request(
            "POST", "/s/s/v1/chat/completions", chat_headers(), json.dumps(CHAT | {"stream": streamed}).encode()
        )
        pending(proxy)
    name = json.loads(chat.completion("x"))["id"]
    for path in (f"/v1/chat/completions/{name}", f"/v1/chat/completions/{name}/messages", "/v1/chat/completions"):
        answer = look(proxy, path, session="other")
        assert (answer.status, answer.error["code"]) == (404, "not_found")
    assert upstream.calls == 1
    assert look(proxy, "/v1/chat/completions/another", session="other").status == 200


# --- spellings --------------------------------------------------------------------------------------------------------

CHAT_TOOLS = [{"type": "function", "function": {"name": "send_email", "parameters": {"type": "object"}}}]
CHAT = {"model": "m", "messages": [{"role": "user", "content": "write to Bob"}], "tools": CHAT_TOOLS}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/%63ompletions", "/v1/chat%2Fcompletions", "/v1/chat%252Fcompletions", "/v1/./chat/completions",
        "/v1/x/../chat/completions", "/v1/x/%2e%2e/chat/completions", "//v1//chat//completions/",
        "/v1/chat/completions%20", "/v1/chat/completions%3Fx", "/v1/chat/completions;a", "/v1/chat\\completions",
        "/V1/Chat/Completions", "/v2/chat/completions", "/openai/chat/completions", "/v1beta/openai/chat/completions",
        "/openai/deployments/X/chat/completions", "/api/v1/chat/completions",
    ],
)  # fmt: skip
def test_no_spelling_of_a_path_goes_around_the_gate_and_each_is_forwarded_as_sent(
    proxy: Proxy, upstream: Upstream, path: str
) -> None:
    upstream.script = lambda seen: plain(chat.completion("x", tool_calls=[chat.tool_call("send_email", TO_BOB)]))
    with proxy.client.connect() as connection:
        connection.request("POST", f"/s/s{path}", chat_headers(), json.dumps(CHAT).encode())
        decide(proxy, pending(proxy)[0], "REJECTED")
        answer = connection.answer()
    assert answer.status == 200 and SECRET not in answer.body and b"was refused" in answer.body
    [seen] = upstream.requests
    assert seen.target.endswith(path)


@pytest.mark.parametrize("path", ["/openai/v1/responses", "/v1/%72esponses", "/v1/Responses"])
def test_responses_are_held_and_kept_under_every_spelling(proxy: Proxy, upstream: Upstream, path: str) -> None:
    upstream.script = lambda seen: plain(body_of("completed", CALL))
    with proxy.client.connect() as connection:
        connection.request("POST", f"/s/s{path}", chat_headers(), json.dumps(QUESTION).encode())
        pending(proxy)
    for spelled in (f"{path}/resp_1", f"{path}/%72esp_1", "/v1/x/../responses/resp_1/", "/v1/responses/resp_1%2F"):
        assert look(proxy, spelled).error["code"] == "approval_unavailable"


def test_job_is_known_under_every_spelling_of_its_name(proxy: Proxy, upstream: Upstream) -> None:
    upstream.replies(plain(body_of("queued")))
    send(proxy, "/v1/responses", QUESTION | {"background": True})
    upstream.script = lambda seen: plain(body_of("in_progress", CALL))
    for path in (
        "/v1/responses/%72esp_1",
        "/v1/Responses/resp_1",
        "/v1/./responses//resp_1",
        "/openai/responses/resp_1",
    ):
        answer = look(proxy, path)
        assert answer.status == 200 and SECRET not in answer.body and b'"output":[]' in answer.body


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/threads/runs", {"tools": CHAT_TOOLS}),
        ("/v1/messages/batches", {"requests": [{"params": {"tools": [{"name": "send_email", "input_schema": {}}]}}]}),
        ("/v1beta/interactions", {"tools": [{"functionDeclarations": [{"name": "send_email"}]}]}),
        ("/model/m/converse", {"toolConfig": {"tools": [{"toolSpec": {"name": "send_email"}}]}}),
        ("/v1/elsewhere", {"functions": [{"name": "send_email"}]}),
    ],
)
def test_path_that_cannot_be_held_is_refused_where_it_offers_a_tool_that_policies_name(
    proxy: Proxy, upstream: Upstream, path: str, body: dict[str, Any]
) -> None:
    answer = send(proxy, path, body)
    assert (answer.status == 400 and b"approval_unavailable" in answer.body) or b"cannot be held" in answer.body
    assert upstream.calls == 0
    harmless = json.loads(json.dumps(body).replace("send_email", "search"))
    for session, sent in (("s", harmless), ("s", {"text": "send_email", "name": "send_email"})):
        assert send(proxy, path, sent, session=session).status == 200
    assert proxy.client.send("POST", path, chat_headers(), json.dumps(body).encode()).status == 200
    assert upstream.calls == 3


def form(*parts: tuple[str, str], boundary: str = "b0") -> bytes:
    """A form; the name of a field may be followed by other parameters of its header."""
    told = "".join(
        f"--{boundary}\r\nContent-Disposition: form-data; name={name}\r\n\r\n{content}\r\n" for name, content in parts
    )
    return f"{told}--{boundary}--\r\n".encode()


REQUESTS = "\n".join(
    json.dumps({"custom_id": str(at), "method": "POST", "url": "/v1/chat/completions", "body": asked})
    for at, asked in enumerate(({"model": "m"}, CHAT))
)
FILE = 'file; filename="requests.jsonl"'


def test_form_that_offers_a_tool_which_policies_name_is_refused_as_any_other_body_is(
    proxy: Proxy, upstream: Upstream
) -> None:
    upstream.script = lambda seen: plain(b'{"id":"file-1"}')
    headers = dict(chat_headers()) | {"Content-Type": 'multipart/form-data; boundary="b0"'}

    def upload(*parts: tuple[str, str], path: str = "/v1/files", session: str = "/s/s") -> Answer:
        return proxy.client.send("POST", f"{session}{path}", headers, form(*parts))

    for parts in (
        (("purpose", "batch"), (FILE, REQUESTS)),
        ((FILE, REQUESTS), ('"purpose"', "batch")),
        (('"tools"', json.dumps(CHAT_TOOLS)),),
        (("request", json.dumps(CHAT)), ("audio; filename=a.wav", "RIFF")),
    ):
        answer = upload(*parts)
        assert (answer.status, answer.error["code"]) == (400, "approval_unavailable"), parts
    assert upstream.calls == 0
    for parts in (
        (("purpose", "fine-tune"), (FILE, REQUESTS)),
        (("purpose", "batch"), (FILE, REQUESTS.replace("send_email", "search"))),
        (("purpose", "user_data"), (FILE, "send_email")),
    ):
        assert upload(*parts).status == 200
        assert upstream.requests[-1].body == form(*parts)
    assert upload(("purpose", "batch"), (FILE, REQUESTS), session="").status == 200


def test_credentials_in_a_form_are_forwarded_and_nowhere_kept(proxy: Proxy, upstream: Upstream) -> None:
    upstream.script = lambda seen: plain(b'{"id":"file-1"}')
    headers = dict(chat_headers()) | {"Content-Type": "multipart/form-data; boundary=b0"}
    body = form(("api_key", "sk-test-in-a-form"), (FILE, "sk-test-in-a-file"))
    assert proxy.client.send("POST", "/s/s/r/r1/v1/files", headers, body).status == 200
    assert upstream.requests[-1].body == body
    assert proxy.stop() == 0
    kept = b"".join(file.read_bytes() for file in proxy.data.iterdir() if file.is_file())
    assert b"sk-test-in-a-form" not in kept and b"sk-test-in-a-file" not in kept
