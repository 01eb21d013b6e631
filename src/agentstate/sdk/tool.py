"""Owns ``@tool``: functions of an agent whose calls are journaled, and not made again after a restart.

Must not: know any framework, or call a function without leave. Invariant: what a call gives back is what a replay of it
gives back; within a session a function runs only under a claim that the proxy has kept.
"""

from __future__ import annotations

import functools
import inspect
import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from agentstate.errors import AgentStateError, ToolFailed, ToolRejected
from agentstate.sdk.session import current, session

if TYPE_CHECKING:
    from concurrent.futures import Future

    from agentstate.sdk.claims import Claim, Claims

F = TypeVar("F", bound=Callable[..., Any])
Kind = Literal["once", "idempotent", "read"]
_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_key: ContextVar[str | None] = ContextVar("agentstate_tool_key", default=None)


def tool_key() -> str | None:
    """The idempotency key of the call under way, to be passed on to whatever it acts on: the same for each attempt of
    the call, another for every other call. ``None`` outside of a journaled call."""
    return _key.get()


@overload
def tool(function: F, /) -> F: ...


@overload
def tool(
    *,
    kind: Kind = "once",
    name: str | None = None,
    ignore: Iterable[str] = (),
    session: session | None = None,
) -> Callable[[F], F]: ...


def tool(
    function: Any = None,
    /,
    *,
    kind: Kind = "once",
    name: str | None = None,
    ignore: Iterable[str] = (),
    session: session | None = None,
) -> Any:
    """Journal the calls of a function, sync or async: policies govern them, and a restarted agent is given what they
    gave back instead of making them again.

    ``kind``: what a second call would do: ``once``: the same once more (then a call that a crash cut off is settled by
    a person); ``idempotent`` or ``read``: nothing more (then it is simply made again). The proxy's ``[tools]`` settings
    win. ``name``: the tool's name for policies and people; the function's own where it is left out. ``ignore``:
    parameters that are no part of the call, such as a connection; ``self`` never is. ``session``: whose calls they are;
    else those of the ``with agentstate.session(...)`` around the call, or of ``AGENTSTATE_SESSION_ID``. With none of
    them the function is called as it is, with a warning.

    Arguments and results must be JSON; what is given back is the JSON value, live as in a replay (a tuple is a list).

    Raises ``ValueError`` for a ``kind`` or ``ignore`` that is none, ``TypeError`` for a generator. A call raises
    ``TypeError`` for arguments that are not JSON, ``ToolRejected`` where it is refused, ``ToolFailed`` in a replay of
    an error of a kind that is not loaded, and ``AgentStateError`` where the proxy cannot be reached: it was not called
    then, or, where the text says so, its result could not be kept.
    """
    if kind not in ("once", "idempotent", "read"):
        raise ValueError(f"kind is {kind!r}; use once, idempotent or read")

    def wrap(wrapped: Any) -> Any:
        made = _Tool(wrapped, kind, name or wrapped.__name__, frozenset(ignore), session)
        return made.asynchronous() if inspect.iscoroutinefunction(wrapped) else made.synchronous()

    return wrap if function is None else wrap(function)


