"""An edited answer in each wire format: text and arguments are others, ids stay, and what follows is asked anew."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.flow.test_retold import send
from tests.support.client import Answer
from tests.support.proxy import Proxy
from tests.support.upstream import Reply, Seen, Upstream, plain
from tests.support.wires import WIRES, Calling, Message, Wire

_numbers = itertools.count()
SEND = Calling("call_a", "send_email", {"to": "bob"})
SEARCH = Calling("call_b", "search", {"to": "kim"})


class Provider:
    """Answers with what is next."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.asked: list[dict[str, Any]] = []

    def __call__(self, seen: Seen) -> Reply:
        self.asked.append(json.loads(seen.body))
        return plain(self.answers[len(self.asked) - 1])


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Proxy]:
    with Proxy(tmp_path_factory.mktemp("dialects"), upstream.url, file="policies = []") as running:
        yield running
        assert "Traceback" not in running.log
        running.doctor()


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_edited_answer_is_given_and_what_goes_on_from_it_is_asked_anew(
    proxy: Proxy, upstream: Upstream, wire: Wire
) -> None:
    provider, session = Provider(), f"dialect-{next(_numbers)}"
    provider.answers = [wire.answer("hm", SEND, SEARCH), wire.answer("Old end."), wire.answer("New end.")]
    upstream.reset(provider)

    def life(run: str) -> tuple[list[Answer], list[Message]]:
        history = [wire.user("write")]
        first = send(proxy, wire, session, wire.ask(history), run)
        said = wire.said(first.body)
        history += [*said, *wire.results((SEND, "at 12:01:07"), (SEARCH, "found"))]
        return [first, send(proxy, wire, session, wire.ask(history), run)], said

    life("r1")
    at = f"/api/sessions/{session}/steps/0"
    editable = proxy.control.get(f"{at}/editable")
    assert editable["text"] == "hm"
    assert [(call["tool"], json.loads(call["arguments"])) for call in editable["calls"]] == [
        ("send_email", {"to": "bob"}), ("search", {"to": "kim"}),
    ]  # fmt: skip
    call = editable["calls"][0]
    key = call["call_id"] or f"{call['choice']}.{call['place']}"
    proxy.control.post(f"{at}/edit", {"text": "Aha.", "arguments": {key: {"to": "eve"}}})
    second, said = life("r2")
    assert [answer.outcome for answer in second] == ["edited", "live"]
    assert [arguments for _, arguments in wire.called(said)] == [{"to": "eve"}, {"to": "kim"}]
    assert "Aha." in json.dumps(said) and '"hm"' not in json.dumps(said).replace('"thinking": "hm"', "")
    assert [arguments for _, arguments in wire.called(provider.asked[2][wire.field])] == [{"to": "eve"}, {"to": "kim"}]
    third, _ = life("r3")
    assert ([answer.outcome for answer in third], len(provider.asked)) == (["edited", "replay"], 3)
    assert [answer.body for answer in third] == [answer.body for answer in second]
    assert b"New end." in third[1].body
