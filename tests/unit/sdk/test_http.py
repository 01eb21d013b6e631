"""Address, headers and run id: what every wrapper sends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.sdk import http


def test_the_address_is_local_unless_the_environment_or_the_caller_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert http.target("job").base_url == "http://localhost:8080/v1"
    monkeypatch.setenv("AGENTSTATE_URL", "http://proxy.test:9/v1")
    assert http.target("job").base_url == "http://proxy.test:9/v1"
    assert http.target("job", base_url="http://other.test/v1").base_url == "http://other.test/v1"


@pytest.mark.parametrize("given_url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_the_address_may_end_with_or_without_its_version(given_url: str) -> None:
    assert http.target("job", base_url=given_url).base_url == "http://h:1/v1"


@pytest.mark.parametrize("given_url", ["localhost:8080", "ftp://h/v1", "http:///v1", "h"])
def test_an_address_that_is_none_is_refused_with_an_example(given_url: str) -> None:
    with pytest.raises(ValueError, match="http://localhost:8080/v1"):
        http.target("job", base_url=given_url)


def test_a_plain_session_travels_in_the_headers() -> None:
    where = http.target("invoice 4711/a", 3)
    assert where.headers == {
        "x-agent-session-id": "invoice 4711/a",
        "x-agent-run-id": http.run_id(),
        "x-agent-step-number": "3",
    }
    assert where.base_url == "http://localhost:8080/v1"


@pytest.mark.parametrize("session", ["проект/1", " padded ", "café", "a%2Fb ", "漢字?#&", "\u200bx"])
def test_a_session_that_no_header_carries_travels_in_the_path(session: str) -> None:
    where = http.target(session, base_url="http://h:1/k/key/v1")
    assert "x-agent-session-id" not in where.headers
    segments = urlsplit(where.base_url).path.split("/")
    assert segments[1:3] == ["k", "key"]
    assert segments[3] == "s" and unquote(segments[4]) == session and segments[5] == "v1"
    assert where.base_url.isascii()


@given(st.text(min_size=1, max_size=256))
def test_the_session_heard_is_the_session_named(session: str) -> None:
    try:
        where = http.target(session)
    except ValueError:
        refused = not session.strip() or re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", session)
        assert refused
        return
    path = urlsplit(where.base_url).path
    heard = where.headers.get("x-agent-session-id")
    assert (heard if heard is not None else unquote(path.split("/")[2])) == session
    assert all(value.isascii() and value.isprintable() for value in where.headers.values())


@pytest.mark.parametrize(
    ("session", "text"),
    [
        ("", "session_id is empty"),
        ("  ", "session_id is empty"),
        ("x" * 257, "257 characters; 256 are allowed"),
        ("a\nb", r"U\+000A"),
        ("a\x7f", r"U\+007F"),
        ("a\x85", r"U\+0085"),
        ("a\ud800", r"U\+D800"),
    ],
)
def test_a_session_that_cannot_be_sent_is_refused_with_the_reason(session: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        http.target(session)


def test_a_session_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="session_id must be a string, not int"):
        http.target(4711)  # type: ignore[arg-type]


def test_the_longest_session_is_taken() -> None:
    assert http.target("x" * 256).headers["x-agent-session-id"] == "x" * 256


def test_no_session_takes_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="AGENTSTATE_SESSION_ID"):
        http.target(None)
    monkeypatch.setenv("AGENTSTATE_SESSION_ID", "from-outside")
    assert http.target(None).session_id == "from-outside"
    assert http.target("mine").session_id == "mine"


def test_an_address_that_names_the_session_is_left_as_it_is() -> None:
    where = http.target("job 1", base_url="http://h/s/job%201/r/run_7/v1")
    assert where.base_url == "http://h/s/job%201/r/run_7/v1"
    assert where.run_id == where.headers["x-agent-run-id"] == "run_7"


def test_an_address_that_names_another_session_is_refused() -> None:
    with pytest.raises(ValueError, match="names session 'other' but session_id is 'job'"):
        http.target("job", base_url="http://h/s/other/v1")


@pytest.mark.parametrize(("step", "error"), [(-1, ValueError), (True, TypeError), ("0", TypeError), (1.0, TypeError)])
def test_a_step_that_is_no_count_is_refused(step: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="step_number"):
        http.target("job", step)  # type: ignore[arg-type]


def test_approval_and_fallback_are_sent_only_when_asked_for() -> None:
    plain = http.target("job").headers
    assert not {"x-agent-require-approval", "x-agent-fallback-model"} & set(plain)
    asked = http.target("job", require_approval=True, fallback_model="gpt-4o-mini").headers
    assert asked["x-agent-require-approval"] == "true"
    assert asked["x-agent-fallback-model"] == "gpt-4o-mini"


@pytest.mark.parametrize("models", ["a, b/c", ["a", "b/c"], ("a", " b/c ")])
def test_several_fallback_models_keep_their_order(models: str | Iterable[str]) -> None:
    assert http.target("job", fallback_model=models).headers["x-agent-fallback-model"] == "a,b/c"


@pytest.mark.parametrize("models", ["a,,b", ["a", ""], "mod\nel", "modèle"])
def test_fallback_models_that_cannot_be_sent_are_refused(models: str | Iterable[str]) -> None:
    with pytest.raises(ValueError, match="fallback_model"):
        http.target("job", fallback_model=models)


def test_the_run_id_is_made_once_per_process() -> None:
    assert http.run_id() == http.run_id()
    assert re.fullmatch(r"run_[0-9a-f]{24}", http.run_id())
    code = "from agentstate.sdk import http; print(http.run_id())"
    others = {subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60) for _ in range(2)}
    assert len(others) == 2 and http.run_id() + "\n" not in others


def test_the_environments_run_id_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTSTATE_RUN_ID", "run-from-supervisor")
    assert http.target("job").headers["x-agent-run-id"] == "run-from-supervisor"
    monkeypatch.setenv("AGENTSTATE_RUN_ID", "ñ")
    with pytest.raises(ValueError, match="AGENTSTATE_RUN_ID"):
        http.target("job")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_belongs_to_the_same_run() -> None:
    code = (
        "import os, sys; from agentstate.sdk import http\n"
        "read, write = os.pipe(); child = os.fork()\n"
        "if child == 0:\n    os.write(write, http.run_id().encode()); os._exit(0)\n"
        "os.waitpid(child, 0); print(os.read(read, 99).decode() == http.run_id())"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60).strip() == "True"


def test_the_callers_headers_win_and_are_not_changed() -> None:
    callers = {"X-Agent-Step-Number": "9", "X-Team": "blue"}
    sent = http.merged(http.target("job").headers, callers)
    assert sent["X-Agent-Step-Number"] == "9" and "x-agent-step-number" not in sent
    assert sent["X-Team"] == "blue" and sent["x-agent-session-id"] == "job"
    assert callers == {"X-Agent-Step-Number": "9", "X-Team": "blue"}


def test_headers_that_name_another_session_are_refused() -> None:
    with pytest.raises(ValueError, match="session_id"):
        http.merged(http.target("job").headers, {"X-Agent-Session-Id": "other"})
