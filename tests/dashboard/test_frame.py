"""The frame of the dashboard without scripts: logging in, what is asked of forms, headers, how a person likes it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.dashboard.conftest import person
from tests.support.proxy import BOUND_S, CLI, Proxy, clean_environment
from tests.support.story import Story
from tests.support.web import Web

POLICY = "default-src 'none'; script-src 'self'; style-src 'self'"


def test_who_is_not_logged_in_is_led_to_the_login_and_back(story: Story) -> None:
    web = Web(story.proxy.url)
    led = web.get("/dashboard?state=held")
    assert (led.status, led.location) == (303, "/dashboard/login?next=%2Fdashboard%3Fstate%3Dheld")
    form = web.follow(led).form("/login")
    done = web.submit(form, token=story.proxy.admin_token)
    assert done.location == "/dashboard?state=held"
    assert web.follow(done).status == 200


def test_a_link_logs_in_once_and_says_so_the_second_time(story: Story) -> None:
    path = story.proxy.cli("dashboard").stdout.strip().removeprefix(story.proxy.url)
    first, second = Web(story.proxy.url), Web(story.proxy.url)
    assert first.send("HEAD", path).status == 200  # which uses nothing up
    assert first.get(path).status == 200
    assert "admin" in first.get("/dashboard").text
    refused = second.get(path)
    assert refused.status == 403 and "this link has been used" in refused.text
    assert second.get("/dashboard").status == 303
    token = path.partition("token=")[2]
    assert token not in story.proxy.log and token not in first.get("/dashboard").html


def test_a_start_in_a_terminal_shows_a_link_and_one_whose_output_is_kept_does_not(tmp_path: Path) -> None:
    master, terminal = pty.openpty()
    command = [*CLI, "serve", "--port", "0"]
    process = subprocess.Popen(command, cwd=tmp_path, env=clean_environment(tmp_path), stdout=terminal, stderr=terminal)
    try:
        shown = b""
        until = time.monotonic() + BOUND_S
        while b"admin token in" not in shown and time.monotonic() < until:
            if select.select([master], [], [], 1.0)[0]:
                shown += os.read(master, 4096)
        link = re.search(rb"dashboard: +(http://\S+)(/dashboard/login\?token=\S+)", shown)
        assert link is not None, shown
        web = Web(link[1].decode())
        assert web.get(link[2].decode()).status == 200 and web.get("/dashboard").status == 200
    finally:
        process.kill()
        process.wait(BOUND_S)
        os.close(master)
        os.close(terminal)
    with Proxy(tmp_path / "other") as proxy:
        assert "token=" not in proxy.log


def test_a_link_logs_in_as_whoever_asked_for_it(story: Story) -> None:
    ann = person(story, "ann-of-the-link", "approver")
    made = ann.send("POST", "/api/logins", "{}", {"x-csrf-token": token_of(ann), "content-type": "application/json"})
    web = Web(story.proxy.url)
    web.get(json.loads(made.html)["path"])
    assert "ann-of-the-link approver" in web.get("/dashboard").text


@pytest.mark.parametrize(
    ("token", "status", "said"),
    [
        ("", 400, "paste a token"),
        ("not-a-token-of-anybody", 401, "the control plane asks for"),
    ],
)
def test_a_wrong_token_is_refused_in_words_and_stands_on_no_page(
    story: Story, token: str, status: int, said: str
) -> None:
    web = Web(story.proxy.url)
    refused = web.submit(web.get("/dashboard/login").form("/login"), token=token)
    assert refused.status == status and said in refused.text
    assert not token or token not in refused.html
    assert web.cookies == {}


def test_the_key_of_an_agent_opens_no_page(tmp_path: Path) -> None:
    with Proxy(tmp_path / "data", settings={"server.agent_keys": "sk-test-agent-key-0001"}) as proxy:
        web = Web(proxy.url)
        refused = web.submit(web.get("/dashboard/login").form("/login"), token="sk-test-agent-key-0001")
        assert refused.status == 403 and web.cookies == {}
        web.headers = {"authorization": "Bearer sk-test-agent-key-0001"}
        assert web.get("/dashboard").status == 403
        assert web.get("/dashboard.json").status == 403


def test_a_login_leads_nowhere_else(story: Story) -> None:
    for next_ in ("https://evil.example/", "//evil.example", "/dashboard\\@evil.example", "/dashboards", "/api/audit"):
        web = Web(story.proxy.url)
        form = web.get("/dashboard/login?" + urlencode({"next": next_})).form("/login")
        assert web.submit(form, token=story.proxy.admin_token).location == "/dashboard"


def test_the_cookie_is_out_of_reach_of_scripts_other_sites_and_agents(story: Story) -> None:
    web = Web(story.proxy.url)
    done = web.submit(web.get("/dashboard/login").form("/login"), token=story.proxy.admin_token)
    made = done.headers["set-cookie"]
    assert [re.sub("=[^;]+", "=…", one, count=1) for one in made] == [
        f"{made[0].partition('=')[0]}=…; Path={path}; Max-Age=604800; HttpOnly; SameSite=Strict"
        for path in ("/dashboard", "/api")
    ]
    assert story.proxy.admin_token not in "".join(made)


def test_the_cookie_is_for_https_alone_where_that_is_how_people_come(tmp_path: Path) -> None:
    with Proxy(tmp_path / "data", settings={"approvals.public_url": "https://agents.example"}) as proxy:
        web = Web(proxy.url)
        body = urlencode({"token": proxy.admin_token})
        done = web.send(
            "POST", "/dashboard/login", body, {"host": "agents.example", "origin": "https://agents.example"}
        )
        assert done.status == 303 and all("; Secure" in one for one in done.headers["set-cookie"])
        assert not any("; Secure" in one for one in web.send("POST", "/dashboard/login", body).headers["set-cookie"])


def test_a_login_survives_a_restart_and_a_link_does_not(tmp_path: Path) -> None:
    with Proxy(tmp_path / "data") as proxy:
        proxy.keep_port()
        web = Web(proxy.url).log_in(proxy.admin_token)
        path = proxy.control.post("/api/logins")["path"]
        proxy.restart()
        assert web.get("/dashboard").status == 200
        assert Web(proxy.url).get(path).status == 403


def test_another_admin_token_ends_logins(tmp_path: Path) -> None:
    with Proxy(tmp_path / "data") as proxy:
        proxy.keep_port()
        web = Web(proxy.url).log_in(proxy.admin_token)
        (tmp_path / "data" / "admin_token").write_text("another-token-that-is-long-enough\n")
        proxy.restart()
        assert web.get("/dashboard").status == 303


@pytest.mark.parametrize("verb", ["disable", "rotate"])
def test_a_login_is_dead_at_once_when_its_approver_is_disabled_or_has_another_token(story: Story, verb: str) -> None:
    web = person(story, f"bob-{verb}", "approver")
    assert web.get("/dashboard").status == 200 and web.get("/api/sessions").status == 200
    story.proxy.control.post(f"/api/approvers/bob-{verb}/{verb}")
    assert web.get("/dashboard").status == 303 and web.get("/api/sessions").status == 401


def test_an_altered_cookie_is_nobodys(story: Story, web: Web) -> None:
    for key, value in list(web.cookies.items()):
        web.cookies[key] = value[:-2] + ("aa" if value[-2:] != "aa" else "bb")
    assert web.get("/dashboard").status == 303


def test_the_cookie_reads_the_api_and_writes_only_with_the_token_of_a_page(story: Story, web: Web) -> None:
    assert web.get("/api/sessions").status == 200
    story.conversation("by-cookie", 1)
    write = {"content-type": "application/json"}
    path, body = "/api/sessions/by-cookie/status", '{"status": "COMPLETED"}'
    assert web.send("POST", path, body, write).status == 403
    assert web.send("POST", path, body, {**write, "x-csrf-token": "0" * 32}).status == 403
    assert story.proxy.control.session("by-cookie")["session"]["status"] == "RUNNING"
    assert web.send("POST", path, body, {**write, "x-csrf-token": token_of(web)}).status == 200
    assert story.proxy.control.session("by-cookie")["session"]["status"] == "COMPLETED"


def token_of(web: Web) -> str:
    """The form token of a login, as pages carry it."""
    return next(
        one["content"] for tag, one in web.get("/dashboard").tags if tag == "meta" and one.get("name") == "csrf"
    )


def test_a_form_without_its_token_does_nothing_and_says_so(story: Story, web: Web) -> None:
    form = web.get("/dashboard").form("/look")
    for csrf in ("", "0" * 32, token_of(person(story, "eve-of-forms", "viewer"))):
        refused = web.submit(form, "dark", csrf=csrf)
        assert refused.status == 403 and "this form is not of this login" in refused.text
    assert not any(name == "agentstate_look" for name, _ in web.cookies)


def test_a_form_of_another_site_is_refused_before_it_is_looked_at(web: Web) -> None:
    body = urlencode({"csrf": token_of(web), "theme": "dark"})
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert web.send("POST", "/dashboard/look", body, headers).status == 403
    assert web.send("POST", "/dashboard/login", "token=x", {"origin": "https://evil.example"}).status == 403


def test_a_host_that_is_not_the_proxys_sees_no_page(web: Web) -> None:
    for path in ("/dashboard", "/dashboard.json", "/dashboard/login"):
        assert web.send("GET", path, headers={"host": "rebound.example"}).status == 403


def test_how_a_person_likes_it_is_kept_without_scripts(web: Web) -> None:
    page = web.get("/dashboard?state=held")
    for button, said in (("dark", 'data-theme="dark"'), ("comfortable", 'data-density="comfortable"')):
        done = web.submit(page.form("/look"), button)
        assert done.location == "/dashboard?state=held"
        page = web.follow(done)
        assert said in page.html
    assert 'data-theme="dark"' in page.html
    assert web.submit(page.form("/look"), back="https://evil.example", theme="light").location == "/dashboard"


def test_logging_out_ends_it_in_this_browser(web: Web) -> None:
    done = web.submit(web.get("/dashboard").form("/logout"))
    assert done.location == "/dashboard/login"
    assert web.get("/dashboard").status == 303 and web.get("/api/sessions").status == 401


def test_every_page_has_the_strict_policy_and_nothing_inline(story: Story, web: Web) -> None:
    for path in ("/dashboard", "/dashboard/login", "/dashboard/nowhere", "/dashboard/sessions/hostile"):
        page = web.get(path)
        assert page.header("content-security-policy").startswith(POLICY)
        assert (page.header("cache-control"), page.header("x-content-type-options")) == ("no-store", "nosniff")
        assert page.header("x-frame-options") == "DENY" and page.header("referrer-policy") == "same-origin"
        inline = [(tag, name) for tag, given in page.tags for name in given if name == "style" or name.startswith("on")]
        assert inline == []
        assert all("src" in given for tag, given in page.tags if tag == "script")
        assert not any(tag == "style" for tag, _ in page.tags)


def test_files_of_pages_are_kept_for_ever_under_a_name_that_changes_with_them(web: Web) -> None:
    page = web.get("/dashboard")
    [sheet, *_] = [given["href"] for tag, given in page.tags if tag == "link" and given.get("rel") == "stylesheet"]
    found = web.get(sheet)
    assert (found.status, found.header("content-type")) == (200, "text/css; charset=utf-8")
    assert "immutable" in found.header("cache-control")
    stale = web.get("/dashboard/static/0000/base.css")
    assert stale.html == found.html and stale.header("cache-control") == "no-store"
    for path in ("/dashboard/static/0000/none.css", "/dashboard/static/0000/..%2Frendering.py"):
        assert web.get(path).status == 404


def test_an_address_that_is_none_is_said_in_words(web: Web) -> None:
    assert "there is no such page" in web.get("/dashboard/nowhere").text
    assert web.get("/dashboard/nowhere").status == 404
    assert web.send("POST", "/dashboard/strip", "x=1").status == 405


def test_a_page_is_json_too_for_who_has_a_token(story: Story) -> None:
    web = Web(story.proxy.url)
    assert web.get("/dashboard.json").status == 401
    web.headers = {"authorization": f"Bearer {story.proxy.admin_token}"}
    page = web.get("/dashboard.json")
    assert page.header("content-type") == "application/json"
    assert "invoice-4711" in [row["id"] for row in json.loads(page.html)["sessions"]]


def test_the_strip_says_what_the_api_says(story: Story, web: Web) -> None:
    text = web.get("/dashboard/strip?fragment=strip").text
    held = len(story.proxy.control.get("/api/approvals/pending"))
    assert f"{held} held" in text and "0 breakers open" in text
    assert re.search(r"saved \$0\.00\d+ today", text)
    assert "no part" in web.get("/dashboard/strip?fragment=nothing").text
