"""What a provider holds of a conversation is what the branch was given: where it is not, the transcript is sent whole.
The provider here keeps answers and conversations as the real one does, and what it thus reads is compared."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.flow.test_retold import CONTINUE, MAIL, OTHER, SEARCH, decided, send
from tests.support.client import Answer
from tests.support.people import Asking, decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Reply, Seen, Upstream, plain
from tests.support.wires import Calling, Message, Responses

_numbers = itertools.count()
WIRE = Responses()
POLICIES = CONTINUE + '\n[[policies]]\ntools = ["search"]\non_reject = "message"'
CONVERSATION = "conv_1"


class Provider:
    """Answers with what is next in ``answers``, and keeps what it read of each. ``before``: what conversations hold."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, tuple[Calling, ...]]] = []
        self.read: list[list[Message]] = []
        self.bodies: list[dict[str, Any]] = []
        self._responses: dict[str, list[Message]] = {}
        self.conversations: dict[str, list[Message]] = {}
        self.items_status = 200

    def __call__(self, seen: Seen) -> Reply:
        if seen.method == "GET":
            return self._items(seen)
        body = json.loads(seen.body)
        self.bodies.append(body)
        given = body["input"] if isinstance(body["input"], list) else [WIRE.user(body["input"])]
        named = body.get("conversation")
        named = named["id"] if isinstance(named, dict) else named
        held = self.conversations.setdefault(named, []) if named else None
        known = held if held is not None else self._responses.get(body.get("previous_response_id", ""), [])
        self.read.append([*known, *given])
        name = f"resp_{len(self.read)}"
        text, calls = self.answers.pop(0)
        answer = WIRE.answer(text, *calls, name=name)
        outputs = json.loads(answer)["output"]
        self._responses[name] = [*known, *given, *outputs]
        if held is not None:
            held += [{"id": f"msg_in_{len(self.read)}_{at}", **item} for at, item in enumerate(given)] + outputs
        return plain(answer)

    def _items(self, seen: Seen) -> Reply:
        name = seen.target.split("/conversations/")[1].split("/")[0]
        after = seen.target.partition("after=")[2]
        held = self.conversations.get(name, [])
        start = next((at + 1 for at, item in enumerate(held) if item["id"] == after), 0)
        page = {"object": "list", "data": held[start : start + 2], "has_more": len(held) > start + 2}
        return plain(json.dumps(page).encode(), self.items_status)


def bare(items: list[Message]) -> list[Message]:
    return [{name: value for name, value in item.items() if name not in ("id", "status")} for item in items]


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Proxy]:
    with Proxy(tmp_path_factory.mktemp("state"), upstream.url, file=POLICIES) as running:
        yield running
        assert "Traceback" not in running.log


@pytest.fixture
def provider(upstream: Upstream) -> Provider:
    found = Provider()
    upstream.reset(found)
    return found


@pytest.fixture
def session() -> str:
    return f"state-{next(_numbers)}"


def ask(proxy: Proxy, session: str, items: list[Message], run: str = "r1", **more: Any) -> Answer:
    return send(proxy, WIRE, session, WIRE.ask(items, **more), run)


def held(proxy: Proxy, session: str, items: list[Message], decision: dict[str, Any], **more: Any) -> Answer:
    return decided(proxy, WIRE, session, WIRE.ask(items, **more), decision)


EDIT = {"action": "EDITED", "arguments": {"to": "kim@example.com"}}


def test_pointer_behind_a_refused_round_reads_the_round(proxy: Proxy, provider: Provider, session: str) -> None:
    provider.answers = [("", (MAIL,)), ("I shall phone.", ()), ("Bye.", ())]
    first = held(proxy, session, [WIRE.user("write")], {"action": "REJECTED", "reason": "no"})
    ask(proxy, session, [WIRE.user("and now?")], previous_response_id=first.json()["id"])
    read = provider.read[2]
    assert WIRE.called(read) == [("call_a", MAIL.arguments)]
    assert bare(read[:3]) == bare(provider.read[1])
    assert bare(read[3:]) == bare([*first.json()["output"], WIRE.user("and now?")])


