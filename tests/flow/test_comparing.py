"""Sessions are compared over HTTP and on the command line, what was released beside what was received."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support import chat, mailing
from tests.support.client import status_of
from tests.support.people import decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Upstream, plain

upstream, proxy = mailing.upstream, mailing.proxy


def told(proxy: Proxy, upstream: Upstream, session: str, *turns: tuple[str, str], run: str = "r1") -> None:
    for question, answer in turns:
        upstream.script = lambda seen, answer=answer: plain(chat.completion(answer, name=f"u{seen.number}"))
        assert proxy.client.ask(session, question, run=run).status == 200


def counts(found: Any) -> dict[str, int]:
    return {kind: count for kind, count in found["counts"].items() if count}


def test_two_sessions_are_compared_page_by_page_and_pair_by_pair(proxy: Proxy, upstream: Upstream) -> None:
    told(proxy, upstream, "a", ("one", "1"), ("two", "the north"), ("three", "3"))
    told(proxy, upstream, "b", ("one", "1"), ("two", "the south"))
    whole = proxy.control.get("/api/diff?a=a&b=b")
    assert (whole["same"], counts(whole)) == (False, {"same": 1, "answer differs": 1, "only left": 1})
    assert whole["first"] == whole["pairs"][1]
    page = proxy.control.get("/api/sessions/a/diff?with=b&after=0&limit=1")
    assert page["pairs"] == whole["pairs"][1:2]
    for query in ("pair=1", "step=1"):
        pair = proxy.control.get(f"/api/diff?a=a&b=b&{query}")
        [field] = pair["answer"]["fields"]
        assert (field["path"], field["left"], field["right"]) == ("text", "the north", "the south")
        assert [(one["side"], one["text"]) for one in field["text"]] == [
            ("both", "the "), ("left", "north"), ("right", "south")
        ]  # fmt: skip
    assert (pair["left_text"], pair["right_text"]) == ("the north", "the south")


def test_what_a_person_edited_is_told_beside_what_the_model_said(proxy: Proxy, upstream: Upstream) -> None:
    for session, action in (("a", {}), ("b", {"arguments": {"to": "eve@example.com"}})):
        asking = mailing.ask(proxy, session)
        decide(proxy, pending(proxy)[0], "EDITED" if action else "APPROVED", **action)
        asking.answer()
    pair = proxy.control.get("/api/diff?a=a&b=b&pair=0")
    assert (pair["kind"], pair["differs"], pair["answer"]["fields"]) == ("answer differs", ["released"], [])
    changed = {field["path"]: (field["left"], field["right"], field["only"]) for field in pair["released"]["fields"]}
    assert changed["calls[0].arguments.to"] == ("bob@example.com", "eve@example.com", None)
    assert changed["calls[0].arguments.body"] == ("hello", None, "left")


def test_a_run_is_compared_with_another_of_its_session(proxy: Proxy, upstream: Upstream) -> None:
    told(proxy, upstream, "a", ("one", "1"), ("two", "2"))
    told(proxy, upstream, "a", ("one", "1"), run="r2")
    found = proxy.control.get(f"/api/diff?a={quote('a#r1')}&b={quote('a#r2')}")
    assert counts(found) == {"same": 1, "only left": 1}
    assert (found["left"]["run"], found["right"]["steps"]) == ("r1", 1)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/diff?a=a", 400), ("/api/sessions/a/diff", 400), ("/api/diff?a=a&b=z", 404),
        ("/api/diff?a=a&b=a&pair=7", 404), ("/api/diff?a=a&b=a&pair=x", 400),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_says_why(proxy: Proxy, upstream: Upstream, path: str, status: int) -> None:
    told(proxy, upstream, "a", ("one", "1"))
    assert status_of(proxy.control.get, path)[0] == status


def test_the_command_ends_as_diff_does_and_shows_each_field(proxy: Proxy, upstream: Upstream) -> None:
    told(proxy, upstream, "a", ("one", "1"), ("two", "the north"))
    told(proxy, upstream, "b", ("one", "1"), ("two", "the \x1b[31msouth"))
    assert proxy.cli("diff", "a", "a").returncode == 0
    whole = proxy.cli("diff", "a", "b", check=False)
    assert whole.returncode == 1
    assert "answer differs: text" in whole.stdout and "1 the same" in whole.stdout
    one = proxy.cli("diff", "a", "b", "--step", "1", check=False)
    assert one.returncode == 1
    assert "the [-north-]{+‹U+001B›[31msouth+}" in one.stdout
    assert proxy.cli("diff", "a", "b", "--step", "0", check=False).returncode == 0
    trouble = proxy.cli("diff", "a", "z", check=False)
    assert (trouble.returncode, trouble.stdout) == (2, "")
    assert "there is no session 'z'" in trouble.stderr
    as_json: Any = json.loads(proxy.cli("diff", "a", "b", "--json", check=False).stdout)
    assert as_json == proxy.control.get("/api/diff?a=a&b=b&limit=200")


def test_the_command_needs_no_proxy(tmp_path: Path, upstream: Upstream) -> None:
    with Proxy(tmp_path, upstream.url) as proxy:
        told(proxy, upstream, "a", ("one", "1"))
        proxy.stop()
        assert "the same: 1 steps" in proxy.cli("diff", "a", "a").stdout
