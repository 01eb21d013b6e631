"""The pages of providers and of money, without scripts: what they show is what the API says, and each form works."""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.conftest import person
from tests.support import chat
from tests.support.proxy import Proxy
from tests.support.story import MODEL, Story, provider
from tests.support.upstream import Upstream
from tests.support.web import PageSeen, Web

LIMITS = """
[budget]
day_steps = 1000
session_steps = 4
at_limit = "deny"
[providers.far]
url = "https://api.example.invalid/v1"
[[routes]]
model = "gpt-4o*"
fallback = ["claude-sonnet-5-5", "ollama/llama3.2"]
strict = true
"""


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """A proxy with budgets and a model of unknown price; one session has used all of its steps."""
    folder = tmp_path_factory.mktemp("limited") / "data"
    with Upstream(provider) as upstream, Proxy(folder, upstream.url, file=LIMITS) as proxy:
        made = Story(proxy, upstream)
        for turn in range(4):
            made.ask("busy", [chat.user(f"say {turn}")], run="r", model=MODEL)
        made.ask("calm", [chat.user("say hello")], run="r", model="own-model")
        yield made


def admin(story: Story) -> Web:
    return Web(story.proxy.url).log_in(story.proxy.admin_token)


def page_of(web: Web, path: str) -> dict[str, Any]:
    """A page's JSON."""
    return dict(json.loads(web.get(path).html))


def row_of(page: PageSeen, name: str) -> str:
    """The text of the table's row that begins with a name."""
    rows = re.findall(r"<tr[ >].*?</tr>", page.html, re.DOTALL)
    found = [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in rows]
    return next(row for row in found if row.startswith(name))


# --- money ---


@pytest.mark.parametrize("by", ["model", "provider", "session", "label"])
def test_the_figures_of_money_are_those_of_the_api(story: Story, web: Web, by: str) -> None:
    shown = page_of(web, f"/dashboard/spend.json?range=all&by={by}")
    api = story.proxy.control.get(f"/api/stats?by={by}")
    assert {line["name"]: line["figures"]["calls"] for line in shown["lines"]} == {
        row[by]: row["calls"] for row in api["rows"]
    }
    for ours, theirs in (("paid", "cost"), ("saved", "saved"), ("paid_unknown", "cost_unknown")):
        assert shown["total"][ours] == pytest.approx(api["total"][theirs])
        assert sum(day[ours] for day in shown["days"]) == pytest.approx(api["total"][theirs])
    assert shown["total"]["saved"] > 0 and shown["total"]["paid"] > 0


def test_every_day_of_a_span_is_there_whether_or_not_something_happened(web: Web) -> None:
    days = page_of(web, "/dashboard/spend.json?range=30d")["days"]
    assert len(days) == 30 and sum(day["calls"] > 0 for day in days) == 1
    weeks = page_of(web, "/dashboard/spend.json?since=2024-01-01&until=2030-01-01")["days"]
    assert len(weeks) < 30 and {day["days"] for day in weeks[:-1]} == {7}
    assert sum(day["calls"] for day in weeks) == sum(day["calls"] for day in days)


def test_what_nobody_knows_the_price_of_is_counted_and_never_free(limited: Story) -> None:
    web = admin(limited)
    page = web.get("/dashboard/spend?range=all")
    row = row_of(page, "own-model")
    assert row.startswith("own-model — 1") and "1 call of unknown price" in row
    shown = page_of(web, "/dashboard/spend.json?range=all")["lines"]
    assert [line["figures"]["paid_unknown"] for line in shown if line["name"] == "own-model"] == [1]


def test_a_span_and_a_session_are_asked_for_by_the_form(story: Story, web: Web) -> None:
    form = web.get("/dashboard/spend").form("/dashboard/spend")
    page = web.submit(form, since="2020-01-01", until="2020-01-31")
    assert page.status == 200 and "Nothing was asked in this time." in page.text
    page = web.submit(form, since="", until="", session="invoice-4711")
    assert page.status == 200 and "session invoice-4711" in page.text
    assert "agentstate stats --by model --session invoice-4711" in page.text


@pytest.mark.parametrize(
    ("query", "status"),
    [("by=hour", 400), ("range=century", 400), ("since=yesterday", 400), ("range=own&session=nobody", 404)],
)
def test_a_span_that_cannot_be_understood_is_said_in_words(web: Web, query: str, status: int) -> None:
    page = web.get(f"/dashboard/spend?{query}")
    assert page.status == status and "Try again" in page.text


def test_the_csv_of_a_page_holds_its_figures(web: Web) -> None:
    page = web.get("/dashboard/spend?range=all&by=session")
    [link] = [link for link in page.links if "format=csv" in link]
    rows = list(csv.DictReader(io.StringIO(web.get(link.replace("&amp;", "&")).html)))
    shown = page_of(web, "/dashboard/spend.json?range=all&by=session")["lines"]
    assert {row["session"]: float(row["cost_usd"]) for row in rows} == {
        line["name"]: line["figures"]["paid"] for line in shown
    }


def test_budgets_say_how_much_is_used_and_what_happens_then(limited: Story) -> None:
    web = admin(limited)
    page = web.get("/dashboard/spend")
    assert "4 steps of 4 steps 100 %" in page.text and "the next call is refused with budget_exceeded" in page.text
    assert 'class="ch-meter over"' in page.html
    shown = page_of(web, "/dashboard/spend.json")["budgets"]
    api = limited.proxy.control.get("/api/budgets")["limits"]
    assert [(one["limit"], one["session"], one["used"]) for one in shown] == [
        (one["limit"], one["session_id"] or "", one["used"]) for one in api
    ]


