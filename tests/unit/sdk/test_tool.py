"""``@tool`` where no proxy is needed: signatures, warnings, what is refused before anything is called."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agentstate import session, tool, tool_key
from agentstate.errors import AgentStateError, ToolFailed, ToolRejected
from agentstate.sdk import claims
from agentstate.sdk.session import current


@contextmanager
def proxy(*answers: dict[str, Any] | int) -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """(address, what was asked) of a proxy that answers so, in order; a number is a status without a body."""
    left, asked = list(answers), []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append((self.path, json.loads(self.rfile.read(int(self.headers["content-length"])))))
            answer = left.pop(0) if left else {"state": "done", "outcome": {"result": None}}
            data = b"" if isinstance(answer, int) else json.dumps(answer).encode()
            self.send_response(answer if isinstance(answer, int) else 200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, name="proxy", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


CLAIMED = {"state": "claimed", "step": 7, "attempt": 2, "key": "key_1", "arguments": None}
called: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_called(monkeypatch: pytest.MonkeyPatch) -> None:
    called.clear()
    monkeypatch.setattr(claims, "_PAUSE_S", 0.0)


@tool
def add(one: int, *rest: int, scale: int = 1) -> tuple[int, ...]:
    """Add numbers."""
    called.append((one, rest, scale, tool_key()))
    return (scale * (one + sum(rest)),)


def test_a_tool_keeps_its_name_text_and_signature() -> None:
    assert (add.__name__, add.__doc__) == ("add", "Add numbers.")
    assert list(inspect.signature(add).parameters) == ["one", "rest", "scale"]

    @tool
    async def later() -> None: ...

    assert inspect.iscoroutinefunction(later)


def test_without_a_session_the_function_is_called_with_one_warning() -> None:
    @tool
    def plain(value: Any) -> Any:
        return value, tool_key()

    given = object()
    with pytest.warns(UserWarning, match="not journaled.*AGENTSTATE_SESSION_ID"):
        assert plain(given) == (given, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plain(given) == (given, None)


def test_a_claimed_call_is_made_with_its_key_and_its_result_kept_before_it_is_given() -> None:
    with proxy(CLAIMED, {"state": "done"}) as (url, asked), session("s", url):
        assert add(1, 2, scale=3) == [9]  # a JSON value, as a replay gives it
    assert called == [(1, (2,), 3, "key_1")]
    (path, claim), (then, report) = asked
    assert path.startswith("/s/s/r/run_") and path.endswith("/tools/add/claim") and then.endswith("/tools/add/result")
    assert claim["arguments"] == {"one": 1, "rest": [2], "scale": 3} and claim["class"] == "once"
    assert report["outcome"] == {"result": [9]} and (report["step"], report["attempt"]) == (7, 2)
    assert (report["process"], report["sending"]) == (claim["process"], claim["sending"])
    assert tool_key() is None


def test_what_was_edited_is_what_the_function_gets() -> None:
    edited = CLAIMED | {"arguments": {"one": 5, "rest": [1, 1], "scale": 2}}
    with proxy(edited, {"state": "done"}) as (url, _), session("s", url):
        assert add(1) == [14]
    assert called[0][:3] == (5, (1, 1), 2)


def test_an_edit_that_the_function_cannot_take_is_its_outcome_and_nothing_is_called() -> None:
    with (
        proxy(CLAIMED | {"arguments": {"other": 5}}, {"state": "done"}) as (url, asked),
        session("s", url),
        pytest.raises(TypeError, match="edited to have an argument other"),
    ):
        add(1)
    assert called == []
    assert asked[1][1]["outcome"]["error"]["type"] == "TypeError"


def test_an_argument_that_an_edit_left_out_is_not_given() -> None:
    """The person saw a call with a scale, and took it out."""
    with proxy(CLAIMED | {"arguments": {"one": 5, "rest": []}}, {"state": "done"}) as (url, _), session("s", url):
        assert add(1, 2, scale=3) == [5]
    assert called[0][:3] == (5, (), 1)


def test_an_edit_that_leaves_out_what_the_function_needs_is_its_outcome_and_nothing_is_called() -> None:
    with (
        proxy(CLAIMED | {"arguments": {"scale": 2}}, {"state": "done"}) as (url, asked),
        session("s", url),
        pytest.raises(TypeError, match="edited to lack one"),
    ):
        add(1)
    assert called == []
    assert asked[1][1]["outcome"]["error"]["type"] == "TypeError"


def test_a_recorded_call_is_not_made() -> None:
    with proxy({"state": "done", "outcome": {"result": {"a": 1}}}) as (url, _), session("s", url):
        assert add(1) == {"a": 1}
    assert called == []


@pytest.mark.parametrize(
    ("told", "kind", "text"),
    [
        ({"type": "KeyError", "module": "builtins", "message": "'x'", "args": ["x"]}, KeyError, "'x'"),
        ({"type": "Own", "module": "not.loaded", "message": "m", "args": ["m"]}, ToolFailed, "raised Own: m"),
        ({"type": "exit", "module": "builtins", "message": "m", "args": []}, ToolFailed, "raised exit"),
        ({"type": "KeyboardInterrupt", "module": "builtins", "message": "", "args": []}, ToolFailed, "Keyboard"),
    ],
)
def test_a_recorded_error_is_raised_again_as_far_as_its_kind_is_an_error_here(
    told: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with (
        proxy({"state": "done", "outcome": {"error": told}}) as (url, _),
        session("s", url),
        pytest.raises(kind, match=text),
    ):
        add(1)


def test_a_refused_call_raises_who_refused_it() -> None:
    with (
        proxy({"state": "done", "outcome": {"refused": "by ann: no"}}) as (url, _),
        session("s", url),
        pytest.raises(ToolRejected, match="by ann: no"),
    ):
        add(1)
    assert called == []


def test_a_held_call_is_asked_for_again_under_the_same_name() -> None:
    held = {"state": "held", "approval": "apr_1", "why": "policy 1"}
    with proxy(held, 503, held, CLAIMED, {"state": "done"}) as (url, asked), session("s", url):
        add(1)
    assert len({body["sending"] for _, body in asked}) == 1
    assert [body.get("retry") for _, body in asked[:4]] == [0, 0, 0, 1]


def test_a_proxy_that_refuses_or_stays_away_means_that_nothing_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_TRIES", 3)
    with proxy(400) as (url, _), session("s", url), pytest.raises(AgentStateError, match="refuses this call"):
        add(1)
    with session("s", url), pytest.raises(AgentStateError, match="the call was not made; start it"):
        add(1)
    assert called == []


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), b"x"])
def test_arguments_that_are_not_json_are_refused_before_anything_is_asked(value: Any) -> None:
    with proxy() as (url, asked), session("s", url), pytest.raises(TypeError, match="ignore="):
        add(value)
    assert asked == [] and called == []


def test_a_result_that_is_not_json_is_an_error_that_is_kept() -> None:
    @tool
    def give() -> Any:
        return object()

    with (
        proxy(CLAIMED, {"state": "done"}) as (url, asked),
        session("s", url),
        pytest.raises(TypeError, match="give ran, but what it gave back is not JSON"),
    ):
        give()
    assert asked[1][1]["outcome"]["error"]["type"] == "TypeError"


def test_parameters_that_are_ignored_and_self_are_no_part_of_the_call() -> None:
    class Shop:
        @tool(ignore=["db"], name="shop.buy", kind="idempotent")
        def buy(self, item: str, db: object) -> str:
            called.append((self, db))
            return item

    db, shop = object(), Shop()
    with proxy(CLAIMED, {"state": "done"}) as (url, asked), session("s", url):
        assert shop.buy("tea", db) == "tea"
    assert called == [(shop, db)]
    path, body = asked[0]
    assert path.endswith("/tools/shop.buy/claim") and body["arguments"] == {"item": "tea"}
    assert body["class"] == "idempotent"


@pytest.mark.parametrize("wrong", [{"kind": "twice"}, {"ignore": ["nothing"]}])
def test_a_decorator_that_says_nothing_sensible_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"twice|nothing"):

        @tool(**wrong)
        def some() -> None: ...


def test_a_call_that_is_broken_off_tells_that_nobody_knows_what_it_came_to() -> None:
    @tool
    def stop() -> None:
        raise KeyboardInterrupt

    with proxy(CLAIMED, {"state": "done"}) as (url, asked), session("s", url), pytest.raises(KeyboardInterrupt):
        stop()
    assert asked[1][0].endswith("/result") and "outcome" not in asked[1][1] and "made" not in asked[1][1]


async def test_an_asynchronous_call_that_is_cancelled_while_it_is_held_is_not_made() -> None:
    @tool
    async def later() -> None:
        called.append("later")

    held = {"state": "held", "approval": "apr_1", "why": ""}
    with proxy(*[held] * 10_000) as (url, asked), session("s", url):
        task = asyncio.ensure_future(later())
        async with asyncio.timeout(20):
            while not asked:
                await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert called == []


async def test_calls_that_are_held_leave_the_threads_of_the_loop_to_the_agent() -> None:
    """Without them no address can be looked up, and no result of another call be kept."""

    @tool
    async def later() -> None:
        called.append("later")

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    held = {"state": "held", "approval": "apr_1", "why": ""}
    with proxy(*[held] * 100_000) as (url, asked), session("s", url):
        tasks = [asyncio.ensure_future(later()) for _ in range(3)]
        async with asyncio.timeout(20):
            while len({body["sending"] for _, body in asked}) < 3:
                await asyncio.sleep(0.005)
            assert await asyncio.to_thread(len, asked) >= 3
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert called == []


def test_a_generator_is_no_tool() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="numbers is a generator"):
        tool(numbers)


def test_the_session_of_a_call_is_the_innermost_block_then_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert current() is None
    monkeypatch.setenv("AGENTSTATE_SESSION_ID", "of-the-variable")
    found = current()
    assert found is not None and found.id == "of-the-variable"
    with session("outer") as outer:
        with session("inner") as inner:
            assert current() is inner
        assert current() is outer


def test_the_address_of_an_mcp_server_names_session_and_run() -> None:
    where = session("a/b", "http://h:1/v1")
    assert where.mcp_url("my server") == f"http://h:1/s/a%2Fb/r/{where.run}/mcp/my%20server"