def test_pointer_behind_a_refused_call_beside_others_reads_all_calls_and_results(
    proxy: Proxy, provider: Provider, session: str
) -> None:
    provider.answers = [("", (MAIL, OTHER)), ("Done.", ()), ("Bye.", ())]
    first = decided(
        proxy, WIRE, session, WIRE.ask([WIRE.user("write")]), {"action": "REJECTED", "reason": "no"},
        {"action": "APPROVED"},
    )  # fmt: skip
    second = ask(proxy, session, WIRE.results((OTHER, "sent")), previous_response_id=first.json()["id"])
    ask(proxy, session, [WIRE.user("and now?")], previous_response_id=second.json()["id"])
    for read in provider.read[1:]:
        assert [call_id for call_id, _ in WIRE.called(read)] == ["call_a", "call_c"]
        assert [call_id for call_id, _ in WIRE.told(read)] == ["call_a", "call_c"]
    assert bare(provider.read[2]) == bare([*provider.read[1], *second.json()["output"], WIRE.user("and now?")])


def test_pointer_behind_an_edited_call_reads_it_as_edited_with_a_note(
    proxy: Proxy, provider: Provider, session: str
) -> None:
    provider.answers = [("", (MAIL,)), ("Done.", ()), ("Bye.", ())]
    first = held(proxy, session, [WIRE.user("write")], EDIT)
    second = ask(proxy, session, WIRE.results((MAIL, "sent")), previous_response_id=first.json()["id"])
    ask(proxy, session, [WIRE.user("and now?")], previous_response_id=second.json()["id"])
    for read in provider.read[1:]:
        assert WIRE.called(read) == [("call_a", EDIT["arguments"])]
        assert "admin changed the arguments" in WIRE.told(read)[0][1]


@pytest.mark.parametrize("before", [0, 3])
def test_conversation_behind_an_edit_is_sent_whole_without_its_name(
    proxy: Proxy, provider: Provider, session: str, before: int
) -> None:
    old = [{"id": f"msg_old_{at}", "type": "message", **WIRE.user(f"old {at}")} for at in range(before)]
    provider.conversations[CONVERSATION] = list(old)
    provider.answers = [("Hello.", ()), ("", (MAIL,)), ("Done.", ()), ("Bye.", ())]
    here = {"conversation": {"id": CONVERSATION}}
    hello = ask(proxy, session, [WIRE.user("hi")], **here)
    first = held(proxy, session, [WIRE.user("write")], EDIT, **here)
    second = ask(proxy, session, WIRE.results((MAIL, "sent")), **here)
    ask(proxy, session, [WIRE.user("and now?")], **here)
    assert [body.get("conversation") for body in provider.bodies] == [here["conversation"]] * 2 + [None] * 2
    [result] = WIRE.results((MAIL, WIRE.told(provider.read[2])[0][1]))
    assert "admin changed the arguments" in result["output"]
    branch = [*old, WIRE.user("hi"), *hello.json()["output"], WIRE.user("write"), *first.json()["output"], result]
    assert bare(provider.read[2]) == bare(branch)
    assert bare(provider.read[3]) == bare([*branch, *second.json()["output"], WIRE.user("and now?")])
    again = [
        ask(proxy, session, [WIRE.user("hi")], "r2", **here), ask(proxy, session, [WIRE.user("write")], "r2", **here),
        ask(proxy, session, WIRE.results((MAIL, "sent")), "r2", **here),
    ]  # fmt: skip
    assert [one.body.strip() for one in again] == [one.body.strip() for one in (hello, first, second)]
    assert len(provider.read) == 4


def test_conversation_behind_a_refusal_told_by_text_is_sent_whole(
    proxy: Proxy, provider: Provider, session: str
) -> None:
    provider.answers = [("", (SEARCH,)), ("Bye.", ())]
    first = held(proxy, session, [WIRE.user("look")], {"action": "REJECTED"}, conversation=CONVERSATION)
    ask(proxy, session, [WIRE.user("and now?")], conversation=CONVERSATION)
    assert "conversation" not in provider.bodies[1]
    assert bare(provider.read[1]) == bare([WIRE.user("look"), *first.json()["output"], WIRE.user("and now?")])
    assert "was refused by admin" in json.dumps(provider.read[1])


