"""Tables that people paste into a settings file are read as what was meant."""

from __future__ import annotations

import tomllib
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core import toml

PLAIN = st.one_of(
    st.text(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.dates(),
)  # fmt: skip
VALUES = st.dictionaries(st.text(min_size=1), st.one_of(PLAIN, st.lists(st.text())))


@given(VALUES)
def test_what_is_written_is_read_as_the_same(values: dict[str, Any]) -> None:
    assert tomllib.loads(toml.table("part", values)) == {"part": values}
    assert tomllib.loads(toml.table("part", values, many=True) * 2) == {"part": [values, values]}


def test_a_named_part_stands_under_its_section() -> None:
    text = toml.table("providers.my own", {"url": "http://localhost:1/v1", "key_env": None})
    assert tomllib.loads(text) == {"providers": {"my own": {"url": "http://localhost:1/v1"}}}


def test_half_a_pair_of_surrogates_and_odd_values_do_no_harm() -> None:
    assert tomllib.loads(toml.table("a", {"b": "x\ud800y\x7f"})) == {"a": {"b": "x?y\x7f"}}
    assert tomllib.loads(toml.table("a", {"on": date(2027, 1, 14)})) == {"a": {"on": date(2027, 1, 14)}}
    with pytest.raises(TypeError):
        toml.value(object())
