"""docs/reference/journal.md is held to the code: the tables, and which facts are on disk when."""

from __future__ import annotations

import ast
import sqlite3

from agentstate.store.sqlite import fresh
from tests.house.pages import REFERENCE, names, table
from tests.house.source import SRC, called

PAGE = REFERENCE / "journal.md"


def test_the_documented_tables_are_all_tables() -> None:
    conn = sqlite3.connect(":memory:", isolation_level=None)
    fresh(conn)
    tables = {row[0] for row in conn.execute("select name from sqlite_master where type = 'table'")}
    conn.close()
    assert set(names(PAGE, "What is in it")) == tables


def facts() -> dict[str, bool]:
    """Each named write of the journal, and whether it is on disk before its caller goes on."""
    found: dict[str, bool] = {}
    files = (
        "journal.py",
        "deciding.py",
        "outgoing.py",
        "effects.py",
        "detouring.py",
        "pausing.py",
        "ratings.py",
        "pruning.py",
        "steering.py",
    )
    parts = [ast.parse((SRC / "store" / name).read_text("utf-8")) for name in files]
    for node in (node for part in parts for node in ast.walk(part)):
        if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
            continue
        ending = called(node.func).rpartition(".")[2]
        if ending in ("_write", "submit", "write_now", "note"):
            given = [word.value for word in node.keywords if word.arg == "durable"] + node.args[2:3]
            assert ending == "note" or all(isinstance(value, ast.Constant) for value in given)
            durable = ending != "note" and all(getattr(value, "value", True) for value in given)
            assert found.setdefault(node.args[0].value, durable) == durable
    return found


def test_the_documented_facts_are_all_named_writes_and_are_on_disk_when_it_says_so() -> None:
    rows = {row[0].strip("`"): row[2].startswith("yes") for row in table(PAGE, "What is on disk when")}
    assert rows == facts()
