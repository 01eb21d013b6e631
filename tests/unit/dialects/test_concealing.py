"""What of a request body is a credential, what is not, and what is kept in its place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.core import fingerprint
from agentstate.dialects import registry
from agentstate.dialects.concealing import MARK, WITHHELD, conceal, scrubbed
from tests.house.pages import REFERENCE, section, table

KEY = "sk-test-0123456789"
SCHEMA = {"type": "object", "properties": {"api_key": {"type": "string", "default": KEY}}, "required": ["token"]}


def kept(body: Any) -> Any:
    return json.loads(conceal(json.dumps(body).encode())[0])


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": "x", "api_key": KEY}]},
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": {"headers": {"auth": KEY}}}]}]},
        {
            "contents": [
                {"parts": [{"functionCall": {"name": "f", "args": {"token": KEY, "url": f"https://a?key={KEY}"}}}]}
            ]
        },
        {"input": [{"type": "function_call_output", "output": KEY, "headers": {"authorization": KEY}}]},
        {"tools": [{"type": "function", "function": {"name": "f", "description": KEY, "parameters": SCHEMA}}]},
        {"tools": [{"name": "f", "input_schema": SCHEMA, "input_examples": [{"token": KEY}]}]},
        {"tools": [{"functionDeclarations": [{"name": "f", "parameters": SCHEMA, "response": SCHEMA}]}]},
        {"tools": [{"type": "file_search", "filters": {"type": "eq", "key": "region", "value": "north-east"}}]},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}, "max_tokens": 9},
        {"text": {"format": {"type": "json_schema", "schema": SCHEMA}}, "prompt_cache_key": "abcdefghij"},
        {"tools": [{"type": "mcp", "headers": {"X-Region": "north-east"}, "server_url": "https://mcp.example/a?b=c"}]},
        {
            "tools": [
                {"type": "mcp", "authorization": MARK, "headers": {"key": MARK}, "server_url": f"https://{MARK}@m"}
            ]
        },
        {"tools": [{"type": "mcp", "authorization": "", "headers": None}]},
    ],
)
def test_what_is_said_and_what_is_a_schema_is_kept_as_it_is(body: Any) -> None:
    sent = json.dumps(body).encode()
    assert conceal(sent) == (sent, ())


def test_only_the_credentials_are_replaced_and_all_other_bytes_stay() -> None:
    sent = b'{ "tools":[{"authorization" :"%s", "a":1e2,\n"headers":{"X-A":"b","X-Key":"%s"}}],"x":"\\u00e9" }'
    shown, secrets = conceal(sent % (KEY.encode(), KEY.encode()))
    assert shown == sent % (MARK.encode(), MARK.encode())
    assert KEY.encode() in secrets


def test_short_credential_is_replaced_where_it_stands_and_nowhere_else() -> None:
    assert kept({"api_key": "short", "user": "short"}) == {"api_key": MARK, "user": "short"}


def test_credential_that_is_a_word_of_the_wire_format_leaves_the_names_of_fields_alone() -> None:
    shown = kept({"api_key": "messages", "messages": [{"role": "user", "content": "all messages"}]})
    assert shown == {"api_key": MARK, "messages": [{"role": "user", "content": f"all {MARK}"}]}


def test_credential_that_another_string_repeats_in_another_spelling_is_replaced_there_too() -> None:
    body = json.dumps({"api_key": "sk-test-é/0123456789", "user": "USED"}, ensure_ascii=False)
    for spelling in ("sk-test-é/0123456789", "sk-test-\\u00e9\\/0123456789", "\\u0073k-test-é/0123456789"):
        shown, _ = conceal(body.replace("USED", f"it is {spelling}").encode())
        assert json.loads(shown)["user"] == f"it is {MARK}"


def test_scheme_of_a_header_is_no_part_of_what_an_answer_might_repeat() -> None:
    _, secrets = conceal(json.dumps({"tools": [{"headers": {"x": f"Bearer {KEY}"}}]}).encode())
    assert scrubbed(f"the key is {KEY}".encode(), secrets) == f"the key is {MARK}".encode()


def test_body_in_which_credentials_cannot_be_told_is_kept_as_its_hash_and_how_to_answer_it() -> None:
    body = {"model": "m", "stream": True, "n": 2, "stream_options": {"include_usage": True},
            "tools": [{"headers": [f"authorization: {KEY}"]}]}  # fmt: skip
    sent = json.dumps(body).encode()
    shown, _ = conceal(sent)
    value = json.loads(shown)
    assert KEY.encode() not in shown and value[WITHHELD]["bytes"] == len(sent)
    assert {name: value[name] for name in ("model", "stream", "n", "stream_options")} == {
        name: body[name] for name in ("model", "stream", "n", "stream_options")
    }
    assert conceal(shown)[0] == shown


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
        ("responses", {"input": [{"role": "user", "content": "hi"}]}),
        ("messages", {"messages": [{"role": "user", "content": "hi"}]}),
        ("messages/count_tokens", {"messages": [{"role": "user", "content": "hi"}]}),
        ("completions", {"prompt": "hi"}),
        ("embeddings", {"input": "hi"}),
        ("models/gemini-2.5-flash:generateContent", {"contents": [{"parts": [{"text": "hi"}]}]}),
        ("api/chat", {"messages": [{"role": "user", "content": "hi"}]}),
    ],
)
@pytest.mark.parametrize("odd", ["1", '"\\ud800"', "1e999"])
@pytest.mark.parametrize("listed", [False, True])
def test_what_is_kept_is_the_same_question_when_it_is_read_again(path: str, said: Any, odd: str, listed: bool) -> None:
    dialect = registry.for_path("POST", path)
    assert dialect is not None

    def body(key: str) -> bytes:
        remote = {"type": "mcp", "headers": [key] if listed else {"authorization": key}}
        return (json.dumps({"model": "m", **said, "tools": [remote]})[:-1] + f', "odd": {odd}}}').encode()

    first, second = (dialect.parse("POST", path, body(key)) for key in (KEY, KEY[::-1]))
    again = dialect.parse("POST", path, first.body)
    assert KEY.encode() not in first.body and first.secrets == (KEY.encode(),) * (not listed)
    assert (again.body, again.shape, again.model) == (first.body, first.shape, first.model)
    assert fingerprint.of(again).key == fingerprint.of(first).key
    assert (fingerprint.of(second).key == fingerprint.of(first).key) is not listed


def test_every_place_that_the_page_names_is_looked_at() -> None:
    heading = "Credentials in bodies"
    rows = dict(row[:2] for row in table(REFERENCE / "journal.md", heading))
    by_name = [part.strip("`") for part in next(iter(rows.values())).split("`")[1::2]]
    assert len(by_name) > 8
    for name in by_name:
        assert kept({"tools": [{name: KEY}]}) == {"tools": [{name: MARK}]}, name
    for name in ("authentication", "authConfig"):
        assert kept({"tools": [{name: {"key": KEY}}]}) == {"tools": [{name: {"key": MARK}}]}, name
    assert kept({"tools": [{"domain_secrets": [{"value": KEY}]}]}) == {"tools": [{"domain_secrets": [{"value": MARK}]}]}
    for word in ("auth", "key", "token", "secret", "cookie", "password"):
        assert f"*{word}*" in section(REFERENCE / "journal.md", heading)
        assert kept({"tools": [{"headers": {f"x-{word}": KEY}}]}) == {"tools": [{"headers": {f"x-{word}": MARK}}]}
