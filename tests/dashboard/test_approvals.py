"""The pages of approvals, without scripts: they show everything, and a form decides what its page showed."""

from __future__ import annotations

import json
import threading
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from agentstate import clock
from agentstate.core.model import ApprovalKind
from tests.dashboard.conftest import person
from tests.support import chat, mailing
from tests.support.approvals import Held, prepared
from tests.support.client import TEST_KEY
from tests.support.doubt import until
from tests.support.mailing import TO_BOB, calls_of
from tests.support.people import Asking, pending
from tests.support.proxy import Proxy
from tests.support.story import HOSTILE, Story
from tests.support.upstream import Upstream
from tests.support.web import PageSeen, Web

PATH = "/dashboard/approvals"
ENDLESS_PATTERN = {"type": "object", "properties": {"to": {"type": "string", "pattern": "^(a+)+$"}}}
ENDLESS_REFERENCES = {
    "type": "object", "properties": {"to": {"$ref": "#/$defs/0"}},
    "$defs": {str(at): {"allOf": [{"$ref": f"#/$defs/{at + 1}"}] * 2} for at in range(40)} | {"40": {"type": "string"}},
}  # fmt: skip


upstream, proxy = mailing.upstream, mailing.proxy


@pytest.fixture
def admin(proxy: Proxy) -> Web:
    return Web(proxy.url).log_in(proxy.admin_token)


def asked(proxy: Proxy, session: str = "s") -> tuple[Asking, dict[str, Any]]:
    """An agent whose call is held, and the approval."""
    asking = mailing.ask(proxy, session)
    return asking, pending(proxy, session=session)[0]


def card(web: Web, approval: dict[str, Any] | str) -> PageSeen:
    key = approval if isinstance(approval, str) else approval["id"]
    page = web.get(f"{PATH}/{key}")
    assert page.status == 200, page.text
    return page


def form_with(page: PageSeen, button: str) -> Any:
    """The form of a page that has that button."""
    return next(form for form in page.forms if any(one.value == button for one in form.buttons))


def state(proxy: Proxy, approval: dict[str, Any] | str) -> str:
    key = approval if isinstance(approval, str) else approval["id"]
    return str(proxy.control.get(f"/api/approvals/{key}")["status"])


# --- looking ---


def test_the_inbox_lists_what_waits_oldest_first_and_shows_the_oldest(proxy: Proxy, admin: Web) -> None:
    asking = [asked(proxy, name)[0] for name in ("first", "second")]
    page = admin.get(PATH)
    keys = [link.removeprefix(PATH + "/") for link in page.links if link.startswith(f"{PATH}/apr_")]
    waiting = [one["id"] for one in proxy.control.get("/api/approvals/pending")]
    assert [key for key in keys if "/" not in key][:2] == waiting
    assert "(2) Approvals" in page.html and "send_email" in page.text
    assert "policy 1" in page.text and "bob@example.com" in page.text and "write to Bob" in page.text
    assert "Its agent waits for it now." in page.text
    shown = json.loads(admin.get(PATH + ".json").html)
    assert [row["session"] for row in shown["waiting"]] == ["first", "second"] and shown["count"] == 2
    assert shown["card"]["digest"] == proxy.control.get(f"/api/approvals/{waiting[0]}")["digest"]
    assert all(one.waits for one in asking)


def test_an_empty_inbox_says_how_many_were_decided_today_and_what_is_held(proxy: Proxy, admin: Web) -> None:
    assert "Nothing waits for you." in admin.get(PATH).text
    asking, approval = asked(proxy)
    admin.submit(form_with(card(admin, approval), "APPROVED"), "APPROVED")
    asking.answer()
    text = admin.get(PATH).text
    assert "1 decided today: 1 approved" in text and "send_email" in text


def test_what_harms_is_shown_and_does_not(story: Story, web: Web) -> None:
    approval = story.hold("harm", json.dumps({"to": HOSTILE, "subject": "x"}))
    page = web.get(f"{PATH}/{approval['id']}")
    tags = [(tag, given) for tag, given in page.tags if tag in ("img", "iframe") or "onerror" in given]
    assert not tags and all("src" in given for tag, given in page.tags if tag == "script")
    assert "<script>window.harmed = 1</script>" in unescape(page.html)
    assert "\u202e" not in page.html and "‹U+202E›" in page.html


