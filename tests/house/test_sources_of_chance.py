"""Time, ids and chance come from ``clock.py`` alone, and every task has a name and an owner."""

from __future__ import annotations

import ast

import pytest

from tests.house.source import Module, called, modules
from tests.house.test_layers import imports

LIBRARIES = {"time", "random", "uuid", "secrets"}
NOW = {"now", "utcnow", "today"}

# Module → what it may use, and why it must.
EXCEPTIONS: dict[str, tuple[set[str], str]] = {
    "clock": ({"time", "secrets"}, "it is the source"),
    "sdk.http": (
        {"secrets"},
        "the wrappers import nothing of ours but errors; their run id must differ between processes",
    ),
}
# The event loop's own clock is what its timers are set by; nothing of it is kept or decided on.
LOOP_CLOCK = {"engine.recorder", "providers.http"}
TASK_OWNERS = {"engine.tasks", "server.app"}


def used(module: Module) -> set[str]:
    """The libraries of time and chance that a module imports."""
    return {name.partition(".")[0] for name, _ in imports(module)} & LIBRARIES


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_time_ids_and_chance_come_from_the_clock(module: Module) -> None:
    allowed, _ = EXCEPTIONS.get(module.name, (set(), ""))
    assert used(module) == allowed
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            name = called(node.func)
            before, _, last = name.rpartition(".")
            assert not (last in NOW and before.endswith(("datetime", "date"))), f"{module.name}: {name}()"
            assert name not in ("os.urandom", "os.getrandom"), f"{module.name}: {name}()"
            if name == "loop.time":
                assert module.name in LOOP_CLOCK


def test_every_exception_is_still_one() -> None:
    known = {module.name: module for module in modules()}
    assert {name for name in EXCEPTIONS if used(known[name])} == set(EXCEPTIONS)
    assert all("loop.time" in ast.unparse(known[name].tree) for name in LOOP_CLOCK)


def starts_task(node: ast.AST) -> bool:
    """Whether a call starts a task by itself. A task group owns what it starts."""
    if not isinstance(node, ast.Call):
        return False
    before, _, last = called(node.func).rpartition(".")
    return last in ("create_task", "ensure_future") and not before.endswith("group")


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_every_task_has_a_name_and_an_owner(module: Module) -> None:
    for node in ast.walk(module.tree):
        if starts_task(node):
            assert module.name in TASK_OWNERS, (
                f"{module.name} line {getattr(node, 'lineno', '?')} starts a task by itself"
            )
            assert isinstance(node, ast.Call) and any(word.arg == "name" for word in node.keywords)


def test_every_thread_has_a_name() -> None:
    made = [
        (module.name, node)
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and called(node.func) == "threading.Thread"
    ]
    assert made
    for where, node in made:
        assert any(word.arg == "name" for word in node.keywords), where
