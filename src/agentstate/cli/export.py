"""Owns ``agentstate export`` and ``agentstate rate``. Must not choose, spell or judge: each calls one verb.

Invariant: standard output holds lines and nothing else, so that it can be piped; what was left out, and why, is told on
standard error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from agentstate.cli.people import Config, Url, connected, part

if TYPE_CHECKING:
    from agentstate.engine.exporting import Report

Db = Annotated[str | None, typer.Option("--db", help="Journal: sqlite:///path or a path.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="SESSION", help="Only these; all without.")]
Form = Annotated[
    Literal["openai", "openai-dpo", "trl", "trl-dpo", "trajectory", "parquet"],
    typer.Option("--format", help="What is written; see the guide on data sets."),
]
Out = Annotated[str, typer.Option("--out", "-o", help="A file; - for standard output.")]
Status = Annotated[
    Literal["RUNNING", "PAUSED", "FAILED", "COMPLETED"] | None,
    typer.Option(case_sensitive=False, help="Only sessions of this status."),
]
Labels = Annotated[list[str] | None, typer.Option(help="Only what has this label, session or step; may be repeated.")]
Rated = Annotated[
    Literal["good", "bad", "none"] | None, typer.Option(help="Only what was rated so; none: what nobody rated.")
]
Model = Annotated[str, typer.Option(help="Only answers of models of this pattern, as gpt-4o*.")]
Since = Annotated[str, typer.Option(help="Only steps from this day (UTC) or moment on, as 2026-01-31.")]
Until = Annotated[str, typer.Option(help="Only steps up to this day or moment.")]
MinCost = Annotated[float | None, typer.Option(help="Only lines that cost so much, in USD.")]
MaxCost = Annotated[float | None, typer.Option(help="Only lines that cost no more.")]
Run = Annotated[str, typer.Option(help="Only steps of this run.")]
Branch = Annotated[int | None, typer.Option(help="This branch of the one session that is named.")]
Approved = Annotated[
    bool, typer.Option("--approved", help="Only where a person approved a call and nobody refused one.")
]
Finished = Annotated[bool, typer.Option("--finished", help="Only where the last answer ends by itself.")]
MinSteps = Annotated[int, typer.Option(min=1, help="Only lines that train so many answers.")]
Per = Annotated[Literal["trajectory", "step"], typer.Option(help="A line a transcript, or a line an answer.")]
Split = Annotated[float, typer.Option(min=0, max=0.99, help="Share of the sessions that is for validation.")]
Redact = Annotated[bool, typer.Option("--redact/--no-redact", help="Take keys, addresses, numbers and the like out.")]
Dedupe = Annotated[bool, typer.Option("--dedupe/--no-dedupe", help="Leave out equal lines.")]
Shard = Annotated[int, typer.Option(min=1, help="Begin a new file after so many megabytes.")]
Dry = Annotated[bool, typer.Option("--dry-run", help="Write nothing: only tell what it would come to.")]
Told = Annotated[bool, typer.Option("--report", help="Tell the whole report, as JSON, on standard error.")]


def export(
    sessions: Names = None,
    form: Form = "openai",
    out: Out = "-",
    status: Status = None,
    label: Labels = None,
    rating: Rated = None,
    model: Model = "",
    since: Since = "",
    until: Until = "",
    min_cost: MinCost = None,
    max_cost: MaxCost = None,
    run: Run = "",
    branch: Branch = None,
    approved: Approved = False,
    finished: Finished = False,
    min_steps: MinSteps = 1,
    per: Per = "trajectory",
    split: Split = 0.0,
    redact: Redact = True,
    dedupe: Dedupe = True,
    shard_mb: Shard = 512,
    dry_run: Dry = False,
    report: Told = False,
    db: Db = None,
    config: Config = None,
) -> None:
    """Write a data set of what agents asked and were answered: for fine-tuning, preference training or tables."""
    said = {
        "status": status, "rating": rating, "model": model, "since": since, "until": until, "min_cost": min_cost,
        "max_cost": max_cost, "run": run, "branch": branch, "approved": approved, "finished": finished,
        "min_steps": min_steps, "per": per, "split": split, "redact": redact, "dedupe": dedupe,
    }  # fmt: skip
    pairs = [(name, str(value)) for name, value in said.items() if value not in (None, "")]
    pairs += [("session", key) for key in sessions or ()] + [("label", name) for name in label or ()]
    _begin(pairs, form, out, shard_mb * 1024 * 1024, dry_run, report, db, config)


def _begin(
    pairs: list[tuple[str, str]], form: Any, out: str, most: int, dry_run: bool, told: bool, db: Db, config: Config
) -> None:
    from agentstate.core.dataset_filter import parsed
    from agentstate.errors import BadRequest
    from agentstate.settings import load

    settings = load(config, {"store": {"url": db}} if db is not None else {})
    try:
        filters, _ = parsed(pairs)
        _export(settings, filters, form, out, most, dry_run, told)
    except BadRequest as error:
        raise typer.BadParameter(str(error)) from None


def _export(settings: Any, filters: Any, form: Any, out: str, most: int, dry_run: bool, told: bool) -> None:
    from agentstate.engine.exporting import Export
    from agentstate.engine.shards import streamed, write
    from agentstate.errors import BadRequest
    from agentstate.settings import store_path
    from agentstate.store.reader import Reader

    if out == "-" and not dry_run:
        if filters.split:
            raise BadRequest("a split has two files; name one with --out, as --out data.jsonl")
        if form == "parquet" and sys.stdout.isatty():
            raise BadRequest("Parquet is no text for a terminal; name a file with --out, as --out data.parquet")
    reader = Reader(store_path(settings), settings.store.busy_s)
    try:
        export = Export(reader, filters, form, settings.export.redact)
        if dry_run:
            for line in export.lines():
                if len(export.report.preview) < 3:
                    export.report.preview.append(line.text.decode())
        elif out == "-":
            for piece in streamed(export, form):
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        else:
            for path in write(export, filters, form, Path(out), most):
                print(path)
    finally:
        reader.close()
    _tell(export.report, form, dry_run, told)


def _tell(found: Report, form: Any, dry_run: bool, told: bool) -> None:
    from agentstate.core.visible import visible
    from agentstate.engine.shards import told as whole

    if told:
        print(json.dumps(whole(found, form), indent=2, ensure_ascii=False), file=sys.stderr)
        return
    out = sys.stdout if dry_run else sys.stderr
    print(visible(found.told()), file=out)
    price = f"${found.price:.4f}" + (f" + ?{found.unpriced}" if found.unpriced else "")
    print(f"{found.sessions} sessions, about {found.tokens:,} tokens, answers for {price}", file=out)
    for title, counts in (("redacted", found.redacted), ("not carried over", found.losses), ("parts", found.parts)):
        if counts and (title != "parts" or len(counts) > 1):
            print(f"{title}: " + ", ".join(f"{visible(name)} ({n})" for name, n in sorted(counts.items())), file=out)
    for warning in found.warnings(form):
        print(f"note: {warning}", file=out)
    if dry_run:
        for text in found.preview:
            print(visible(text if len(text) <= 400 else text[:400] + " …"))


def rate(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Session id.")],
    verdict: Annotated[
        Literal["good", "bad", "none"], typer.Argument(metavar="RATING", help="good, bad, or none: take it back.")
    ],
    step: Annotated[int | None, typer.Option(min=0, help="This step, not the session as a whole.")] = None,
    note: Annotated[str, typer.Option(help="Why, in your words.")] = "",
    url: Url = None,
    config: Config = None,
) -> None:
    """Say what you think of a session or step; exports can go by it."""
    where = "" if step is None else f"/steps/{step}"
    body = {"rating": verdict, "note": note}
    found = connected(config, url).call("POST", f"/api/sessions/{part(session)}{where}/rating", body)
    said = found["rating"]
    print("no rating" if said is None else f"{said['rating']}, said {said['by']}")
