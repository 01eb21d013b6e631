"""Messages reach their targets at least once, in order, under one id, and no target waits for another.

Receivers are real, on loopback; time is a clock that the test moves.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from slack_sdk.models.blocks import Block
from standardwebhooks import Webhook

from agentstate import clock, settings
from agentstate.core import fingerprint
from agentstate.core.approval import Decision, Vote
from agentstate.core.delivery import MOST_ATTEMPTS
from agentstate.core.model import SessionStatus
from agentstate.dialects.openai_chat import OpenAIChat
from agentstate.engine import sender
from agentstate.engine.core import Parts
from agentstate.engine.sessions import Sessions
from agentstate.errors import Conflict, NotFound
from agentstate.store import writer
from agentstate.store.rows import NewApproval, NewRunRow, NewStep, OutboxRow
from tests.support.upstream import Gate, Hang, Reply, Rst, Seen, Upstream, plain

BOUND_S = 20.0
KEY = "whsec_" + base64.b64encode(b"test key of thirty-two bytes ...").decode()
TAKEN = plain(b"ok", content_type="text/plain")
BODY = json.dumps({"model": "gpt-test", "messages": [{"role": "user", "content": "a secret prompt"}]}).encode()


class Time:
    """A clock that stands until it is moved; chance is always ``chance``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = clock.now()
        self.chance = 0.5
        monkeypatch.setattr(clock, "now", lambda: self.now)
        monkeypatch.setattr(clock, "jitter", lambda: self.chance)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


@pytest.fixture
def receiver() -> Iterator[Upstream]:
    with Upstream(lambda seen: TAKEN) as running:
        yield running


@pytest.fixture
def other() -> Iterator[Upstream]:
    with Upstream(lambda seen: TAKEN) as running:
        yield running


async def until(holds: Callable[[], Any]) -> Any:
    """Wait, bounded, until something holds; what it is."""
    async with asyncio.timeout(BOUND_S):
        while not (found := holds()):
            await asyncio.sleep(0.002)
    return found


class Place:
    """The parts of a proxy with these targets; what happens in it, and what its outbox says."""

    def __init__(self, folder: Path, *alerts: dict[str, Any], **approvals: Any) -> None:
        flags = {
            "simulate": {"enabled": True}, "store": {"url": f"sqlite:///{folder}/journal.db"}, "alerts": list(alerts),
            "approvals": approvals,
        }  # fmt: skip
        self.parts = Parts(settings.load(flags=flags, environ={}))

    async def tell(self, session: str = "s", **facts: Any) -> None:
        """Something happens that people are told of."""
        journal = self.parts.journal
        row = journal.read.session(session) or await journal.open_session(session)
        told = self.parts.outbox.messages("session.failed", session, session, facts)
        was = SessionStatus.FAILED if row.status is SessionStatus.RUNNING else SessionStatus.RUNNING
        await journal.set_status(row.id, was, told=told)

    def rows(self, target: str = "") -> list[OutboxRow]:
        """Oldest first."""
        return [row for row in self.parts.journal.read.messages()[::-1] if not target or row.target == target]

    def states(self, target: str = "") -> list[str]:
        return [row.state for row in self.rows(target)]

    def row(self) -> OutboxRow:
        [found] = self.rows()
        return found


@contextlib.asynccontextmanager
async def serving(folder: Path, *alerts: dict[str, Any], **approvals: Any) -> AsyncIterator[Place]:
    place = Place(folder, *alerts, **approvals)
    place.parts.open()
    place.parts.delivery.start("http://127.0.0.1:8080")
    try:
        yield place
    finally:
        await place.parts.close()


def hook(at: Upstream, **more: Any) -> dict[str, Any]:
    return {"kind": "webhook", "url": f"{at.url}/in/s3cret-path", "name": "ops", "secret": KEY, **more}


def script(*replies: Reply) -> Callable[[Seen], Reply]:
    """One reply after the other, then everything is taken."""
    left = list(replies)
    return lambda seen: left.pop(0) if left else TAKEN


