"""Lists by pages: every entry once, in order, whatever comes meanwhile; and single entries with everything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support import chat
from tests.support.client import Answer, status_of
from tests.support.proxy import Proxy
from tests.support.upstream import Reply, Seen, Upstream, plain


def answers(seen: Seen) -> Reply:
    if "fail" in json.dumps(seen.json()["messages"]):
        return plain(b'{"error":{"message":"down"}}', 503)
    return plain(chat.completion("a text"))


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    with Upstream(answers) as upstream, Proxy(tmp_path / "data", upstream.url) as running:
        yield running


def get(proxy: Proxy, path: str) -> Answer:
    return proxy.client.send("GET", path, {"Authorization": f"Bearer {proxy.admin_token}"})


def pages(proxy: Proxy, path: str, meanwhile: Any = None) -> list[list[Any]]:
    """All pages, by the header alone. ``meanwhile`` is called between them."""
    found = []
    while path:
        answer = get(proxy, path)
        assert answer.status == 200, answer.body
        found.append(answer.json())
        assert len(found) < 50, "the pages have no end"
        path = (answer.headers.get("link") or "").partition("<")[2].partition(">")[0]
        if meanwhile is not None and path:
            meanwhile()
    return found


def test_steps_are_listed_without_bodies_and_by_pages(proxy: Proxy) -> None:
    for number in range(7):
        assert proxy.client.ask("s", f"question {number}", run="a").status == 200
    later = iter(range(100))

    def more() -> None:
        proxy.client.ask("s", f"later {next(later)}", run="a")

    found = pages(proxy, "/api/sessions/s/steps?limit=3", more)
    numbers = [step["step_number"] for page in found for step in page]
    assert numbers == list(range(len(numbers))) and len(numbers) >= 9
    assert all(len(page) == 3 for page in found[:-1])
    assert not {"prompt", "response", "proposed", "release"} & set(found[0][0])


def test_one_step_comes_with_everything(proxy: Proxy) -> None:
    proxy.client.ask("s", "one", run="a")
    proxy.client.ask("s", "please fail", run="a")
    first, second = (proxy.control.get(f"/api/sessions/s/steps/{number}") for number in (0, 1))
    [listed] = [step for step in proxy.control.steps("s") if step["step_number"] == 0]
    assert first == listed | {"tries": first["tries"]}
    assert [one["status"] for one in first["tries"]] == [200]
    assert [one["status"] for one in second["tries"]] == [503]
    assert second["tries"][0]["error"]
    assert status_of(proxy.control.get, "/api/sessions/s/steps/2")[0] == 404
    assert status_of(proxy.control.get, "/api/sessions/s/steps/99999999999999999999999")[0] == 404
    assert status_of(proxy.control.get, "/api/sessions/t/steps/0")[0] == 404


def test_runs_are_listed_newest_first_and_new_ones_disturb_nobody(proxy: Proxy) -> None:
    for number in range(5):
        proxy.client.ask("s", "one", run=f"run-{number}")
    later = iter(range(100))
    found = pages(
        proxy, "/api/sessions/s/runs?limit=2", lambda: proxy.client.ask("s", "one", run=f"later-{next(later)}")
    )
    assert [run["run"] for page in found for run in page] == [f"run-{number}" for number in (4, 3, 2, 1, 0)]
    assert status_of(proxy.control.get, "/api/sessions/s/runs?after=nobody")[0] == 404
    told = json.loads(proxy.cli("runs", "s", "--limit", "3", "--json").stdout)
    assert told == proxy.control.get("/api/sessions/s/runs?limit=3")
    assert "run-0" in proxy.cli("runs", "s").stdout


def test_people_and_labels_are_listed_by_pages(proxy: Proxy) -> None:
    proxy.client.ask("s", "one", run="a")
    names = [f"name-{number}" for number in range(5)]
    for name in names:
        proxy.control.post("/api/approvers", {"name": name, "role": "viewer"})
    assert [row["name"] for page in pages(proxy, "/api/approvers?limit=2") for row in page] == names
    proxy.control.post("/api/sessions/s/labels", {"add": names})
    found = pages(proxy, "/api/sessions/s/labels?limit=2")
    assert [name for page in found for name in page["labels"]] == names


@pytest.mark.parametrize("key", ["a/reset", "a/steps/0", "ä ö?&#%", "x/runs/y", "%2F", "a b/labels"])
def test_a_session_is_found_under_its_percent_encoded_id_whatever_it_is(proxy: Proxy, key: str) -> None:
    at = quote(key, safe="")
    for number in range(3):
        assert proxy.client.ask(at, f"question {number}", run="a").status == 200
    assert proxy.control.get(f"/api/sessions/{at}")["session"]["id"] == key
    found = pages(proxy, f"/api/sessions/{at}/steps?limit=1")
    assert [page[0]["step_number"] for page in found] == [0, 1, 2]
    assert proxy.control.post(f"/api/sessions/{at}/labels", {"add": ["blue"]}) == {"id": key, "labels": ["blue"]}
    assert proxy.control.get(f"/api/sessions/{at}/runs")[0]["run"] == "a"


def test_an_address_with_control_characters_leads_nowhere(proxy: Proxy) -> None:
    proxy.client.ask("a%2Fb", "one", run="a")
    for key in ("a%00b", "a%2Fb%00", "a%0a", "%7f", "a%1Fb"):
        status, body = status_of(proxy.control.get, f"/api/sessions/{key}")
        assert (status, json.loads(body)["error"]["code"]) == (400, "bad_request")


def test_a_wrong_method_and_an_unknown_address_are_told_apart(proxy: Proxy) -> None:
    headers = {"Authorization": f"Bearer {proxy.admin_token}"}
    wrong = proxy.client.send("PUT", "/api/sessions/s/runs", headers)
    assert (wrong.status, wrong.error["code"]) == (405, "method_not_allowed")
    assert set((wrong.headers.get("allow") or "").split(", ")) >= {"GET", "POST"}
    foreign = proxy.client.send("GET", "/api/sessions", {**headers, "Host": "elsewhere.example"})
    assert (foreign.status, foreign.error["code"]) == (403, "forbidden")
    nothing = proxy.client.send("GET", "/api/weather", headers)
    assert (nothing.status, nothing.error["code"]) == (404, "not_found")


def test_sessions_are_listed_once_each_though_they_change_meanwhile(proxy: Proxy) -> None:
    names = [f"s{number}" for number in range(6)]
    for name in names:
        proxy.client.ask(name, "one", run="a")
    seen: list[str] = []

    def change() -> None:
        seen.append("once more")
        for name in names[2:4]:
            proxy.client.ask(name, f"again {len(seen)}", run="a")  # the last one of a page comes first now

    found = [one["id"] for page in pages(proxy, "/api/sessions?limit=2", change) for one in page]
    assert found[:2] == ["s5", "s4"] and len(found) == len(set(found))
    assert set(found) >= {"s5", "s4", "s1", "s0"}
    assert [one["id"] for page in pages(proxy, "/api/sessions?limit=1&q=s1") for one in page] == ["s1"]
    assert status_of(proxy.control.get, "/api/sessions?after=s1&at=yesterday")[0] == 400
