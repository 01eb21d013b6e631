"""How Slack, Discord and webhooks spell a message, whatever an agent named its tools and sessions."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from slack_sdk.models.blocks import Block
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from agentstate import clock
from agentstate.alerts import discord, slack, webhook
from agentstate.alerts.message import Alert, Message, compose
from agentstate.alerts.target import Target
from tests.unit.alerts.test_message import EVENTS, HOSTILE, alert

SLACK = Target("slack-1", "slack", "https://hooks.example.test/T/B", buttons=True)
DISCORD = Target("discord-1", "discord", "https://chat.example.test/api/webhooks/1/t", buttons=True)
KEY = "whsec_" + base64.b64encode(b"test key of thirty-two bytes ...").decode()
WEBHOOK = Target("webhook-1", "webhook", "https://h.example.test/in", secret=KEY)
EVIL = "*_~`<!channel> <@U1> @everyone [x](https://evil.test) ``` </b> & \\ # >" + "".join(name for name, _ in HOSTILE)
LONG = "long " * 3000


def hostile() -> list[Message]:
    """Every event with names that try to be markup, and with names that are far too long."""
    made = []
    for event in EVENTS:
        for text in (EVIL, LONG, "`" * 9000, "\u202e" * 5000):
            facts = dict.fromkeys(("tool", "run", "provider", "model", "spent", "limit", "policy", "exit_code"), text)
            given = Alert("msg_1", event, 1e9, text, "apr_1", "http://proxy.test/approve/" + "x" * 120,
                          facts | {"arguments": text, "decided_by": text})  # fmt: skip
            made.append(compose(given, show_content=True))
    return made


HOSTILES = hostile()


def body_of(module: Any, said: Message, target: Target) -> Any:
    return json.loads(module.post(said, target, 1e9).body)


# --- Slack ---


def test_slack_is_asked_with_a_header_sentences_fields_and_three_buttons() -> None:
    body = body_of(slack, compose(alert("approval.required")), SLACK)
    kinds = [block["type"] for block in body["blocks"]]
    assert kinds == ["header", "section", "section", "actions", "context"]
    assert body["blocks"][0]["text"]["text"] == "Approval required: send_email"
    assert [field["text"] for field in body["blocks"][2]["fields"]] == ["Session\ninvoice-4711", "Tool\nsend_email"]
    approve, reject, link = body["blocks"][3]["elements"]
    assert (approve["action_id"], approve["value"]) == ("approve", "apr_1")
    assert (reject["action_id"], reject["value"]) == ("reject", "apr_1")
    assert link["url"] == "http://proxy.test/approve/x" and "value" not in link
    assert (body["unfurl_links"], body["unfurl_media"]) == (False, False)


def test_slack_without_a_signing_secret_offers_a_link_alone() -> None:
    body = body_of(slack, compose(alert("approval.required")), Target("s", "slack", SLACK.url))
    [actions] = [block for block in body["blocks"] if block["type"] == "actions"]
    assert [element["action_id"] for element in actions["elements"]] == ["open"]


@pytest.mark.parametrize("said", [*HOSTILES, *(compose(alert(event)) for event in EVENTS)])
def test_slack_takes_every_message(said: Message) -> None:
    body = body_of(slack, said, SLACK)
    for block in body["blocks"]:
        Block.parse(block).validate_json()
    assert 0 < len(body["text"]) <= 3000


@pytest.mark.parametrize("said", HOSTILES)
def test_nothing_in_a_message_is_markup_to_slack(said: Message) -> None:
    body = body_of(slack, said, SLACK)
    assert "<" not in body["text"] and ">" not in body["text"]
    assert re.findall(r'"type": "mrkdwn"', json.dumps(body)) == []


def test_slack_validation_would_see_a_text_that_is_too_long() -> None:
    long = {"type": "section", "text": {"type": "plain_text", "text": "x" * 3001}}
    with pytest.raises(Exception, match="3000"):
        Block.parse(long).validate_json()


# --- Discord ---


def test_discord_is_asked_with_an_embed_and_components() -> None:
    post = discord.post(compose(alert("approval.required")), DISCORD, 1e9)
    assert post.url == DISCORD.url + "?with_components=true"
    body = json.loads(post.body)
    [embed] = body["embeds"]
    assert embed["title"] == "Approval required: send\\_email"
    assert [(field["name"], field["value"]) for field in embed["fields"]] == [
        ("Session", "`invoice-4711`"),
        ("Tool", "`send_email`"),
    ]
    assert "[Open the approval](http://proxy.test/approve/x)" in embed["description"]
    [row] = body["components"]
    assert [part.get("custom_id") for part in row["components"]] == ["approve:apr_1", "reject:apr_1", None]
    assert row["components"][2]["url"] == "http://proxy.test/approve/x"


def test_discord_without_a_public_key_offers_a_link_alone() -> None:
    body = body_of(discord, compose(alert("approval.required")), Target("d", "discord", DISCORD.url))
    assert [part["style"] for part in body["components"][0]["components"]] == [5]


def test_a_link_that_works_on_the_proxys_machine_alone_is_no_button_in_discord() -> None:
    for host in ("127.0.0.1:8080", "localhost:8080", "[::1]:8080"):
        said = compose(alert("approval.required"))._replace(link=f"http://{host}/approve/x")
        post = discord.post(said, Target("d", "discord", DISCORD.url), 1e9)
        body = json.loads(post.body)
        assert "components" not in body and post.url == DISCORD.url
        assert f"(http://{host}/approve/x)" in body["embeds"][0]["description"]


def test_a_query_that_the_address_has_already_stays() -> None:
    target = Target("d", "discord", DISCORD.url + "?thread_id=7", buttons=True)
    assert discord.post(compose(alert("approval.required")), target, 1e9).url.endswith(
        "?thread_id=7&with_components=true"
    )


@pytest.mark.parametrize("said", [*HOSTILES, *(compose(alert(event)) for event in EVENTS)])
def test_discord_takes_every_message(said: Message) -> None:
    [embed] = body_of(discord, said, DISCORD)["embeds"]
    assert len(embed["title"]) <= 256 and len(embed["description"]) <= 4096 and len(embed["fields"]) <= 25
    assert all(0 < len(field["name"]) <= 256 and 0 < len(field["value"]) <= 1024 for field in embed["fields"])
    fields = sum(len(field["name"]) + len(field["value"]) for field in embed["fields"])
    assert len(embed["title"]) + len(embed["description"]) + len(embed["footer"]["text"]) + fields <= 6000


@pytest.mark.parametrize("said", HOSTILES)
def test_nothing_in_a_message_is_markup_to_discord(said: Message) -> None:
    body = body_of(discord, said, DISCORD)
    assert body["allowed_mentions"] == {"parse": []}
    [embed] = body["embeds"]
    assert all(re.fullmatch(r"`[^`]+`", field["value"]) for field in embed["fields"])
    prose, code, after = re.fullmatch(r"(.*?)```\n(.*)\n```(.*)", embed["description"], re.DOTALL).groups()  # type: ignore[union-attr]
    assert "`" not in code
    for text in (embed["title"], prose):
        assert not re.search(r"(?<!\\)(?:\\\\)*[*_~`|<>\[\]]", text), text
        assert "://" not in text
    assert after.count("[") == 1


# --- webhooks ---


def test_a_webhook_is_json_with_type_timestamp_and_data() -> None:
    post = webhook.post(compose(alert("approval.required")), WEBHOOK, 1e9 + 0.7)
    assert json.loads(post.body) == {
        "type": "approval.required",
        "timestamp": "1970-01-01T00:16:40Z",
        "data": {
            "title": "Approval required: send_email",
            "text": "An agent wants to make this call. Nothing of it is released before a person decides.",
            "link": "http://proxy.test/approve/x",
            "session": "invoice-4711",
            "subject": "apr_1",
            "approval": "apr_1",
            "tool": "send_email",
            "kind": "call",
        },
    }
    headers = dict(post.headers)
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == ("msg_1", "1000000000")
    assert headers["content-type"] == "application/json"


@pytest.mark.parametrize("said", [*HOSTILES, compose(alert("run.diverged"))])
def test_a_receiver_can_verify_every_webhook_and_sees_a_change(said: Message) -> None:
    post = webhook.post(said, WEBHOOK, clock.now())
    checker = Webhook(KEY)
    assert checker.verify(post.body, dict(post.headers))["type"] == said.event
    for changed in (post.body[:-1] + b" }", post.body.replace(b"data", b"date", 1)):
        with pytest.raises(WebhookVerificationError):
            checker.verify(changed, dict(post.headers))
    with pytest.raises(WebhookVerificationError):
        checker.verify(post.body, dict(post.headers) | {"webhook-id": "msg_2"})


def test_a_webhook_without_a_secret_is_not_signed() -> None:
    names = [name for name, _ in webhook.post(compose(alert("run.diverged")), Target("w", "webhook", "x"), 1e9).headers]
    assert names == ["content-type", "webhook-id", "webhook-timestamp"]
