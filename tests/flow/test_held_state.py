"""What a provider holds survives: pointers that it has lost, jobs that outlive the agent and the proxy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Answer, Client
from tests.support.proxy import CLI, Proxy
from tests.support.upstream import BOUND_S, Reply, Seen, Upstream, plain, stream

pytestmark = pytest.mark.usefixtures("no_traceback")
JSON = {"content-type": "application/json", "authorization": "Bearer sk-test-0123456789"}
LOST = json.dumps({
    "error": {"message": "Previous response not found.", "type": "invalid_request_error",
              "param": "previous_response_id", "code": "previous_response_not_found"},
}).encode()  # fmt: skip


@pytest.fixture
def client(proxy: Proxy) -> Client:
    return proxy.client


def response(name: str, text: str, status: str = "completed", **more: Any) -> bytes:
    message = {"type": "message", "id": f"msg_{name}", "role": "assistant", "status": "completed",
               "content": [{"type": "output_text", "text": text, "annotations": []}]}  # fmt: skip
    usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    output = [message] if status == "completed" else []
    whole = {"id": name, "object": "response", "status": status, "model": "gpt-5", "output": output}
    return json.dumps(whole | ({"usage": usage} if status == "completed" else {}) | more).encode()


def ask(client: Client, session: str, run: str, **body: Any) -> Answer:
    sent = json.dumps({"model": "gpt-5", **body}).encode()
    return client.send("POST", f"/s/{session}/r/{run}/v1/responses", JSON, sent)


def poll(client: Client, session: str, run: str, name: str) -> Answer:
    return client.send("GET", f"/s/{session}/r/{run}/v1/responses/{name}", JSON)


def conversation(upstream: Upstream, client: Client, session: str) -> None:
    upstream.replies(plain(response("resp_1", "one")), plain(response("resp_2", "two")))
    assert ask(client, session, "a", input="first").status == 200
    second = ask(client, session, "a", input=[{"role": "user", "content": "second"}], previous_response_id="resp_1")
    assert second.status == 200


# --- pointers -------------------------------------------------------------------------------------------------------


def test_pointer_that_the_provider_has_lost_is_replaced_by_the_transcript(
    upstream: Upstream, client: Client, session: str
) -> None:
    conversation(upstream, client, session)
    upstream.replies(plain(LOST, 404), plain(response("resp_3", "three")))
    answer = ask(client, session, "a", input="third", previous_response_id="resp_2", temperature=1.0)
    assert (answer.status, json.loads(answer.body)["id"]) == (200, "resp_3")
    lost, whole = (seen.json() for seen in upstream.requests[-2:])
    assert lost["previous_response_id"] == "resp_2"
    assert "previous_response_id" not in whole
    assert (whole["model"], whole["temperature"]) == ("gpt-5", 1.0)
    said = [(item.get("role"), json.dumps(item["content"])) for item in whole["input"]]
    assert [role for role, _ in said] == ["user", "assistant", "user", "assistant", "user"]
    assert all(word in text for word, (_, text) in zip(("first", "one", "second", "two", "third"), said, strict=True))
    assert not any("id" in item for item in whole["input"])


def test_answer_got_by_the_transcript_is_one_step_with_both_attempts_and_replays(
    upstream: Upstream, client: Client, proxy: Proxy, session: str
) -> None:
    conversation(upstream, client, session)
    upstream.replies(plain(LOST, 404), plain(response("resp_3", "three")))
    live = ask(client, session, "a", input="third", previous_response_id="resp_2")
    calls = upstream.calls
    third = proxy.control.steps(session)[2]
    assert (third["state"], third["attempts"]) == ("completed", 2)
    for run, texts in (("b", ("first", [{"role": "user", "content": "second"}], "third")),):
        for number, (text, before) in enumerate(zip(texts, (None, "resp_1", "resp_2"), strict=True)):
            more = {"previous_response_id": before} if before else {}
            again = ask(client, session, run, input=text, **more)
            assert (again.outcome, again.step) == ("replay", number)
    assert again.body == live.body
    assert upstream.calls == calls


def test_pointer_to_an_answer_that_the_journal_does_not_hold_gets_the_providers_refusal(
    upstream: Upstream, client: Client, session: str
) -> None:
    upstream.replies(plain(LOST, 404))
    answer = ask(client, session, "a", input="hi", previous_response_id="resp_elsewhere")
    assert (answer.status, answer.body, upstream.calls) == (404, LOST, 1)


def test_other_refusals_are_given_on_and_nothing_is_sent_again(
    upstream: Upstream, client: Client, session: str
) -> None:
    conversation(upstream, client, session)
    refusal = b'{"error":{"message":"no such model","type":"invalid_request_error","code":"model_not_found"}}'
    upstream.replies(plain(refusal, 404))
    answer = ask(client, session, "a", input="third", previous_response_id="resp_2")
    assert (answer.status, answer.body, upstream.calls) == (404, refusal, 3)


# --- jobs -----------------------------------------------------------------------------------------------------------


class Worker:
    """A provider that works on a job: it is done after so many looks at it."""

    def __init__(self, looks: int, ended: bytes | None = None) -> None:
        self.looks = looks
        self.ended = ended or response("resp_job", "done at last")
        self.posts = self.gets = 0

    def __call__(self, seen: Seen) -> Reply:
        if seen.method == "POST":
            self.posts += 1
            return plain(response("resp_job", "", "queued"))
        self.gets += 1
        assert seen.headers.get("authorization") == JSON["authorization"]
        assert seen.target == "/v1/responses/resp_job"
        return plain(self.ended if self.gets > self.looks else response("resp_job", "", "in_progress"))


def test_job_is_followed_to_its_end_though_its_agent_is_gone(
    upstream: Upstream, client: Client, proxy: Proxy, session: str
) -> None:
    worker = Worker(looks=1)
    upstream.reset(worker)
    begun = ask(client, session, "a", input="long work", background=True)
    assert json.loads(begun.body)["status"] == "queued"
    upstream.wait_calls(3, BOUND_S)  # the job's start and two looks at it, by nobody but the proxy
    again = ask(client, session, "b", input="long work", background=True)
    assert (again.outcome, again.body) == ("replay", begun.body)
    ended = poll(client, session, "b", "resp_job")
    assert (ended.status, ended.body) == (200, worker.ended)
    calls = upstream.calls
    assert [poll(client, session, "b", "resp_job").outcome for _ in range(3)] == ["replay"] * 3
    assert (worker.posts, upstream.calls) == (1, calls)
    step = proxy.control.steps(session)[0]
    assert step["token_cost"] is not None  # the tokens of the finished job


def test_poll_of_the_agent_sees_what_the_provider_says_until_the_end(
    upstream: Upstream, client: Client, session: str
) -> None:
    worker = Worker(looks=2)
    upstream.reset(worker)
    ask(client, session, "a", input="work", background=True)
    seen = []
    while not seen or seen[-1][0] == "in_progress":
        answer = poll(client, session, "a", "resp_job")
        seen.append((json.loads(answer.body)["status"], answer.outcome))
    assert seen[-1][0] == "completed"
    assert {outcome for status, outcome in seen if status == "in_progress"} == {"live"}
    assert poll(client, session, "a", "resp_job").outcome == "replay"


def test_failed_job_ends_too(upstream: Upstream, client: Client, session: str) -> None:
    failed = response("resp_job", "", "failed", error={"code": "server_error", "message": "it broke"})
    upstream.reset(Worker(looks=0, ended=failed))
    ask(client, session, "a", input="work", background=True)
    assert poll(client, session, "a", "resp_job").body == failed
    again = poll(client, session, "a", "resp_job")
    assert (again.body, again.outcome) == (failed, "replay")


def test_poll_of_a_job_that_this_session_does_not_know_is_passed_through(
    upstream: Upstream, client: Client, session: str
) -> None:
    other = response("resp_other", "of somebody else")
    upstream.replies(plain(other))
    answer = poll(client, session, "a", "resp_other")
    assert (answer.status, answer.body) == (200, other)


def test_end_of_a_job_that_the_proxy_did_not_live_to_see_is_kept_when_the_agent_asks(tmp_path: Path) -> None:
    worker = Worker(looks=0)
    with Upstream(worker) as upstream, Proxy(tmp_path, upstream.url) as proxy:
        ask(proxy.client, "jobs", "a", input="work", background=True)
        proxy.kill()
        proxy.restart(command=CLI)
        assert ask(proxy.client, "jobs", "b", input="work", background=True).outcome == "replay"
        first, second = (poll(proxy.client, "jobs", "b", "resp_job") for _ in range(2))
        assert (first.body, second.body) == (worker.ended, worker.ended)
        assert (second.outcome, worker.posts, worker.gets) == ("replay", 1, 1)
        assert proxy.stop() == 0
        proxy.doctor()


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("v1/chat/completions", ("error", "message")),
        ("v1/responses", ("error", "message")),
        ("v1/messages", ("error", "message")),
        ("v1beta/models/gemini-2.5-flash:generateContent", ("error", "message")),
        ("v1beta/models/gemini-2.5-flash:countTokens", ("error", "message")),
        ("api/chat", ("error",)),
    ],
)
def test_bad_input_is_refused_in_the_words_of_its_wire_format(
    upstream: Upstream, client: Client, session: str, path: str, where: tuple[str, ...]
) -> None:
    refused = client.send("POST", f"/s/{session}/{path}", JSON, b"{not json")
    bad_id = client.send("POST", f"/s/{'x' * 300}/{path}", JSON, b"{}")
    for answer, word in ((refused, "JSON"), (bad_id, "256")):
        found: Any = json.loads(answer.body)
        assert answer.status == 400
        assert answer.headers.get("x-should-retry") == "false"
        if "messages" in path:
            assert (found["type"], found["error"]["type"]) == ("error", "invalid_request_error")
        if "models/" in path:
            assert (found["error"]["code"], found["error"]["status"]) == (400, "INVALID_ARGUMENT")
        for part in where:
            found = found[part]
        assert word in found
    assert not [seen for seen in upstream.requests if seen.method == "POST"]  # jobs are looked at meanwhile


def test_response_that_breaks_off_ends_as_the_one_that_has_begun(
    upstream: Upstream, client: Client, session: str
) -> None:
    created = json.loads(response("resp_cut", "", "in_progress", temperature=0.5))
    event = json.dumps({"type": "response.created", "sequence_number": 0, "response": created}).encode()
    upstream.replies(stream(b"event: response.created\ndata: " + event + b"\n\n"))
    answer = ask(client, session, "a", input="hi", stream=True)
    last = json.loads(answer.body.rstrip().rpartition(b"data: ")[2])
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert (last["response"]["id"], last["response"]["temperature"]) == ("resp_cut", 0.5)
    assert last["response"]["error"]["code"] in ("invalid_prompt", "server_error")


def test_job_that_failed_is_asked_anew_by_the_next_run(upstream: Upstream, client: Client, session: str) -> None:
    failed = response("resp_job", "", "failed", error={"code": "rate_limit_exceeded", "message": "too fast"})
    worker = Worker(looks=0, ended=failed)
    upstream.reset(worker)
    ask(client, session, "a", input="work", background=True)
    assert poll(client, session, "a", "resp_job").body == failed
    ask(client, session, "b", input="work", background=True)
    assert worker.posts == 2


def test_end_of_a_job_that_repeats_a_credential_is_kept_without_it(tmp_path: Path) -> None:
    secret = JSON["authorization"].partition(" ")[2]
    worker = Worker(looks=0, ended=response("resp_job", f"you sent {secret}"))
    with Upstream(worker) as upstream, Proxy(tmp_path, upstream.url) as proxy:
        ask(proxy.client, "jobs", "a", input="work", background=True)
        assert poll(proxy.client, "jobs", "a", "resp_job").body == worker.ended
        again = poll(proxy.client, "jobs", "a", "resp_job")
        assert again.outcome == "replay"
        assert secret.encode() not in again.body
        assert proxy.stop() == 0
        assert secret.encode() not in b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_end_of_a_job_that_repeats_a_credential_of_its_request_is_kept_by_nobody_who_cannot_know_it(
    tmp_path: Path,
) -> None:
    secret = "sk-test-tool-5f1e0c77"
    worker = Worker(looks=0, ended=response("resp_job", f"you sent {secret}"))
    tools = [{"type": "mcp", "server_label": "m", "server_url": "https://mcp.example", "authorization": secret}]
    with Upstream(worker) as upstream, Proxy(tmp_path, upstream.url) as proxy:
        ask(proxy.client, "jobs", "a", input="work", background=True, tools=tools)
        proxy.kill()
        proxy.restart(command=CLI)
        answers = [poll(proxy.client, "jobs", "b", "resp_job") for _ in range(2)]
        assert [(answer.body, answer.outcome) for answer in answers] == [(worker.ended, "live")] * 2
        assert proxy.stop() == 0
        proxy.doctor()
        assert secret.encode() not in b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_poll_whose_answer_is_larger_than_allowed_is_an_error_and_is_not_kept(tmp_path: Path) -> None:
    worker = Worker(looks=0, ended=response("resp_job", "x" * 20_000))
    settings = {"server.max_answer_bytes": 10_000, "replay.follow_jobs_s": 0}
    with Upstream(worker) as upstream, Proxy(tmp_path, upstream.url, settings=settings) as proxy:
        ask(proxy.client, "jobs", "a", input="work", background=True)
        large = poll(proxy.client, "jobs", "a", "resp_job")
        assert large.status >= 500
        assert "server.max_answer_bytes" in json.loads(large.body)["error"]["message"]
        worker.ended = response("resp_job", "short")
        assert poll(proxy.client, "jobs", "a", "resp_job").body == worker.ended
        assert poll(proxy.client, "jobs", "a", "resp_job").outcome == "replay"


def test_pointers_that_go_in_a_circle_get_the_providers_refusal(
    upstream: Upstream, client: Client, session: str
) -> None:
    upstream.replies(plain(response("resp_a", "one")), plain(response("resp_b", "two")))
    for text, before in (("first", "resp_b"), ("second", "resp_a")):
        assert ask(client, session, "a", input=text, previous_response_id=before).status == 200
    upstream.replies(plain(LOST, 404))
    answer = ask(client, session, "a", input="third", previous_response_id="resp_b")
    assert (answer.status, answer.body, upstream.calls) == (404, LOST, 3)


def test_conversation_that_held_credentials_is_not_sent_without_them(
    upstream: Upstream, client: Client, session: str
) -> None:
    remote = {"type": "mcp", "server_label": "m", "server_url": "https://mcp.example", "authorization": "sk-test-12345"}
    said = [{"role": "user", "content": "hi"}, {"type": "additional_tools", "tools": [remote]}]
    upstream.replies(plain(response("resp_1", "one")))
    assert ask(client, session, "a", input=said).status == 200
    upstream.replies(plain(LOST, 404))
    answer = ask(client, session, "a", input="second", previous_response_id="resp_1")
    assert (answer.status, answer.body, upstream.calls) == (404, LOST, 2)


def test_request_sent_whole_in_place_of_a_lost_pointer_has_its_own_credentials(
    upstream: Upstream, client: Client, session: str
) -> None:
    remote = {"type": "mcp", "server_label": "m", "server_url": "https://mcp.example", "authorization": "sk-test-12345"}
    upstream.replies(plain(response("resp_1", "one")))
    assert ask(client, session, "a", input="first", tools=[remote]).status == 200
    upstream.replies(plain(LOST, 404), plain(response("resp_2", "two")))
    assert ask(client, session, "a", input="second", tools=[remote], previous_response_id="resp_1").status == 200
    whole = upstream.requests[-1].json()
    assert whole["tools"] == [remote] and "previous_response_id" not in whole