def test_arguments_that_programs_read_differently_are_shown_to_the_letter_and_cannot_be_edited(tmp_path: Path) -> None:
    [key] = prepared(tmp_path, [Held("wire", '{"to": "a", "to": "b"}')])
    with Proxy(tmp_path) as proxy:
        web = Web(proxy.url).log_in(proxy.admin_token)
        text = card(web, key).text
        assert "stands in them twice" in text and '"to" : "a" , "to" : "b"' in text.replace("  ", " ")
        assert "Edit as a form" not in web.get(f"{PATH}/{key}/edit").text


def test_half_a_character_in_a_call_hides_no_approval(tmp_path: Path) -> None:
    [half, whole] = prepared(tmp_path, [Held(arguments='{"to": "\\ud800x"}'), Held()])
    with Proxy(tmp_path) as proxy:
        listed = {one["id"]: one for one in proxy.control.get("/api/approvals/pending")}
        assert set(listed) == {half, whole} and listed[half]["arguments"] == {"to": "\ud800x"}
        web = Web(proxy.url).log_in(proxy.admin_token)
        for path in (
            f"{PATH}/{half}",
            f"{PATH}/{half}.json",
            f"{PATH}.json",
            "/api/sessions/s",
            f"/api/approvals/{half}",
        ):
            page = web.get(path)
            assert page.status == 200, (path, page.text)


# --- deciding ---


def test_a_call_that_is_approved_on_its_card_is_what_the_agent_gets(proxy: Proxy, admin: Web) -> None:
    asking, approval = asked(proxy)
    done = admin.submit(form_with(card(admin, approval), "APPROVED"), "APPROVED")
    assert (done.status, done.location) == (303, f"{PATH}/{approval['id']}")
    assert calls_of(asking.answer().body) == [("send_email", TO_BOB)]
    text = admin.follow(done).text
    assert "send_email: approved." in text and "Approved by admin" in text
    assert "The agent was given the answer as decided." in text and "cannot be undone" in text


def test_a_rejection_asks_for_a_reason_and_the_agent_is_told_it(proxy: Proxy, admin: Web) -> None:
    asking, approval = asked(proxy)
    page = card(admin, approval)
    without = admin.submit(form_with(page, "REJECTED"), "REJECTED", reason="  ")
    assert without.status == 400 and "say why it is rejected" in without.text and state(proxy, approval) == "PENDING"
    done = admin.submit(form_with(page, "REJECTED"), "REJECTED", reason="Bob has left")
    assert done.status == 303
    body = asking.answer().body
    assert calls_of(body) == [] and b"Bob has left" in body
    text = admin.follow(done).text
    assert "Rejected by admin" in text and "Bob has left" in text and "Ask again" in text


def test_an_edit_in_the_form_is_checked_shown_as_a_difference_and_given_to_the_agent(proxy: Proxy, admin: Web) -> None:
    asking, approval = asked(proxy)
    page = admin.get(f"{PATH}/{approval['id']}/edit")
    form = page.form("/edit")
    assert [one.value for one in form.fields if one.name.startswith("argument-")] == ["bob@example.com", "hello"]
    checked = admin.submit(form, "check", **{"argument-1": "two\r\nlines"})
    assert checked.status == 200 and state(proxy, approval) == "PENDING"
    assert "It fits the tool’s schema" in checked.text and "two" in checked.text and "− proposed" in checked.text
    again = checked.form("/edit")
    assert next(one.value for one in again.fields if one.name == "argument-1") == "two\nlines"
    done = admin.submit(again, "approve", reason="shorter")
    assert done.status == 303, done.text
    [(tool, arguments)] = calls_of(asking.answer().body)
    assert (tool, json.loads(arguments)) == ("send_email", {"to": "bob@example.com", "body": "two\nlines"})
    text = admin.follow(done).text
    assert "Approved with edits by admin" in text and "As it was edited" in text


def test_an_edit_as_json_that_does_not_fit_says_why_and_keeps_what_was_typed(proxy: Proxy, admin: Web) -> None:
    _, approval = asked(proxy)
    form = admin.get(f"{PATH}/{approval['id']}/edit?mode=json").form("/edit")
    for typed, said in (
        ('{"to": 5}', "to: 5 is not of type"), ("{", "not JSON"), ("[]", "JSON object"), ('{"cc": 1}', "'to' is a"),
    ):  # fmt: skip
        for button in ("check", "approve"):
            page = admin.submit(form, button, arguments=typed, reason="safer")
            text = unescape(page.text)
            assert said in text, (typed, button, text)
            assert page.status == (200 if button == "check" else 422)
            assert next(one.value for one in page.form("/edit").fields if one.name == "arguments") == typed
            assert "safer" in text
    assert state(proxy, approval) == "PENDING"


