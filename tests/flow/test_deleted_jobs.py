"""A job that was deleted at its provider: no poll of it is answered but that of a run that lives through it again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.flow.test_held_state import JSON, LOST, ask, poll, response
from tests.support.client import Answer, Client
from tests.support.proxy import CLI, Proxy
from tests.support.upstream import BOUND_S, Reply, Seen, Upstream, plain

pytestmark = pytest.mark.usefixtures("no_traceback")
DELETED = b'{"id":"resp_job","object":"response","deleted":true}'


@pytest.fixture
def client(proxy: Proxy) -> Client:
    return proxy.client


class Keeper:
    """A provider that ends every job at once, and forgets those that are deleted or, where told to, refuses to."""

    def __init__(self, status: str = "completed", refusal: int = 0) -> None:
        self.status = status
        self.refusal = refusal
        self.gone: set[str] = set()
        self.begun = 0
        self.asked: list[tuple[str, str]] = []

    def __call__(self, seen: Seen) -> Reply:
        name = seen.target.partition("?")[0].rpartition("/")[2]
        self.asked.append((seen.method, name))
        if seen.method == "POST" and name == "responses":
            self.begun += 1
            return plain(response("resp_job" if self.begun == 1 else f"resp_{self.begun}", "", "queued"))
        if seen.method == "POST":
            self.status = "cancelled"
            return plain(response(seen.target.split("/")[-2], "", "cancelled"))
        if name in self.gone:
            return plain(LOST, 404)
        if seen.method == "DELETE":
            if self.refusal:
                return plain(b'{"error":{"message":"later","type":"server_error"}}', self.refusal)
            self.gone.add(name)
            return plain(DELETED)
        return plain(response(name, "done" if self.status == "completed" else "", self.status))


def delete(client: Client, session: str, run: str, name: str = "resp_job") -> Answer:
    return client.send("DELETE", f"/s/{session}/r/{run}/v1/responses/{name}", JSON)


def work(client: Client, session: str, run: str) -> list[Answer]:
    """Begin a job and poll it twice; the second answer is the journal's."""
    ask(client, session, run, input="work", background=True)
    return [poll(client, session, run, "resp_job") for _ in range(2)]


def test_poll_of_a_deleted_job_goes_to_the_provider_whose_answer_comes_back(
    upstream: Upstream, client: Client, session: str
) -> None:
    upstream.reset(Keeper())
    assert work(client, session, "a")[1].outcome == "replay"
    gone = delete(client, session, "a")
    assert (gone.status, gone.body) == (200, DELETED)
    calls = upstream.calls
    polls = [poll(client, session, "a", "resp_job") for _ in range(2)]
    assert [(answer.status, answer.body, answer.outcome) for answer in polls] == [(404, LOST, "live")] * 2
    assert upstream.calls == calls + 2


def test_restarted_run_is_told_the_end_until_it_comes_to_its_own_deletion(
    upstream: Upstream, client: Client, session: str
) -> None:
    keeper = Keeper()
    upstream.reset(keeper)
    before = work(client, session, "a")
    delete(client, session, "a")
    for run in ("b", "c"):
        again = work(client, session, run)
        assert [answer.outcome for answer in again] == ["replay"] * 2
        assert {answer.body for answer in again} == {before[0].body}
        assert delete(client, session, run).status == 404  # the provider's own word
        assert (poll(client, session, run, "resp_job").status, keeper.begun) == (404, 1)


def test_run_that_lived_beside_the_deletion_or_never_began_the_job_is_told_what_the_provider_says(
    upstream: Upstream, client: Client, session: str
) -> None:
    upstream.reset(Keeper())
    work(client, session, "a")
    work(client, session, "b")  # began before the job is deleted
    delete(client, session, "a")
    assert poll(client, session, "b", "resp_job").status == 404
    assert poll(client, session, "unheard-of", "resp_job").status == 404
    ask(client, session, "c", input="other", background=True)
    assert poll(client, session, "c", "resp_job").status == 404


def test_run_without_a_name_is_known_by_its_session(upstream: Upstream, client: Client, session: str) -> None:
    upstream.reset(Keeper())
    body = json.dumps({"model": "gpt-5", "input": "work", "background": True}).encode()
    base = f"/s/{session}/v1/responses"
    with client.connect() as connection:
        client.send("POST", base, JSON, body, on=connection)
        target = f"{base}/resp_job"
        outcomes = [client.send("GET", target, JSON, on=connection).outcome for _ in range(2)]
        client.send("DELETE", f"{target}?reason=done", JSON, on=connection)
        gone = client.send("GET", target, JSON, on=connection)
    assert (outcomes, gone.status, gone.outcome) == (["live", "replay"], 404, "live")


@pytest.mark.parametrize("status", [400, 401, 500])
def test_deletion_that_the_provider_refuses_changes_nothing(
    upstream: Upstream, client: Client, session: str, status: int
) -> None:
    upstream.reset(Keeper(refusal=status))
    done = work(client, session, "a")
    assert delete(client, session, "a").status == status
    again = poll(client, session, "a", "resp_job")
    assert (again.outcome, again.body) == ("replay", done[1].body)


def test_deleted_job_is_not_followed_any_more(tmp_path: Path) -> None:
    keeper = Keeper("in_progress")
    with Upstream(keeper) as upstream, Proxy(tmp_path, upstream.url) as proxy:
        ask(proxy.client, "jobs", "a", input="work", background=True)
        assert delete(proxy.client, "jobs", "a").status == 200
        # A second job tells the time: it is looked at for the first time after the first one would have been.
        ask(proxy.client, "jobs", "a", input="more work", background=True)
        upstream.wait_calls(4, BOUND_S)
        assert keeper.asked[3:] == [("GET", "resp_2")]


def test_cancelled_job_ends_as_its_provider_says(upstream: Upstream, client: Client, session: str) -> None:
    upstream.reset(Keeper("in_progress"))
    ask(client, session, "a", input="work", background=True)
    assert json.loads(poll(client, session, "a", "resp_job").body)["status"] == "in_progress"
    cancelled = client.send("POST", f"/s/{session}/r/a/v1/responses/resp_job/cancel", JSON)
    assert json.loads(cancelled.body)["status"] == "cancelled"
    ends = [poll(client, session, "a", "resp_job") for _ in range(2)]
    assert [json.loads(answer.body)["status"] for answer in ends] == ["cancelled"] * 2
    assert ends[1].outcome == "replay"


def test_deletion_outlives_the_proxy(tmp_path: Path) -> None:
    with Upstream(Keeper()) as upstream, Proxy(tmp_path, upstream.url) as proxy:
        work(proxy.client, "jobs", "a")
        assert delete(proxy.client, "jobs", "a").status == 200
        proxy.kill()
        proxy.restart(command=CLI)
        assert poll(proxy.client, "jobs", "a", "resp_job").status == 404
        again = work(proxy.client, "jobs", "b")
        assert [answer.outcome for answer in again] == ["replay"] * 2
        delete(proxy.client, "jobs", "b")
        proxy.restart(command=CLI)
        assert poll(proxy.client, "jobs", "b", "resp_job").status == 404
        assert proxy.stop() == 0
        proxy.doctor()


def test_answer_that_is_no_job_is_deleted_without_a_trace(upstream: Upstream, client: Client, session: str) -> None:
    upstream.replies(plain(response("resp_1", "one")), plain(DELETED), plain(LOST, 404))
    ask(client, session, "a", input="hi")
    assert delete(client, session, "a", "resp_1").status == 200
    assert poll(client, session, "a", "resp_1").status == 404
    assert ask(client, session, "b", input="hi").outcome == "replay"
