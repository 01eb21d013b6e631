"""Owns random scenarios and what must hold of every history. Must not know how the proxy decides.

Invariant: a seed and a mode name one scenario for ever.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from tests.unit.core.agents import Death, History, Mode, Outage, Scenario, Sdk, run
from tests.unit.core.programs import Lanes, abandoned, joins_by_completion, lanes_apart, random_program
from tests.unit.core.world import seeded

KNOWN = (Mode.RUN_ID, Mode.PROCESS)  # modes in which every restart is known


def scenario(seed: int, mode: Mode) -> Scenario:
    """A random program with its SDK, its deaths and the proxy's outages.

    Left out, because nothing could tell them from a restart: calls given up, and time-outs beside other lanes, where a
    cut call is the evidence; the agent goes on, and may ask its first prompt next.
    """
    rng = seeded(f"{mode} {seed}")
    # In half of the known modes lanes ask the same: then nobody can say which lane's answer is whose.
    apart = mode in KNOWN and rng.random() < 0.5
    abandons = mode in (Mode.RUN_ID, Mode.STEP_NUMBER) and rng.random() < 0.3
    program = random_program(rng, abandons=abandons, unique_first=mode is Mode.UNIQUE_FIRST, apart=apart)
    quiet = mode is Mode.NONE
    cut_tells = mode not in (Mode.PROCESS, Mode.CUT_CALL) or not any(isinstance(op, Lanes) for op in program)
    sdk = Sdk(
        timeout=0.0 if quiet or not cut_tells else rng.choice((0.0, 0.0, 1.0, 2.5)),
        retries=rng.choice((2, 3, 5)),
        says_retry=rng.random() < 0.5,
        pool=rng.random() < 0.7,
    )
    plain = Scenario(program, mode, f"{mode} {seed}", sdk, flaky=not quiet and rng.random() < 0.3)
    # Where something can happen is taken from what happens when nothing does.
    calm = run(plain)
    deaths = [_death(rng, calm, quiet) for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 4)))]
    outages = [] if quiet else [_outage(rng, calm) for _ in range(rng.choice((0, 0, 1, 1, 2)))]
    return replace(plain, deaths=tuple(deaths), outages=tuple(outages))


def _death(rng: Random, calm: History, quiet: bool) -> Death:
    restart = rng.choice((0.1, 1.0, 6.0, 20.0))
    if quiet or rng.random() < 0.3:
        return Death(received=rng.randint(1, max(1, len(calm.lives[-1].received))), restart=restart)
    if rng.random() < 0.3:
        return Death(at=rng.uniform(0.0, 0.05), restart=restart)
    return Death(at=_moment(rng, calm), restart=restart)


def _outage(rng: Random, calm: History) -> Outage:
    return Outage(at=_moment(rng, calm) * rng.choice((1.0, 1.3)), down=rng.choice((0.05, 0.5, 4.0)))


def _moment(rng: Random, calm: History) -> float:
    """Any time, or just before or after something happens."""
    times = calm.times or [0.0]
    if rng.random() < 0.4:
        return rng.uniform(0.0, times[-1])
    return max(0.0, rng.choice(times) + rng.choice((-0.0005, 0.0005)))


def faults(history: History) -> list[str]:
    """What is wrong with a history; empty: nothing."""
    found = [] if history.result is not None else ["the program never ended"]
    # A number that is sent again because its answer got lost on the last yard is a restart, for all that can be known.
    judged = history.scenario.mode is not Mode.STEP_NUMBER or not history.lost
    # Nor can it when the proxy dies as it hands an answer over: the next call may be the one that did not get it.
    unknown = {history.proxy.steps[step].answer for step in history.proxy.unknown}
    recorded = {step.answer.sample: step.question for step in history.proxy.steps if step.answer is not None}
    for life in history.lives:
        seen: set[str] = set()
        for question, answer in life.received:
            if answer.question != question:
                found.append(f"life {life.number} asked {question} and got an answer to {answer.question}")
            if answer.sample in seen and judged and answer not in unknown:
                found.append(f"life {life.number} was given {answer.sample!r} twice")
            seen.add(answer.sample)
            if answer.status == 200 and recorded.get(answer.sample) != question:
                found.append(f"life {life.number} was given {answer.sample!r}, which is not recorded for its question")
    if is_bounded(history):
        found += _bill(history)
    return found


def is_bounded(history: History) -> bool:
    """Whether the bill can be known beforehand.

    Not when an answer got lost on the last yard, when lanes ask the same, or when it cannot be kept in which order
    answers came back (time-outs; a replayed answer that waits for lanes that are not there yet while one that is still
    in flight comes back): then a later life may rightly go another way.
    """
    program = history.scenario.program
    crossed = len(history.lives) > 2 and joins_by_completion(program, in_lanes_only=True)
    in_order = not crossed and not (history.scenario.sdk.timeout and joins_by_completion(program))
    known = history.scenario.mode in KNOWN and lanes_apart(program) and in_order
    return known and not history.lost and not history.proxy.lost_hand_overs


def _bill(history: History) -> list[str]:
    """The last life's calls are the least that the work costs; beyond it only what was in flight as the proxy died."""
    last = history.lives[-1]
    answered = Counter(question for question, answer in last.received if answer.status == 200)
    given_up = abandoned(history.scenario.program)
    finished_abandoned = sum(1 for question, _ in last.received if question[0].startswith("given up"))
    least = answered.total() + given_up - finished_abandoned
    if least - given_up <= history.proxy.paid <= least:
        return []
    return [f"{history.proxy.paid} calls were paid for where {least} were needed"]