def test_what_is_wrong_stands_at_its_field(proxy: Proxy, admin: Web, tmp_path: Path) -> None:
    [key] = prepared(tmp_path / "more", [Held("pay", {"to": "a", "amount": 1})])
    with Proxy(tmp_path / "more") as other:
        web = Web(other.url).log_in(other.admin_token)
        form = web.get(f"{PATH}/{key}/edit").form("/edit")
        for typed, said in (("many", "a number is wanted"), ("1000", "greater than the maximum")):
            page = web.submit(form, "check", **{"argument-1": typed})
            wrong = [given for tag, given in page.tags if given.get("aria-invalid") == "true"]
            assert [given["name"] for given in wrong] == ["argument-1"] and said in page.text
            assert [given for tag, given in page.tags if tag == "button" and "disabled" in given]


@pytest.mark.parametrize("schema", [ENDLESS_PATTERN, ENDLESS_REFERENCES])
def test_a_schema_that_takes_for_ever_to_check_holds_up_nobody(tmp_path: Path, schema: dict[str, Any]) -> None:
    [key] = prepared(tmp_path, [Held("pay", {"to": "a" * 40 + "!"}, schema=schema)])
    with Proxy(tmp_path) as proxy:
        web = Web(proxy.url).log_in(proxy.admin_token)
        form = web.get(f"{PATH}/{key}/edit").form("/edit")
        answers: list[PageSeen] = []
        checking = threading.Thread(target=lambda: answers.append(web.submit(form, "approve")))
        checking.start()
        looks = 0
        while checking.is_alive():
            assert Web(proxy.url).get("/healthz").status == 200
            looks += 1
        checking.join()
        assert looks > 5, "nobody could look while it was checked"
        assert answers[0].status == 422 and "cannot be checked" in answers[0].text
        assert state(proxy, key) == "PENDING"


def test_a_decision_is_about_what_its_page_showed(proxy: Proxy, admin: Web) -> None:
    _, approval = asked(proxy)
    form = form_with(card(admin, approval), "APPROVED")
    for digest in ("0" * 64, "", None):
        done = admin.submit(form, "APPROVED", digest=digest)
        assert done.status == 409 and "not what the approval is about" in done.text
    edit = admin.get(f"{PATH}/{approval['id']}/edit").form("/edit")
    assert admin.submit(edit, "approve", digest="0" * 64).status == 409
    assert state(proxy, approval) == "PENDING"


def test_who_comes_second_is_told_who_was_first(proxy: Proxy, admin: Web) -> None:
    asking, approval = asked(proxy)
    page = card(admin, approval)
    proxy.control.post(f"/api/approvals/{approval['id']}/action", {"action": "APPROVED", "reason": "mine"})
    asking.answer()
    late = admin.submit(form_with(page, "REJECTED"), "REJECTED", reason="no")
    assert late.status == 409 and "is approved already by admin" in late.text
    assert "Approved by admin" in late.text and "mine" in late.text
    assert not [form for form in late.forms if form.action.startswith(PATH)]


def test_a_form_of_another_login_or_site_decides_nothing(proxy: Proxy, admin: Web) -> None:
    _, approval = asked(proxy)
    form = form_with(card(admin, approval), "APPROVED")
    assert admin.submit(form, "APPROVED", csrf="x").status == 403
    assert Web(proxy.url).submit(form, "APPROVED").location.startswith("/dashboard/login")
    body = "action=APPROVED"
    foreign = admin.send("POST", form.action, body, {"origin": "http://evil.test", "sec-fetch-site": "cross-site"})
    assert foreign.status == 403 and state(proxy, approval) == "PENDING"


def test_a_viewer_sees_the_card_and_cannot_decide(story: Story) -> None:
    approval = story.hold("seen")
    viewer = person(story, "vera", "viewer")
    page = card(viewer, approval)
    assert "You may not decide it." in page.text and "send_email" in page.text
    assert not [form for form in page.forms if form.action.startswith(PATH) and form.method == "post"]
    csrf = next(one.value for form in page.forms for one in form.fields if one.name == "csrf")
    body = f"csrf={csrf}&action=APPROVED&digest={approval['digest']}"
    assert viewer.send("POST", f"{PATH}/{approval['id']}", body).status == 403
    assert viewer.get(f"{PATH}/{approval['id']}/edit").status == 403
    assert state(story.proxy, approval) == "PENDING"


