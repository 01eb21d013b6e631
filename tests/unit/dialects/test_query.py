"""What the query of an address says counts, but for what cannot change the answer; no credential of it is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core import fingerprint
from agentstate.core.model import Call
from agentstate.dialects import query, registry, volatile
from tests.unit.core.profile import examples

HI = [{"role": "user", "content": "hi"}]
PARTS = {"contents": [{"parts": [{"text": "hi"}]}]}
# One request for each dialect, and the beginning of its fingerprint without a query as version 0.1.0 first made it.
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "chat/completions": ({"model": "m", "messages": HI}, "a02c00b741eb2d4c"),
    "responses": ({"model": "m", "input": "hi"}, "d38cff5c26b74432"),
    "completions": ({"model": "m", "prompt": "hi"}, "4856328ecfb13320"),
    "embeddings": ({"model": "m", "input": "hi"}, "e5a9a08dca3fffc3"),
    "messages": ({"model": "m", "max_tokens": 5, "messages": HI}, "29a9fa9b42779441"),
    "messages/count_tokens": ({"model": "m", "messages": HI}, "92522501e59c1ea2"),
    "v1beta/models/m:generateContent": (PARTS, "60dba1b1478edbc0"),
    "v1beta/models/m:countTokens": (PARTS, "027a10a7dd552f8c"),
    "api/chat": ({"model": "m", "messages": HI}, "7cfe97e942136ec1"),
    "api/generate": ({"model": "m", "prompt": "hi"}, "a5d69ab5457cb981"),
    "api/embed": ({"model": "m", "input": "hi"}, "c3a7b2dd67b0169d"),
}
each_dialect = pytest.mark.parametrize("path", CASES)


def parsed(path: str, asked: str = "", body: bytes | None = None) -> Call:
    dialect = registry.for_path("POST", path)
    assert dialect is not None
    return dialect.parse("POST", path, json.dumps(CASES[path][0]).encode() if body is None else body, asked)


def key(path: str, asked: str = "", body: bytes | None = None) -> bytes:
    return fingerprint.of(parsed(path, asked, body)).key


def test_every_dialect_is_among_the_cases() -> None:
    assert {parsed(path).dialect for path in CASES} == set(registry.BY_NAME)


@each_dialect
def test_another_value_another_name_or_none_is_another_question(path: str) -> None:
    asked = [
        "",
        "tenant=a",
        "tenant=b",
        "tenant",
        "tenant=",
        "Tenant=a",
        "tenant=a&tenant=b",
        "tenant=b&tenant=a",
        "a=b",
    ]
    assert len({key(path, each) for each in asked}) == len(asked)


@each_dialect
def test_body_that_only_a_lenient_parser_takes_counts_with_its_query(path: str) -> None:
    body = b'{"model":"m","messages":[],"odd":"\\ud83d"}'
    assert len({key(path, each, body) for each in ("", "tenant=a", "tenant=b")}) == 3


@each_dialect
def test_order_of_different_names_and_plain_escapes_do_not_count(path: str) -> None:
    assert key(path, "b=2&a=1&b=1") == key(path, "a=1&b=2&b=1") == key(path, "%62=%32&&a=1&b=1&")
    assert key(path, "a=x%2fy") == key(path, "a=x%2Fy") != key(path, "a=x%2By")
    assert key(path, "a=1%2B1") != key(path, "a=1+1")


@each_dialect
def test_credentials_do_not_count_and_are_not_kept(path: str) -> None:
    for name in query.CREDENTIALS:
        for spelled in (name, name.upper(), f"%{ord(name[0]):02X}{name[1:]}"):
            found = parsed(path, f"{spelled}=sk-test-0123456789")
            assert fingerprint.of(found).key == key(path), spelled
            assert "?" not in found.path


@each_dialect
def test_value_named_like_an_unknown_credential_counts_and_only_its_hash_is_kept(path: str) -> None:
    found = parsed(path, "x-amz-security-token=sk-test-0123456789")
    assert "sk-test" not in found.path and "?x-amz-security-token=sha256-" in found.path
    assert len({key(path), fingerprint.of(found).key, key(path, "x-amz-security-token=sk-test-other")}) == 3


@each_dialect
def test_question_without_a_counting_query_keeps_its_fingerprint(path: str) -> None:
    harmless = query.HARMLESS.get(parsed(path).dialect and _kind(path), frozenset())
    asked = ["", "&", "key=sk-test-1", *(each if "=" in each else f"{each}=x" for each in harmless)]
    assert {key(path, each).hex()[:16] for each in asked} == {CASES[path][1]}


def _kind(path: str) -> str:
    dialect = registry.for_path("POST", path)
    assert dialect is not None
    return dialect.provider


def test_what_is_harmless_to_one_kind_of_provider_counts_elsewhere() -> None:
    assert key("messages", "beta=true") == key("messages") != key("messages", "beta=false")
    assert key("chat/completions", "beta=true") != key("chat/completions")
    assert key("responses", "alt=sse") != key("responses")
    gemini = "v1beta/models/m:generateContent"
    assert key(gemini, "alt=sse") == key(gemini) != key(gemini, "alt=proto")


@each_dialect
def test_recorded_call_is_the_same_question_when_it_is_read_again(path: str) -> None:
    for asked in ("", "tenant=a", "b=1&a=%2F+é&a=", "$alt=json%3Benum-encoding%3Dint", "auth=sk-test-1&key=sk-test-2"):
        call = parsed(path, asked)
        again = registry.BY_NAME[call.dialect].parse("POST", call.path, call.body)
        assert (again.path, again.frame) == (call.path, call.frame)
        assert fingerprint.of(again) == fingerprint.of(call)


@given(st.text("ab=&%+;$é 1F?/", max_size=30), st.sampled_from(sorted(CASES)))
@examples(300)
def test_any_query_makes_a_path_that_is_read_again_as_the_same(asked: str, path: str) -> None:
    call = parsed(path, asked)
    again = registry.BY_NAME[call.dialect].parse("POST", call.path, call.body)
    assert fingerprint.of(again) == fingerprint.of(call)
    assert parsed(path, asked).path.partition("?")[0] == parsed(path).path


def test_what_differs_in_the_address_never_matches_masked_or_by_its_call_ids() -> None:
    chat = registry.OPENAI_CHAT
    messages = [
        {"role": "system", "content": "It is 2026-03-01T09:30:00Z."},
        {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "x"},
    ]
    body = json.dumps({"model": "m", "messages": messages}).encode()
    old, other, model = (
        chat.parse("POST", path, body, asked)
        for path, asked in (("chat/completions", "t=a"), ("chat/completions", "t=b"), ("x", "t=a"))
    )
    new = chat.parse("POST", "chat/completions", body.replace(b"09:30", b"10:45"), "t=a")
    assert volatile.compared(chat, old, new, False) is not None
    assert volatile.compared(chat, old, other, False) is None
    assert volatile.compared(chat, old, model, False) is None
    pointers = [volatile.pointer(chat, call) for call in (old, other, model)]
    assert pointers[0] == volatile.pointer(chat, old) and pointers[0] not in pointers[1:]


def test_credentials_are_taken_out_of_a_query_and_nothing_else_is_changed() -> None:
    asked = "b=%7e&Key=sk-test-1&a=1+1&%61pi_key=sk%2Dtest-2&&c"
    assert query.without_credentials(asked) == "b=%7e&a=1+1&&c"
    assert query.without_credentials("") == ""
    assert {"sk-test-1", "sk%2Dtest-2", "sk-test-2"} <= set(query.credentials(asked))
