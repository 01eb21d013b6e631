"""Different question, different key; the same question in another spelling, the same key."""

from __future__ import annotations

import copy
import itertools
import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core import fingerprint
from agentstate.dialects import registry
from agentstate.errors import BadRequest
from tests.support import traffic
from tests.unit.core.profile import examples
from tests.unit.dialects.bodies import (
    BODIES,
    CHAT,
    DENIED,
    TOOLS,
    Mutant,
    Path,
    at,
    encoded,
    key,
    mutants,
    removed,
    replaced,
    walk,
)

CALL_IDS = ("tool_calls", "tool_call_id")


def cannot_matter(body: Any, mutant: Mutant) -> str:
    """Why a change may leave the key as it was; empty: it must not."""
    path = mutant.path
    if path and path[0] in DENIED:
        return "a denied field"
    if mutant.how == "order" and path[:-1] == ("tools",):
        return "the order of the tool set"
    if mutant.how == "order" and len(path) == 2 and path[0] == "messages" and _both_results(body, path[1]):
        return "the order of contiguous tool results"
    if mutant.how == "gone" and at(body, path) is None and _null_is_absent(path):
        return "null is absent"
    if "cache_control" in path and _is_mark(path):
        return "a mark of the prompt cache"
    if _is_call_id(path) and _answered_by(body, at(body, path)) == 1:
        return "an id that nothing else names"
    return ""


def _both_results(body: Any, place: Any) -> bool:
    messages = body["messages"]
    return all(isinstance(m, dict) and m.get("role") == "tool" for m in messages[place : place + 2])


def _null_is_absent(path: Path) -> bool:
    """At the top, in a message, in a content part, in a tool call, in a tool; not in what may be a user's schema."""
    return len(path) == 1 or (path[0] == "messages" and len(path) in (3, 5)) or (path[0] == "tools" and len(path) == 3)


def _is_mark(path: Path) -> bool:
    return path.index("cache_control") in (2, 4) and path[0] in ("messages", "tools")


def _is_call_id(path: Path) -> bool:
    if path[:1] != ("messages",) or not isinstance(path[-1], str):
        return False
    return path[2:] == ("tool_call_id",) or (len(path) == 5 and path[2] == "tool_calls" and path[4] == "id")


def _answered_by(body: Any, call_id: Any) -> int:
    return sum(1 for path, value in walk(body) if _is_call_id(path) and value == call_id)


@pytest.mark.parametrize("name", BODIES)
def test_any_one_change_of_a_realistic_body_changes_the_key_unless_it_cannot_matter(name: str) -> None:
    body = BODIES[name]
    own = key(body)
    kept = [mutant.name for mutant in mutants(body) if not cannot_matter(body, mutant) and key(mutant.body) == own]
    assert kept == []


@pytest.mark.parametrize("name", BODIES)
def test_changes_that_cannot_matter_keep_the_key(name: str) -> None:
    body = BODIES[name]
    own = key(body)
    for mutant in mutants(body):
        reason = cannot_matter(body, mutant)
        # Another type in place of an id, or a second element beside it, is another shape, not another name.
        renames = isinstance(at(mutant.body, mutant.path), str) if reason.startswith("an id") else True
        if reason and mutant.how != "gone" and renames:
            assert key(mutant.body) == own, (mutant.name, reason)


@pytest.mark.parametrize("name", DENIED)
@pytest.mark.parametrize("value", [None, "x", {"deep": [1]}, True, 17])
def test_denied_field_in_any_shape_keeps_the_key(name: str, value: Any) -> None:
    body = BODIES["schema"]
    assert key(body | {name: value}) == key(body)
    # Below the top the same name is just a field.
    assert key(replaced(body, ("x_vendor", name), value)) != key(body)


def test_all_bodies_have_keys_of_their_own() -> None:
    assert len({key(body) for body in BODIES.values()}) == len(BODIES)