def test_several_people_must_agree_where_the_policy_says_so(tmp_path: Path) -> None:
    [key] = prepared(tmp_path, [Held(quorum=2)])
    with Proxy(tmp_path) as proxy:
        webs = []
        for name in ("ann", "ben"):
            token = proxy.control.post("/api/approvers", {"name": name, "role": "approver"})["token"]
            webs.append(Web(proxy.url).log_in(token))
        done = webs[0].submit(form_with(card(webs[0], key), "APPROVED"), "APPROVED")
        text = webs[0].follow(done).text
        assert "Counted." in text and "1 has so far" in text and "ann approved" in text
        done = webs[1].submit(form_with(card(webs[1], key), "APPROVED"), "APPROVED")
        assert "Approved by ben" in webs[1].follow(done).text


def test_it_can_be_decided_only_by_whom_it_asks_for(tmp_path: Path) -> None:
    [key] = prepared(tmp_path, [Held(approvers=("ann",))])
    with Proxy(tmp_path) as proxy:
        token = proxy.control.post("/api/approvers", {"name": "ben", "role": "approver"})["token"]
        page = card(Web(proxy.url).log_in(token), key)
        assert "It asks for ann; you are ben (approver)." in page.text and "APPROVED" not in page.html


# --- every kind ---


def test_a_held_request_is_shown_in_full_and_sent_once_it_is_approved(
    proxy: Proxy, admin: Web, upstream: Upstream
) -> None:
    headers = {"x-agent-require-approval": "true"}
    messages = [chat.user("something to look at first")]
    asking = Asking(lambda: proxy.client.ask("r", messages, run="r1", headers=headers))
    [approval] = pending(proxy)
    page = card(admin, approval)
    assert "The request, in full" in page.text and "something to look at first" in page.text
    assert "The request is sent to the provider, and paid." in page.text and "EDITED" not in page.html
    assert upstream.calls == 0
    admin.submit(form_with(page, "APPROVED"), "APPROVED")
    [proposed] = pending(proxy)  # it was sent, and its answer proposes a call
    assert (proposed["kind"], upstream.calls) == ("call", 1) and asking.waits


def test_a_budget_is_raised_by_what_is_entered(tmp_path: Path, upstream: Upstream) -> None:
    with Proxy(tmp_path, upstream.url, file="policies = []\n[budget]\nsession_steps = 1\n") as proxy:
        web = Web(proxy.url).log_in(proxy.admin_token)
        assert proxy.client.ask("b", "one", run="r1").status == 200
        asking = Asking(lambda: proxy.client.ask("b", "two", run="r1"))
        [approval] = pending(proxy)
        page = card(web, approval)
        assert "budget.session_steps" in page.text and "Let this call through" in page.text
        for typed in ("", "nothing", "-1", "nan"):
            assert web.submit(form_with(page, "EDITED"), "EDITED", **{"raise": typed}).status == 422
        assert state(proxy, approval) == "PENDING"
        done = web.submit(form_with(page, "EDITED"), "EDITED", **{"raise": "5"})
        assert done.status == 303 and asking.answer().status == 200
        assert "Limit raised by admin" in web.follow(done).text


@pytest.mark.parametrize(
    ("typed", "result"), [("", None), ('{"charged": 1200}', {"charged": 1200}), ("it was sent", "it was sent")]
)
def test_a_call_in_doubt_is_settled_with_its_result(tmp_path: Path, typed: str, result: Any) -> None:
    [key] = prepared(tmp_path, [Held("charge", kind=ApprovalKind.DOUBT)])
    with Proxy(tmp_path) as proxy:
        web = Web(proxy.url).log_in(proxy.admin_token)
        page = card(web, key)
        assert "What became of it?" in page.text and "It may have acted already" in page.text
        done = web.submit(form_with(page, "REUSED"), "REUSED", result=typed)
        assert done.status == 303, done.text
        assert "Said to have run by admin" in web.follow(done).text
        shown = proxy.control.get(f"/api/approvals/{key}")
        assert (shown["status"], shown["effective"]) == ("REUSED", result)


def test_a_suspected_duplicate_can_be_given_its_recorded_result(tmp_path: Path) -> None:
    [key] = prepared(tmp_path, [Held("charge", kind=ApprovalKind.DUPLICATE)])
    with Proxy(tmp_path) as proxy:
        web = Web(proxy.url).log_in(proxy.admin_token)
        page = card(web, key)
        assert "Made again, it acts a second time." in page.text and "suspected duplicate" in page.text
        done = web.submit(form_with(page, "REUSED"), "REUSED")
        assert "Recorded result reused by admin" in web.follow(done).text


