"""A conversation that goes on is read and fingerprinted as if it had never been seen."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from agentstate.core import fingerprint
from agentstate.core.model import Item
from agentstate.core.prefixes import Prefixes
from agentstate.dialects.base import place_of
from agentstate.dialects.conversation import Conversations
from agentstate.dialects.openai_chat import item_of

_PADDING = "x" * 700  # short lists are read anew anyway

messages = st.builds(
    lambda role, text, call: {"role": role, "content": text + _PADDING} | ({"tool_call_id": call} if call else {}),
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.sampled_from(["a", 'say "b", ] and }', "c\n", "é", "[{"]),
    st.sampled_from([None, "call_1", "call_2"]),
)
spellings = st.sampled_from([(", ", ": "), (",", ":"), (" ,\n ", ":")])


@st.composite
def talks(draw: st.DrawFn) -> list[bytes]:
    """Lists of messages, most of them the one before with something added, taken away or changed at the end."""
    now: list[dict[str, str]] = draw(st.lists(messages, min_size=6, max_size=12))
    arrays = []
    for _ in range(draw(st.integers(2, 6))):
        cut = draw(st.sampled_from([0, 0, 0, 1, 2, 3, len(now) // 2]))
        now = now[: len(now) - cut] + draw(st.lists(messages, max_size=3))
        text = json.dumps(now, separators=draw(spellings), ensure_ascii=draw(st.booleans()))
        arrays.append(draw(st.sampled_from(["", " "])).join(["", text]).strip().encode())
    return arrays


@given(talks())
def test_list_that_goes_on_is_read_as_a_new_one(arrays: list[bytes]) -> None:
    grown = Conversations(item_of)
    for array in arrays:
        found, fresh = grown.read(array), Conversations(item_of).read(array)
        assert found == fresh
        if found is not None and found.split is not None:
            before, separator, after = found.split
            assert before + separator.join(item.raw for item in found.items) + after == array


@given(talks())
def test_chain_of_a_conversation_that_goes_on_is_that_of_a_new_one(arrays: list[bytes]) -> None:
    grown = Conversations(item_of)
    for array in arrays:
        found, fresh = grown.read(array), Conversations(item_of).read(array)
        if found is None or fresh is None:
            assert found is fresh
            continue
        known = fingerprint.chain_of(found.items)
        fingerprint._chains = Prefixes()
        assert fingerprint.chain_of(fresh.items) == known
        fingerprint.chain_of(found.items)  # what the next one may build on


def test_what_is_known_belongs_to_the_very_same_items_only() -> None:
    def items(*texts: str) -> list[Item]:
        return [item_of(text.encode(), {"role": "user", "content": text}) for text in texts]

    first = items(*"abcdefghij")
    prefixes = Prefixes(most=2)
    prefixes.keep(first, [bytes([n]) for n in range(10)])
    assert prefixes.known(first[:9]) == [bytes([n]) for n in range(9)]
    assert prefixes.known([*first[:8], *items("x")]) == [bytes([n]) for n in range(8)]
    assert prefixes.known(items(*"abcdefghij")) == ()
    assert prefixes.known(first[:3]) == ()


def test_memory_of_conversations_is_bounded() -> None:
    small = Conversations(item_of, most_bytes=100_000)
    for n in range(200):
        array = json.dumps([{"role": "user", "content": f"{n} {part} {_PADDING}"} for part in range(8)]).encode()
        assert small.read(array) == Conversations(item_of).read(array)
        held = [known for alike in small._known.values() for known in alike]
        assert sum(len(known.array) for known in held) <= 100_000


@given(st.binary(max_size=200), st.binary(max_size=100), st.binary(max_size=200))
def test_place_of_a_part_is_where_find_finds_it(before: bytes, part: bytes, after: bytes) -> None:
    whole = before + part + after
    assert place_of(part, whole) == whole.find(part)


def test_place_of_a_large_part_behind_one_that_begins_alike() -> None:
    part = b"ab" * 100 + b"c"
    whole = b"ab" * 99 + b"x" + part
    assert place_of(part, whole) == len(b"ab" * 99 + b"x")
    assert place_of(part, whole[:-1]) == -1
