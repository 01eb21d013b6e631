"""What decisions do to an approval: the first one counts, one rejection rejects, several must say the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.approval import (
    Asked,
    Decision,
    Person,
    Role,
    Verdict,
    Vote,
    fits,
    may_decide,
    name_fault,
    reaches,
    state_of,
    tally,
)
from agentstate.core.model import ApprovalKind, ApprovalState

CALL = ApprovalKind.CALL
YES, NO, EDIT = Decision.APPROVED, Decision.REJECTED, Decision.EDITED


def asked(state: ApprovalState = ApprovalState.PENDING, quorum: int = 1, expires: float | None = None,
          effective: str = "") -> Asked:  # fmt: skip
    return Asked(CALL, state, quorum, (), expires, effective)


def test_first_decision_is_taken_and_the_same_again_changes_nothing() -> None:
    assert tally(asked(), [], Vote("ann", YES), 0) is Verdict.TAKEN
    done = asked(ApprovalState.APPROVED)
    assert tally(done, [Vote("ann", YES)], Vote("bob", YES), 0) is Verdict.SAME
    assert tally(done, [Vote("ann", YES)], Vote("ann", NO), 0) is Verdict.CONFLICT


def test_an_edit_is_the_same_only_to_the_letter() -> None:
    done = asked(ApprovalState.EDITED, effective='{"to": "b"}')
    assert tally(done, [], Vote("ann", EDIT, '{"to": "b"}'), 0) is Verdict.SAME
    assert tally(done, [], Vote("ann", EDIT, '{"to": "c"}'), 0) is Verdict.CONFLICT
    assert tally(done, [], Vote("ann", YES), 0) is Verdict.CONFLICT


def test_a_quorum_counts_different_people_who_say_the_same() -> None:
    two = asked(quorum=2)
    assert tally(two, [], Vote("ann", YES), 0) is Verdict.COUNTED
    assert tally(two, [Vote("ann", YES)], Vote("ann", YES), 0) is Verdict.SAME
    assert tally(two, [Vote("ann", YES)], Vote("bob", EDIT, "{}"), 0) is Verdict.COUNTED
    assert tally(two, [Vote("ann", EDIT, "{}")], Vote("bob", EDIT, '{"a":1}'), 0) is Verdict.COUNTED
    assert tally(two, [Vote("ann", YES)], Vote("bob", YES), 0) is Verdict.TAKEN


def test_one_rejection_rejects_whatever_the_quorum() -> None:
    assert tally(asked(quorum=5), [Vote("ann", YES)], Vote("bob", NO), 0) is Verdict.TAKEN


def test_who_changes_their_mind_before_the_quorum_counts_once() -> None:
    votes = [Vote("ann", YES), Vote("bob", EDIT, "{}")]
    assert tally(asked(quorum=2), votes, Vote("bob", YES), 0) is Verdict.TAKEN
    assert tally(asked(quorum=2), votes, Vote("ann", EDIT, "{}"), 0) is Verdict.TAKEN


def test_nothing_is_decided_once_it_has_expired() -> None:
    assert tally(asked(expires=10), [], Vote("ann", YES), 10) is Verdict.EXPIRED
    assert tally(asked(expires=10), [], Vote("ann", NO), 11) is Verdict.EXPIRED
    assert tally(asked(expires=10), [], Vote("ann", YES), 9.9) is Verdict.TAKEN
    assert tally(asked(ApprovalState.EXPIRED, expires=10), [], Vote("ann", YES), 11) is Verdict.CONFLICT


def test_viewers_never_decide_and_named_approvers_exclude_the_others() -> None:
    viewer, ann, admin = Person("v", Role.VIEWER), Person("ann", Role.APPROVER), Person("admin", Role.ADMIN)
    assert not may_decide(viewer, ())
    assert not may_decide(viewer, ("v", "viewer"))
    assert may_decide(ann, ())
    assert may_decide(ann, ("ann",))
    assert may_decide(ann, ("approver",))
    assert not may_decide(ann, ("bob",))
    assert not may_decide(admin, ("bob",))
    assert may_decide(admin, ("admin",))


def test_what_cannot_be_done_to_a_kind_is_said() -> None:
    assert fits(CALL, EDIT) == ""
    assert "edited" in fits(ApprovalKind.REQUEST, EDIT)
    assert "settled" in fits(ApprovalKind.DOUBT, EDIT)
    assert "duplicate" in fits(CALL, Decision.REUSED)
    assert fits(ApprovalKind.DUPLICATE, Decision.REUSED) == ""


VOTES = st.lists(
    st.builds(Vote, st.sampled_from("abc"), st.sampled_from([YES, EDIT]), st.sampled_from(["", "{}"])), max_size=6
)


@given(VOTES, st.integers(1, 4))
def test_nothing_passes_without_as_many_people_as_the_quorum_asks(votes: list[Vote], quorum: int) -> None:
    for place, vote in enumerate(votes):
        verdict = tally(asked(quorum=quorum), votes[:place], vote, 0)
        if verdict is Verdict.TAKEN:
            assert len({other.approver for other in votes[: place + 1]}) >= quorum


@given(st.sampled_from([state for state in ApprovalState if state is not ApprovalState.PENDING]), VOTES)
def test_a_decided_approval_is_never_decided_again(state: ApprovalState, votes: list[Vote]) -> None:
    for vote in votes:
        found = tally(asked(state), [], vote, 0)
        assert found in (Verdict.SAME, Verdict.CONFLICT)
        assert (found is Verdict.SAME) <= (state is state_of(vote.action))


def test_a_link_decides_where_nobody_is_named_or_its_target_is_and_never_by_role() -> None:
    link = Person("link:slack-1", Role.APPROVER)
    assert may_decide(link, ())
    assert may_decide(link, ("slack-1",)) and may_decide(link, ("link:slack-1",))
    assert not may_decide(link, ("approver",)) and not may_decide(link, ("ann", "discord-1"))


def test_a_role_reaches_what_asks_for_it_or_less() -> None:
    assert [reaches(role, Role.APPROVER) for role in (Role.VIEWER, Role.APPROVER, Role.ADMIN)] == [False, True, True]
    assert reaches(Role.VIEWER, Role.VIEWER) and not reaches(Role.APPROVER, Role.ADMIN)


def test_names_that_mean_something_else_are_nobody_s() -> None:
    assert not name_fault("ann") and not name_fault("ann.lee@example.test")
    for name in (
        "",
        "admin",
        "Admin",
        "approver",
        "agentstate",
        "policy",
        "link:slack-1",
        "a b",
        "-a",
        "a" * 65,
        "a\n",
    ):
        assert name_fault(name), name
