"""What follows from one try to deliver a message."""

from __future__ import annotations

import email.utils

import pytest

from agentstate.core.delivery import FIRST_S, LONGEST_S, MOST_ATTEMPTS, Fate, after, asked_wait

NOW = 1_700_000_000.0
NEARLY = 1 - 2**-53


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
@pytest.mark.parametrize("attempt", [1, MOST_ATTEMPTS, 50])
def test_only_a_good_answer_means_that_it_arrived(status: int, attempt: int) -> None:
    assert after(status, "", attempt, NOW, 0.5) == (Fate.DELIVERED, 0.0)


@pytest.mark.parametrize("status", [0, 429, 500, 502, 503, 504, 599])
def test_what_may_pass_is_tried_again_and_not_for_ever(status: int) -> None:
    fates = [after(status, "", attempt, NOW, 0.5).fate for attempt in range(1, MOST_ATTEMPTS + 1)]
    assert fates == [Fate.AGAIN] * (MOST_ATTEMPTS - 1) + [Fate.DEAD]


@pytest.mark.parametrize("status", [100, 301, 302, 307, 308, 400, 401, 403, 404, 405, 410, 413, 422])
def test_what_would_be_refused_again_is_dead_at_once(status: int) -> None:
    assert after(status, "5", 1, NOW, 0.5).fate is Fate.DEAD


def test_waits_double_are_spread_to_nothing_and_end_at_an_hour() -> None:
    longest = [after(500, "", attempt, NOW, NEARLY).wait_s for attempt in range(1, MOST_ATTEMPTS)]
    assert longest[:4] == pytest.approx([FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S])
    assert longest[-1] == pytest.approx(LONGEST_S) and max(longest) <= LONGEST_S
    assert all(after(500, "", attempt, NOW, 0.0).wait_s == 0 for attempt in range(1, MOST_ATTEMPTS))


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(("header", "wait"), [
    ("120", 120.0), (" 120 ", 120.0), ("0.5", 0.5), ("7200", LONGEST_S), ("9" * 400, LONGEST_S),
    (email.utils.formatdate(NOW + 90, usegmt=True), 90.0), (email.utils.formatdate(NOW - 90, usegmt=True), 0.0),
    ("", 0.0), ("soon", 0.0), ("-5", 0.0), ("nan", 0.0), ("٣", 0.0), ("1.2.3", 0.0), ("Fri, 99 Foo", 0.0),
])  # fmt: skip
def test_a_wait_that_is_asked_for_is_kept_up_to_an_hour(status: int, header: str, wait: float) -> None:
    assert after(status, header, 1, NOW, 0.0).wait_s == wait
    assert after(status, header, 3, NOW, NEARLY).wait_s == pytest.approx(max(wait, 4 * FIRST_S))


def test_a_wait_is_never_negative_and_always_a_number() -> None:
    for header in ("-1", "inf", "infinity", "1e9", "Thu, 01 Jan 0001 00:00:00 GMT"):
        assert 0 <= asked_wait(header, NOW) < float("inf")