def test_without_a_budget_the_page_has_the_lines_of_one(web: Web) -> None:
    page = web.get("/dashboard/spend")
    [text] = re.findall(r"<pre class=\"code\"[^>]*>(.*?)</pre>", page.html, re.DOTALL)
    assert tomllib.loads(text.replace("&#34;", '"'))["budget"]["at_limit"] == "hold"


# --- providers ---


def test_outcomes_of_a_model_are_those_that_the_provider_saw(story: Story, web: Web) -> None:
    sent = Counter(str(seen.json()["model"]) for seen in story.upstream.requests if seen.body)
    found = {
        model["model"]: model
        for one in page_of(web, "/dashboard/providers.json")["providers"]
        for model in one["models"]
    }
    for name in (MODEL, "gpt-4o-down"):
        model = found[name]
        assert model["calls"] + model["under_way"] == sent[name], name
        assert (
            sum(slot[kind] for slot in model["strip"] for kind in ("answered", "limited", "failed")) == model["calls"]
        )
    assert found["gpt-4o-down"]["answered"] == 0 and found["gpt-4o-down"]["failing"] == 1.0
    assert found[MODEL]["p50"] > 0 and found[MODEL]["prices"].startswith("genai-prices")
    assert found["gpt-4o-down"]["prices"] == "" and "— unknown" in row_of(
        web.get("/dashboard/providers"), "gpt-4o-down"
    )


def test_routes_stand_in_the_order_in_which_they_are_asked(limited: Story) -> None:
    web = admin(limited)
    [route] = page_of(web, "/dashboard/providers.json")["routes"]
    assert [(place["provider"], place["model"]) for place in route["places"]] == [
        ("openai", "gpt-4o*"), ("anthropic", "claude-sonnet-5-5"), ("ollama", "llama3.2"),
    ]  # fmt: skip
    assert tomllib.loads(route["toml"])["routes"] == tomllib.loads(LIMITS)["routes"]
    page = web.get("/dashboard/providers")
    assert "strict: nothing of a request may be lost" in page.text


def test_one_token_is_sent_by_a_form_and_the_page_says_how_it_went(story: Story, web: Web) -> None:
    form = web.get("/dashboard/providers").form("/providers/openai/test")
    before = len(story.upstream.requests)
    page = web.follow(web.submit(form, model=MODEL))
    assert f"openai/{MODEL} answered in" in page.text and "session test-openai" in page.text
    assert len(story.upstream.requests) == before + 1
    page = web.follow(web.submit(form, model="gpt-4o-down"))
    assert "openai/gpt-4o-down did not answer (500)" in page.text


def test_who_may_not_send_it_sees_no_button_and_is_refused(story: Story) -> None:
    vera = person(story, "vera-of-providers", "approver")
    page = vera.get("/dashboard/providers")
    assert "Send 1 token" not in page.text
    token = re.findall(r'name="csrf" value="([^"]+)"', page.html)[0]
    before = len(story.upstream.requests)
    refused = vera.send("POST", "/dashboard/providers/openai/test", f"csrf={token}&model={MODEL}")
    assert refused.status == 403 and len(story.upstream.requests) == before


def test_a_provider_whose_keys_are_its_agents_has_no_button_but_the_reason(limited: Story) -> None:
    web = admin(limited)
    page = web.get("/dashboard/providers")
    assert "No test call: agents' own keys pass through to it" in page.text
    assert not [form for form in page.forms if "/far/test" in form.action]
    other = page.form("/providers/openai/test")
    other.action = "/dashboard/providers/far/test"
    refused = web.submit(other, model="gpt-4o")
    assert refused.status == 409 and "providers.far.key_env" in refused.text
    assert refused.text.count("Write a route") == 1, "the refusal stands on the page that asked"


def test_a_route_is_written_for_whoever_types_it(web: Web) -> None:
    form = web.get("/dashboard/providers").form("/dashboard/providers")
    page = web.submit(form, model="gpt-4.1*", fallback="gpt-4o-mini\nanthropic/claude-sonnet-5-5", strict="on")
    text = re.findall(r"<pre class=\"code\"[^>]*>(.*?)</pre>", page.html, re.DOTALL)[-1].replace("&#34;", '"')
    assert tomllib.loads(text)["routes"] == [
        {"model": "gpt-4.1*", "fallback": ["gpt-4o-mini", "anthropic/claude-sonnet-5-5"], "strict": True}
    ]
    assert "say where their calls go" in web.submit(form, model="gpt-4.1*", fallback="").text
    warned = web.submit(form, model="a", fallback="nobody/model")
    assert "no provider of the settings is called nobody" in warned.text


def test_lines_to_paste_hold_no_credentials_of_an_address(tmp_path: Path) -> None:
    file = '[providers.openai]\nurl = "https://someone:sk-test-in-the-address@host.example.invalid/v1"\n'
    with Proxy(tmp_path / "data", file=file) as proxy:
        web = Web(proxy.url).log_in(proxy.admin_token)
        for path in ("/dashboard/providers", "/dashboard/providers.json", "/api/diagnostics"):
            assert "sk-test-in-the-address" not in web.get(path).html