def test_one_that_has_expired_says_so_and_how_it_is_asked_again(tmp_path: Path) -> None:
    [key] = prepared(tmp_path, [Held(expires_at=clock.now() + 0.5)])
    with Proxy(tmp_path) as proxy:
        web = Web(proxy.url).log_in(proxy.admin_token)
        until(lambda: state(proxy, key) == "EXPIRED", "expiry")
        page = card(web, key)
        assert "counts as a rejection" in page.text and "Ask again" in page.text
        assert "/dashboard/sessions/s/rollback?step=0" in page.links
        assert not [form for form in page.forms if form.action.startswith(PATH)]


# --- several at once, and what was decided ---


def test_several_are_shown_whole_and_approved_together(tmp_path: Path) -> None:
    keys = prepared(tmp_path, [Held("one", {"to": "a"})], [Held("two", {"to": "b"})], [Held("three", {"to": "c"})])
    with Proxy(tmp_path) as proxy:
        web = Web(proxy.url).log_in(proxy.admin_token)
        inbox = web.get(PATH)
        assert [given["value"] for tag, given in inbox.tags if given.get("type") == "checkbox"] == keys
        page = web.submit(inbox.form("/bulk"), id=keys[:2])
        assert "Approve 2" in page.text and "three" not in page.text
        assert page.html.count('class="pairs"') == 2
        done = web.submit(page.form("/bulk"), "APPROVED")
        assert (done.status, done.location) == (303, PATH) and "Approved 2." in web.follow(done).text
        assert [state(proxy, key) for key in keys] == ["APPROVED", "APPROVED", "PENDING"]


def test_those_that_cannot_be_decided_with_others_are_told(tmp_path: Path) -> None:
    keys = prepared(tmp_path, [Held("one")], [Held("two")], [Held("lost", kind=ApprovalKind.DOUBT)])
    with Proxy(tmp_path) as proxy:
        web = Web(proxy.url).log_in(proxy.admin_token)
        page = web.get(f"{PATH}/bulk?" + "&".join(f"id={key}" for key in keys))
        assert "Approve 2" in page.text and "a call in doubt is settled on its own card" in page.text
        assert web.submit(page.form("/bulk"), "REJECTED").status == 400
        proxy.control.post(f"/api/approvals/{keys[0]}/action", {"action": "REJECTED", "reason": "first"})
        late = web.submit(page.form("/bulk"), "APPROVED")
        assert late.status == 409 and "1 could not be decided so" in late.text
        assert [state(proxy, key) for key in keys] == ["REJECTED", "APPROVED", "PENDING"]
        assert web.get(PATH + "/bulk").status == 400


def test_what_was_decided_is_listed_latest_first_by_its_filter(tmp_path: Path) -> None:
    keys = prepared(tmp_path, [Held("one")], [Held("two")], session="a/b") + prepared(tmp_path, [Held("three")])
    with Proxy(tmp_path) as proxy:
        web = Web(proxy.url).log_in(proxy.admin_token)
        for key, action in zip(keys, ("APPROVED", "REJECTED", "APPROVED"), strict=True):
            proxy.control.post(f"/api/approvals/{key}/action", {"action": action, "reason": "so"})

        def listed(query: str = "") -> list[str]:
            return [row["id"] for row in json.loads(web.get(f"{PATH}/decided.json{query}").html)["rows"]]

        assert listed() == keys[::-1]
        assert listed("?state=rejected") == [keys[1]] and listed("?session=a%2Fb") == [keys[1], keys[0]]
        assert listed(f"?after={keys[1]}") == [keys[0]] and listed("?state=expired") == []
        page = web.get(f"{PATH}/decided")
        assert [link for link in page.links if link.startswith(f"{PATH}/apr_")] == [
            f"{PATH}/{key}" for key in keys[::-1]
        ]
        assert "Nothing was decided as “expired”." in web.get(f"{PATH}/decided?state=expired").text
        assert web.get(f"{PATH}/decided?state=odd").status == 400


def test_what_is_not_there_is_said(proxy: Proxy, admin: Web) -> None:
    page = admin.get(f"{PATH}/apr_none")
    assert page.status == 404 and "there is no approval" in page.text and TEST_KEY not in page.html
