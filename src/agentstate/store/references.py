"""Owns which rows belong to what, and which refer to contents: the map that pruning and its garbage collection go by.

Must not delete anything. Invariant: every table of the schema is in exactly one group here, and every column that holds
the id of a content or of a transcript is named; a test reads the schema and fails for a new one that is not.
"""

from __future__ import annotations

# Columns that hold the id of a content.
BLOBS: tuple[tuple[str, str], ...] = (
    ("step", "frame"),
    ("attempt", "body"),
    ("held", "body"),
    ("approval", "arguments"),
    ("approval", "schema"),
    ("approval", "effective"),
    ("vote", "arguments"),
    ("release", "body"),
    ("job_release", "body"),
    ("invocation", "arguments"),
    ("invocation", "result"),
    ("effect", "arguments"),
    ("node", "blob"),
    ("revision", "body"),
    ("revised_call", "arguments"),
    ("revised_call", "result"),
)
# Columns that hold the id of a transcript's node.
NODES: tuple[tuple[str, str], ...] = (("step", "node"), ("node", "parent"))

# Tables whose rows go with their session, at once, by the column that names it.
OF_SESSIONS: tuple[tuple[str, str], ...] = (
    ("label", "session"),
    ("pin", "session"),
    ("rating", "session"),
    ("branch", "session"),
    ("held", "session"),
    ("deleted", "session"),
)
# Tables whose rows go with the branches of their session, by the column that names one.
OF_BRANCHES: tuple[tuple[str, str], ...] = (
    ("revision", "branch"),
    ("left_behind", "branch"),
    ("revised_call", "branch"),
)
# Tables whose rows go with their step, by the column that names it. The order is that of deletion.
OF_STEPS: tuple[tuple[str, str], ...] = (
    ("release", "step"),
    ("job_release", "step"),
    ("withheld", "step"),
    ("approval", "step"),
    ("invocation", "step"),
    ("call", "step"),
    ("effect", "step"),
    ("step_label", "step"),
    ("revision", "step"),
    ("left_behind", "step"),
    ("revised_call", "step"),
    ("detour", "step"),
    ("reservation", "step"),
    ("held", "step"),
    ("served", "step"),
    ("attempt", "step"),
    ("step", "id"),
)
# Tables whose rows go in ways of their own: with an approval, a run's end, a session's id as text, a limit's scope.
APART: frozenset[str] = frozenset({"session", "run", "vote", "outbox", "reached", "doomed", "pruned"})
# Tables whose rows stay whatever is pruned.
STAYING: frozenset[str] = frozenset({"meta", "approver", "audit", "breaker", "bygone"})
# Contents and transcripts: they go when nothing refers to them.
SHARED: frozenset[str] = frozenset({"blob", "node"})


def dropping(table: str, column: str) -> str:
    """Deletes the rows of a table whose column is one of the ids ``:ids``, as a JSON list."""
    return f"delete from {table} where {column} in (select value from json_each(:ids))"  # noqa: S608 - names of ours


def marking() -> tuple[str, ...]:
    """Notes every content that something refers to in the temporary table ``live``."""
    return tuple(
        f"insert or ignore into live select {column} from {table} where {column} is not null"  # noqa: S608 - as above
        for table, column in BLOBS
    )


def marking_nodes() -> str:
    """The same of transcripts: those of steps, and all that they go on from."""
    roots = " union ".join(
        f"select {column} from {table} where {column} is not null"  # noqa: S608 - as above
        for table, column in NODES
        if table != "node"
    )
    return (
        f"insert into live with recursive up (id) as ({roots} union "  # noqa: S608 - as above
        "select n.parent from up join node n on n.id = up.id where n.parent is not null) select id from up"
    )


def dangling() -> tuple[tuple[str, str, str], ...]:
    """(table, column, statement that counts its rows whose content or transcript is not there)."""
    return tuple(
        (
            table,
            column,
            f"select count(*) from {table} where {column} is not null and {column} not in (select id from {there})",  # noqa: S608
        )
        for there, columns in (("blob", BLOBS), ("node", NODES))
        for table, column in columns
    )


def watching() -> tuple[str, ...]:
    """Notes, in temporary tables of the writer's connection, what is referred to from now on."""
    made = []
    for kind, columns in (("blob", BLOBS), ("node", NODES)):
        made.append(f"create temp table touched_{kind} (id integer primary key)")
        for table, column in columns:
            for verb, event in (("insert", "insert"), ("update", f"update of {column}")):
                made.append(
                    f"create temp trigger touch_{table}_{column}_{verb} after {event} on main.{table} "  # noqa: S608
                    f"when new.{column} is not null begin "
                    f"insert or ignore into touched_{kind} (id) values (new.{column}); end"
                )
    return tuple(made)


def unwatching() -> tuple[str, ...]:
    """Undoes that, where it was done."""
    triggers = [
        f"drop trigger if exists temp.touch_{table}_{column}_{verb}"
        for table, column in (*BLOBS, *NODES)
        for verb in ("insert", "update")
    ]
    return (*triggers, "drop table if exists temp.touched_blob", "drop table if exists temp.touched_node")
