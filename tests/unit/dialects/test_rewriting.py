"""One part of a JSON text or of an event changes, and no other byte does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.model import Change, ToolCall
from agentstate.dialects import rewriting, sse
from tests.unit.core.profile import examples

ODD = b'{ "a" : 1.50,"b":"\\u00e9 \\"} ]", "c":[1 , {"x":[]},\n"]"] ,"\\u0064": null }'

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)
_styles = st.sampled_from([None, 0, 2, "\t"])


def test_members_and_elements_are_found_in_any_spelling() -> None:
    assert [one.name for one in rewriting.members(ODD)] == ["a", "b", "c", "d"]
    assert rewriting.member(ODD, "a") == b"1.50"
    assert rewriting.member(ODD, "b") == b'"\\u00e9 \\"} ]"'
    assert rewriting.listed(ODD, "c") == [b"1", b'{"x":[]}', b'"]"']
    assert rewriting.member(ODD, "d") == rewriting.member(ODD, "e") == rewriting.member(b"[1]", "a") == b""
    assert rewriting.listed(ODD, "a") == []


def test_what_only_a_lenient_parser_takes_is_read_alike() -> None:
    for odd in (b'"\\ud800"', b"1e999", b'"\xff"'):
        body = ODD.replace(b"1.50", odd)
        assert rewriting.member(body, "a") == odd
        assert rewriting.member(body, "b") == b'"\\u00e9 \\"} ]"'
        assert rewriting.elements(b"[ " + odd + b" ,[2]\n]") == [odd, b"[2]"]
        assert rewriting.with_members(body, {"a": b"7"}) == ODD.replace(b"1.50", b"7")


def test_last_of_doubled_names_counts_and_a_change_leaves_no_other() -> None:
    doubled = b'{"a":1,"b":2,"a":3}'
    assert rewriting.member(doubled, "a") == b"3"
    assert rewriting.with_members(doubled, {"a": b"4"}) == b'{"b":2,"a":4}'
    assert rewriting.with_members(doubled, {"a": None}) == b'{"b":2}'


def test_only_the_changed_member_changes() -> None:
    assert rewriting.with_members(ODD, {"a": b"7"}) == ODD.replace(b"1.50", b"7")
    assert rewriting.with_members(ODD, {"d": None}) == ODD.replace(b' ,"\\u0064": null', b"")
    assert rewriting.with_members(ODD, {"a": None}) == ODD.replace(b'"a" : 1.50,', b"")
    assert rewriting.with_members(ODD, {"e": b"[]"}) == ODD.replace(b"null }", b'null ,"e":[] }')
    assert rewriting.with_members(ODD, {"e": None}) == ODD
    assert rewriting.with_members(b"{ }", {"e": b"1"}) == b'{"e":1 }'


@examples(200)
@given(st.lists(_values, max_size=5), st.dictionaries(st.integers(0, 4), st.lists(_values, max_size=2)), _styles)
def test_array_with_other_elements_is_what_a_list_would_be(
    values: list[Any], changes: dict[int, list[Any]], style: Any
) -> None:
    text = json.dumps(values, indent=style, ensure_ascii=False).encode()
    new = {place: [json.dumps(value).encode() for value in found] for place, found in changes.items()}
    expected = [one for place, value in enumerate(values) for one in changes.get(place, [value])]
    assert json.loads(rewriting.with_elements(text, new)) == expected
    assert json.loads(rewriting.with_elements(text, new, [b"7", b"8"])) == [*expected, 7, 8]
    assert rewriting.with_elements(text, {}) == text


@examples(200)
@given(st.dictionaries(st.text(max_size=4), _values, max_size=5), st.data(), _styles)
def test_object_with_other_members_is_what_a_dictionary_would_be(
    fields: dict[str, Any], data: st.DataObject, style: Any
) -> None:
    text = json.dumps(fields, indent=style, ensure_ascii=False).encode()
    names = st.sampled_from([*fields, "new", "other"])
    changes = data.draw(st.dictionaries(names, st.just(None) | st.lists(_values, min_size=1, max_size=1)))
    expected = dict(fields)
    for name, value in changes.items():
        if value is None:
            expected.pop(name, None)
        else:
            expected[name] = value[0]
    new = {name: None if value is None else json.dumps(value[0]).encode() for name, value in changes.items()}
    found = json.loads(rewriting.with_members(text, new))
    assert (found, list(found)) == (expected, list(expected))


def test_more_elements_come_behind_the_last_in_the_style_of_the_list() -> None:
    body = b'{"m": [1,\n 2] , "z":[9]}'
    assert rewriting.appended(body, "m", [b"3", b"4"]) == b'{"m": [1,\n 2,\n 3,\n 4] , "z":[9]}'
    assert rewriting.appended(b'{"m":[ ]}', "m", [b"3", b"4"]) == b'{"m":[3,4 ]}'
    assert rewriting.appended(b'{"m":[1]}', "m", [b"3"]) == b'{"m":[1,3]}'


@pytest.mark.parametrize("body", [b'{"m":{}}', b"{}", b"[]", b'{"m":[1', b"", b'{"m" 1}', b"[1 2]"])
def test_what_has_no_such_list_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"list|JSON"):
        rewriting.appended(body, "m", [b"1"])


EVENTS = (
    b'event: x\ndata: {"a":1   }\n\n', b'data:{"a":1   }\r\n\r\n', b'\xef\xbb\xbfdata: {"a":1   }\nid: 7\n\n',
    b': c\ndata: {"a":\ndata: 1   }\n\n', b'data: {"a":1   }', b'data: {"a":1   }\r\r',
)  # fmt: skip


@pytest.mark.parametrize("event", EVENTS)
def test_event_with_other_data_keeps_its_other_lines_and_their_ends(event: bytes) -> None:
    new = rewriting.with_data(event, b'{"a":\r\n2}')
    assert sse.data_of(new) == b'{"a": 2}'
    if b"\ndata: 1" not in event:
        assert new == event.replace(b'{"a":1   }', b'{"a": 2}')
    else:
        assert new == b': c\ndata: {"a": 2}\n\n'


def test_event_that_is_nothing_but_json_may_have_other_data() -> None:
    assert rewriting.with_data(b' {"a":1}\r\n\r\n', b'{"a":2}') == b' {"a":2}\r\n\r\n'


def test_event_of_ours_takes_the_line_ends_of_another() -> None:
    ours = b"event: x\ndata: 1\n\n"
    assert rewriting.line_ends_of(ours, b"data: 2\r\n\r\n") == ours.replace(b"\n", b"\r\n")
    assert rewriting.line_ends_of(ours, b"data: 2\n\n") == rewriting.line_ends_of(ours, b"data: 2") == ours


def test_pieces_of_a_stream_are_all_of_it() -> None:
    for stream in (b"data: 1\n\n\n\n: x\n\ndata: 2", b"data: 1\n\n ", b"", b"\r\n\r\ndata: 1\r\r\n"):
        assert b"".join(rewriting.pieces(stream)) == stream


def test_changes_are_each_for_one_call_that_is_there() -> None:
    calls = [ToolCall(0, 1, "a", "x", "{}"), ToolCall(1, 0, "b", "x", "{}")]
    changes = [Change(1, 0), Change(0, 1, "{}")]
    assert rewriting.by_call(calls, changes) == {(1, 0): changes[0], (0, 1): changes[1]}
    for wrong in ([Change(0, 0)], [Change(2, 0)], [Change(1, 0), Change(1, 0, "{}")]):
        with pytest.raises(ValueError, match="call 0"):
            rewriting.by_call(calls, wrong)


def test_half_a_pair_of_surrogates_stays_one() -> None:
    assert json.loads(rewriting.encoded("a\ud800é")) == "a\ud800é"
    assert json.loads(rewriting.spliced('{"a":"\ud800é"}')) == {"a": "\ud800é"}
    assert rewriting.encoded("é") == '"é"'.encode()
