"""A coding client at the bare base URL is journaled under its own session, as its headers and the settings say."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import chat
from tests.support.client import TEST_KEY, Answer, chat_headers, chat_path
from tests.support.proxy import ROOT, Proxy
from tests.support.upstream import Upstream, plain

pytestmark = pytest.mark.usefixtures("no_traceback")
_numbers = itertools.count(1)


@pytest.fixture
def own() -> str:
    """An id of the client's own that no other test uses."""
    return f"ses_{next(_numbers)}"


def opencode(own: str) -> dict[str, str]:
    """What opencode sends with each call."""
    return {"User-Agent": "opencode/1.18.33 ai-sdk/provider-utils/4.0.23", "x-session-id": own}


def ask(proxy: Proxy, own: str, question: str, path: str = "/v1/chat/completions") -> Answer:
    headers = chat_headers(opencode(own))
    return proxy.client.send("POST", path, headers, chat.request(question))


def ask_from_another_process(proxy: Proxy, own: str, question: str) -> str:
    """The same call by a process of its own, which has ended when this returns; the answer's outcome."""
    code = (
        "import sys; from tests.support import chat; from tests.support.client import Client, chat_headers\n"
        "_, port, agent, own, question = sys.argv\n"
        "headers = chat_headers({'User-Agent': agent, 'x-session-id': own})\n"
        "answer = Client(int(port)).send('POST', '/v1/chat/completions', headers, chat.request(question))\n"
        "print(answer.headers.get('x-agentstate-outcome'))"
    )
    agent = opencode(own)["User-Agent"]
    done = subprocess.run(
        [sys.executable, "-c", code, str(proxy.port), agent, own, question],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_client_started_again_under_its_own_session_is_given_its_answers(
    upstream: Upstream, proxy: Proxy, own: str
) -> None:
    assert ask_from_another_process(proxy, own, "what is here?") == "live"
    assert ask_from_another_process(proxy, own, "what is here?") == "replay"
    assert upstream.calls == 1
    assert len(proxy.control.steps(f"opencode-{own}")) == 1
    seen = upstream.requests[0].headers
    assert (seen.get("x-session-id"), seen.get("authorization")) == (own, f"Bearer {TEST_KEY}")


def test_a_client_that_goes_on_in_a_new_process_has_not_diverged(upstream: Upstream, proxy: Proxy, own: str) -> None:
    call = chat.tool_call("bash", '{"command":"ls"}', call_id="call_of_this_test")
    upstream.replies(plain(chat.completion(None, name="a", tool_calls=[call])), plain(chat.completion("a file")))
    said = [chat.user("what is here?")]
    headers = opencode(own)
    assert proxy.client.ask(None, said, headers=headers).status == 200
    said += [{"role": "assistant", "content": None, "tool_calls": [call]}]
    said += [{"role": "tool", "tool_call_id": "call_of_this_test", "content": "README"}]
    for run in ("one", "two"):
        answer = proxy.client.ask(None, said, headers=headers | {"x-agent-run-id": run})
        assert answer.status == 200
        said += [{"role": "assistant", "content": "a file"}, chat.user(f"and after {run}?")]
    assert [step["state"] for step in proxy.control.steps(f"opencode-{own}")] == ["completed"] * 3
    assert proxy.control.session(f"opencode-{own}")["session"]["status"] == "RUNNING"


def test_an_address_that_names_a_session_wins_over_the_clients_own(
    upstream: Upstream, proxy: Proxy, own: str, session: str
) -> None:
    named = f"{session}-{own}"
    assert ask(proxy, own, "hi", chat_path(named)).headers.get("x-agentstate-outcome") == "live"
    ids = [row["id"] for row in proxy.control.get("/api/sessions?limit=1000")]
    assert named in ids and f"opencode-{own}" not in ids


def test_another_clients_session_header_is_no_hint(upstream: Upstream, proxy: Proxy, own: str) -> None:
    headers = chat_headers({"User-Agent": "OpenAI/Python 3.57.0", "x-session-id": own})
    answer = proxy.client.send("POST", "/v1/chat/completions", headers, chat.request("hi"))
    assert (answer.status, answer.headers.get("x-agentstate-step")) == (200, None)
    assert own not in str(proxy.control.get("/api/sessions?limit=1000"))


def test_a_client_that_is_switched_off_is_passed_through(upstream: Upstream, tmp_path: Path, own: str) -> None:
    with Proxy(tmp_path / "data", upstream.url, settings={"hints.opencode": "false"}) as proxy:
        for _ in range(2):
            answer = ask(proxy, own, "hi")
            assert (answer.status, answer.headers.get("x-agentstate-step")) == (200, None)
        assert proxy.control.get("/api/sessions") == []
    assert upstream.calls == 2
