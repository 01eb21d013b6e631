"""Owns reading the package's source for the tests of this folder, as syntax trees.

Must not import what it reads. Invariant: every file of the package is seen, none twice.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.house.pages import ROOT

SRC = ROOT / "src" / "agentstate"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One file: its dotted name below the package (``engine.answer``), and its tree."""

    path: Path
    name: str
    tree: ast.Module

    @property
    def layer(self) -> str:
        """The first part of its name; the package's own file is ``__init__``."""
        return self.name.partition(".")[0]


@cache
def modules(root: Path = SRC) -> tuple[Module, ...]:
    """Every module of the package."""
    found = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
        found.append(Module(path, name, ast.parse(path.read_text("utf-8"))))
    assert len(found) > 40, "the package was not found"
    return tuple(found)


def strings(module: Module) -> Iterator[str]:
    """Every text constant of a module, bytes as text; docstrings are texts too."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                yield node.value
            elif isinstance(node.value, bytes):
                yield node.value.decode("latin-1")


def functions(module: Module) -> Iterator[tuple[str, Function]]:
    """(qualified name, node) of every function, methods and inner ones included."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function | ast.ClassDef):
                name = f"{prefix}{child.name}"
                if isinstance(child, Function):
                    yield name, child
                yield from walk(child, name + ".")
            else:
                yield from walk(child, prefix)

    yield from walk(module.tree, "")


def called(node: ast.expr) -> str:
    """The dotted name of what a call calls, as far as it is one."""
    if isinstance(node, ast.Attribute):
        before = called(node.value)
        return f"{before}.{node.attr}" if before else node.attr
    return node.id if isinstance(node, ast.Name) else ""
