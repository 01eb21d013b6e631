"""The page behind a link: it shows everything, escaped, decides by form alone, and only where the link may."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from agentstate import clock
from agentstate.engine.links import Links
from agentstate.engine.signing import KEY_FILE
from agentstate.errors import Forbidden
from tests.support.approvals import Held, prepared
from tests.support.client import Answer
from tests.support.proxy import Proxy

EVIL = "<script>alert(1)</script>\"'&"
LONG = "x" * 30_000
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def ids(tmp_path: Path) -> list[str]:
    shown = Held("send_email", {"to": EVIL, "body": LONG, "file": "gpj.\u202eexe\u200b"})
    twice = Held("wire", '{"to": "a", "to": "b"}')
    return prepared(
        tmp_path, [shown], [Held(approvers=("ann",))], [Held(approvers=("slack-1",))], [Held(quorum=2), twice],
        [Held(approvers=("approver",))], session=f"s{EVIL}",
    )  # fmt: skip


@pytest.fixture
def proxy(tmp_path: Path, ids: list[str]) -> Iterator[Proxy]:
    with Proxy(tmp_path) as running:
        yield running


def link(proxy: Proxy, key: str, target: str = "slack-1") -> str:
    return f"/approve/{Links(proxy.data, 3600.0).make(key, target)}"


def get(proxy: Proxy, path: str, method: str = "GET") -> Answer:
    return proxy.client.send(method, path)


def post(proxy: Proxy, path: str, fields: dict[str, str], **headers: str) -> Answer:
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return proxy.client.send("POST", path, {**FORM, **more}, urlencode(fields).encode())


def digest(answer: Answer) -> str:
    found = re.search(rb'name="?digest"? value="([0-9a-f]{64})"', answer.body)
    assert found
    return found[1].decode()


def status(proxy: Proxy, key: str) -> str:
    return str(proxy.control.get(f"/api/approvals/{key}")["status"])


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append(tag)


def test_the_page_shows_everything_escaped_and_whole(proxy: Proxy, ids: list[str]) -> None:
    answer = get(proxy, link(proxy, ids[0]))
    text = answer.body.decode()
    assert answer.status == 200 and "script" not in Tags(text).found and "img" not in Tags(text).found
    assert EVIL not in text and LONG in text
    assert "\u202e" not in text and "\u200b" not in text
    assert "gpj.‹U+202E›exe‹U+200B›" in text
    assert r"gpj.\u202eexe\u200b" in text  # in the text field, where it is edited
    assert "send_email" in text and "policy 1 (hold send_email)" in text and f"s{EVIL}" in unescape(text)


def test_the_page_may_load_nothing_be_framed_nowhere_and_tell_nobody(proxy: Proxy, ids: list[str]) -> None:
    headers = get(proxy, link(proxy, ids[0])).headers
    rules = headers.get("content-security-policy") or ""
    assert rules.startswith("default-src 'none'") and "frame-ancestors 'none'" in rules and "unsafe" not in rules
    assert headers.get("cache-control") == "no-store"
    assert headers.get("referrer-policy") == "same-origin"
    assert headers.get("x-content-type-options") == "nosniff"


def test_looking_decides_nothing(proxy: Proxy, ids: list[str]) -> None:
    path = link(proxy, ids[0])
    for method in ("GET", "HEAD"):
        for query in ("", "?action=APPROVED"):
            assert get(proxy, path + query, method).status == 200
    assert status(proxy, ids[0]) == "PENDING"


def test_a_form_decides_in_the_name_of_the_link(proxy: Proxy, ids: list[str]) -> None:
    path = link(proxy, ids[0])
    fields = {"action": "APPROVED", "reason": "fine", "digest": digest(get(proxy, path))}
    answer = post(proxy, path, fields)
    assert answer.status == 303 and answer.headers.get("location") == path
    view = proxy.control.get(f"/api/approvals/{ids[0]}")
    assert (view["status"], view["decided_by"], view["reason"]) == ("APPROVED", "link:slack-1", "fine")
    after = get(proxy, path).body.decode()
    assert "approved by link:slack-1" in after and "<form" not in after
    assert post(proxy, path, fields).status == 303  # once more changes nothing
    late = post(proxy, path, {**fields, "action": "REJECTED"})
    assert late.status == 409 and "approved already" in late.body.decode()


def test_an_edit_keeps_what_was_typed_where_it_does_not_fit(proxy: Proxy, ids: list[str]) -> None:
    path = link(proxy, ids[0])
    fields = {"action": "EDITED", "digest": digest(get(proxy, path)), "reason": "safer"}
    for typed, said in (('{"to": 5}', "do not fit"), ("{", "not JSON"), ("[]", "JSON object")):
        answer = post(proxy, path, {**fields, "arguments": typed})
        text = unescape(answer.body.decode())
        assert answer.status == 422 and said in text and typed in text and "safer" in text
    assert status(proxy, ids[0]) == "PENDING"


def test_a_link_is_nobody_where_several_people_must_agree(proxy: Proxy, ids: list[str]) -> None:
    path = link(proxy, ids[3])
    shown = digest(get(proxy, path))
    assert post(proxy, path, {"action": "APPROVED", "digest": shown}).status == 403
    assert status(proxy, ids[3]) == "PENDING"
    assert "link:slack-1" not in get(proxy, path).body.decode()
    assert post(proxy, path, {"action": "REJECTED", "digest": shown}).status == 303
    assert status(proxy, ids[3]) == "REJECTED"


def test_a_decision_is_taken_on_what_was_shown_only(proxy: Proxy, ids: list[str]) -> None:
    path = link(proxy, ids[0])
    for more in ({}, {"digest": ""}, {"digest": "0" * 64}):
        assert post(proxy, path, {"action": "APPROVED", **more}).status == 409
    assert post(proxy, path, {"action": "PERHAPS", "digest": digest(get(proxy, path))}).status == 400
    assert proxy.client.send("POST", path, {"Content-Type": "application/json"}, b'{"action":"APPROVED"}').status == 400
    assert status(proxy, ids[0]) == "PENDING"


def test_a_link_decides_only_where_nobody_is_named_or_it_is(proxy: Proxy, ids: list[str]) -> None:
    for key in (ids[1], ids[5]):
        path = link(proxy, key)
        page = get(proxy, path)
        assert b"This link may not decide it" in page.body and b"<form" not in page.body
        shown = proxy.control.get(f"/api/approvals/{key}")["digest"]
        assert post(proxy, path, {"action": "APPROVED", "digest": shown}).status == 403
        assert status(proxy, key) == "PENDING"
    path = link(proxy, ids[2])
    assert post(proxy, path, {"action": "REJECTED", "digest": digest(get(proxy, path))}).status == 303


def test_arguments_that_programs_read_differently_are_shown_to_the_letter(proxy: Proxy, ids: list[str]) -> None:
    text = unescape(get(proxy, link(proxy, ids[4])).body.decode())
    assert '{"to": "a", "to": "b"}' in text and "stands in them twice" in text


def test_a_page_of_another_site_cannot_post_it(proxy: Proxy, ids: list[str]) -> None:
    path = link(proxy, ids[0])
    fields = {"action": "APPROVED", "digest": digest(get(proxy, path))}
    assert post(proxy, path, fields, Origin="http://evil.test").status == 403
    assert post(proxy, path, fields, Sec_Fetch_Site="cross-site").status == 403
    assert post(proxy, path, fields, Host="evil.test").status == 403
    assert status(proxy, ids[0]) == "PENDING"


def test_a_link_that_is_not_ours_leads_nowhere(proxy: Proxy, ids: list[str]) -> None:
    good = link(proxy, ids[0])
    lost = f"/approve/{Links(proxy.data, 3600.0).make('apr_lost', 'x')}"
    for path, code in ((good[:-1], 403), (good + "x", 403), ("/approve/x", 403), (lost, 404)):
        for answer in (get(proxy, path), post(proxy, path, {"action": "APPROVED"})):
            assert answer.status == code and b"leads nowhere" in answer.body, path


def test_a_link_is_read_by_whoever_has_the_key_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, others = Links(tmp_path / "a", 60.0), Links(tmp_path / "b", 60.0)
    token = ours.make("apr_1", "slack-1")
    assert Links(tmp_path / "a", 60.0).read(token) == ("apr_1", "slack-1")
    assert (tmp_path / "a" / KEY_FILE).stat().st_mode & 0o777 == 0o600
    with pytest.raises(Forbidden):
        others.read(token)
    later = clock.now() + 61
    monkeypatch.setattr(clock, "now", lambda: later)
    with pytest.raises(Forbidden, match=r"too old|expired"):
        ours.read(token)