def ids(at: Upstream) -> list[str]:
    return [str(seen.headers.get("webhook-id")) for seen in at.requests]


# --- what is sent ---


async def test_a_message_is_sent_signed_to_the_very_address_and_marked_delivered(
    tmp_path: Path, receiver: Upstream
) -> None:
    async with serving(tmp_path, hook(receiver)) as place:
        await place.tell(run="r", exit_code=3)
        await until(lambda: place.states() == ["delivered"])
        [seen] = receiver.requests
        assert (seen.method, seen.target) == ("POST", "/v1/in/s3cret-path")
        found = Webhook(KEY).verify(seen.body, {name: value for name, value in seen.headers})
        assert (found["type"], found["data"]["exit_code"]) == ("session.failed", 3)
        assert ids(receiver) == [place.row().alert]


async def test_slack_and_discord_get_what_they_take(tmp_path: Path, receiver: Upstream, other: Upstream) -> None:
    slack = {"kind": "slack", "url": f"{receiver.url}/T/B"}
    discord = {"kind": "discord", "url": f"{other.url}/api/webhooks/1/t?wait=true"}
    async with serving(tmp_path, slack, discord, public_url="https://proxy.example.test") as place:
        await place.tell()
        await until(lambda: place.states() == ["delivered", "delivered"])
        for block in json.loads(receiver.requests[0].body)["blocks"]:
            Block.parse(block).validate_json()
        assert other.requests[0].target == "/v1/api/webhooks/1/t?wait=true"
        assert json.loads(other.requests[0].body)["embeds"][0]["title"] == "Session failed: s"


async def test_only_those_who_want_an_event_hear_of_it(tmp_path: Path, receiver: Upstream, other: Upstream) -> None:
    ignoring = {"kind": "webhook", "url": other.url, "on": ["provider.down"]}
    async with serving(tmp_path, hook(receiver), ignoring) as place:
        await place.tell()
        await until(lambda: place.states() == ["delivered"])
        assert other.calls == 0


# --- failures ---


async def test_a_fault_that_passes_is_tried_again_later_under_the_same_id(
    tmp_path: Path, receiver: Upstream, time: Time
) -> None:
    receiver.script = script(plain(b"down", 500), plain(b"down", 503))
    async with serving(tmp_path, hook(receiver)) as place:
        await place.tell()
        await until(lambda: place.row().error)
        assert (place.row().attempts, place.row().next_at) == (1, time.now + 5)
        assert place.row().error == "http://127.0.0.1 answered 500: down"
        time.now += 4.9
        place.parts.delivery.wake()
        time.now += 0.2
        place.parts.delivery.wake()
        await until(lambda: place.row().next_at == time.now + 10)
        time.now += 10
        place.parts.delivery.wake()
        await until(lambda: place.states() == ["delivered"])
        assert ids(receiver) == [place.row().alert] * 3 and place.row().error == ""


async def test_a_message_that_is_not_due_yet_is_not_sent(tmp_path: Path, receiver: Upstream, time: Time) -> None:
    receiver.script = script(plain(b"", 500))
    async with serving(tmp_path, hook(receiver)) as place:
        await place.tell()
        await until(lambda: place.row().error)
        time.now += 4.9
        looks: list[str] = []
        read = place.parts.journal.read
        original = read.next_message
        read.next_message = lambda name: looks.append(name) or original(name)  # type: ignore[method-assign, func-returns-value]
        place.parts.delivery.wake()
        await until(lambda: looks)
        await until(lambda: place.parts.delivery._wakes["ops"].is_set() is False)
        assert (receiver.calls, place.row().attempts) == (1, 1)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_wait_that_the_target_asks_for_is_kept(
    tmp_path: Path, receiver: Upstream, time: Time, status: int
) -> None:
    receiver.script = script(plain(b"", status, headers=[("Retry-After", "77")]))
    async with serving(tmp_path, hook(receiver)) as place:
        await place.tell()
        await until(lambda: place.row().error)
        assert place.row().next_at == time.now + 77
        time.now += 77
        place.parts.delivery.wake()
        await until(lambda: place.states() == ["delivered"])