class _Tool:
    def __init__(
        self, function: Callable[..., Any], kind: str, name: str, ignore: frozenset[str], session: session | None
    ) -> None:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{name} is a generator, which gives nothing back that could be kept: give back a list")
        self._function = function
        self._kind = kind
        self._name = name
        self._signature = inspect.signature(function)
        self._ignore = ignore | {"self", "cls"}
        self._session = session
        self._warned = False
        unknown = ignore - set(self._signature.parameters)
        if unknown:
            raise ValueError(f"{name} has no parameter {', '.join(sorted(unknown))} that could be ignored")

    def synchronous(self) -> Callable[..., Any]:
        @functools.wraps(self._function)
        def called(*args: Any, **kwargs: Any) -> Any:
            where = self._where()
            if where is None:
                return self._function(*args, **kwargs)
            bound, asked = self._asked(args, kwargs)
            claims = self._claims(where)
            claim = claims.claim(asked)
            if isinstance(claim, dict):
                return _given(self._name, claim)
            with _running(claims, claim):
                try:
                    self._edit(bound, claim)
                    outcome, error = _result(self._name, self._function(*bound.args, **bound.kwargs)), None
                except Exception as raised:  # noqa: BLE001 - whatever it is, it is what the call came to
                    outcome, error = _error(raised), raised
            claims.report(claim, outcome)
            return _kept(outcome, error)

        return called

    def asynchronous(self) -> Callable[..., Any]:
        @functools.wraps(self._function)
        async def called(*args: Any, **kwargs: Any) -> Any:
            import asyncio

            where = self._where()
            if where is None:
                return await self._function(*args, **kwargs)
            bound, asked = self._asked(args, kwargs)
            claims = self._claims(where)
            asking = _threaded(lambda: claims.claim(asked))
            try:
                claim = await asyncio.shield(asyncio.wrap_future(asking))
            except asyncio.CancelledError:
                claims.give_up()
                asking.add_done_callback(lambda done: _hand_back(claims, done))
                raise
            if isinstance(claim, dict):
                return _given(self._name, claim)
            with _running(claims, claim):
                try:
                    self._edit(bound, claim)
                    outcome, error = _result(self._name, await self._function(*bound.args, **bound.kwargs)), None
                except Exception as raised:  # noqa: BLE001 - whatever it is, it is what the call came to
                    outcome, error = _error(raised), raised
            await asyncio.shield(asyncio.wrap_future(_threaded(lambda: claims.report(claim, outcome))))
            return _kept(outcome, error)

        return called

    def _where(self) -> session | None:
        found = self._session or current()
        if found is None and not self._warned:
            self._warned = True
            warnings.warn(
                f"{self._name} is called without a session: the call is not journaled, and a restarted agent makes it "
                "again. Call it within `with agentstate.session(...)`, or set AGENTSTATE_SESSION_ID",
                stacklevel=3,
            )
        return found

    def _claims(self, where: session) -> Claims:
        from agentstate.sdk.claims import Claims

        return Claims(where.anthropic_base_url, f"tools/{self._name}")

    def _asked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[inspect.BoundArguments, dict[str, Any]]:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = {name: value for name, value in bound.arguments.items() if name not in self._ignore}
        try:
            arguments = json.loads(json.dumps(arguments, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"the arguments of {self._name} are not JSON ({error}), so the call cannot be journaled and was not "
                "made: pass plain values, or name parameters that are no part of the call in ignore=…"
            ) from None
        return bound, {"arguments": arguments, "class": self._kind}

    def _edit(self, bound: inspect.BoundArguments, claim: Claim) -> None:
        """Put the arguments that a person gave in the place of the proposed ones: what was left out is not given.
        Raises ``TypeError`` for names that the function does not have."""
        if claim.arguments is None:
            return
        for name in set(bound.arguments) - self._ignore - set(claim.arguments):
            del bound.arguments[name]
        for name, value in claim.arguments.items():
            if name not in self._signature.parameters or name in self._ignore:
                raise TypeError(f"{self._name} was edited to have an argument {name}, which it does not have")
            many = self._signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            bound.arguments[name] = tuple(value) if many else value
        lacking = [
            name for name, one in self._signature.parameters.items()
            if name not in bound.arguments and one.default is one.empty and one.kind not in _MANY
        ]  # fmt: skip
        if lacking:
            raise TypeError(f"{self._name} was edited to lack {', '.join(lacking)}, without which it cannot be called")
        bound.apply_defaults()


@contextmanager
def _running(claims: Claims, claim: Claim) -> Iterator[None]:
    """Around the function itself. Where it is broken off (Ctrl-C, a cancelled task), the proxy is told that nobody
    knows what it came to."""
    before = _key.set(claim.key)
    try:
        yield
    except BaseException:
        claims.abandon(claim)
        raise
    finally:
        _key.reset(before)


def _threaded(work: Callable[[], Any]) -> Future[Any]:
    """Do something in a thread of its own. Those of the event loop are few, and the agent's look-ups of addresses need
    them, while a call may be held for days."""
    import concurrent.futures
    import threading

    future: Future[Any] = concurrent.futures.Future()

    def run() -> None:
        future.set_running_or_notify_cancel()
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - whoever waits for it is told
            future.set_exception(error)

    threading.Thread(target=run, name="agentstate-call").start()
    return future


def _hand_back(claims: Claims, asking: Future[Any]) -> None:
    """Leave that came when nobody wanted it any more."""
    if not asking.cancelled() and asking.exception() is None and not isinstance(asking.result(), dict):
        claims.hand_back(asking.result())


def _kept(outcome: str, error: Exception | None) -> Any:
    """What the call gives back, once that is kept."""
    if error is not None:
        raise error
    return json.loads(outcome)["result"]


def _result(name: str, value: Any) -> str:
    try:
        return json.dumps({"result": value}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name} ran, but what it gave back is not JSON ({error}): give back plain values, so that a restarted "
            "agent can be given the same"
        ) from None


def _error(raised: Exception) -> str:
    kind = type(raised)
    try:
        args = json.loads(json.dumps(list(raised.args), allow_nan=False))
    except (TypeError, ValueError):
        args = [str(raised)]
    told = {"type": kind.__qualname__, "module": kind.__module__, "message": str(raised), "args": args}
    return json.dumps({"error": told})


def _given(name: str, outcome: dict[str, Any]) -> Any:
    """What a call that is not made now gives back, or raises."""
    if "refused" in outcome:
        raise ToolRejected(str(outcome["refused"]))
    if "error" not in outcome:
        return outcome["result"]
    raise _again(name, dict(outcome["error"]))


def _again(name: str, told: dict[str, Any]) -> Exception:
    """The error that a call raised, as far as its kind is loaded here; else ``ToolFailed``."""
    kind: Any = sys.modules.get(str(told.get("module")))
    for part in str(told.get("type", "")).split("."):
        kind = getattr(kind, part, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, AgentStateError):
        made = kind.__new__(kind, *told.get("args", ()))
        made.args = tuple(told.get("args", ()))
        if isinstance(made, Exception):
            return made
    return ToolFailed(f"{name} raised {told.get('type')}: {told.get('message')}", detail=told)
