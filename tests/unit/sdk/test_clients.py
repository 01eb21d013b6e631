"""What the clients of all vendors have in common: the vendor's own, with our address and headers on the wire."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anthropic
import openai
import pytest

import agentstate
from agentstate.sdk import http
from tests.support.upstream import Seen, Upstream
from tests.unit.sdk import test_anthropic, test_openai

KEY = "sk-test-0123"


@dataclass(frozen=True)
class Vendor:
    """One vendor's wrapped clients: how a call is made, and where it arrives."""

    package: str
    plain: type[Any]
    asynchronous: type[Any]
    vendors: tuple[type[Any], type[Any]]
    path: str
    ask: Callable[[Any], Any]

    def sent(self, client: Any, server: Upstream) -> Seen:
        """Make one call; what arrived."""
        self.ask(client)
        return server.requests[-1]


VENDORS = (
    Vendor(
        "openai", agentstate.AgentStateOpenAI, agentstate.AsyncAgentStateOpenAI, (openai.OpenAI, openai.AsyncOpenAI),
        "/v1/chat/completions",
        lambda client: client.chat.completions.create(model="gpt-4o", messages=test_openai.ASK),
    ),
    Vendor(
        "anthropic", agentstate.AgentStateAnthropic, agentstate.AsyncAgentStateAnthropic,
        (anthropic.Anthropic, anthropic.AsyncAnthropic), "/v1/messages",
        lambda client: client.messages.create(**test_anthropic.ASK),
    ),
)  # fmt: skip


@pytest.fixture(params=VENDORS, ids=[vendor.package for vendor in VENDORS])
def vendor(request: pytest.FixtureRequest, server: Upstream) -> Vendor:
    """Each vendor in turn; the server answers in its format."""
    found: Vendor = request.param
    if found.package == "anthropic":
        server.reset(test_anthropic.model)
    return found


def test_the_clients_are_the_vendors(vendor: Vendor) -> None:
    for ours, theirs in zip((vendor.plain, vendor.asynchronous), vendor.vendors, strict=True):
        assert issubclass(ours, theirs) and ours is not theirs
        assert ours.__module__ == f"agentstate.sdk.{vendor.package}"
        assert ours is getattr(agentstate, ours.__name__)


def test_the_documented_arguments_come_first_and_in_order(vendor: Vendor) -> None:
    names = list(inspect.signature(vendor.plain).parameters)
    documented = ["session_id", "step_number", "base_url", "api_key", "require_approval", "fallback_model"]
    assert names[:6] == documented


@pytest.mark.parametrize("version", ["", "/v1", "/v1/"])
def test_session_run_and_step_reach_the_wire(vendor: Vendor, server: Upstream, version: str) -> None:
    address = server.url.removesuffix("/v1") + version
    seen = vendor.sent(vendor.plain("job-42", 2, address, KEY), server)
    assert seen.target == vendor.path
    assert seen.headers.get("x-agent-session-id") == "job-42"
    assert seen.headers.get("x-agent-run-id") == http.run_id()
    assert seen.headers.get("x-agent-step-number") == "2"
    assert seen.headers.get("x-agent-require-approval") is None
    assert seen.headers.get("x-agent-fallback-model") is None
    assert seen.headers.get("authorization") == f"Bearer {KEY}"


def test_approval_and_fallback_reach_the_wire_when_asked_for(vendor: Vendor, server: Upstream) -> None:
    client = vendor.plain(
        "job-42", base_url=server.url, api_key=KEY, require_approval=True, fallback_model=["a", "o/b"]
    )
    seen = vendor.sent(client, server)
    assert seen.headers.get("x-agent-require-approval") == "true"
    assert seen.headers.get("x-agent-fallback-model") == "a,o/b"


async def test_the_async_client_sends_the_same(vendor: Vendor, server: Upstream) -> None:
    async with vendor.asynchronous("job-42", base_url=server.url, api_key=KEY) as client:
        await vendor.ask(client)
    seen = server.requests[-1]
    assert seen.target == vendor.path
    assert seen.headers.get("x-agent-session-id") == "job-42"
    assert seen.headers.get("x-agent-run-id") == http.run_id()


def test_a_session_in_another_script_reaches_the_wire_in_the_path(vendor: Vendor, server: Upstream) -> None:
    seen = vendor.sent(vendor.plain("проект/1", base_url=server.url, api_key=KEY), server)
    assert seen.target == f"/s/%D0%BF%D1%80%D0%BE%D0%B5%D0%BA%D1%82%2F1{vendor.path}"
    assert seen.headers.get("x-agent-session-id") is None