def test_conversation_behind_a_refused_round_keeps_its_name_and_holds_the_round(
    proxy: Proxy, provider: Provider, session: str
) -> None:
    provider.answers = [("", (MAIL,)), ("I shall phone.", ()), ("Bye.", ())]
    first = held(
        proxy, session, [WIRE.user("write")], {"action": "REJECTED", "reason": "no"}, conversation=CONVERSATION
    )
    ask(proxy, session, [WIRE.user("and now?")], conversation=CONVERSATION)
    assert [body["conversation"] for body in provider.bodies] == [CONVERSATION] * 3
    assert WIRE.called(provider.read[2]) == [("call_a", MAIL.arguments)]
    assert bare(provider.read[2][-2:]) == bare([*first.json()["output"], WIRE.user("and now?")])


def test_conversation_that_was_rolled_back_is_sent_as_the_branch_has_it(
    proxy: Proxy, provider: Provider, session: str
) -> None:
    provider.answers = [("One.", ()), ("Two.", ()), ("Another two.", ()), ("Bye.", ())]
    here = {"conversation": CONVERSATION}
    one = ask(proxy, session, [WIRE.user("1")], **here)
    ask(proxy, session, [WIRE.user("2")], **here)
    proxy.control.post(f"/api/sessions/{session}/reset", {"step_number": 1})
    assert ask(proxy, session, [WIRE.user("1")], "r2", **here).body == one.body
    two = ask(proxy, session, [WIRE.user("other 2")], "r2", **here)
    ask(proxy, session, [WIRE.user("3")], "r2", **here)
    branch = [WIRE.user("1"), *one.json()["output"], WIRE.user("other 2")]
    assert bare(provider.read[2]) == bare(branch)
    assert bare(provider.read[3]) == bare([*branch, *two.json()["output"], WIRE.user("3")])
    assert len(provider.conversations[CONVERSATION]) == 4  # a branch that was made later writes into none


def test_conversation_that_was_not_touched_is_sent_by_its_name_and_not_looked_at(
    proxy: Proxy, upstream: Upstream, provider: Provider, session: str
) -> None:
    provider.answers = [("", (MAIL,)), ("Done.", ())]
    held(proxy, session, [WIRE.user("write")], {"action": "APPROVED"}, conversation=CONVERSATION)
    body = WIRE.ask(WIRE.results((MAIL, "sent")), conversation=CONVERSATION)
    send(proxy, WIRE, session, body)
    assert [seen.method for seen in upstream.requests] == ["POST", "POST"]
    assert upstream.requests[1].body == body


@pytest.mark.parametrize("why", ["more", "unseen"])
def test_conversation_of_which_the_journal_does_not_know_all_is_refused_clearly_and_not_sent(
    proxy: Proxy, provider: Provider, session: str, why: str
) -> None:
    provider.answers = [("", (MAIL,)), ("Done.", ())]
    held(proxy, session, [WIRE.user("write")], EDIT, conversation=CONVERSATION)
    if why == "more":
        provider.conversations[CONVERSATION].append({"id": "msg_x", "type": "message", **WIRE.user("psst")})
    else:
        provider.items_status = 404
    headers = {"content-type": "application/json"}
    body = WIRE.ask(WIRE.results((MAIL, "sent")), conversation=CONVERSATION)
    found = proxy.client.send("POST", f"/s/{session}/r/r1/v1/responses", headers, body)
    assert found.status == 400
    assert found.error["code"] == "approval_unavailable"
    assert found.headers.get("x-should-retry") == "false"
    assert "cannot be known" in found.body.decode()
    assert len(provider.read) == 1


def test_restarted_proxy_tells_the_model_the_same(tmp_path: Path, upstream: Upstream, provider: Provider) -> None:
    provider.answers = [("", (MAIL,)), ("I shall phone.", ()), ("", (OTHER,)), ("Bye.", ())]
    with Proxy(tmp_path, upstream.url, file=POLICIES) as proxy:
        history = [WIRE.user("write")]
        first = held(proxy, "s", history, {"action": "REJECTED", "reason": "no"})
        history += [*first.json()["output"], WIRE.user("to Kim then")]
        second = held(proxy, "s", history, EDIT)
        proxy.kill()
        proxy.start()
        history += [*second.json()["output"], *WIRE.results((OTHER, "sent"))]
        ask(proxy, "s", history)
    read = provider.read[3]
    assert [call_id for call_id, _ in WIRE.called(read)] == ["call_a", "call_c"]
    assert ["no" in text or "changed the arguments" in text for _, text in WIRE.told(read)] == [True, True]
    assert bare(read[:-1]) == bare([*provider.read[2], *second.json()["output"]])


