"""Arrows point one way: each package imports only what stands to its left."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

import pytest

from tests.house.source import Module, modules

# From left to right; those of one row never import each other.
ROWS: tuple[tuple[str, ...], ...] = (
    ("errors", "clock", "settings"),
    ("core",),
    ("dialects",),
    ("store", "providers", "alerts"),
    ("engine",),
    ("dashboard",),
    ("server",),
    ("cli",),
)
LEFT_OF = {name: {other for row in ROWS[:place] for other in row} for place, row in enumerate(ROWS) for name in row}
LEFT_OF["settings"] = {"errors", "clock"}
LEFT_OF["clock"] = {"errors"}
LEFT_OF["sdk"] = {"errors"}
# The package's own file loads the wrappers on first use; `python -m agentstate` is the command line.
LEFT_OF["__init__"] = {"sdk"}
LEFT_OF["__main__"] = {"cli"}
FRAMEWORKS = {"anthropic", "openai", "langchain_openai", "langchain_core", "crewai"}


def imports(module: Module) -> Iterator[tuple[str, bool]]:
    """(dotted name, whether the module needs it as soon as it is imported), for every import statement."""

    def walk(node: ast.AST, at_once: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            later = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or _for_types_only(child)
            if isinstance(child, ast.Import):
                yield from ((alias.name, at_once) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{module.name} has a relative import; name the package"
                for alias in child.names:
                    yield (
                        (f"{child.module}.{alias.name}" if child.module == "agentstate" else f"{child.module}"),
                        at_once,
                    )
            else:
                yield from walk(child, at_once and not later)

    yield from walk(module.tree, True)


def _for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def ours(module: Module) -> set[str]:
    """The layers of our own that a module imports, at once or later. The version stands in no layer."""
    found = {name for name, _ in imports(module) if name.partition(".")[0] == "agentstate"}
    return {name.split(".")[1] for name in found if name != "agentstate.__version__"} - {module.layer}


MODULES = modules()


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_a_module_imports_only_what_stands_to_its_left(module: Module) -> None:
    assert module.layer in LEFT_OF, f"{module.name} is in no layer of the rule"
    assert ours(module) <= LEFT_OF[module.layer]


def test_the_rule_sees_imports_inside_functions_too() -> None:
    source = "def f():\n    from agentstate.cli import run\n    import agentstate.server.app\n"
    assert ours(Module(MODULES[0].path, "core.x", ast.parse(source))) == {"cli", "server"}


@pytest.mark.parametrize("module", [module for module in MODULES if module.layer == "core"], ids=lambda m: m.name)
def test_the_core_uses_the_standard_library_alone(module: Module) -> None:
    outside = {name.partition(".")[0] for name, _ in imports(module)} - set(sys.stdlib_module_names) - {"agentstate"}
    assert outside == set()
    assert ours(module) <= {"errors"}


# Modules of the standard library by which a pure function could act.
ACTING = {"os", "socket", "subprocess", "sqlite3", "threading", "asyncio", "pathlib", "shutil", "tempfile", "urllib"}


@pytest.mark.parametrize(
    "module", [module for module in MODULES if module.layer in ("core", "dialects")], ids=lambda m: m.name
)
def test_core_and_dialects_cannot_act(module: Module) -> None:
    assert {name.partition(".")[0] for name, _ in imports(module)} & ACTING == set()


@pytest.mark.parametrize("module", [module for module in MODULES if module.layer == "sdk"], ids=lambda m: m.name)
def test_the_wrappers_need_no_framework_to_be_imported(module: Module) -> None:
    at_once = {name.partition(".")[0] for name, needed in imports(module) if needed}
    assert at_once - set(sys.stdlib_module_names) - {"agentstate"} == set()
    later = {name.partition(".")[0] for name, needed in imports(module) if not needed}
    assert later - set(sys.stdlib_module_names) - {"agentstate"} <= FRAMEWORKS


def test_each_library_of_the_outside_has_one_home() -> None:
    """Its errors are mapped where it is imported."""
    allowed = {
        "httptools": {"providers"},
        "sqlite3": {"store"},
        "uvicorn": {"server"},
        "starlette": {"server"},
        "typer": {"cli"},
        "rich": {"cli"},
        "pydantic": {"settings"},
        "genai_prices": {"providers"},
        "itsdangerous": {"engine"},
        "standardwebhooks": {"alerts"},
        "prometheus_client": {"server"},
        "opentelemetry": {"engine"},
        "jinja2": {"dashboard"},
        "markdown_it": {"dashboard"},
        "nh3": {"dashboard"},
        "pygments": {"dashboard"},
    }
    for library, homes in allowed.items():
        users = {module.name for module in MODULES if library in {name.split(".")[0] for name, _ in imports(module)}}
        strays = {name for name in users if not any(name == home or name.startswith(home + ".") for home in homes)}
        assert users and not strays, f"{library} is imported by {strays or 'nobody'}"
