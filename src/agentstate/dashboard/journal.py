"""Owns the journal of a session as its page shows it: a page of steps, and the rulers where runs end. Must not decide
or write.

Invariant: 200 steps at most are shown at a time, and no body is read but those of their answers, for one line each;
what a step cost and who was given it is what the API says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentstate.core.model import Release, State
from agentstate.dashboard import summaries
from agentstate.store.journal_reader import Forward, Given
from agentstate.store.reader import Reader
from agentstate.store.rows import RunRow, SessionRow, StepRow

PAGE = 200
GUTTER = 8  # runs beside each step, the newest
_SCAN = 1000
_REPLAYED = ("replay", "joined", "memo")
_MOST_IDLE_S = 2.0  # of the time line: a longer rest between two steps is drawn as this


@dataclass(frozen=True, slots=True)
class Filters:
    """What of the journal is shown. ``find``: a text in bodies; ``timeline``: bars stand where their time was."""

    failed: bool = False
    tools: bool = False
    find: str = ""
    timeline: bool = False

    @property
    def any(self) -> bool:
        return self.failed or self.tools or bool(self.find)


@dataclass(frozen=True, slots=True)
class StepItem:
    """A row. ``state``: a key of ``rendering.STATES``; ``gutter``: for each run (see ``JournalPage.gutter``) ``paid``,
    ``replayed`` or nothing; ``bar``, ``start``: parts of the scale; ``latency``: seconds; ``cost``: USD, ``None``:
    unknown; ``free``: nothing was asked of a provider; ``led``: the model that a fallback went to; ``shared``: it is of
    the session that this one was forked from; ``forks``: sessions that were forked right before it."""

    number: int
    kind: str
    state: str
    what: str
    summary: str
    tools: tuple[str, ...]
    gutter: tuple[str, ...]
    attempts: int
    led: str
    latency: float | None
    bar: float
    start: float
    tokens: int | None
    cost: float | None
    free: bool
    superseded: bool
    edited: bool
    diverged: bool
    shared: bool
    forks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ruler:
    """Where a run begins. ``before``: the run that came before it, as it ended; ``forward``: what this one was given
    again."""

    number: int
    run: str
    place: int
    evidence: str
    at: float
    sibling: bool
    before: RunRow | None
    before_place: int
    forward: Forward | None


@dataclass(frozen=True, slots=True)
class JournalPage:
    """``entries``: steps and rulers in order; ``gutter``: the names of the runs that stand beside steps; ``matches``:
    how many steps the filters leave, ``None``: all; ``earlier``, ``later``: the number from which the page before and
    the page after begin."""

    entries: tuple[StepItem | Ruler, ...]
    gutter: tuple[str, ...]
    first: int
    last: int
    total: int
    matches: int | None
    earlier: int | None
    later: int | None


NOTHING = JournalPage((), (), 0, -1, 0, None, None, None)


def journal_page(
    reader: Reader, session: SessionRow, filters: Filters, start: int | None = None, only: int | None = None
) -> JournalPage:
    """A page of it. ``start``: the number of its first step; none: the newest ones. ``only``: just that step."""
    runs = list(reversed(reader.runs(session.id, 1000)))
    if only is not None:
        steps = [step for step in reader.all_steps(session.id, only, 1) if step.number == only]
        earlier = later = matches = None
    elif filters.any:
        found = list(_matching(reader, session, filters))
        matches = len(found)
        at = _place(found, start, matches)
        steps = found[at : at + PAGE]
        earlier = found[max(0, at - PAGE)].number if at else None
        later = found[at + PAGE].number if at + PAGE < matches else None
    else:
        matches = None
        begin = max(0, session.steps - PAGE) if start is None else max(0, min(start, session.steps - 1))
        steps = reader.all_steps(session.id, begin, PAGE)
        earlier = max(0, begin - PAGE) if begin else None
        later = begin + PAGE if begin + PAGE < session.steps else None
    items = _items(reader, session, steps, runs, filters)
    rulers = [] if filters.any or only is not None else _rulers(reader, session, runs, steps, later is None)
    first, last = (steps[0].number, steps[-1].number) if steps else (0, -1)
    return JournalPage(
        tuple(_merged(items, rulers)), tuple(run.name for run in runs[-GUTTER:]), first, last, session.steps, matches,
        earlier, later,
    )  # fmt: skip


def all_steps(reader: Reader, session: SessionRow) -> Iterator[StepRow]:
    """Every step of a session, in order."""
    start = 0
    while page := reader.all_steps(session.id, start, _SCAN):
        yield from page
        start = page[-1].number + 1


def _matching(reader: Reader, session: SessionRow, filters: Filters) -> Iterator[StepRow]:
    page: list[StepRow] = []
    for step in all_steps(reader, session):
        if filters.failed and step.state not in (State.FAILED, State.INTERRUPTED):
            continue
        page.append(step)
    if filters.tools:
        calling = reader.tool_names(step.id for step in page)
        page = [step for step in page if step.kind == "tool" or step.id in calling]
    if filters.find:
        numbers = reader.finding(page, filters.find)
        page = [step for step in page if step.number in numbers]
    yield from page


def _place(found: Sequence[StepRow], start: int | None, count: int) -> int:
    if start is None:
        return max(0, count - PAGE)
    return next((at for at, step in enumerate(found) if step.number >= start), max(0, count - PAGE))


def _items(
    reader: Reader, session: SessionRow, steps: Sequence[StepRow], runs: Sequence[RunRow], filters: Filters
) -> list[StepItem]:
    ids = [step.id for step in steps]
    lineage = reader.shown(session)
    shown, edits = dict(lineage), reader.revisions(lineage)
    forks = reader.fork_points(session.id)
    own = {key for key, branch in reader.branches(session.id).items() if branch.session == session.id}
    tools, effects, led = reader.tool_names(ids), reader.tool_steps(ids), reader.detoured(ids)
    given: dict[int, dict[int, Given]] = {}
    diverging = set()
    for one in reader.given_in(ids):
        given.setdefault(one.step, {})[one.run] = one
        if one.outcome == "diverged":
            diverging.add(one.step)
    pending = {step for _, step, _ in reader.pending_in(session.id)}
    spans = _spans(steps, filters.timeline)
    beside = [run.id for run in runs[-GUTTER:]]
    items = []
    for step, (start, part) in zip(steps, spans, strict=True):
        line = summaries.line(reader, step, effects.get(step.id), tools.get(step.id, ()), edits.get(step.id))
        hands = given.get(step.id, {})
        replayed = any(one.outcome in _REPLAYED or one.again for one in hands.values())
        state = _state(step, line.release, step.id in pending, replayed)
        items.append(
            StepItem(
                step.number, step.kind, state, step.model or step.asked_model, line.text, tools.get(step.id, ()),
                tuple(_mark(step, hands.get(run), run) for run in beside), step.attempts, led.get(step.id, ""),
                _latency(step), part, start, line.tokens, step.cost, _free(step),
                step.branch not in shown or step.number >= shown[step.branch],
                line.altered, step.id in diverging, step.branch not in own, tuple(forks.get(step.number, ())),
            )
        )  # fmt: skip
    return items


def _mark(step: StepRow, hand: Given | None, run: int) -> str:
    if step.run == run:
        return "failed" if step.state in (State.FAILED, State.INTERRUPTED) else "paid"
    if hand is None:
        return ""
    return "replayed" if hand.outcome in _REPLAYED or hand.again else "paid"


def _state(step: StepRow, release: Release | None, pending: bool, replayed: bool) -> str:
    if pending or release is Release.HELD:
        return "held"
    if step.state is State.COMPLETED:
        return "replayed" if replayed else "done"
    return str(step.state.value)


def _free(step: StepRow) -> bool:
    """Whether nothing was asked of a provider that takes money for it."""
    return step.kind == "tool" or (step.cost is None and step.state is not State.COMPLETED)


def _latency(step: StepRow) -> float | None:
    return None if step.finished_at is None else max(0.0, step.finished_at - step.started_at)


def _spans(steps: Sequence[StepRow], timeline: bool) -> list[tuple[float, float]]:
    """(where a bar begins, how long it is) of each step, as parts of one scale: the longest, or the time line without
    long rests."""
    longest = max((_latency(step) or 0.0 for step in steps), default=0.0) or 1.0
    if not timeline:
        return [(0.0, (_latency(step) or 0.0) / longest) for step in steps]
    places: dict[int, float] = {}
    since, axis, covered = steps[0].started_at if steps else 0.0, 0.0, 0.0
    for at in sorted(range(len(steps)), key=lambda at: steps[at].started_at):
        began, took = steps[at].started_at, _latency(steps[at]) or 0.0
        if not places:
            since, covered = began, began
        elif began > covered:
            axis += covered - since + min(began - covered, _MOST_IDLE_S)
            since = began
        places[at] = axis + began - since
        covered = max(covered, began + took)
    whole = (axis + covered - since) or 1.0
    return [(places[at] / whole, (_latency(steps[at]) or 0.0) / whole) for at in range(len(steps))]


def _rulers(
    reader: Reader, session: SessionRow, runs: Sequence[RunRow], steps: Sequence[StepRow], to_end: bool
) -> list[Ruler]:
    """One for each run that begins on this page: before the first step that was not there yet when it began."""
    first = steps[0].number if steps else 0
    upto = steps[-1].number if steps else -1
    forwards = reader.forwards(session.id)
    found = []
    for place, run in enumerate(runs):
        if first <= run.base <= upto or (to_end and run.base > upto):
            before = runs[place - 1] if place and not run.siblings else None
            found.append(
                Ruler(
                    run.base, run.name, place + 1, run.evidence, run.started_at, bool(run.siblings), before, place,
                    forwards.get(run.id),
                )
            )  # fmt: skip
    return found


def _merged(items: Iterable[StepItem], rulers: Sequence[Ruler]) -> Iterator[StepItem | Ruler]:
    waiting = sorted(rulers, key=lambda ruler: (ruler.number, ruler.place))
    for item in items:
        while waiting and waiting[0].number <= item.number:
            yield waiting.pop(0)
        yield item
    yield from waiting
