"""Owns the command line's commands and exit codes. Must not do the work: each command calls one function.

Exit codes: 0 done · 1 failed, or `doctor` found something · 2 wrong use or settings · 3 the journal cannot be used ·
`run` ends with the agent's own code (128 + signal when it was killed; 126, 127 when it could not be started).
Invariant: an expected fault is one clear line on stderr, never a traceback.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from agentstate import __version__
from agentstate.errors import AgentStateError

app = typer.Typer(
    name="agentstate",
    help="A proxy that makes AI agents crash-proof: every model call is journaled, and replayed after a restart.",
    epilog=(
        "Exit codes: 0 done, 1 failed or something found, 2 wrong use or settings, 3 journal unusable; "
        "`run` ends with the agent's code, 126 or 127 where it cannot be started."
    ),
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Config = Annotated[
    Path | None, typer.Option("--config", help="Settings file; default ./agentstate.toml or the user's.")
]
Db = Annotated[str | None, typer.Option("--db", help="Journal: sqlite:///path or a path.")]

# Under which the list of commands is grouped.
RUN, SEE, DECIDE, STEER = "Run", "See", "Decide", "Go on from elsewhere"
TELL, KEEP = "People and policies", "Retention"


def _settings(config: Path | None, **flags: Any) -> Any:
    from agentstate import settings

    nested: dict[str, dict[str, Any]] = {}
    for name, value in flags.items():
        section, _, key = name.partition("__")
        if value is not None:
            nested.setdefault(section, {})[key] = value
    return settings.load(config, nested)


def _version(value: bool) -> None:
    if value:
        print(f"agentstate {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    return None


@app.command(rich_help_panel=RUN)
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; default: server.host, 127.0.0.1.")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0 takes a free one; default: server.port, 8080.")
    ] = None,
    db: Db = None,
    config: Config = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Answer from the built-in simulator: no key, no network.")
    ] = False,
    simulate_latency: Annotated[
        float | None, typer.Option(help="Seconds before the first byte of a simulated answer.")
    ] = None,
    simulate_gap: Annotated[float | None, typer.Option(help="Seconds between simulated chunks.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Listen beyond loopback without agent keys.")] = False,
    linger: Annotated[
        float | None, typer.Option(help="End after so many seconds without a socket or a supervised run.")
    ] = None,
) -> None:
    """Serve the proxy until SIGTERM or Ctrl-C."""
    from agentstate.server import app as server

    settings = _settings(
        config, server__host=host, server__port=port, store__url=db, server__open=open_ or None,
        simulate__enabled=simulate or None, simulate__latency_s=simulate_latency, simulate__chunk_gap_s=simulate_gap,
    )  # fmt: skip
    server.run(settings, linger, _said(settings))


def _said(settings: Any) -> Any:
    from agentstate import settings as where

    def said(url: str, login: Any) -> None:
        print(f"AgentState listening on {url}", flush=True)
        if sys.stdout.isatty():  # elsewhere it would end in a log, and a link that logs in does not belong there
            print(f"  dashboard:     {url}{login()}")
            token = where.data_folder() / "admin_token"
            print(f"  agents:        base URL {url}/s/<session>/v1")
            print(f"  journal:       {where.store_path(settings)}")
            print(f"  control plane: {url}/api/sessions, admin token in {token}", flush=True)

    return said


@app.command(rich_help_panel=SEE)
def sessions(
    db: Db = None,
    config: Config = None,
    status: Annotated[
        Literal["RUNNING", "PAUSED", "FAILED", "COMPLETED"] | None,
        typer.Option(case_sensitive=False, help="Only RUNNING, PAUSED, FAILED or COMPLETED ones."),
    ] = None,
    q: Annotated[str, typer.Option("--search", help="Only those with this in their id, a label or a model.")] = "",
    model: Annotated[str, typer.Option(help="Only those that asked this model, or were answered by it.")] = "",
    label: Annotated[str, typer.Option(help="Only those with this label.")] = "",
    since: Annotated[str, typer.Option(help="Changed since: 2026-01-31, a time in ISO 8601, or 90min, 24h, 7d.")] = "",
    until: Annotated[str, typer.Option(help="Changed until; a day counts as a whole.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="How many, latest change first.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """List the sessions of the journal."""
    from agentstate.cli import show as shown
    from agentstate.engine.overview import wanted

    asked = wanted(q=q, status=status or "", model=model, label=label, since=since, until=until)
    shown.sessions(_settings(config, store__url=db), asked, limit, as_json)


@app.command(rich_help_panel=SEE)
def show(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Session id.")],
    step: Annotated[int | None, typer.Option(help="Only this step, with its request and answer.")] = None,
    db: Db = None,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, with bodies, instead of a table.")] = False,
) -> None:
    """Show a session: its steps and runs."""
    from agentstate.cli import show as shown

    shown.show(_settings(config, store__url=db), session, step, as_json)


@app.command(rich_help_panel=SEE)
def doctor(db: Db = None, config: Config = None) -> None:
    """Check the journal: every hash is derived anew. Says what is wrong; exit code 1 if anything is."""
    from agentstate.cli import doctor as check

    raise typer.Exit(check.doctor(_settings(config, store__url=db)))


def _add_commands() -> None:
    """Commands whose options live in modules of their own; a start of the server does not wait for those."""
    if sys.argv[1:2] == ["serve"]:
        return
    from agentstate.cli import (  # noqa: I001 - a list
        alerts, approvals, authority, comparing, dashboard, demo, diff, events, export, mcp, policy, prune, run,
        running, standing, stats, steering,
    )  # fmt: skip

    app.command("run", rich_help_panel=RUN, context_settings=run.CONTEXT_SETTINGS)(run.command)
    app.command("demo", rich_help_panel=RUN)(demo.command)
    app.command("mcp", rich_help_panel=RUN)(mcp.command)
    app.command("dashboard", rich_help_panel=SEE)(dashboard.command)
    app.command("stats", rich_help_panel=SEE)(stats.stats)
    app.command("diff", rich_help_panel=SEE)(diff.diff)
    app.command("budgets", rich_help_panel=SEE)(running.budgets)
    app.command("test", rich_help_panel=SEE)(running.test)
    app.command("diagnostics", rich_help_panel=SEE)(running.diagnostics)
    policy.policy.command("last")(running.last)
    policy.policy.command("list")(standing.policies)
    for look in (standing.runs, standing.providers, standing.settings, standing.whoami):
        app.command(look.__name__, rich_help_panel=SEE)(look)
    app.command("events", rich_help_panel=SEE)(events.events)
    app.command("export", rich_help_panel=SEE)(export.export)
    for command in (approvals.approvals, approvals.approve, approvals.reject, steering.edit, approvals.settle):
        app.command(command.__name__, rich_help_panel=DECIDE)(command)
    for keep in (prune.prune, prune.delete, prune.pin, prune.unpin):
        app.command(keep.__name__, rich_help_panel=KEEP)(keep)
    for act in (comparing.pause, comparing.resume):
        app.command(act.__name__, rich_help_panel=DECIDE)(act)
    app.command("try", rich_help_panel=DECIDE)(comparing.attempt)
    for verb in (steering.rollback, steering.fork, steering.branches):
        app.command(verb.__name__, rich_help_panel=STEER)(verb)
    app.add_typer(authority.approvers, name="approvers", rich_help_panel=TELL)
    app.command("audit", rich_help_panel=TELL)(authority.audit)
    app.command("label", rich_help_panel=TELL)(authority.label)
    app.command("rate", rich_help_panel=TELL)(export.rate)
    app.add_typer(policy.policy, name="policy", rich_help_panel=TELL)
    app.add_typer(alerts.app, rich_help_panel=TELL)


def main() -> None:
    """The entry point."""
    # What a model wrote may have characters that the terminal's encoding has not, halves of them too.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    _add_commands()
    try:
        app()
    except AgentStateError as error:
        print(f"agentstate: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(1) from None