def test_method_path_and_dialect_count() -> None:
    body = encoded(BODIES["plain"])
    keys = {fingerprint.of(CHAT.parse("POST", "chat/completions", body)).key}
    keys.add(fingerprint.of(CHAT.parse("PUT", "chat/completions", body)).key)
    keys.add(fingerprint.of(CHAT.parse("POST", "completions", body)).key)
    keys.add(fingerprint.of(registry.PURE.parse("POST", "chat/completions", body)).key)
    assert len(keys) == 4


# --- the same question in another spelling ----------------------------------------------------------------------------


def shuffled(value: Any, rng: Random) -> Any:
    """The same JSON value with the keys of every object in another order."""
    if isinstance(value, dict):
        items = [(name, shuffled(part, rng)) for name, part in value.items()]
        rng.shuffle(items)
        return dict(items)
    return [shuffled(part, rng) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", BODIES)
def test_order_of_keys_spacing_and_escapes_keep_the_key(name: str) -> None:
    body = BODIES[name]
    own = key(body)
    for seed in range(5):
        other = shuffled(body, Random(seed))
        assert key(json.dumps(other).encode()) == own
        assert key(json.dumps(other, indent=seed).encode()) == own
        assert key(json.dumps(other, ensure_ascii=False, separators=(" ,\t", " :\r\n")).encode()) == own


def test_unicode_escapes_keep_the_key_and_other_characters_change_it() -> None:
    text = "naïve “quotes” – 日本 🙂 \u2028 \t \\ / \x7f"
    body = BODIES["plain"] | {"messages": [{"role": "user", "content": text}]}
    escaped = "".join(f"\\u{unit:04x}" for unit in _utf16(text))
    assert key(encoded(body).replace(json.dumps(text, ensure_ascii=False)[1:-1].encode(), escaped.encode())) == key(
        body
    )
    # Another normal form is another text.
    decomposed = text.replace("ï", "i\u0308")
    assert key(replaced(body, ("messages", 0, "content"), decomposed)) != key(body)


def _utf16(text: str) -> list[int]:
    raw = text.encode("utf-16-be")
    return [int.from_bytes(raw[place : place + 2], "big") for place in range(0, len(raw), 2)]


def test_null_is_absent_at_the_top_in_messages_and_in_tools() -> None:
    body = BODIES["tools"]
    for path in [("x",), ("messages", 1, "x"), ("messages", 2, "content"), ("messages", 2, "tool_calls", 0, "x"),
                 ("messages", 8, "content", 0, "x"), ("tools", 0, "x")]:  # fmt: skip
        assert key(replaced(body, path, None)) == key(body), path


def test_null_in_a_schema_is_not_absent() -> None:
    body = BODIES["tools"]
    default = ("tools", 1, "function", "parameters", "properties", "to", "default")
    assert key(removed(body, default)) != key(body)


def test_number_keeps_its_key_in_another_notation_of_the_same_value_only() -> None:
    def with_seed(text: str) -> bytes:
        return key(b'{"model":"m","messages":[],"seed":%s}' % text.encode())

    assert with_seed("100.0") == with_seed("1e2")
    values = ("1", "1.5", '"1"', "true", "18446744073709551616", "18446744073709551617", "-9223372036854775809", "0.1",
              "0.2", "1e300", "1e-300", "1E400", "-1E400")  # fmt: skip
    assert len({with_seed(value) for value in values}) == len(values)


def test_order_of_the_tool_set_keeps_the_key() -> None:
    body = BODIES["tools"]
    tools = [*TOOLS, {"type": "function", "function": {"name": "third"}}]
    keys = {key(body | {"tools": list(order)}) for order in itertools.permutations(tools)}
    assert len(keys) == 1
    assert key(body | {"tools": TOOLS}) not in keys
    assert key(body | {"tools": [*tools, tools[0]]}) not in keys


def test_tool_set_is_not_its_only_tool() -> None:
    body = BODIES["plain"]
    assert key(body | {"tools": TOOLS[0]}) != key(body | {"tools": TOOLS[:1]})
    assert key(body | {"tools": []}) != key(body | {"tools": ""})


@pytest.mark.parametrize("path", [("messages", 1), ("messages", 8, "content", 0), ("tools", 0),
                                  ("messages", 2, "tool_calls", 0)])  # fmt: skip
def test_marks_of_the_prompt_cache_keep_the_key(path: Path) -> None:
    body = BODIES["tools"]
    assert key(replaced(body, (*path, "cache_control"), {"type": "ephemeral"})) == key(body)


def test_property_of_a_tool_that_is_called_cache_control_counts() -> None:
    body = BODIES["tools"]
    path = ("tools", 1, "function", "parameters", "properties", "cache_control")
    assert key(removed(body, path)) != key(body)


# --- tool-call ids ----------------------------------------------------------------------------------------------------


def renamed(body: Any, names: dict[str, str]) -> Any:
    """The body with its call ids renamed wherever they stand."""
    made = copy.deepcopy(body)
    for path, value in list(walk(made)):
        if _is_call_id(path):
            at(made, path[:-1])[path[-1]] = names.get(value, value)
    return made


@given(st.lists(st.text(min_size=1, max_size=8), min_size=3, max_size=3, unique=True))
@examples(50)
def test_call_ids_renamed_one_to_one_keep_the_key(ids: list[str]) -> None:
    body = BODIES["tools"]
    assert key(renamed(body, dict(zip(("call_a", "call_b", "call_c"), ids, strict=True)))) == key(body)


def test_call_ids_that_fall_together_change_the_key() -> None:
    body = BODIES["tools"]
    for names in ({"call_a": "call_b"}, {"call_c": "call_a"}, {"call_b": "call_c"}):
        assert key(renamed(body, names)) != key(body), names


def test_results_in_another_order_keep_the_key() -> None:
    body = BODIES["tools"]
    messages = body["messages"]
    assert key(body | {"messages": [*messages[:3], messages[4], messages[3], *messages[5:]]}) == key(body)


def test_result_of_another_call_changes_the_key() -> None:
    body = BODIES["tools"]
    crossed = replaced(replaced(body, ("messages", 3, "tool_call_id"), "call_b"),
                       ("messages", 4, "tool_call_id"), "call_a")  # fmt: skip
    assert key(crossed) != key(body)
    assert key(replaced(body, ("messages", 3, "tool_call_id"), "call_b")) != key(body)
    assert key(replaced(body, ("messages", 8, "tool_call_id"), "call_a")) != key(body)


def test_results_do_not_move_across_other_messages() -> None:
    calls = BODIES["tools"]["messages"][2]
    first, second = BODIES["tools"]["messages"][3:5]
    user = {"role": "user", "content": "wait"}
    one, two = [calls, first, user, second], [calls, second, user, first]
    assert key({"model": "m", "messages": one}) != key({"model": "m", "messages": two})


def test_results_of_unknown_calls_keep_their_order() -> None:
    results = [{"role": "tool", "tool_call_id": name, "content": name} for name in ("p", "q")]
    assert key({"model": "m", "messages": results}) != key({"model": "m", "messages": results[::-1]})


def test_chain_of_a_longer_conversation_begins_with_that_of_the_shorter() -> None:
    body = BODIES["tools"]
    whole = fingerprint.of(CHAT.parse("POST", "chat/completions", encoded(body))).chain
    assert len(set(whole)) == len(body["messages"])
    for count in (1, 3, 5, 7):
        part = body | {"messages": body["messages"][:count]}
        assert fingerprint.of(CHAT.parse("POST", "chat/completions", encoded(part))).chain == whole[:count]


# --- any JSON ---------------------------------------------------------------------------------------------------------

_TEXT = st.text(max_size=6)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=12,
)
_FIELD = st.text(min_size=1, max_size=6).filter(lambda name: name not in (*DENIED, "messages", "tools"))


