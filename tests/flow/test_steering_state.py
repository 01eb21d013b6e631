"""What a provider holds of a conversation is what the branch says, after edits, forks and going back: where it is not,
the transcript is sent whole, and no recorded answer that only names what was edited counts as one that still holds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.flow.test_retold import SEARCH, send
from tests.flow.test_retold_state import CONVERSATION, WIRE, Provider, bare, referring
from tests.support.client import Answer
from tests.support.proxy import Proxy
from tests.support.upstream import Upstream
from tests.support.wires import Message

_numbers = itertools.count()


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Proxy]:
    file = 'policies = []\n[tools]\nread = ["search"]\n'
    with Proxy(tmp_path_factory.mktemp("state"), upstream.url, file=file) as running:
        yield running
        assert "Traceback" not in running.log
        running.doctor()


@pytest.fixture
def provider(upstream: Upstream) -> Provider:
    found = Provider()
    upstream.reset(found)
    return found


@pytest.fixture
def session() -> str:
    return f"held-{next(_numbers)}"


def ask(proxy: Proxy, session: str, items: list[Message], run: str = "r1", **more: Any) -> Answer:
    return send(proxy, WIRE, session, WIRE.ask(items, **more), run)


def post(proxy: Proxy, session: str, verb: str, **body: Any) -> Any:
    return proxy.control.post(f"/api/sessions/{session}/{verb}", body)


def test_pointer_to_an_edited_answer_is_replaced_and_finds_no_answer_that_followed_the_old_one(
    proxy: Proxy, provider: Provider, session: str
) -> None:
    """The requests that go on are the same to the letter before and after the edit: they only name the answer."""
    provider.answers = [(text, ()) for text in ("One.", "Two.", "Three.", "New two.", "New three.")]

    def life(run: str) -> list[Answer]:
        answers = [ask(proxy, session, [WIRE.user("1")], run)]
        for text in ("2", "3"):
            answers.append(ask(proxy, session, [WIRE.user(text)], run, previous_response_id=answers[-1].json()["id"]))
        return answers

    first = life("r1")
    post(proxy, session, "steps/0/edit", text="Another one.")
    second = life("r2")
    assert [answer.outcome for answer in second] == ["edited", "live", "live"]
    assert second[0].json()["id"] == first[0].json()["id"]
    edited = [WIRE.user("1"), *second[0].json()["output"]]
    assert second[0].json()["output"][0]["content"][0]["text"] == "Another one."
    assert bare(provider.read[3]) == bare([*edited, WIRE.user("2")])
    assert bare(provider.read[4]) == bare([*edited, WIRE.user("2"), *second[1].json()["output"], WIRE.user("3")])
    third = life("r3")
    assert [answer.outcome for answer in third] == ["edited", "replay", "replay"]
    assert [answer.body for answer in third] == [answer.body for answer in second]
    assert len(provider.read) == 5
    old = proxy.control.get(f"/api/sessions/{session}/branches")[0]["id"]
    post(proxy, session, "rollback", branch=old)
    assert [answer.body for answer in life("r4")] == [answer.body for answer in first]
    assert len(provider.read) == 5


def test_results_of_an_edited_call_that_only_name_it_are_asked_anew(
    proxy: Proxy, provider: Provider, session: str
) -> None:
    provider.answers = [("", (SEARCH,)), ("Found it.", ()), ("Found the other.", ())]

    def life(run: str, result: str) -> Answer:
        answer = ask(proxy, session, [WIRE.user("look")], run)
        return ask(proxy, session, WIRE.results((SEARCH, result)), run, previous_response_id=answer.json()["id"])

    assert life("r1", "at 12:01:07").outcome == "live"
    post(proxy, session, "steps/0/edit", arguments={SEARCH.call_id: {"to": "kim"}})
    for run, result in (("r2", "at 12:01:07"), ("r3", "at 13:44:59")):
        fresh = life(run, result)
        assert (fresh.outcome, fresh.json()["output"][0]["content"][0]["text"]) == (
            "live" if run == "r2" else "replay", "Found the other.",
        )  # fmt: skip
    assert WIRE.called(provider.read[2]) == [(SEARCH.call_id, {"to": "kim"})]


def test_reference_to_an_item_of_an_edited_answer_is_replaced_and_finds_no_old_answer(
    proxy: Proxy, provider: Provider, session: str
) -> None:
    provider.answers = [("One.", ()), ("Two.", ()), ("New two.", ())]
    first = ask(proxy, session, [WIRE.user("1")])
    ask(proxy, session, [WIRE.user("1"), *referring(first), WIRE.user("2")])
    post(proxy, session, "steps/0/edit", text="Another one.")
    given = ask(proxy, session, [WIRE.user("1")], "r2")
    onward = ask(proxy, session, [WIRE.user("1"), *referring(given), WIRE.user("2")], "r2")
    assert (onward.outcome, onward.json()["output"][0]["content"][0]["text"]) == ("live", "New two.")
    assert "Another one." in json.dumps(provider.read[2])
    assert not any(item.get("type") == "item_reference" for item in provider.read[2])


def test_conversation_behind_an_edit_is_sent_whole_and_finds_no_old_answer(
    proxy: Proxy, provider: Provider, session: str
) -> None:
    provider.answers = [(text, ()) for text in ("Zero.", "One.", "Two.", "New two.")]
    here = {"conversation": CONVERSATION}

    def life(run: str) -> list[Answer]:
        return [ask(proxy, session, [WIRE.user(text)], run, **here) for text in ("0", "1", "2")]

    life("r1")
    post(proxy, session, "steps/1/edit", text="Another one.")
    second = life("r2")
    assert [answer.outcome for answer in second] == ["replay", "edited", "live"]
    assert "conversation" not in provider.bodies[3]
    branch = [WIRE.user("0"), *second[0].json()["output"], WIRE.user("1"), *second[1].json()["output"], WIRE.user("2")]
    assert bare(provider.read[3]) == bare(branch)
    assert [answer.outcome for answer in life("r3")] == ["replay", "edited", "replay"]
    assert len(provider.conversations[CONVERSATION]) == 6


def test_fork_of_unedited_answers_keeps_their_pointers(proxy: Proxy, provider: Provider, session: str) -> None:
    provider.answers = [("One.", ()), ("Two.", ()), ("Other two.", ())]
    first = ask(proxy, session, [WIRE.user("1")])
    ask(proxy, session, [WIRE.user("2")], previous_response_id=first.json()["id"])
    name = post(proxy, session, "fork", step_number=1)["session"]["id"]
    assert ask(proxy, name, [WIRE.user("1")]).outcome == "replay"
    fresh = ask(proxy, name, [WIRE.user("2")], previous_response_id=first.json()["id"])
    assert fresh.outcome == "live"
    assert provider.bodies[2]["previous_response_id"] == first.json()["id"]


def test_fork_of_an_edited_answer_has_the_edit_sent_whole(proxy: Proxy, provider: Provider, session: str) -> None:
    provider.answers = [("One.", ()), ("Other two.", ())]
    first = ask(proxy, session, [WIRE.user("1")])
    post(proxy, session, "steps/0/edit", text="Another one.")
    name = post(proxy, session, "fork", step_number=1)["session"]["id"]
    given = ask(proxy, name, [WIRE.user("1")])
    assert given.outcome == "edited"
    ask(proxy, name, [WIRE.user("2")], previous_response_id=first.json()["id"])
    assert bare(provider.read[1]) == bare([WIRE.user("1"), *given.json()["output"], WIRE.user("2")])


def test_fork_never_writes_into_a_conversation_and_does_not_read_what_its_source_said_since(
    proxy: Proxy, provider: Provider, session: str
) -> None:
    provider.answers = [(text, ()) for text in ("One.", "Two.", "Fork's two.", "Fork's three.", "Three.")]
    here = {"conversation": CONVERSATION}
    one = ask(proxy, session, [WIRE.user("1")], **here)
    ask(proxy, session, [WIRE.user("2")], **here)
    name = post(proxy, session, "fork", step_number=1)["session"]["id"]
    assert ask(proxy, name, [WIRE.user("1")], **here).body == one.body
    two = ask(proxy, name, [WIRE.user("other 2")], **here)
    ask(proxy, name, [WIRE.user("3")], **here)
    branch = [WIRE.user("1"), *one.json()["output"], WIRE.user("other 2")]
    assert bare(provider.read[2]) == bare(branch)
    assert bare(provider.read[3]) == bare([*branch, *two.json()["output"], WIRE.user("3")])
    assert len(provider.conversations[CONVERSATION]) == 4
    ask(proxy, session, [WIRE.user("3")], **here)
    assert provider.bodies[4]["conversation"] == CONVERSATION


def test_fork_at_the_end_of_a_conversation_does_not_write_into_it_either(
    proxy: Proxy, provider: Provider, session: str
) -> None:
    """Nothing in it is another than what the fork was given: it is its source's all the same."""
    provider.answers = [(text, ()) for text in ("One.", "Fork's two.", "Two.")]
    here = {"conversation": CONVERSATION}
    one = ask(proxy, session, [WIRE.user("1")], **here)
    name = post(proxy, session, "fork", step_number=1)["session"]["id"]
    ask(proxy, name, [WIRE.user("1")], **here)
    ask(proxy, name, [WIRE.user("other 2")], **here)
    assert "conversation" not in provider.bodies[1]
    assert bare(provider.read[1]) == bare([WIRE.user("1"), *one.json()["output"], WIRE.user("other 2")])
    ask(proxy, session, [WIRE.user("2")], **here)
    assert bare(provider.read[2]) == bare([WIRE.user("1"), *one.json()["output"], WIRE.user("2")])


def test_edited_answer_is_not_looked_up_as_its_provider_keeps_it(
    proxy: Proxy, provider: Provider, session: str
) -> None:
    provider.answers = [("One.", ())]
    first = ask(proxy, session, [WIRE.user("1")])
    post(proxy, session, "steps/0/edit", text="Another one.")
    name = post(proxy, session, "fork", step_number=1)["session"]["id"]
    for key in (session, name):
        found = proxy.client.send("GET", f"/s/{key}/v1/responses/{first.json()['id']}")
        assert (found.status, found.error["code"]) == (400, "approval_unavailable")
