"""Small things: every module says what it is, and neither modules nor functions grow without a reason."""

from __future__ import annotations

import ast

import pytest

from tests.house.source import Module, functions, modules

LINES, FUNCTION_LINES = 400, 50

# Module → (lines it may have, why it is one thing).
LONG_MODULES: dict[str, tuple[int, str]] = {
    "settings": (
        700,
        "every setting once, with its help: the whole list is one thing",
    ),
    "providers.simulator": (460, "one scripted model: what it decides, says and counts must fit together"),
}
# "module.function" → (lines it may have, why it is one thing).
LONG_FUNCTIONS: dict[str, tuple[int, str]] = {}

MODULES = modules()


def lines(module: Module) -> int:
    """The lines of a module's file."""
    return len(module.path.read_text("utf-8").splitlines())


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_a_module_says_what_it_owns_and_stays_small(module: Module) -> None:
    if module.tree.body:
        said = ast.get_docstring(module.tree) or ""
        assert said, f"{module.name} does not say what it is"
        if module.path.name not in ("__init__.py", "__main__.py"):
            assert said.startswith("Owns "), f"{module.name} says {said[:60]!r} instead of what it owns"
    assert lines(module) <= LONG_MODULES.get(module.name, (LINES, ""))[0]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_a_function_stays_small(module: Module) -> None:
    for name, node in functions(module):
        assert node.end_lineno is not None
        length = node.end_lineno - node.lineno + 1
        most = LONG_FUNCTIONS.get(f"{module.name}.{name}", (FUNCTION_LINES, ""))[0]
        assert length <= most, f"{module.name}.{name} has {length} lines"


def test_what_is_listed_as_long_is_long() -> None:
    known = {module.name: module for module in MODULES}
    assert all(lines(known[name]) > LINES for name in LONG_MODULES)
    lengths = {
        f"{module.name}.{name}": (node.end_lineno or 0) - node.lineno + 1
        for module in MODULES
        for name, node in functions(module)
    }
    assert all(lengths[name] > FUNCTION_LINES for name in LONG_FUNCTIONS)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_no_error_is_swallowed_in_silence(module: Module) -> None:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"{module.name} line {node.lineno}: except without a type"
            silent = len(node.body) == 1 and isinstance(node.body[0], ast.Pass)
            assert not silent, (
                f"{module.name} line {node.lineno}: say why it may be ignored, or use contextlib.suppress"
            )
