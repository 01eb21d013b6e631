"""How a provider's model stands: every attempt is counted once, in one slot; durations are those of answers alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.standing import SLOTS, How, Tally, Tried, how, quantile

DAY = 86_400.0


def tried(status: int = 200, error: str = "", at: float = 10.0, took: float | None = 2.0) -> Tried:
    return Tried(status, error, at, None if took is None else at + took)


def test_an_attempt_ends_in_one_of_four_ways() -> None:
    assert how(tried()) is How.ANSWERED
    assert how(tried(429, "HTTP 429")) is How.LIMITED
    assert how(tried(200, "cut off")) is How.FAILED  # a cut stream had its 200
    assert how(tried(0, "unreachable")) is How.FAILED
    assert how(tried(took=None)) is How.UNDER_WAY


def test_shares_and_durations_are_of_what_is_over() -> None:
    tally = Tally(0.0, DAY)
    for took in (1.0, 2.0, 3.0, 40.0):
        tally.add(tried(took=took))
    tally.add(tried(429, "busy", took=0.1))
    tally.add(tried(took=None))
    found = tally.standing()
    assert (found.answered, found.limited, found.failed, found.under_way) == (4, 1, 0, 1)
    assert (found.p50, found.p95, found.failing) == (2.0, 40.0, 0.2)


def test_of_nothing_nothing_is_known() -> None:
    found = Tally(0.0, DAY).standing()
    assert (found.calls, found.failing, found.p50, found.p95) == (0, None, None, None)
    assert len(found.strip) == SLOTS


@given(st.lists(st.tuples(st.floats(0, DAY), st.sampled_from([0, 200, 429, 503]))))
def test_every_attempt_stands_in_the_slot_of_its_begin(attempts: list[tuple[float, int]]) -> None:
    tally = Tally(0.0, DAY)
    for at, status in attempts:
        tally.add(tried(status, "" if status == 200 else "failed", at))
    found = tally.standing()
    assert sum(slot.calls for slot in found.strip) == len(attempts) == found.calls
    width = DAY / SLOTS
    for place, slot in enumerate(found.strip):
        inside = [at for at, _ in attempts if min(int(at / width), SLOTS - 1) == place]
        assert slot.calls == len(inside)


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_a_value_that_was_met_and_bounds_its_share(values: list[float], share: float) -> None:
    ordered = sorted(values)
    found = quantile(ordered, share)
    assert found in ordered
    assert sum(value <= found for value in ordered) >= share * len(ordered) - 1e-6
    assert sum(value < found for value in ordered) <= share * len(ordered) + 1e-6