def test_the_callers_headers_are_sent_and_left_alone(vendor: Vendor, server: Upstream) -> None:
    callers = {"X-Team": "blue"}
    seen = vendor.sent(vendor.plain("job", base_url=server.url, api_key=KEY, default_headers=callers), server)
    assert seen.headers.get("x-team") == "blue" and seen.headers.get("x-agent-session-id") == "job"
    assert callers == {"X-Team": "blue"}


def test_other_options_are_the_vendors(vendor: Vendor, server: Upstream) -> None:
    client = vendor.plain("job", base_url=server.url, api_key=KEY, timeout=7.5, max_retries=0)
    assert client.timeout == 7.5 and client.max_retries == 0
    with pytest.raises(TypeError, match="time_out"):
        vendor.plain("job", api_key=KEY, time_out=1)


@pytest.mark.parametrize("session", ["job-42", "задача"])
def test_a_copy_belongs_to_the_same_session(vendor: Vendor, server: Upstream, session: str) -> None:
    client = vendor.plain(session, 5, server.url, KEY, True, "a", default_headers={"X-Team": "blue"})
    first = vendor.sent(client, server)
    for copy in (
        client.copy(),
        client.with_options(timeout=3),
        client.with_options(max_retries=0).with_options(default_query={}),
    ):
        assert isinstance(copy, vendor.plain)
        assert (copy.session_id, copy.run_id, copy.step_number) == (session, http.run_id(), 5)
        seen = vendor.sent(copy, server)
        assert seen.target == first.target
        assert _ours(seen) == _ours(first)


def _ours(seen: Seen) -> list[tuple[str, str]]:
    found = [(name.lower(), value) for name, value in seen.headers if name.lower().startswith(("x-agent-", "x-team"))]
    assert found
    return sorted(found)


def test_a_copy_changes_what_it_is_asked_to_change(vendor: Vendor, server: Upstream) -> None:
    client = vendor.plain("job", base_url="http://nowhere.test/v1", api_key=KEY)
    copy = client.with_options(
        base_url=server.url, api_key="sk-test-other", timeout=3, default_headers={"x-agent-step-number": "8"}
    )
    seen = vendor.sent(copy, server)
    assert seen.headers.get("authorization") == "Bearer sk-test-other"
    assert seen.headers.get("x-agent-step-number") == "8"
    assert seen.headers.get("x-agent-session-id") == "job"
    assert copy.timeout == 3
    bare = client.copy(base_url=server.url, set_default_headers={"X-Only": "1"})
    seen = vendor.sent(bare, server)
    assert seen.headers.get("x-only") == "1" and seen.headers.get("x-agent-session-id") == "job"


def test_a_copy_keeps_several_fallback_models_given_as_an_iterator(vendor: Vendor, server: Upstream) -> None:
    client = vendor.plain("job", base_url=server.url, api_key=KEY, fallback_model=iter(["a", "b"]))
    assert vendor.sent(client.copy().copy(), server).headers.get("x-agent-fallback-model") == "a,b"


async def test_an_async_copy_belongs_to_the_same_session(vendor: Vendor, server: Upstream) -> None:
    async with vendor.asynchronous("задача", base_url=server.url, api_key=KEY) as client:
        copy = client.with_options(timeout=3)
        assert isinstance(copy, vendor.asynchronous) and copy.session_id == "задача"
        assert copy.base_url == client.base_url


def test_the_environments_key_is_used(vendor: Vendor, server: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{vendor.package.upper()}_API_KEY", "sk-test-environment")
    client = vendor.plain("job", base_url=server.url)
    assert vendor.sent(client, server).headers.get("authorization") == "Bearer sk-test-environment"


@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_key_is_sent_as_a_placeholder_that_says_so(
    vendor: Vendor, server: Upstream, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    variable = f"{vendor.package.upper()}_API_KEY"
    if value is not None:
        monkeypatch.setenv(variable, value)
    client = vendor.plain("job", base_url=server.url)
    for asking in (client, client.copy()):
        assert vendor.sent(asking, server).headers.get("authorization") == f"Bearer {variable}-is-not-set"


def test_the_vendors_base_url_variable_does_not_lead_past_the_proxy(
    vendor: Vendor, server: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{vendor.package.upper()}_BASE_URL", "http://provider.test/v1")
    monkeypatch.setenv("AGENTSTATE_URL", server.url)
    assert vendor.sent(vendor.plain("job", api_key=KEY), server).headers.get("x-agent-session-id") == "job"


def test_a_session_that_cannot_be_sent_is_refused_before_any_call(vendor: Vendor) -> None:
    with pytest.raises(ValueError, match="session_id is empty"):
        vendor.plain("", api_key=KEY)


def test_the_key_shows_in_no_representation_of_ours(vendor: Vendor) -> None:
    client = vendor.plain("job", api_key=KEY)
    assert KEY not in repr(client) and KEY not in str(client._session_options)
