"""Owns the schemas that several descriptions share: how sessions, steps, runs, approvals look. Must not know a route.

Invariant: what is here is what the views write; tests hold answers of real proxies to it, with no field more or less.
"""

from __future__ import annotations

from agentstate.core.approval import Role
from agentstate.core.model import (
    Action,
    ApprovalKind,
    ApprovalState,
    BreakerState,
    OnReject,
    Release,
    RunState,
    SessionStatus,
    State,
)  # fmt: skip
from agentstate.server.describing import (
    Schema,
    anything,
    flag,
    many,
    mapped,
    maybe,
    moment,
    number,
    options,
    record,
    ref,
    text,
    whole,
)  # fmt: skip

_APPROVAL_STATES = [state.value.upper() for state in ApprovalState]

ERROR = record(
    {
        "error": record(
            {
                "message": text("What happened, and what to do."),
                "type": text("The kind of error, as OpenAI names them."),
                "param": maybe(text()),
                "code": text("Stable; see the list of error codes."),
                "agentstate": mapped(anything(), "Details, where there are any."),
            },
            optional=("agentstate",),
        )
    },
    "An error of the proxy.",
)

RATING = record(
    {
        "rating": options(("good", "bad")),
        "note": text("Why."),
        "by": text("Who said so."),
        "at": moment("When."),
    },
    "What a person said of a session or a step.",
)

SESSION = record(
    {
        "id": text("The session id."),
        "status": options(SessionStatus),
        "created_at": moment("Its first call."),
        "updated_at": moment("The last change; replays do not count."),
        "steps": whole("How many steps it holds, superseded ones included."),
        "failed_steps": whole("How many of them failed."),
        "runs": whole("How many runs it had."),
        "cost": maybe(number("What its answers cost as far as prices are known, USD.")),
        "forked_from": maybe(
            record(
                {
                    "session": maybe(text()),
                    "branch": maybe(whole()),
                    "step_number": whole("It shares those below."),
                },
                "Where a fork comes from.",
            )
        ),
        "note": anything("Why it is paused, an object, or null."),
        "rating": maybe(ref("Rating")),
        "labels": many(text(), "Its labels."),
    },
    "A session.",
)

SERVED = record(
    {
        "run": text("The run."),
        "outcome": text("Why it was given it: live, replay, joined, memo, carried …"),
        "match": text("strict, masked or pointer."),
        "cut": flag("Whether its reader left before the last byte and has not come back."),
        "again": whole("How often it was handed to the same run once more."),
        "at": moment("When, the last time."),
    },
    "A hand-out of a step to a run.",
)

TOOL_CALL = record(
    {
        "kind": options(("tool",)),
        "call_id": text("Its id in the answer."),
        "tool": text("The tool's name."),
        "arguments": text("As the agent was given them."),
        "result": maybe(text("What the agent sent back under that id; null: nothing yet.")),
        "failed": flag("Whether the agent marked the result as an error."),
        "seen_at": maybe(moment("When the result came back.")),
        "made_at": maybe(whole("The number of the step of kind tool that is this very call; null: none on this page.")),
    },
    "A tool call that an answer gave the agent.",
)

ASKED = record(
    {
        "id": text("The approval's id."),
        "kind": options(ApprovalKind),
        "tool_name": text("The tool; empty for a request."),
        "call_id": text("The call's id in the answer; empty for a request."),
        "arguments": text("As the model wrote them; empty for a request, whose body is the step's prompt."),
        "status": options(_APPROVAL_STATES),
        "decided_by": maybe(text("Who decided; policy: a policy denied it; null while it is pending.")),
        "reason": text("What they said."),
    },
    "An approval as it stands beside its step.",
)

ATTEMPT = record(
    {
        "attempt": whole("From 1."),
        "provider": text("Who was asked: the provider's name in the settings."),
        "candidate": maybe(text("provider/model, where that is not what the agent asked for.")),
        "status": whole("The HTTP status, 0 where none came."),
        "model": maybe(text("Who answered.")),
        "cost": maybe(number("What it cost, USD; null: unknown.")),
        "error": maybe(text("How it failed.")),
        "why": maybe(text("Why it was made: how the one before failed.")),
        "lost": many(text(), "What of request or answer was lost in translation."),
        "started_at": maybe(moment("When it began.")),
        "finished_at": maybe(moment("When it ended.")),
    },
    "An attempt of a step.",
)

