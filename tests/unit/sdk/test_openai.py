"""What only the OpenAI clients do; what all clients do is in ``test_clients``."""

from __future__ import annotations

import openai

from agentstate import AgentStateOpenAI
from agentstate.sdk import http
from tests.support.upstream import Seen, Upstream

KEY = "sk-test-0123"
ASK = [{"role": "user", "content": "hello"}]


def _sent(client: openai.OpenAI, server: Upstream, **more: object) -> Seen:
    client.chat.completions.create(model="gpt-4o", messages=ASK, **more)  # type: ignore[call-overload]
    return server.requests[-1]


def test_another_credential_is_not_replaced_by_the_placeholder(server: Upstream) -> None:
    client = AgentStateOpenAI("job", base_url=server.url, admin_api_key="sk-test-admin")
    assert client.api_key != http.MISSING_KEY


def test_a_key_that_is_made_on_demand_is_asked_for(server: Upstream) -> None:
    client = AgentStateOpenAI("job", base_url=server.url, api_key=lambda: "sk-test-fresh")
    assert _sent(client.copy(), server).headers.get("authorization") == "Bearer sk-test-fresh"


def test_an_organisation_is_the_vendors_to_send(server: Upstream) -> None:
    client = AgentStateOpenAI("job", base_url=server.url, api_key=KEY, organization="org-1")
    assert _sent(client, server).headers.get("openai-organization") == "org-1"
