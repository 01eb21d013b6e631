"""The pages under Settings, without scripts: policies tried, targets tried, people, the audit log, retention, look."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.conftest import person
from tests.support import chat
from tests.support.approvals import Held, prepared
from tests.support.proxy import OtherProcess, Proxy
from tests.support.story import Story
from tests.support.upstream import Reply, Seen, Upstream, plain
from tests.support.web import PageSeen, Web

SETTINGS = "/dashboard/settings"


def text_area(page: PageSeen) -> str:
    return page.form("/policies/try").fields[-1].value


def data(web: Web, path: str) -> dict[str, Any]:
    return dict(json.loads(web.get(path).html))


# --- policies ---


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Proxy, Web]]:
    folder = tmp_path_factory.mktemp("tried") / "data"
    prepared(folder, [Held("send_email")], [Held("pay", {"to": "x", "amount": 7})], session="one")
    prepared(folder, [Held("pay", {"to": "y", "amount": 70})], session="two")
    with Proxy(folder, arguments=["--simulate"]) as proxy:
        yield proxy, Web(proxy.url).log_in(proxy.admin_token)


def test_the_first_page_of_settings_is_that_of_policies(web: Web) -> None:
    page = web.follow(web.get(SETTINGS))
    assert page.status == 200 and "In force" in page.text and "send_email" in page.text
    assert tomllib.loads(text_area(page)) == {"policies": [{"tools": ["send_email"], "action": "hold"}]}


def test_policies_are_tried_on_the_last_calls_and_nothing_changes(tried: tuple[Proxy, Web], tmp_path: Path) -> None:
    proxy, web = tried
    text = '[[policies]]\ntools = ["pay"]\nwhen = "args.amount > 10"\naction = "deny"\n'
    form = web.get(SETTINGS + "/policies").form("/policies/try")
    page = web.submit(form, policies=text)
    assert "Would have held 0 , denied 1 and let 2 pass, of 3 calls" in page.text
    assert "Those in force: 1 held, 0 denied, 2 let pass." in page.text
    assert text_area(page) == text, "what was typed stays"
    (tmp_path / "tried.toml").write_text(text)
    told = json.loads(proxy.cli("policy", "last", "--policies", str(tmp_path / "tried.toml"), "--json").stdout)
    assert told["counts"] == {"deny": 1, "allow": 2}
    assert "Would have" not in web.get(SETTINGS + "/policies").text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[policies]\n", "are not TOML"),
        ('[[policies]]\ntools = ["a"]\nwhen = "args."\n', "is not a CEL condition"),
        ('[[policies]]\ntool = "a"\n', "unknown setting"),
        ("[server]\nport = 1\n", "only [[policies]] can be tried"),
    ],
)
def test_policies_that_cannot_be_read_are_refused_where_they_were_typed(
    tried: tuple[Proxy, Web], text: str, said: str
) -> None:
    _, web = tried
    page = web.submit(web.get(SETTINGS + "/policies").form("/policies/try"), policies=text)
    assert page.status == 400 and said in page.text and text_area(page) == text


# --- notifiers ---


def test_a_target_is_tried_by_its_button_and_a_dead_message_sent_again(tmp_path: Path) -> None:
    taken: list[bool] = []

    def target(seen: Seen) -> Reply:
        return plain(b"", 200 if taken else 404)

    with Upstream(target) as upstream:
        file = f'[[alerts]]\nkind = "webhook"\nname = "ops"\nurl = "{upstream.url}/secret-path"\n'
        with Proxy(tmp_path / "data", arguments=["--simulate"], file=file) as proxy:
            web = Web(proxy.url).log_in(proxy.admin_token)
            page = web.submit(web.get(SETTINGS + "/notifiers").form("/notifiers/test"))
            assert "✕ ops:" in page.text and "answered 404" in page.text
            assert "secret-path" not in page.html
            assert proxy.client.ask("s", "q", run="r").status == 200
            proxy.control.post("/api/sessions/s/status", {"status": "FAILED"})
            dead = _until_dead(proxy)
            taken.append(True)
            page = web.get(SETTINGS + "/notifiers")
            assert "✕ dead" in page.text
            again = web.follow(web.submit(page.form("/notifiers/retry")))
            assert f"Message {dead} is on its way again." in again.text
            tried = web.submit(web.get(SETTINGS + "/notifiers").form("/notifiers/test"))
            assert "✓ ops: it took the test message (200)" in tried.text
            viewer = Web(proxy.url).log_in(
                proxy.control.post("/api/approvers", {"name": "v", "role": "viewer"})["token"]
            )
            seen = viewer.get(SETTINGS + "/notifiers")
            assert seen.status == 200 and not [form for form in seen.forms if "/notifiers/" in form.action]


def _until_dead(proxy: Proxy) -> int:
    import threading
    import time

    from tests.support.people import BOUND_S

    until = time.monotonic() + BOUND_S
    while time.monotonic() < until:
        if found := proxy.control.get("/api/alerts?state=dead"):
            return int(found[0]["id"])
        threading.Event().wait(0.02)
    raise AssertionError("the message did not die")


# --- people ---


def test_somebody_is_added_and_their_token_is_shown_once_and_logs_them_in(story: Story, web: Web) -> None:
    form = web.get(SETTINGS + "/people").form("/settings/people")
    made = web.submit(form, name="dora", role="viewer", slack="U0DORA0001", discord="")
    assert made.status == 200 and "dora 's token, which is shown this once" in made.text
    [token] = re.findall(r'<code class="token">([^<]+)</code>', made.html)
    assert made.header("cache-control") == "no-store"
    for path in (SETTINGS + "/people", SETTINGS + "/people.json", SETTINGS + "/audit", SETTINGS + "/audit.json"):
        assert token not in web.get(path).html
    assert token not in story.proxy.log
    dora = Web(story.proxy.url).log_in(token)
    assert "dora viewer" in dora.get("/dashboard").text
    assert dora.get(SETTINGS + "/people").status == 403
    refused = web.submit(form, name="dora", role="viewer", slack="", discord="")
    assert refused.status == 409 and "dora" in refused.form("/settings/people").fields[1].value


def test_a_new_token_ends_the_old_one_and_a_dialog_says_so_first(story: Story, web: Web) -> None:
    old = person(story, "emil", "approver")
    asked = web.get(SETTINGS + "/people/emil/rotate")
    assert "opens nothing any more" in asked.text and "agentstate approvers rotate emil" in asked.text
    assert old.get("/dashboard").status == 200, "asking changes nothing"
    made = web.submit(asked.form("/emil/rotate"))
    [token] = re.findall(r'<code class="token">([^<]+)</code>', made.html)
    assert old.get("/dashboard").status == 303
    assert Web(story.proxy.url).log_in(token).get("/dashboard").status == 200


def test_who_is_disabled_can_do_nothing_any_more(story: Story, web: Web) -> None:
    old = person(story, "fay", "admin")
    form = web.get(SETTINGS + "/people/fay/disable").form("/fay/disable")
    page = web.follow(web.submit(form))
    assert "fay is disabled." in page.text
    assert old.get("/dashboard").status == 303
    assert web.get(SETTINGS + "/people/fay/rotate").status == 404
    assert web.get(SETTINGS + "/people/nobody/disable").status == 404


def test_only_admins_come_to_people(story: Story) -> None:
    gus = person(story, "gus", "approver")
    token = re.findall(r'name="csrf" value="([^"]+)"', gus.get("/dashboard").html)[0]
    assert gus.get(SETTINGS + "/people").status == 403
    assert gus.get(SETTINGS + "/people.json").status == 403
    refused = gus.send("POST", SETTINGS + "/people", f"csrf={token}&name=mole&role=admin")
    assert refused.status == 403
    assert "mole" not in {one["name"] for one in story.proxy.control.get("/api/approvers")}


# --- the audit log ---


def test_the_log_is_shown_newest_first_page_by_page_and_its_seal_is_checked(story: Story, web: Web) -> None:
    for number in range(60):
        story.proxy.control.post("/api/sessions/done-1/labels", {"add": [f"label-{number}"]})
    first = data(web, SETTINGS + "/audit.json?check=1")
    api = [row["id"] for row in story.proxy.control.get("/api/audit?limit=1000")]
    assert first["checked"] and first["faults"] == [] and first["last"] == api[-1]
    found, before = [], first
    while True:
        found += [entry["id"] for entry in before["entries"]]
        if not before["older"]:
            break
        before = data(web, f"{SETTINGS}/audit.json?before={before['older']}")
    assert found == api[::-1]
    page = web.get(SETTINGS + "/audit?check=1")
    assert "none is missing or was changed" in page.text and first["seal"] in page.html
    assert web.get(SETTINGS + "/audit?before=x").status == 400


# --- retention ---


def test_what_would_go_is_shown_and_then_goes(tmp_path: Path) -> None:
    with Proxy(tmp_path / "data", arguments=["--simulate"]) as proxy:
        web = Web(proxy.url).log_in(proxy.admin_token)
        with OtherProcess(proxy.port) as agent:  # one that is gone afterwards: who lives is in use
            for name in ("a", "b", "c", "d"):
                agent.ask(name, "q", run="r")
        proxy.control.post("/api/sessions/a/pin", {"reason": "for the auditors"})
        proxy.control.post("/api/sessions/d/labels", {"add": ["keep"]})
        page = web.get(SETTINGS + "/retention")
        assert "for the auditors" in page.text
        form = page.form("/settings/retention")
        would = web.submit(form, older_than_days="0", keep="", label="", status="")
        assert "Would go: 3 sessions with 3 steps" in would.text and "1 stays: is pinned" in would.text
        assert len(proxy.control.get("/api/sessions")) == 4, "looking deletes nothing"
        named = web.submit(form, older_than_days="", keep="", label="keep", status="")
        assert "Would go: 1 session with 1 step" in named.text
        viewer = Web(proxy.url).log_in(proxy.control.post("/api/approvers", {"name": "v", "role": "approver"})["token"])
        seen = viewer.get(SETTINGS + "/retention?older_than_days=0")
        assert seen.status == 200 and not [form for form in seen.forms if "prune" in form.action]
        done = web.follow(web.submit(would.form("/retention/prune")))
        assert "3 sessions with 3 steps are deleted" in done.text
        assert [one["id"] for one in proxy.control.get("/api/sessions")] == ["a"]
        free = web.follow(web.submit(done.form("/retention/unpin")))
        assert "Session a is not pinned any more." in free.text
        assert data(web, SETTINGS + "/retention.json")["pinned"] == []
        proxy.doctor()


@pytest.mark.parametrize("query", ["older_than_days=soon", "keep=-1", "status=odd", "older_than_days=nan"])
def test_a_rule_that_cannot_be_understood_is_said_in_words(web: Web, query: str) -> None:
    page = web.get(f"{SETTINGS}/retention?{query}")
    assert page.status == 400 and "Try again" in page.text


# --- look, about ---


def test_single_letters_are_turned_off_by_the_form(web: Web) -> None:
    form = web.get(SETTINGS + "/look").form("/dashboard/look")
    form = next(
        one for one in web.get(SETTINGS + "/look").forms if any(field.name == "letters" for field in one.fields)
    )
    page = web.follow(web.submit(form, letters="off", theme="dark", density="comfortable"))
    assert 'data-letters="off"' in page.html and 'data-theme="dark"' in page.html
    assert page.url == SETTINGS + "/look"


def test_what_runs_here_is_told_and_diagnostics_are_an_admins(story: Story, web: Web) -> None:
    page = web.get(SETTINGS + "/about")
    bundle = json.loads(web.get("/api/diagnostics").html)
    assert bundle["versions"]["sqlite"] in page.text
    for library in bundle["libraries"]:
        assert library["name"] in page.text and library["licence"] in page.text
    hal = person(story, "hal", "viewer")
    assert "An admin can download it." in hal.get(SETTINGS + "/about").text
    assert hal.get("/api/diagnostics").status == 403


# --- data sets ---


def test_the_counts_of_a_data_set_are_those_of_its_download(story: Story, web: Web) -> None:
    form = web.get("/dashboard/datasets").form("/dashboard/datasets")
    page = web.submit(form, model="gpt-4o*", min_steps="2")
    shown = data(web, page.url.replace("/dashboard/datasets", "/dashboard/datasets.json"))
    report = shown["report"]
    assert report["whole"] and report["lines"] > 0 and f"{report['lines']} lines ok" in page.text
    lines = web.get(shown["download"]).html.splitlines()
    assert len(lines) == report["lines"]
    assert [json.loads(line) for line in report["preview"]] == [json.loads(line) for line in lines[:3]]
    api = story.proxy.control.get(shown["download"].replace("/dataset?", "/report?"))
    assert {one["name"]: one["count"] for one in report["left_out"]} == api["left_out"]


def test_what_is_secret_is_redacted_until_somebody_turns_that_off(tmp_path: Path) -> None:
    with Proxy(tmp_path / "data", arguments=["--simulate"]) as proxy:
        web = Web(proxy.url).log_in(proxy.admin_token)
        said = [chat.user("Write to ann@example.test, please")]
        assert proxy.client.ask("s", said, run="r").status == 200
        page = web.get("/dashboard/datasets")
        assert page.status == 200 and "ann@example.test" not in page.html and "Redacted" in page.text
        form = page.form("/dashboard/datasets")
        plain_ = web.submit(form, redact="false")
        assert "ann@example.test" in plain_.html and "Nothing is redacted" in plain_.text
        assert "--no-redact" in plain_.text and "redact=false" in plain_.html


@pytest.mark.parametrize(
    ("query", "said"),
    [("since=yesterday", "since is"), ("min_cost=cheap", "which is no number"), ("session=nobody", "no session"),
     ("split=2", "give the share"), ("part=train", "without split"), ("format=xml", "format is")],
)  # fmt: skip
def test_filters_that_cannot_be_used_are_said_beside_them(web: Web, query: str, said: str) -> None:
    page = web.get(f"/dashboard/datasets?{query}")
    assert page.status == 200 and said in page.text and page.form("/dashboard/datasets")


def test_the_form_keeps_what_was_typed(web: Web) -> None:
    page = web.get("/dashboard/datasets?label=a,b&session=invoice-4711&split=0.2&dedupe=false&finished=true&format=trl")
    shown = {field.name: field.value for field in page.form("/dashboard/datasets").fields}
    assert shown["label"] == "a, b" and shown["session"] == "invoice-4711" and shown["split"] == "0.2"
    assert (shown["format"], shown["dedupe"], shown["finished"], shown["redact"]) == ("trl", "false", "true", "true")
    assert "agentstate export invoice-4711 --format trl" in page.text