def test_a_decision_is_made_about_the_second_proposal_of_a_refused_round_too(
    proxy: Proxy, provider: Provider, session: str
) -> None:
    provider.answers = [("", (MAIL,)), ("", (OTHER,)), ("", (SEARCH,)), ("Bye.", ())]
    history = [WIRE.user("write")]
    body = WIRE.ask(history)
    asking = Asking(lambda: send(proxy, WIRE, session, body))
    for decision in ({"action": "REJECTED", "reason": "no"}, {"action": "REJECTED", "reason": "nor Kim"}, EDIT):
        decide(proxy, pending(proxy, 1, session)[0], **decision)
    answer = asking.answer()
    history += [*WIRE.said(answer.body.strip()), *WIRE.results((SEARCH, "found"))]
    ask(proxy, session, history)
    read = provider.read[3]
    assert [call_id for call_id, _ in WIRE.called(read)] == ["call_a", "call_c", "call_b"]
    assert [call_id for call_id, _ in WIRE.told(read)] == ["call_a", "call_c", "call_b"]
    assert bare(read[: len(provider.read[2])]) == bare(provider.read[2])
    assert "changed the arguments" in WIRE.told(read)[2][1]


def referring(answer: Answer) -> list[Message]:
    """What a client sends back that leaves its provider's items with the provider."""
    return [{"type": "item_reference", "id": item["id"]} for item in answer.json()["output"]]


def test_reference_to_an_edited_call_is_replaced_by_the_call_as_it_was_given(
    proxy: Proxy, provider: Provider, session: str
) -> None:
    provider.answers = [("", (MAIL, SEARCH)), ("Done.", ())]
    history = [WIRE.user("write")]
    first = decided(proxy, WIRE, session, WIRE.ask(history), EDIT, {"action": "APPROVED"})
    ask(proxy, session, [*history, *referring(first), *WIRE.results((MAIL, "sent"), (SEARCH, "found"))])
    read = provider.read[1]
    assert [item.get("type", "user") for item in read] == [
        "user",
        *["function_call"] * 2,
        *["function_call_output"] * 2,
    ]
    assert WIRE.called(read)[0] == ("call_a", EDIT["arguments"])
    assert ["changed the arguments" in text for _, text in WIRE.told(read)] == [True, False]
    assert not any("id" in item for item in read)


def test_reference_to_a_text_that_stands_for_a_refused_call_is_replaced_by_the_text(
    proxy: Proxy, provider: Provider, session: str
) -> None:
    provider.answers = [("", (SEARCH,)), ("Bye.", ())]
    history = [WIRE.user("look")]
    first = held(proxy, session, history, {"action": "REJECTED", "reason": "no"})
    ask(proxy, session, [*history, *referring(first), WIRE.user("and now?")])
    assert bare(provider.read[1]) == bare([*history, *first.json()["output"], WIRE.user("and now?")])


def test_refused_round_stands_before_an_answer_that_is_only_referred_to(
    proxy: Proxy, provider: Provider, session: str
) -> None:
    provider.answers = [("", (MAIL,)), ("I shall phone.", ()), ("Bye.", ())]
    history = [WIRE.user("write")]
    first = held(proxy, session, history, {"action": "REJECTED", "reason": "no"})
    rest = [*referring(first), WIRE.user("and now?")]
    ask(proxy, session, [*history, *rest])
    assert provider.read[2] == [*provider.read[1], *rest]


def test_answer_to_a_refusal_that_was_edited_has_the_round_before_it_for_the_model(
    proxy: Proxy, provider: Provider, session: str
) -> None:
    provider.answers = [("", (MAIL,)), ("I shall phone.", ()), ("Bye.", ())]
    history = [WIRE.user("write")]
    held(proxy, session, history, {"action": "REJECTED", "reason": "no"})
    proxy.control.post(f"/api/sessions/{session}/steps/1/edit", {"text": "I shall write a letter."})
    given = ask(proxy, session, history, "r2")
    assert (given.outcome, "letter" in given.body.decode()) == ("edited", True)
    ask(proxy, session, [*history, *WIRE.said(given.body.strip()), WIRE.user("and now?")], "r2")
    read = provider.read[2]
    assert WIRE.called(read) == [("call_a", MAIL.arguments)]
    assert bare(read[: len(provider.read[1])]) == bare(provider.read[1])
    assert "letter" in json.dumps(read) and "phone" not in json.dumps(read)