@pytest.mark.parametrize(
    ("reply", "says"),
    [([Rst()], "closed the connection before its answer"), ([b"nonsense\r\n\r\n"], "sent what is not HTTP")],
)
async def test_a_connection_that_breaks_is_a_fault_that_passes(
    tmp_path: Path, receiver: Upstream, time: Time, reply: Reply, says: str
) -> None:
    receiver.script = script(reply)
    async with serving(tmp_path, hook(receiver)) as place:
        await place.tell()
        await until(lambda: place.row().error)
        assert (place.states(), place.row().error) == (["pending"], f"http://127.0.0.1 {says}")
        time.now += 5
        place.parts.delivery.wake()
        await until(lambda: place.states() == ["delivered"])


async def test_a_target_that_says_nothing_is_given_up_for_now(
    tmp_path: Path, receiver: Upstream, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "_SILENCE_S", 0.05)
    receiver.script = script([Hang()])
    async with serving(tmp_path, hook(receiver)) as place:
        await place.tell()
        await until(lambda: place.row().error)
        assert place.row().error == "http://127.0.0.1 did not answer in time"
        time.now += 5
        place.parts.delivery.wake()
        await until(lambda: place.states() == ["delivered"])


async def test_a_target_that_answers_without_end_is_given_up_for_now(
    tmp_path: Path, receiver: Upstream, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "WHOLE_S", 0.2)
    receiver.script = script([b"HTTP/1.1 500 X\r\ncontent-length: 999\r\n\r\n", b"x" * 10, Hang()])
    async with serving(tmp_path, hook(receiver)) as place:
        await place.tell()
        await until(lambda: place.row().error)
        assert (place.states(), place.row().error) == (["pending"], "http://127.0.0.1 did not answer within 0.2 s")


