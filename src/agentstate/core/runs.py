"""Owns the question «which run of the session is this request?». Must not decide what it is answered with.

A repeated request is byte-identical whether its agent died and asks again or asks again on purpose, so a *new run*
needs evidence: a run id, another process, a step number that goes back, a call that lost its client, or the operator's
word that the first prompt is unique.
Invariant: without evidence a request belongs to the run that is there, so that a repeat is a new sample and is paid.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from agentstate.core.model import RunState, SessionStatus


class Evidence(StrEnum):
    """How a run was known to be a new one."""

    FIRST = "first"  # the session's first run
    RUN_ID = "run-id"
    SUPERVISOR = "supervisor"
    PROCESS = "process"
    STEP_NUMBER = "step-number"
    CUT_CALL = "cut-call"
    FIRST_PROMPT = "first-prompt"
    NONE = "none"  # an unnamed request in a session that only has named runs


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is known of a recorded run.

    ``owner``: "pid:start" of the process that owned its sockets, "" when unknown. ``named``: it came with a run id.
    ``advanced``: it was given at least two steps, or one that is not the session's first. ``loose_cut``: a reader of
    it left before the last byte, it has asked nothing since, the request's socket was opened later, and neither a
    restart nor another reader has used that up.
    """

    id: int
    name: str
    named: bool = False
    owner: str = ""
    state: RunState = RunState.OPEN
    hint_min: int | None = None
    hint_max: int | None = None
    advanced: bool = False
    loose_cut: bool = False


class Arrival(NamedTuple):
    """What a request shows of its sender. ``first``: it equals the session's first step.

    ``claims_orphan``: it equals a step of the present run whose reader left early, which explains that cut.
    ``others_open``: another socket of the session is open; ``talking``: a call of the present run has a live reader.
    ``hint_used``: a step of equal fingerprint with this step number was completed for the present run and reached it.
    ``retry``: the client says that it sends again.
    """

    name: str = ""
    owner: str = ""
    hint: int | None = None
    hint_used: bool = False
    first: bool = False
    claims_orphan: bool = False
    unique_first: bool = False
    others_open: bool = False
    talking: bool = False
    retry: bool = False


@dataclass(frozen=True, slots=True)
class SameRun:
    run: RunFacts


@dataclass(frozen=True, slots=True)
class NewRun:
    evidence: Evidence


def present_run(arrival: Arrival, runs: tuple[RunFacts, ...]) -> RunFacts | None:
    """The run that the request belongs to if nothing proves a new one. ``runs``: newest first."""
    if arrival.name:
        return next((run for run in runs if run.name == arrival.name), None)
    unnamed = [run for run in runs if not run.named]
    if arrival.owner:
        same = next((run for run in unnamed if run.owner == arrival.owner), None)
        if same is not None:
            return same
        # A run whose process was never seen may be this very process.
        return unnamed[0] if unnamed and not unnamed[0].owner else None
    return unnamed[0] if unnamed else None


def identify(arrival: Arrival, runs: tuple[RunFacts, ...]) -> SameRun | NewRun:
    """The run of a request. ``runs``: the session's, newest first."""
    present = present_run(arrival, runs)
    if present is None:
        return NewRun(_why_unknown(arrival, runs))
    if arrival.name or arrival.retry:
        return SameRun(present)
    if _steps_back(arrival, present):
        return NewRun(Evidence.STEP_NUMBER)
    goes_on = arrival.hint is not None and _goes_on(arrival.hint, present)
    if arrival.first and not arrival.claims_orphan and not arrival.talking and not goes_on:
        if present.loose_cut and not arrival.others_open:
            return NewRun(Evidence.CUT_CALL)
        if arrival.unique_first and present.advanced:
            return NewRun(Evidence.FIRST_PROMPT)
    return SameRun(present)


def _why_unknown(arrival: Arrival, runs: tuple[RunFacts, ...]) -> Evidence:
    if not runs:
        return Evidence.FIRST
    if arrival.name:
        return Evidence.RUN_ID
    if any(not run.named for run in runs):
        return Evidence.PROCESS
    return Evidence.NONE


def _steps_back(arrival: Arrival, present: RunFacts) -> bool:
    """A number that varies and goes back to where the run began, with a question that was answered there.

    A constant proves nothing; nor do parallel calls that overtake each other, or a call that is sent again because it
    failed: those have a call still talking, a number not seen yet, or no answer that reached its reader.
    """
    if arrival.hint is None or present.hint_min is None or present.hint_max is None or arrival.talking:
        return False
    return arrival.hint <= present.hint_min < present.hint_max and arrival.hint_used


def _goes_on(hint: int, present: RunFacts) -> bool:
    """A number that varies, and is not where the run began: this is no restart, whatever else looks like one."""
    return (
        present.hint_min is not None and present.hint_max is not None and present.hint_min < min(hint, present.hint_max)
    )


def starts_generation(status: SessionStatus, last_change: float, now: float, replay_within: float) -> bool:
    """Whether a new run must not be replayed into: its session is finished, or too old (seconds)."""
    return status is SessionStatus.COMPLETED or now - last_change > replay_within
