"""Owns what becomes of a session's steps in a data set: which of them are one transcript, what of it is trained, what a
preference pair is. Pure. Must not know wire formats, files or the journal.

Invariant: a step's answer is trained in one line at most, and only where it stands behind the very conversation that
the model was given; whatever else an agent says that the model said is context.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agentstate.core.transcript import EMPTY, Dialogue, Offered, Reply, Spoken, chain

# Why a line is left out. The keys of every report.
UNANSWERED = "unanswered tool call"
STRAY = "tool result without a call"
UNFINISHED = "unfinished answer"
CUT = "answer cut by its token limit"
DECLINED = "answer that was declined or filtered"
UNDECIDED = "answer that waits for a person"
REFUSED = "call that a person refused"
BAD = "rated bad"
FOREIGN = "parts that chat messages cannot hold"
UNREADABLE = "body that cannot be read"
HELD_ELSEWHERE = "conversation that the provider holds"
PICTURES = "pictures, which this format has no place for"
DOCUMENTS = "files, which this format has no place for"
ARGUMENTS = "arguments that are no JSON object"
DUPLICATE = "duplicate"
SILENT = "no answer to train on"
NO_STEPS = "session without answered steps"
UNREPLACED = "refused without a replacement"
GONE = "deleted while it was read"
TRIED = "step tried with another model, which no agent was given"
TRIAL_LABEL = "try"  # of the sessions in which such trials are kept
INVALID = "breaks a rule of the format"
REASONS = (
    UNANSWERED, STRAY, UNFINISHED, CUT, DECLINED, UNDECIDED, REFUSED, BAD, FOREIGN, UNREADABLE, HELD_ELSEWHERE,
    PICTURES, DOCUMENTS, ARGUMENTS, DUPLICATE, SILENT, NO_STEPS, UNREPLACED, GONE, TRIED, INVALID,
)  # fmt: skip


class Facts(NamedTuple):
    """What is told of a step beside its conversation. ``cost``: USD, ``None``: unknown; ``rating``: ``good``, ``bad``
    or empty; ``why_not``: a reason why it is not trained, empty: it may be; ``chosen``: the filters ask for it."""

    number: int
    model: str = ""
    at: float = 0.0
    run: str = ""
    cost: float | None = None
    rating: str = ""
    labels: tuple[str, ...] = ()
    why_not: str = ""
    chosen: bool = True


@dataclass(eq=False, slots=True)
class Known:
    """A step whose conversation was read once: digests of it, no texts. ``length``: messages that were asked;
    ``given``: at which places of them earlier steps' answers stand; ``ends``: the digests with each of its answers
    behind, first choice first; ``folded``: a later transcript goes on from it."""

    facts: Facts
    length: int
    asked: bytes
    ends: tuple[bytes, ...]
    tools: frozenset[Offered]
    given: dict[int, Known] = field(default_factory=dict)
    folded: bool = False

    @property
    def trainable(self) -> bool:
        return self.facts.chosen and not self.facts.why_not


class Transcripts:
    """The steps of one branch of one session, put together to transcripts. ``add`` them in the order of their numbers,
    then ask for ``longest``."""

    def __init__(self) -> None:
        self._known: list[Known] = []
        self._ends: dict[bytes, Known] = {}

    def add(self, facts: Facts, asked: Dialogue, replies: Sequence[Reply]) -> Known:
        """A step that was answered; with its choices, of which the first counts unless the agent went on from
        another."""
        digests = chain(asked.messages)
        before = digests[-1] if digests else EMPTY
        ends = tuple(chain((reply.message,), before)[0] for reply in replies)
        known = Known(facts, len(asked.messages), before, ends, frozenset(asked.tools))
        for place, message in enumerate(asked.messages):
            earlier = self._ends.get(digests[place]) if message.role == "assistant" else None
            if earlier is not None and earlier.tools <= known.tools:
                known.given[place] = earlier
                earlier.folded = True
        self._known.append(known)
        for end in ends:
            self._ends[end] = known
        return known

    def __len__(self) -> int:
        return len(self._known)

    def onward(self, refused: Known) -> Known | None:
        """The step in which the model was told of the refusal of a step's calls; the last one, where it called again
        and was refused again. ``None``: it was not told."""
        found = next((one for one in self._known if one.given.get(refused.length) is refused), None)
        again = found is not None and found.facts.why_not == REFUSED and self.onward(found)
        return again or found

    def each(self) -> list[Known]:
        """Every step, in order."""
        return list(self._known)

    def longest(self) -> list[Known]:
        """The last steps of the transcripts from which no later step went on, in order."""
        return [known for known in self._known if not known.folded]


class Example(NamedTuple):
    """One line of a data set before it is written in a format. ``trained``: places of the messages that are trained;
    the other answers in it are context. ``steps``: whose answers are trained."""

    session: str
    steps: tuple[Facts, ...]
    dialogue: Dialogue
    trained: frozenset[int]


class Pair(NamedTuple):
    """``preferred`` rather than ``other`` as the answer to a conversation. ``why``: ``edited``, ``rejected`` (what the
    model said to the refusal is preferred) or ``rated``."""

    session: str
    step: Facts
    dialogue: Dialogue
    preferred: Spoken
    other: Spoken
    why: str


def example(
    session: str, last: Known, asked: Dialogue, reply: Reply | None, used: set[int], alone: bool = False
) -> Example | str:
    """The line that a transcript comes to, or the reason why it comes to none.

    ``used``: numbers of the steps that other lines train; those of this one are added. ``alone``: only the last answer
    is trained. ``reply``: the last step's answer, ``None``: it has none to train.
    """
    places: dict[int, Known] = {} if alone else dict(last.given)
    messages = asked.messages
    if reply is not None:
        places[len(messages)] = last
        messages = (*messages, reply.message)
    trained = {
        place: known.facts for place, known in places.items() if known.trainable and known.facts.number not in used
    }
    if not trained:
        return _why(places.values(), last)
    end = max(trained) + 1
    used |= {facts.number for facts in trained.values()}
    steps = tuple(facts for _, facts in sorted(trained.items()))
    return Example(session, steps, asked._replace(messages=messages[:end]), frozenset(trained))


def _why(known: Iterable[Known], last: Known) -> str:
    """Why nothing of a transcript is trained; empty: because nothing of it was asked for, or another line has it."""
    chosen = [one for one in (last, *known) if one.facts.chosen]
    return next((one.facts.why_not for one in chosen if one.facts.why_not), "")


def unanswered(messages: Sequence[Spoken]) -> str:
    """What is wrong with the calls and results of a conversation; empty: nothing. Only the last message may have calls
    that nobody answered."""
    open_: set[str] = set()
    for place, message in enumerate(messages):
        if message.role == "tool":
            if message.answers not in open_:
                return STRAY
            open_.discard(message.answers)
            continue
        if open_:
            return UNANSWERED
        ids = [call.id for call in message.calls]
        if len(set(ids)) != len(ids):
            return INVALID
        open_ = set(ids)
        if place == len(messages) - 1:
            return ""
    return UNANSWERED if open_ else ""


def rated_pairs(known: Sequence[Known]) -> Iterator[tuple[Known, Known]]:
    """(good, bad) answers to the same question, each bad one once."""
    by_question: dict[tuple[bytes, frozenset[Offered]], tuple[list[Known], list[Known]]] = {}
    for one in known:
        if one.facts.rating in ("good", "bad") and one.ends:
            good, bad = by_question.setdefault((one.asked, one.tools), ([], []))
            (good if one.facts.rating == "good" else bad).append(one)
    for good, bad in by_question.values():
        for place, worse in enumerate(bad if good else ()):
            better = good[place % len(good)]
            if better.ends[0] != worse.ends[0]:
                yield better, worse