async def test_a_target_that_is_not_there_is_tried_again_and_then_dead_and_that_is_said_once(
    tmp_path: Path, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    with Upstream() as gone:
        address = hook(gone)
    async with serving(tmp_path, address) as place:
        await place.tell()
        for attempt in range(1, MOST_ATTEMPTS):
            await until(lambda attempt=attempt: (place.row().attempts, bool(place.row().error)) == (attempt, True) and
                        place.row().next_at > time.now)  # fmt: skip
            assert place.states() == ["pending"]
            time.now = place.row().next_at
            place.parts.delivery.wake()
        await until(lambda: place.states() == ["dead"])
        assert (
            place.row().error == f"http://127.0.0.1 cannot be reached (Connection refused); tried {MOST_ATTEMPTS} times"
        )
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1 and "agentstate alerts retry 1" in warnings[0].getMessage()
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
async def test_what_is_refused_for_good_is_dead_at_once(tmp_path: Path, receiver: Upstream, status: int) -> None:
    receiver.script = script(plain(b"no_service", status, content_type="text/plain"))
    async with serving(tmp_path, hook(receiver)) as place:
        await place.tell()
        await until(lambda: place.states() == ["dead"])
        assert (place.row().attempts, place.row().error) == (1, f"http://127.0.0.1 answered {status}: no_service")


async def test_a_redirect_is_not_followed(tmp_path: Path, receiver: Upstream, other: Upstream) -> None:
    receiver.script = script(plain(b"", 307, headers=[("location", f"{other.url}/stolen")]))
    async with serving(tmp_path, hook(receiver)) as place:
        await place.tell()
        await until(lambda: place.states() == ["dead"])
        assert "a redirect, which is not followed" in place.row().error and other.calls == 0


async def test_no_answer_makes_an_address_known(
    tmp_path: Path, receiver: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.script = lambda seen: plain(f"Cannot POST {seen.target}".encode(), 404, content_type="text/plain")
    async with serving(tmp_path, hook(receiver)) as place:
        await place.tell()
        await until(lambda: place.states() == ["dead"])
        await place.parts.delivery.test()
        assert "s3cret" not in repr(place.rows()) + caplog.text + repr(place.parts.outbox.targets)


async def test_a_message_that_cannot_be_written_is_dead_and_those_behind_it_are_sent(
    tmp_path: Path, receiver: Upstream
) -> None:
    async with serving(tmp_path, hook(receiver)) as place:
        broken = place.parts.outbox.messages("session.failed", "s", "s", {})[0]._replace(payload="[1]")
        session = await place.parts.journal.open_session("s")
        await place.parts.journal.set_status(session.id, SessionStatus.FAILED, told=[broken])
        await place.tell()
        await until(lambda: place.states() == ["dead", "delivered"])
        assert "its facts cannot be read" in place.rows()[0].error


# --- order and independence ---


async def test_a_targets_messages_arrive_in_the_order_in_which_they_were_written(
    tmp_path: Path, receiver: Upstream, time: Time
) -> None:
    receiver.script = script(TAKEN, plain(b"", 500))
    async with serving(tmp_path, hook(receiver)) as place:
        for number in range(5):
            await place.tell(f"s{number}")
        await until(lambda: any(row.error for row in place.rows()))
        assert place.states() == ["delivered", "pending", "pending", "pending", "pending"]
        time.now += 5
        place.parts.delivery.wake()
        await until(lambda: place.states() == ["delivered"] * 5)
        expected = [row.alert for row in place.rows()]
        assert ids(receiver) == [*expected[:2], *expected[1:]]


async def test_targets_that_hang_or_are_dead_delay_no_other(
    tmp_path: Path, receiver: Upstream, other: Upstream
) -> None:
    gate = Gate()
    other.script = lambda seen: [gate, *TAKEN]
    with Upstream() as gone:
        dead = hook(gone, name="dead")
    async with serving(tmp_path, hook(other, name="slow"), dead, hook(receiver)) as place:
        for number in range(3):
            await place.tell(f"s{number}")
        await until(lambda: place.states("ops") == ["delivered"] * 3)
        assert place.states("slow") == ["pending"] * 3 and place.states("dead") == ["pending"] * 3
        gate.open()
        await until(lambda: place.states("slow") == ["delivered"] * 3)


async def test_one_message_at_a_time_is_on_its_way_to_a_target(tmp_path: Path, receiver: Upstream) -> None:
    gate = Gate()
    receiver.script = lambda seen: [gate, *TAKEN]
    async with serving(tmp_path, hook(receiver)) as place:
        for number in range(4):
            await place.tell(f"s{number}")
        await until(lambda: receiver.calls == 1 and len(place.rows()) == 4)
        assert [row.attempts for row in place.rows()] == [1, 0, 0, 0]
        gate.open()
        await until(lambda: place.states() == ["delivered"] * 4)


async def test_nobody_is_told_of_what_is_not_on_disk_yet(
    tmp_path: Path, receiver: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    through, waiting, disk = threading.Event(), threading.Event(), writer.fdatasync
    async with serving(tmp_path, hook(receiver)) as place:
        await place.parts.journal.open_session("s")

        def fsync(descriptor: int) -> None:
            waiting.set()
            assert through.wait(BOUND_S)
            disk(descriptor)

        sent: list[object] = []
        send = place.parts.delivery.sender.send

        async def noted(target: Any, said: Any) -> Any:
            sent.append(said)
            return await send(target, said)

        monkeypatch.setattr(place.parts.delivery.sender, "send", noted)
        monkeypatch.setattr(writer, "fdatasync", fsync)
        telling = asyncio.ensure_future(place.tell())
        await until(waiting.is_set)
        await until(lambda: place.rows() and place.row().attempts == 1)  # it is committed that it will be sent
        for _ in range(50):  # turns of the event loop in which it could be
            await asyncio.sleep(0)
        assert sent == [] and not telling.done()
        through.set()
        await until(lambda: place.states() == ["delivered"])
        await telling


# --- stops ---


async def test_a_stop_lets_what_is_on_its_way_arrive_and_keeps_the_rest(tmp_path: Path, receiver: Upstream) -> None:
    gate = Gate()
    receiver.script = lambda seen: [gate, *TAKEN]
    async with serving(tmp_path, hook(receiver)) as place:
        await place.tell("a")
        await place.tell("b")
        await until(lambda: receiver.calls == 1)
        stopping = asyncio.ensure_future(place.parts.delivery.stop())
        await until(lambda: place.parts.delivery._stopping)
        gate.open()
        await asyncio.wait_for(stopping, BOUND_S)
        assert place.states() == ["delivered", "pending"]
    async with serving(tmp_path, hook(receiver)) as place:
        await until(lambda: place.states() == ["delivered"] * 2)
        assert ids(receiver) == [row.alert for row in place.rows()]


async def test_what_was_cut_off_by_a_stop_is_sent_again_under_the_same_id(
    tmp_path: Path, receiver: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentstate.engine.delivery.FAREWELL_S", 0.05)
    receiver.script = script([Hang()])
    async with serving(tmp_path, hook(receiver)) as place:
        await place.tell()
        await until(lambda: receiver.calls == 1)
    async with serving(tmp_path, hook(receiver)) as place:
        await until(lambda: place.states() == ["delivered"])
        assert ids(receiver) == [place.row().alert] * 2 and place.row().attempts == 2


async def test_messages_for_a_target_that_the_settings_no_longer_have_are_dead_and_can_be_revived(
    tmp_path: Path, receiver: Upstream
) -> None:
    receiver.script = script(plain(b"", 500))
    async with serving(tmp_path, hook(receiver)) as place:
        await place.tell()
        await until(lambda: place.row().error)
    async with serving(tmp_path, hook(receiver, name="renamed")) as place:
        await until(lambda: place.states() == ["dead"])
        assert "no such target" in place.row().error
        with pytest.raises(Conflict, match="'ops'"):
            await place.parts.delivery.retry(1)
    async with serving(tmp_path, hook(receiver)) as place:
        await place.parts.delivery.retry(1)
        await until(lambda: place.states() == ["delivered"])


# --- what people do ---


async def test_a_dead_message_can_be_revived_and_a_living_one_cannot(tmp_path: Path, receiver: Upstream) -> None:
    receiver.script = script(plain(b"", 404))
    async with serving(tmp_path, hook(receiver)) as place:
        await place.tell()
        await until(lambda: place.states() == ["dead"])
        await place.parts.delivery.retry(1)
        await until(lambda: place.states() == ["delivered"])
        assert ids(receiver) == [place.row().alert] * 2 and place.row().attempts == 1
        with pytest.raises(Conflict, match="is delivered"):
            await place.parts.delivery.retry(1)
        with pytest.raises(NotFound):
            await place.parts.delivery.retry(2)


async def test_a_test_message_says_how_each_target_took_it_and_leaves_no_trace(
    tmp_path: Path, receiver: Upstream, other: Upstream
) -> None:
    other.script = lambda seen: plain(b"", 500)
    async with serving(tmp_path, hook(receiver), hook(other, name="broken")) as place:
        found = {target.name: sent for target, sent in await place.parts.delivery.test()}
        assert found["ops"].error == "" and found["broken"].error == "http://127.0.0.1 answered 500"
        assert json.loads(receiver.requests[0].body)["type"] == "alert.test"
        assert [target.name for target, _ in await place.parts.delivery.test("ops")] == ["ops"]
        with pytest.raises(NotFound, match="ops, broken"):
            await place.parts.delivery.test("nobody")
        assert place.rows() == []


# --- which facts make messages ---


async def test_a_session_that_fails_is_told_of_once_with_its_last_run(tmp_path: Path, receiver: Upstream) -> None:
    async with serving(tmp_path, hook(receiver)) as place:
        sessions = Sessions(place.parts)
        await sessions.register_run("s", "r1", None, None)
        await sessions.end_run("s", "r1", 7)
        await sessions.set_status("s", "FAILED")
        await sessions.set_status("s", "FAILED")
        await until(lambda: place.states() == ["delivered"])
        assert json.loads(place.row().payload) == {"run": "r1", "exit_code": 7}
        await sessions.set_status("s", "COMPLETED")
        await sessions.set_status("s", "FAILED")
        await until(lambda: place.states() == ["delivered"] * 2)


async def ask(place: Place) -> NewApproval:
    """An approval of a request, asked in the transaction that holds the request."""
    journal = place.parts.journal
    session = await journal.open_session("s")
    await journal.begin_run(NewRunRow(session.id, "a", True, "run-id"))
    run = journal.read.run(session.id, "a")
    assert run is not None
    call = OpenAIChat().parse("POST", "chat/completions", BODY)
    asked = place.parts.gate.question_of_request(place.parts.gate.place_of(session), session.head, call)
    told = place.parts.gate.messages("s", asked)
    step = NewStep(
        session.id, session.head, run.id, "model", "openai", call, fingerprint.of(call), asked=asked, messages=told
    )
    await journal.hold_step(step)
    return asked


@pytest.mark.parametrize("content", [False, True])
async def test_a_question_is_told_with_a_link_that_opens_it_and_its_content_only_where_that_is_shown(
    tmp_path: Path, receiver: Upstream, content: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTSTATE_DATA", str(tmp_path))
    async with serving(tmp_path, hook(receiver, show_content=content)) as place:
        asked = await ask(place)
        await until(lambda: place.states() == ["delivered"])
        said = receiver.requests[0].json()
        assert isinstance(said["data"], dict) and said["type"] == "approval.required"
        base, _, token = said["data"]["link"].rpartition("/")
        assert base == "http://127.0.0.1:8080/approve" and place.parts.links.read(token) == (asked.id, "ops")
        assert (b"a secret prompt" in receiver.requests[0].body) is content
        assert "a secret prompt" not in place.row().payload


async def test_a_question_that_is_decided_before_it_is_told_is_told_as_decided(
    tmp_path: Path, receiver: Upstream, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTSTATE_DATA", str(tmp_path))
    receiver.script = script(plain(b"", 500))
    slack = {"kind": "slack", "url": receiver.url}
    async with serving(tmp_path, slack, slack_signing_secret="test-secret") as place:
        asked = await ask(place)
        await until(lambda: place.row().error)
        await place.parts.journal.decide(asked.id, Vote("ada", Decision.REJECTED), "no")
        time.now += 5
        place.parts.delivery.wake()
        await until(lambda: place.states() == ["delivered"])
        first, second = (json.dumps(seen.json()) for seen in receiver.requests)
        assert '"action_id": "approve"' in first and '"action_id": "approve"' not in second
        assert "rejected already" in second and "ada" in second


async def test_a_lingering_proxy_stays_while_a_message_is_soon_due(
    tmp_path: Path, receiver: Upstream, time: Time
) -> None:
    receiver.script = script(plain(b"", 503, headers=[("retry-after", "600")]))
    async with serving(tmp_path, hook(receiver)) as place:
        assert not place.parts.delivery.busy
        gate = Gate()
        receiver.script = script([gate, *plain(b"", 503, headers=[("retry-after", "600")])])
        await place.tell()
        await until(lambda: receiver.calls == 1)
        assert place.parts.delivery.busy
        gate.open()
        await until(lambda: place.row().error and not place.parts.delivery.busy)
        time.now += 600
        place.parts.delivery.wake()
        await until(lambda: place.states() == ["delivered"])
        await until(lambda: not place.parts.delivery.busy)