def typed(value: Any) -> Any:
    """The value in a form in which 1, 1.0, True and "1" are all different."""
    if isinstance(value, dict):
        return ("object", frozenset((name, typed(part)) for name, part in value.items()))
    if isinstance(value, list):
        return ("array", tuple(typed(part) for part in value))
    return (type(value).__name__, value)


@given(_FIELD, _JSON, _JSON)
@examples(300)
def test_unknown_field_counts_with_its_whole_value(name: str, first: Any, second: Any) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    same = typed(first) == typed(second)
    assert (key(body | {name: first}) == key(body | {name: second})) == same


@given(_JSON, _JSON)
@examples(300)
def test_any_content_counts_with_its_whole_value(first: Any, second: Any) -> None:
    def asked(content: Any) -> Any:
        return {"model": "m", "messages": [{"role": "user", "content": {"wrapped": content}}]}

    assert (key(asked(first)) == key(asked(second))) == (typed(first) == typed(second))


@given(st.lists(_TEXT, max_size=4), st.lists(_TEXT, max_size=4))
@examples(200)
def test_border_between_messages_counts(first: list[str], second: list[str]) -> None:
    def asked(texts: list[str]) -> Any:
        return {"model": "m", "messages": [{"role": "user", "content": text} for text in texts]}

    assert (key(asked(first)) == key(asked(second))) == (first == second)


