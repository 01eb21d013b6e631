"""Owns the one error tree of AgentState. Must not render: servers do that in the caller's dialect, the CLI as text.

Invariant: every error carries a stable ``code``, the HTTP ``status`` it becomes, and a message that says what next.
"""

from __future__ import annotations


class AgentStateError(Exception):
    """Root of the tree.

    ``code`` is stable and machine readable; ``status`` is the HTTP status it becomes; ``kind`` the OpenAI-style
    error type. ``retry_after`` (seconds) is set for temporary faults only, and a fault with it is worth retrying.
    """

    code = "internal_error"
    status = 503
    kind = "api_error"
    retry_after: float | None = 5.0
    exit_code = 1

    def __init__(self, message: str, *, detail: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail or {}


class BadRequest(AgentStateError):
    """The request cannot be understood; it was neither journaled nor sent, and cost nothing."""

    code = "bad_request"
    status = 400
    kind = "invalid_request_error"
    retry_after = None


class BodyTooLarge(BadRequest):
    code = "body_too_large"
    status = 413


class Unauthorized(AgentStateError):
    code = "unauthorized"
    status = 401
    kind = "authentication_error"
    retry_after = None


class Forbidden(AgentStateError):
    code = "forbidden"
    status = 403
    kind = "permission_error"
    retry_after = None


class TooManyRequests(AgentStateError):
    """Too many wrong tokens came from one address; ``retry_after`` says when to try again."""

    code = "too_many_requests"
    status = 429
    kind = "rate_limit_error"
    retry_after = 60.0


class Unprocessable(AgentStateError):
    """The request is well formed, and what it asks for cannot be done with this."""

    code = "unprocessable"
    status = 422
    kind = "invalid_request_error"
    retry_after = None


class Untranslatable(AgentStateError):
    """A question or an answer that cannot be said in another dialect without changing what it means."""

    code = "untranslatable"
    status = 400
    kind = "invalid_request_error"
    retry_after = None


class NotFound(AgentStateError):
    code = "not_found"
    status = 404
    kind = "invalid_request_error"
    retry_after = None


class MethodNotAllowed(AgentStateError):
    """There is something at this address, but not for this method."""

    code = "method_not_allowed"
    status = 405
    kind = "invalid_request_error"
    retry_after = None


class Conflict(AgentStateError):
    code = "conflict"
    status = 409
    kind = "invalid_request_error"
    retry_after = None


class Refused(AgentStateError):
    """The proxy's own decision not to go on; SDKs are told not to retry (``x-should-retry: false``)."""

    code = "refused"
    status = 400
    kind = "invalid_request_error"
    retry_after = None


class SessionPaused(Refused):
    """``waited``: the request has waited for the end of the pause as long as it may, and is not to wait again."""

    code = "session_paused"
    waited = False


class BudgetExceeded(Refused):
    """A call for which a budget has no room was not sent."""

    code = "budget_exceeded"


class RunDiverged(Refused):
    code = "run_diverged"


class RunFenced(Refused):
    code = "run_fenced"


class ApprovalUnavailable(Refused):
    code = "approval_unavailable"


class HumanRejection(Refused):
    """A person, or a policy in their place, refused what the agent was about to do."""

    code = "human_rejection"
    status = 403


class ToolRejected(HumanRejection):
    """A person, or a policy in their place, refused a tool call; it was not made."""

    code = "tool_rejected"


class ToolFailed(AgentStateError):
    """A tool raised an error in an earlier life of the agent, of a kind that cannot be raised again here.

    ``detail``: its type and message.
    """

    code = "tool_failed"
    status = 502
    retry_after = None


class UpstreamFault(AgentStateError):
    """The provider could not be reached, or what it said is no answer. Worth retrying."""

    code = "upstream_fault"
    retry_after = 1.0
    final = False  # whether sending the call again would end the same way, or is not wanted


class UpstreamUnreachable(UpstreamFault):
    code = "upstream_unreachable"


class UpstreamTimeout(UpstreamFault):
    code = "upstream_timeout"


class UpstreamCut(UpstreamFault):
    """The answer ended before it was finished."""

    code = "upstream_cut"


class UpstreamInvalid(UpstreamFault):
    """The answer is not one: HTML, broken JSON or SSE, unreadable tool arguments."""

    code = "upstream_invalid_answer"


class UpstreamBusy(UpstreamFault):
    """No turn at the provider came in time; nothing was sent."""

    code = "provider_busy"
    retry_after = 5.0


class BreakerOpen(UpstreamFault):
    """The provider failed again and again and is left alone for a while; nothing was sent."""

    code = "breaker_open"
    final = True

    def __init__(self, message: str, retry_after: float = 5.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class CandidatesFailed(UpstreamFault):
    """The provider that was asked failed, and so did every other one that the call may go to."""

    code = "candidates_failed"
    final = True

    def __init__(self, message: str, retry_after: float = 5.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def final(fault: UpstreamFault) -> UpstreamFault:
    """The fault, of a call that is not to be sent again."""
    fault.final = True
    return fault


class StoreError(AgentStateError):
    """The journal cannot be used; no answer is released that it could not hold."""

    code = "journal_unavailable"
    retry_after = 5.0
    exit_code = 3


class StepTaken(AgentStateError):
    """Another request moved the step on meanwhile; asking again finds its answer."""

    code = "step_taken"
    retry_after = 1.0


class SessionGone(AgentStateError):
    """The session was deleted while a request of it was on its way; asking again begins a new one."""

    code = "session_gone"
    retry_after = 1.0


class StoreLocked(StoreError):
    code = "journal_locked"


class StoreFull(StoreError):
    code = "journal_full"


class StoreReadOnly(StoreError):
    code = "journal_read_only"


class StoreCorrupt(StoreError):
    code = "journal_corrupt"


class StoreNewer(StoreError):
    code = "journal_newer"


class SettingsError(AgentStateError):
    code = "settings_invalid"
    exit_code = 2
    retry_after = None


class ShuttingDown(AgentStateError):
    code = "shutting_down"
    retry_after = 1.0


class IllegalTransition(AgentStateError):
    """A state machine was asked for a move that its table does not hold: always a bug of ours."""

    code = "illegal_transition"