_FACTS: dict[str, Schema] = {
    "step_number": whole("From 0, in the order in which steps were first asked."),
    "request_hash": text("The fingerprint, 64 hexadecimal digits."),
    "token_cost": maybe(number("What the answer cost, USD; null: unknown.")),
    "prices": maybe(text("Whose prices that is: settings, or the price table with its version.")),
    "latency": maybe(number("Seconds from sending to the last byte, the last attempt's.")),
    "created_at": moment("When it was first asked."),
    "state": options(State),
    "kind": options(("model", "tool")),
    "model": text("Who answered, else who was asked."),
    "asked_model": text("Who was asked."),
    "provider": text("The provider's name in the settings."),
    "stream": flag("Whether the answer was streamed."),
    "status_code": whole("The provider's HTTP status, 0 where none came."),
    "attempts": whole("How often it was sent."),
    "usage": maybe(mapped(anything(), "The provider's own usage object.")),
    "error": maybe(text("Why it failed or cannot be shown.")),
    "run": maybe(text("The run that asked first.")),
    "superseded": flag("Whether a rollback or a new generation has left it behind."),
    "shared": flag("Whether it is a step of the session that this one was forked from."),
    "edited": maybe(
        record(
            {
                "made_by": text(),
                "reason": maybe(text()),
                "created_at": moment(),
                "branch": whole(),
                "changed": anything("What was changed."),
            },
            "That a person edited its answer; the recorded one is among its versions.",
        )
    ),
    "served": many(ref("Served"), "Which runs were given it, and how."),
    "deaths": whole("How many runs, the newest left out, were given nothing after it."),
    "calls": many(ref("ToolCall"), "The tool calls that its answer gave the agent."),
    "approvals": many(ref("Asked"), "What people were asked about it."),
    "tries": many(ref("Attempt"), "Its attempts, where it has several; of a single step, all."),
    "rating": maybe(ref("Rating")),
    "labels": many(text(), "Its labels."),
}

_BODIES: dict[str, Schema] = {
    "prompt": maybe(text("The request's exact body.")),
    "response": maybe(text("The recorded answer as JSON text, a stream added up; null where none is recorded.")),
    "proposed": maybe(text("The answer as it came, where response is another one.")),
    "release": maybe(options(Release, "What became of an answer that the gate held; null: it held nothing back.")),
}

STEP_FACTS = record(_FACTS, "A step without its bodies.")
STEP = record(_FACTS | _BODIES, "A step.")

RUN = record(
    {
        "run": text("The run id."),
        "state": options(RunState),
        "evidence": text("How it was known to be new."),
        "replayed": whole("How many recorded answers it was given."),
        "joined": whole("How many it was given by joining a call in flight, or once more."),
        "live": whole("How many attempts were sent for it, failed ones included."),
        "cost": maybe(number("What they cost, USD; null: unknown.")),
        "saved": maybe(number("What the answers that it was given without sending had cost, USD; null: unknown.")),
        "diverged": flag("Whether it diverged."),
        "divergence": maybe(mapped(anything(), "The report of that.")),
        "sibling": flag("Whether it began beside a living run."),
        "exit_code": maybe(whole("What its supervisor reported.")),
        "started_at": moment("Its first call, or its registration."),
        "ended_at": maybe(moment("When its end was reported, or when it was fenced.")),
    },
    "A run.",
)

EFFECT = record(
    {
        "step_number": whole("The step that is the call."),
        "server": maybe(text("The MCP server; null: a function of the agent.")),
        "tool": text("The tool's name."),
        "class": options(("read", "idempotent", "once")),
        "arguments": anything("As sent."),
        "key": text("The idempotency key it was sent with."),
        "state": options(("held", "claimed", "done", "not_done", "in_doubt", "given_up")),
        "settled": maybe(text("How a doubt ended: ran, again or aborted.")),
        "failed": flag("Whether its result is an error or a refusal."),
        "attempts": whole("How often it was claimed."),
        "approval": maybe(text("The question that is pending about it.")),
        "result_at": maybe(moment("When its result was known.")),
    },
    "A tool call that is made under a claim.",
)

VOTE = record(
    {
        "approver": text(),
        "action": text(),
        "arguments": anything("As they edited them, or null."),
        "reason": text(),
        "at": moment(),
    },
    "What one person said of an approval.",
)