@pytest.mark.parametrize("name", ["messages", "tools", "x"])
@pytest.mark.parametrize("text", ["1e999", '"\\ud800"', "-1E400"])
def test_json_that_only_a_lenient_parser_takes_is_a_question_by_its_bytes(name: str, text: str) -> None:
    def asked(part: str) -> bytes:
        value = f'[{{"role":"user","content":{part}}}]' if name == "messages" else part
        rest = "" if name == "messages" else ',"messages":[{"role":"user","content":"hi"}]'
        return f'{{"model":"m","stream":true,"{name}":{value}{rest}}}'.encode()

    call = CHAT.parse("POST", "chat/completions", asked(text))
    assert call.body == asked(text)
    assert call.shape.stream
    assert key(asked(text)) == key(asked(text))
    assert key(asked(text)) != key(asked('"other"'))


@pytest.mark.parametrize("body", [
    b"", b"[]", b"null", b'"text"', b"{", b'{"a":1}}', b"\xff\xfe", b'{"a":NaN}', b'{"a":Infinity}', b"{'a':1}",
    b'{"model":"m","messages":[{"role":"user","content":"\xff"}]}', b'{"x":"\xc3\x28"}', b'{"a":' + b"[" * 100_000,
])  # fmt: skip
def test_what_no_provider_could_read_is_a_bad_request(body: bytes) -> None:
    for dialect in (CHAT, registry.PURE):
        with pytest.raises(BadRequest):
            dialect.parse("POST", "chat/completions", body)


@pytest.mark.parametrize("messages", ["null", '"text"', "{}", "[]", "[1]", "[null]", '[{"role":"user"},2]'])
def test_odd_messages_are_relayed_and_count(messages: str) -> None:
    body = f'{{"model":"m","messages":{messages}}}'.encode()
    call = CHAT.parse("POST", "chat/completions", body)
    assert call.body == body
    assert key(body) != key(b'{"model":"m","messages":[{"role":"user","content":"x"}]}')


# --- recorded traffic -------------------------------------------------------------------------------------------------


def recorded_bodies() -> list[bytes]:
    """Every chat request of the recordings, once."""
    traffic.require()
    services = ("openai", "azure", "openrouter", "groq", "mistral", "deepseek", "ollama", "xai", "zai")
    found = [found for service in services for found in traffic.provider_chat(service)]
    found += [*traffic.client_chat("run1"), *traffic.client_chat("run2")]
    return list(dict.fromkeys(exchange.request for trajectory in found for exchange in trajectory.exchanges))


def test_any_one_change_of_a_recorded_body_changes_the_key_unless_it_cannot_matter() -> None:
    rng = Random(17)
    kept: list[str] = []
    tried = 0
    for raw in recorded_bodies():
        try:
            body = json.loads(raw)
        except ValueError:
            continue
        if not isinstance(body, dict) or len(raw) > 20_000:
            continue
        own = key(raw)
        assert key(body) == own, "written anew it is another question"
        found = list(mutants(body))
        for mutant in rng.sample(found, min(8, len(found))):
            tried += 1
            if not cannot_matter(body, mutant) and key(mutant.body) == own:
                kept.append(f"{mutant.name} of {raw[:80]!r}")
    assert tried > 3000
    assert kept == []
