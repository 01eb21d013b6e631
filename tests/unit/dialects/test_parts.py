"""Paths, pure endpoints, and the helpers that dialects share."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core import fingerprint
from agentstate.core.model import Shape
from agentstate.dialects import registry
from agentstate.dialects.base import Cache, check_content_type, digest_of, openai_error, split_array
from agentstate.errors import BadRequest, RunDiverged, SessionPaused, UpstreamCut
from tests.unit.core.profile import examples
from tests.unit.dialects.bodies import BODIES, CHAT, encoded

# --- paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat/completions", "/v1/v1/chat/completions",
                                  "//v1//chat/completions/", "v1/chat/completions"])  # fmt: skip
def test_path_is_the_same_with_without_and_with_doubled_version(path: str) -> None:
    assert registry.normalise(path) == "chat/completions"


def test_version_elsewhere_belongs_to_the_path() -> None:
    assert registry.normalise("/files/v1/content") == "files/v1/content"
    assert registry.normalise("/v1beta/models") == "v1beta/models"
    assert registry.normalise("/") == registry.normalise("/v1") == ""


def test_only_posts_to_known_paths_have_a_dialect() -> None:
    assert registry.for_path("POST", "chat/completions") is registry.OPENAI_CHAT
    assert registry.for_path("POST", "embeddings") is registry.PURE
    assert registry.for_path("POST", "moderations") is registry.PURE
    gets, posts = ("chat/completions", "responses", "models"), ("chat/completions/x", "models", "models/m:unknown", "")
    for method, paths in (("GET", gets), ("POST", posts)):
        assert not any(registry.for_path(method, path) for path in paths)


@pytest.mark.parametrize(
    ("path", "name", "provider"),
    [
        ("chat/completions", "openai_chat", "openai"),
        ("responses", "openai_responses", "openai"),
        ("completions", "openai_completions", "openai"),
        ("responses/input_tokens", "pure", "openai"),
        ("messages", "anthropic_messages", "anthropic"),
        ("messages/count_tokens", "pure_anthropic", "anthropic"),
        ("v1beta/models/gemini-2.5-pro:generateContent", "gemini", "gemini"),
        ("models/gemini-2.5-pro:streamGenerateContent", "gemini", "gemini"),
        ("v1beta/models%2Fgemini-2.5-pro:countTokens", "pure_gemini", "gemini"),
        ("api/chat", "ollama_chat", "ollama"),
        ("api/embed", "pure_ollama", "ollama"),
    ],
)
def test_each_path_has_its_dialect_and_provider(path: str, name: str, provider: str) -> None:
    dialect = registry.for_path("POST", path)
    assert dialect is not None
    assert (dialect.name, dialect.provider) == (name, provider)
    assert registry.BY_NAME[name] is dialect
    assert registry.provider_kind(path) == provider


def test_where_two_kinds_of_provider_have_a_path_the_headers_tell() -> None:
    assert registry.provider_kind("models") == "openai"
    assert registry.provider_kind("models", [("Anthropic-Version", "2023-06-01")]) == "anthropic"
    assert registry.provider_kind("models", [("x-goog-api-key", "sk-test-1")]) == "gemini"
    assert registry.provider_kind("v1beta/files") == registry.provider_kind("upload/v1beta/files") == "gemini"


def test_anthropic_paths_go_to_that_kind_of_provider() -> None:
    assert registry.provider_kind("messages") == registry.provider_kind("messages/count_tokens") == "anthropic"
    assert registry.provider_kind("chat/completions") == registry.provider_kind("models") == "openai"


def test_dialects_are_found_by_the_names_that_the_journal_keeps() -> None:
    assert all(dialect.name == name for name, dialect in registry.BY_NAME.items())
    assert set(registry.BY_NAME) == {
        "openai_chat", "openai_responses", "openai_completions", "anthropic_messages", "gemini", "ollama_chat",
        "pure", "pure_anthropic", "pure_gemini", "pure_ollama",
    }  # fmt: skip


# --- pure endpoints ---------------------------------------------------------------------------------------------------


def pure_key(body: Any) -> bytes:
    return fingerprint.of(registry.PURE.parse("POST", "embeddings", encoded(body))).key


def test_pure_endpoint_has_one_key_for_each_question() -> None:
    body = {"model": "e", "input": ["a", "b"]}
    own = pure_key(body)
    assert pure_key({"input": ["a", "b"], "model": "e", "user": "u", "metadata": {"a": "b"}, "dimensions": None}) == own
    for other in ({"input": ["b", "a"]}, {"input": "a"}, {"model": "f"}, {"dimensions": 3}, {"encoding_format": "x"}):
        assert pure_key(body | other) != own


def test_pure_call_is_known_as_one() -> None:
    call = registry.PURE.parse("POST", "embeddings", b'{"model":"e","input":"a"}')
    assert (call.pure, call.model, call.items, call.shape) == (True, "e", (), Shape())


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"error":{"message":"x"}}', b"<html>", b"\xff", b"null"])
def test_pure_answer_that_is_no_object_without_error_is_a_fault(body: bytes) -> None:
    call = registry.PURE.parse("POST", "embeddings", b"{}")
    assert registry.PURE.judge(call, body).fault


def test_pure_answer_tells_model_and_usage() -> None:
    call = registry.PURE.parse("POST", "embeddings", b"{}")
    verdict = registry.PURE.judge(call, b'{"data":[],"model":"e","usage":{"total_tokens":3}}')
    assert (verdict.fault, verdict.model, json.loads(verdict.usage)) == ("", "e", {"total_tokens": 3})


# --- the body and its parts -------------------------------------------------------------------------------------------

_SPACES = st.text(" \t\n\r", max_size=2)
_ELEMENTS = st.sampled_from(('{"a":1}', '{"a": "x, y"}', '{"a":"]"}', '{"b":[1, 2]}', '{"c":{}}', '{"a":1}'))


@given(st.lists(_ELEMENTS, min_size=1, max_size=6), _SPACES, _SPACES, _SPACES, _SPACES, st.booleans())
@examples(400)
def test_array_is_split_so_that_its_parts_joined_are_its_bytes(
    elements: list[str], before: str, after: str, left: str, right: str, regular: bool
) -> None:
    separators = [f"{left},{right}"] * (len(elements) - 1)
    if not regular and separators:
        separators[-1] = ",\n   "
    text = "[" + before
    for place, element in enumerate(elements):
        text += element + (separators[place] if place < len(separators) else "")
    array = (text + after + "]").encode()
    items = [element.encode() for element in elements]
    found = split_array(array, items)
    if found is not None:
        assert found[0] + found[1].join(items) + found[2] == array
    elif regular:
        pytest.fail(f"a regular array was not split: {array!r}")


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("indent", [None, 0, 2])
def test_parsed_body_is_its_parts_joined(name: str, indent: int | None) -> None:
    body = json.dumps(BODIES[name], indent=indent).encode()
    call = CHAT.parse("POST", "chat/completions", body)
    assert call.before, "the body was not split"
    assert call.before + call.separator.join(item.raw for item in call.items) + call.after == body


def test_shape_and_model_and_choices_are_read() -> None:
    call = CHAT.parse("POST", "chat/completions", encoded(BODIES["plain"]))
    assert (call.shape, call.model, call.choices) == (Shape(True, True), "gpt-4o-test", 1)
    call = CHAT.parse("POST", "chat/completions", encoded(BODIES["parts"]))
    assert (call.shape, call.choices) == (Shape(), 2)
    odd = CHAT.parse(
        "POST", "chat/completions", b'{"stream":"true","stream_options":7,"model":7,"n":"2","messages":[]}'
    )
    assert (odd.shape, odd.model, odd.choices) == (Shape(), "", 1)


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
@examples(300)
def test_digest_of_parts_is_equal_for_equal_lists_only(first: list[bytes], second: list[bytes]) -> None:
    assert (digest_of(first) == digest_of(second)) == (first == second)


def test_cache_keeps_what_is_used_and_is_bounded() -> None:
    cache = Cache(40_000)
    cache.put(b"kept", "value")
    for number in range(1000):
        cache.put(b"%d" % number, number)
        if number % 20 == 0:
            assert cache.get(b"kept") == "value"
    found = [number for number in range(1000) if cache.get(b"%d" % number) is not None]
    assert 999 in found and 0 not in found
    assert len(found) < 200


@pytest.mark.parametrize("value", ["", "application/json", "application/json; charset=utf-8", "Application/JSON",
                                   "application/vnd.x+json", "text/json"])  # fmt: skip
def test_json_content_type_is_taken(value: str) -> None:
    check_content_type(value)


@pytest.mark.parametrize(
    "value", ["text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded"]
)
def test_other_content_type_is_refused_with_what_to_send(value: str) -> None:
    with pytest.raises(BadRequest, match="application/json"):
        check_content_type(value)


@pytest.mark.parametrize("error", [
    BadRequest("send JSON"), SessionPaused("set its status to RUNNING"), UpstreamCut("ask again"),
    RunDiverged("it diverged", detail={"unread": [3]}),
])  # fmt: skip
def test_error_has_the_shape_that_clients_read(error: Any) -> None:
    found = json.loads(openai_error(error))["error"]
    assert {"message", "type", "param", "code"} <= set(found)
    assert (found["message"], found["code"], found["type"]) == (error.message, error.code, error.kind)
    assert found.get("agentstate", {}) == error.detail
    for dialect in (CHAT, registry.PURE):
        event = dialect.stream_error(error)
        assert event.startswith(b"data: {") and event.endswith(b"}\n\n") and event.count(b"\n") == 2
        assert json.loads(event[6:]) == json.loads(dialect.error(error))