APPROVAL = record(
    {
        "id": text("The approval's id."),
        "session_id": text("The session."),
        "step_number": whole("The step whose answer proposes the call, or whose request is held."),
        "tool_name": text("The tool; empty where a request is held."),
        "prompt": maybe(text("The step's request.")),
        "status": options(_APPROVAL_STATES),
        "prompt_cut": flag("Whether prompt is cut (at 20,000 characters)."),
        "kind": options(ApprovalKind),
        "choice": whole("Which of the answer's choices proposes the call."),
        "place": whole("The call's place in that choice."),
        "call_id": text("The call's id."),
        "arguments": maybe(mapped(anything(), "The proposed arguments; null where they are no JSON object.")),
        "arguments_text": text("The same to the letter, whole."),
        "effective": anything("The arguments as edited; of a call in doubt, the result that was said."),
        "schema": anything("The schema that the request gave for them, or null."),
        "digest": text("What a decision is bound to."),
        "rule": anything("Why it is held: a sentence, and the policy."),
        "on_reject": options(OnReject, "How the agent hears of a rejection."),
        "quorum": whole("How many different people must say the same; one rejection rejects."),
        "approvers": many(text(), "Who may decide, by name or role; empty: every approver."),
        "votes": many(ref("Vote"), "What each person said."),
        "decided_by": maybe(text("Who decided; policy: a policy denied it.")),
        "reason": text("Why."),
        "created_at": moment("When it was asked."),
        "expires_at": maybe(moment("When it is refused if nobody decides; null: never.")),
        "decided_at": maybe(moment("When it was decided.")),
    },
    "A question that is put to people.",
)

APPROVER = record(
    {
        "name": text("What they are called in decisions, policies and the audit log."),
        "role": options(Role),
        "slack": text("Their user id in Slack."),
        "discord": text("Their user id in Discord."),
        "created_at": moment("When they were added."),
        "disabled_at": maybe(moment("When they were disabled.")),
    },
    "Somebody with a token of their own.",
)

ENTRY = record(
    {
        "id": whole("Its number, from 1 without gaps."),
        "at": moment("When."),
        "actor": text("Who."),
        "action": text("What, as approval.decided."),
        "subject": text("What it is about."),
        "detail": anything("More of it."),
        "previous": text("The hash of the entry before."),
        "hash": text("The hash of this one and of the one before."),
    },
    "An entry of the audit log.",
)

MESSAGE = record(
    {
        "id": whole("Its number here."),
        "alert": text("The message's own id, the same at every target and in every try."),
        "target": text("The name of the target in the settings."),
        "event": text("What happened."),
        "session": maybe(text("The session that it is about.")),
        "subject": maybe(text("An approval's id, a run id or the session's.")),
        "state": options(("pending", "delivered", "dead")),
        "attempts": whole("How often sending it was begun since it was written or revived."),
        "created_at": moment("When it happened."),
        "next_at": maybe(moment("When it is due.")),
        "delivered_at": maybe(moment("When its target took it.")),
        "dead_at": maybe(moment("When it was given up.")),
        "error": maybe(text("How the last try failed.")),
    },
    "A message to people.",
)

FIGURES: dict[str, Schema] = {
    "calls": whole("Attempts at providers that have ended, failed ones included."),
    "failed": whole("Those without an answer."),
    "replays": whole("Hand-outs of recorded answers."),
    "tokens": record(
        {name: whole() for name in ("input", "output", "cache_read", "cache_write", "reasoning", "total")},
        "What providers counted.",
    ),
    "uncounted": whole("Calls of which no provider told any tokens."),
    "cost": number("What is known of their cost, USD."),
    "cost_unknown": whole("How many of them may have cost something that is not known."),
    "saved": number("What the answers of replays are known to have cost, USD."),
    "saved_unknown": whole("How many of them gave an answer whose cost is not known."),
}

BREAKER = record(
    {
        "provider": text(),
        "model": text(),
        "state": options(BreakerState),
        "failures": whole("In a row."),
        "until": maybe(moment("When a call may try again, where it is open.")),
        "since": maybe(moment("Since when.")),
        "why": maybe(text("The last failure.")),
    },
    "A breaker.",
)

POLICY = record(
    {
        "number": whole("Its place in the settings, from 1."),
        "tools": many(text(), "Patterns of tools."),
        "action": options(Action),
        "when": text("A condition on the arguments; empty: always."),
        "sessions": many(text(), "Patterns of sessions; empty: all."),
        "labels": many(text(), "Labels, one of which the session has; empty: any session."),
        "on_reject": options(OnReject),
        "expires_s": maybe(number("How long a decision is waited for, seconds; null: for ever.")),
        "approvers": many(text(), "Who may decide, by name or role; empty: every approver."),
        "quorum": whole("How many must agree."),
    },
    "A policy of the settings.",
)

COMPONENTS: dict[str, Schema] = {
    "Error": ERROR,
    "Rating": RATING,
    "Session": SESSION,
    "Served": SERVED,
    "ToolCall": TOOL_CALL,
    "Asked": ASKED,
    "Attempt": ATTEMPT,
    "StepFacts": STEP_FACTS,
    "Step": STEP,
    "Run": RUN,
    "Effect": EFFECT,
    "Vote": VOTE,
    "Approval": APPROVAL,
    "Approver": APPROVER,
    "Entry": ENTRY,
    "Message": MESSAGE,
    "Breaker": BREAKER,
    "Policy": POLICY,
}
