"""Owns every setting once: its name, type, default and help. Must not act on any.

Order: ``agentstate.toml`` < ``AGENTSTATE_*`` variables < command-line flags.
Invariant: an unknown name is an error that names it and the nearest known one; a secret never shows in ``repr``.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from datetime import date
from pathlib import Path
from typing import Any, Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from agentstate.errors import SettingsError

FILE_NAME = "agentstate.toml"
MIB = 1024 * 1024


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ServerSettings(_Section):
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8080, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    admin_token: SecretStr | None = Field(
        None, description="Token of the control plane; made on first start and kept 0600 in the data folder."
    )
    agent_keys: list[SecretStr] = Field(
        default_factory=list,
        description="When not empty, agents must send one in `x-agentstate-key` or as `/k/<key>/…`.",
    )
    open: bool = Field(False, description="Allow listening beyond loopback without agent keys.")
    allowed_hosts: list[str] = Field(
        default_factory=list,
        description="Further host names under which people reach the control plane and its pages, as `agents.example`.",
    )
    max_body_bytes: int = Field(64 * MIB, ge=1024, description="Largest request body taken; more is answered 413.")
    max_answer_bytes: int = Field(64 * MIB, ge=1024, description="Largest answer recorded; more is a failed attempt.")
    shutdown_grace_s: float = Field(20.0, ge=0, description="How long a stop waits for calls in flight.")


class StoreSettings(_Section):
    url: str = Field("", description="`sqlite:///path`; empty: a file in the user's data folder.")
    busy_s: float = Field(5.0, ge=0, description="How long a locked database is waited for.")


class ProviderSettings(_Section):
    url: str = Field(description="Base URL, with or without `/v1`.")
    dialects: list[Literal["openai", "anthropic", "gemini", "ollama"]] = Field(
        ["openai"],
        description="Wire formats the provider speaks.",
    )
    key_env: str = Field(
        "", description="Variable that holds our own key; empty: the agent's credentials pass through."
    )
    max_concurrent: int = Field(
        0, ge=0, description="Most calls at it at a time; others wait, each session in its turn. 0: any number."
    )
    usage_in_streams: bool = Field(
        True,
        description="Ask for the usage of chat streams whose agents do not; its chunk is taken out again.",
    )


class PriceSettings(_Section):
    """What calls of a model cost, in USD per million tokens; the first entry that names a call counts."""

    model: str = Field(min_length=1, description="Model-name pattern, as `llama3*`.")
    provider: str = Field("", description="Pattern of provider names of the settings; empty: every provider.")
    input: float = Field(ge=0, allow_inf_nan=False, description="For what the model is given.")
    output: float = Field(ge=0, allow_inf_nan=False, description="For what it makes, reasoning included.")
    cache_read: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="For input read from the provider's cache; none: as `input`."
    )
    cache_write: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="For input written to it; none: as `input`."
    )


class UpstreamSettings(_Section):
    connect_timeout_s: float = Field(10.0, gt=0, description="Limit for making a connection to a provider.")
    first_byte_timeout_s: float = Field(600.0, gt=0, description="Limit for the first byte of an answer.")
    idle_timeout_s: float = Field(300.0, gt=0, description="Limit for silence within an answer.")
    connections: int = Field(512, ge=1, description="Most connections to providers at a time.")
    queue_wait_s: float = Field(
        30.0, gt=0, le=600, description="Longest wait for a turn at a provider with `max_concurrent`; then 503."
    )


class RetrySettings(_Section):
    """When a failed attempt is tried again."""

    attempts: int = Field(
        3, ge=1, le=20, description="Most attempts at one candidate; 1 where the client itself is trying again."
    )
    base_s: float = Field(0.5, ge=0, description="Longest first wait; it doubles with each attempt.")
    cap_s: float = Field(
        30.0, ge=0, description="Longest wait. Where a provider asks for a longer one, it is not tried again."
    )
    statuses: list[int] = Field(
        [408, 409, 429, 500, 502, 503, 504, 529], description="HTTP statuses after which the same is asked again."
    )
    total_s: float = Field(
        45.0, gt=0, description="The same is not asked again later than that after the first attempt began."
    )
    attempt_timeout_s: float | None = Field(None, gt=0, description="Limit for one whole attempt; none: no limit.")
    lost_answers: int = Field(
        1,
        ge=0,
        le=20,
        description="How often a call is sent again whose answer was lost on its way, and may have been paid.",
    )
    hold_back_s: float = Field(
        10.0, ge=0, description="How long a stream's opening is kept back, so that another attempt can take its place."
    )


class RouteSettings(_Section):
    """Where calls go whose model fails."""

    model: str = Field(
        min_length=1, description="Pattern of models that it is for, as `gpt-4o*`; the first match wins."
    )
    fallback: list[str] = Field(min_length=1, description="Where to go instead, in order: `model` or `provider/model`.")
    on: list[
        Literal[
            "unreachable",
            "busy",
            "left_alone",
            "rate_limit",
            "quota",
            "overloaded",
            "server_error",
            "timeout",
            "cut",
            "invalid",
            "model_gone",
            "context_length",
            "content_filter",
            "credentials",
            "refused",
        ]
    ] = Field(
        [
            "unreachable",
            "busy",
            "left_alone",
            "rate_limit",
            "quota",
            "overloaded",
            "server_error",
            "timeout",
            "cut",
            "invalid",
            "model_gone",
            "context_length",
        ],
        description="Failures after which the next one is asked.",
    )
    strict: bool = Field(False, description="Leave out a candidate for which something of the request would be lost.")


class ShutdownSettings(_Section):
    """A day on which a vendor shuts a model down; a route that leads there is warned of 60 days before."""

    model: str = Field(min_length=1, description="The model.")
    on: date = Field(description="The day, as `2027-03-01`.")


class BreakerSettings(_Section):
    """When a provider's model is left alone."""

    failures: int = Field(5, ge=0, description="So many failures in a row open the breaker; 0: none do.")
    window_s: float = Field(60.0, gt=0, description="A pause so long between failures ends a row.")
    open_s: float = Field(30.0, gt=0, description="How long it stays open; doubled each time that a trial call fails.")
    cap_s: float = Field(600.0, gt=0, description="Longest time that it stays open.")
    alone: Literal["once", "refuse"] = Field(
        "once", description="Where there is no other candidate: ask once, without retries, or answer 503 at once."
    )


class ExportSettings(_Section):
    """What is taken out of exports."""

    redact: list[str] = Field(
        default_factory=list,
        description="Further patterns (regular expressions) of what is redacted in exports, as `ACME-[0-9]{6}`.",
    )

    @field_validator("redact")
    @classmethod
    def _patterns(cls, patterns: list[str]) -> list[str]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
        return patterns


class ReplaySettings(_Section):
    on_divergence: Literal["auto", "fork", "pause", "strict"] = Field(
        "auto", description="`auto`: fork, but pause when tool calls that may have acted lie in the unread tail."
    )
    first_prompt: Literal["", "unique"] = Field(
        "", description="`unique`: the session's first prompt seen again, after the run went on, is a new run."
    )
    masked: bool = Field(True, description="Match requests that differ in clocks, dates, ids and paths only.")
    masked_user_text: bool = Field(False, description="Let user messages be masked as well.")
    pointer: Literal["auto", "on", "off"] = Field(
        "auto", description="Match by echoed tool-call ids; `auto`: only where no `once` tool is among them."
    )
    replay_within_s: float = Field(
        7 * 86400.0, ge=0, description="How long an unmarked session replays for later runs."
    )
    order_wait_s: float = Field(0.2, ge=0, le=10, description="Longest wait for the recorded completion order.")
    drain_s: float = Field(600.0, ge=0, description="How long an answer is still recorded after its reader left.")
    drain_bytes: int = Field(16 * MIB, ge=0, description="How much of it.")
    follow_jobs_s: float = Field(
        86400.0, ge=0, description="How long a job that a provider runs in the background is followed; 0: not at all."
    )


class PauseSettings(_Section):
    """What becomes of requests while a person has paused their session. Recorded answers are given all the same."""

    requests: Literal["wait", "refuse"] = Field(
        "wait", description="`wait`: they are kept waiting until the session is resumed; `refuse`: `session_paused`."
    )
    wait_s: float | None = Field(
        None, gt=0, description="Longest time that a request is kept waiting, then it is refused; none: any time."
    )


class ToolSettings(_Section):
    read: list[str] = Field(default_factory=list, description="Tool-name patterns whose calls only read.")
    idempotent: list[str] = Field(default_factory=list, description="Tool-name patterns that may be called twice.")


class McpSettings(_Section):
    """An MCP server over streamable HTTP, which agents reach at `/s/SESSION/mcp/NAME`."""

    url: str = Field(description="Address of the server's endpoint, as `https://host/mcp`.")
    headers_env: list[str] = Field(
        default_factory=list,
        description="Headers that the proxy adds, each as `name=VARIABLE`: the variable holds the value.",
    )


class ProbeSettings(_Section):
    """How to find out whether a call in doubt was made; where nothing is found out, a person is asked."""

    tools: list[str] = Field(min_length=1, description="Tool-name patterns whose calls it is for.")
    url: str = Field(
        "",
        description="Address that is asked, `{key}` in it standing for the call's key: 200: it ran, 404: it did not.",
    )
    tool: str = Field(
        "",
        description="Tool of the same MCP server that is asked with `key`, `tool` and `arguments`; it answers `ran`.",
    )
    timeout_s: float = Field(10.0, gt=0, description="How long an answer is waited for.")


class PolicySettings(_Section):
    """One rule on tool calls; the most specific rule wins, among equals the most restrictive."""

    tools: list[str] = Field(min_length=1, description="Tool-name patterns that it governs, as `send_*`.")
    action: Literal["allow", "hold", "deny"] = Field("hold", description="What is done with such a call.")
    when: str = Field(
        "",
        max_length=4000,  # the library that reads them ends the process over one that is very long
        description="A CEL condition on `tool`, `args`, `session` and `labels`, as `args.amount > 100`.",
    )
    sessions: list[str] = Field(default_factory=list, description="Session-id patterns; none: every session.")
    labels: list[str] = Field(default_factory=list, description="Patterns of session labels; none: every session.")
    on_reject: Literal["message", "continue", "error"] = Field(
        "message", description="How the agent hears of a refusal: as a text turn, through the model, or as an error."
    )
    expires_s: float | None = Field(
        None,
        gt=0,
        description="Seconds after which a held call is refused, and an approval not used is asked again; none: never.",
    )
    approvers: list[str] = Field(
        default_factory=list, description="Names or roles of those who may decide; none: every approver."
    )
    quorum: int = Field(1, ge=1, le=20, description="How many different people must approve; one rejection rejects.")


class AlertSettings(_Section):
    """Where messages to people go."""

    kind: Literal["slack", "discord", "webhook"] = Field(description="How the message is written.")
    url: SecretStr = Field(
        description="Address that the message is posted to. It is a secret: whoever has it can post."
    )
    name: str = Field("", description="What it is called in lists; empty: its kind and place, as `slack-1`.")
    on: list[
        Literal[
            "approval.required",
            "session.failed",
            "run.diverged",
            "call.in_doubt",
            "budget.reached",
            "provider.down",
            "session.paused",
            "session.resumed",
        ]
    ] = Field(
        ["approval.required", "session.failed", "run.diverged", "call.in_doubt", "budget.reached", "provider.down"],
        description="Events that are told.",
    )
    secret: SecretStr | None = Field(
        None, description="Of a webhook: the key that signs it (Standard Webhooks, `whsec_…`)."
    )
    show_content: bool = Field(False, description="Show the arguments of calls in the message, not only links to them.")


class ApprovalSettings(_Section):
    """How people are asked, and how long."""

    public_url: str = Field(
        "", description="Address at which approvers reach this proxy, for links in alerts; empty: its own address."
    )
    link_expires_s: float = Field(7 * 86400.0, gt=0, description="How long a link in an alert can be used.")
    slack_signing_secret: SecretStr | None = Field(
        None, description="Signing secret of the Slack app whose buttons decide; none: no buttons."
    )
    discord_public_key: str = Field(
        "", description="Public key (hex) of the Discord application whose buttons decide; empty: no buttons."
    )


class DashboardSettings(_Section):
    """The pages under `/dashboard`."""

    login_expires_s: float = Field(
        7 * 86400.0, gt=0, description="How long a browser stays logged in to the dashboard."
    )


class BudgetSettings(_Section):
    """Limits on what sessions may use; with none of them, nothing is counted. Replayed answers use nothing."""

    session_usd: float | None = Field(
        None, gt=0, description="Most money that one session may cost, USD; none: no limit."
    )
    session_steps: int | None = Field(None, gt=0, description="Most steps that one session may ask of providers.")
    session_tokens: int | None = Field(None, gt=0, description="Most tokens that one session may use.")
    day_usd: float | None = Field(None, gt=0, description="Most money that all sessions may cost in a day (UTC), USD.")
    day_steps: int | None = Field(None, gt=0, description="Most steps of all sessions in a day.")
    day_tokens: int | None = Field(None, gt=0, description="Most tokens of all sessions in a day.")
    repeats: int | None = Field(
        None,
        ge=0,
        description="How often a run may ask the same, or call a tool, in a row with the same outcome; none: 100 where "
        "another limit is set, else always; 0: always.",
    )
    at_limit: Literal["hold", "deny"] = Field(
        "hold", description="At a limit: hold the call until a person raises it or stops, or deny it."
    )


class RetentionSettings(_Section):
    """What goes by itself; with none of these, nothing ever does. What somebody may still need never goes."""

    sessions_days: float | None = Field(
        None, gt=0, description="Sessions go that were not used for so many days; none: they stay."
    )
    max_sessions: int | None = Field(None, ge=1, description="So many stay, those that were used last; none: all.")
    max_bytes: int | None = Field(
        None, ge=1024, description="The oldest go until the journal's content is no larger than that; none: any size."
    )
    keep_labels: list[str] = Field(
        default_factory=list, description="Patterns of labels whose sessions stay, however old."
    )
    superseded_days: float | None = Field(
        None,
        gt=0,
        description="Of sessions that stay, steps go that a rollback left behind so many days ago, where they did "
        "nothing outside; none: a rollback never deletes anything.",
    )
    every_h: float = Field(24.0, gt=0, description="Hours between two looks at these rules.")


class LabelRetentionSettings(_Section):
    """How long sessions with a label stay; where several of its labels say something, the longest time counts."""

    label: str = Field(min_length=1, description="Pattern of labels, as `test*`.")
    days: float | None = Field(None, gt=0, description="They go when they were not used for so many days; none: never.")


class HintSettings(_Section):
    """Whether a request that names no session is taken for the one that a known client names in a header of its own."""

    claude_code: bool = Field(True, description="Claude Code: session `claude-code-ID`, by its session header.")
    codex: bool = Field(True, description="Codex: session `codex-ID`, by its session header.")
    opencode: bool = Field(True, description="opencode: session `opencode-ID`, by its session header.")


class SimulateSettings(_Section):
    enabled: bool = Field(False, description="Answer from the built-in simulator instead of any provider.")
    latency_s: float = Field(0.0, ge=0, description="Seconds before the first byte of a simulated answer.")
    chunk_gap_s: float = Field(0.0, ge=0, description="Seconds between chunks of a simulated stream.")


class LogSettings(_Section):
    """What the process says of itself on stderr; no bodies and no credentials are ever in it."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="What is logged to stderr.")
    format: Literal["text", "json"] = Field("text", description="Lines for people, or one JSON object a line.")
    steps: Literal["none", "failed", "live", "all"] = Field(
        "failed", description="Steps that get a line: none, those that failed, every live one, replays as well."
    )


class MetricsSettings(_Section):
    open: bool = Field(False, description="Give `/metrics` to everybody who reaches the port, without a token.")


class TelemetrySettings(_Section):
    otlp_url: str = Field(
        "",
        description="Where spans of steps are sent (OTLP over HTTP), as `http://host:4318/v1/traces`; empty: nowhere.",
    )


def _default_providers() -> dict[str, ProviderSettings]:
    given: dict[str, dict[str, Any]] = {
        "openai": {"url": "https://api.openai.com/v1", "dialects": ["openai"]},
        "anthropic": {"url": "https://api.anthropic.com", "dialects": ["anthropic"]},
        "gemini": {"url": "https://generativelanguage.googleapis.com", "dialects": ["gemini"]},
        "ollama": {"url": "http://localhost:11434/v1", "dialects": ["ollama", "openai"]},
    }
    return {name: ProviderSettings(**parts) for name, parts in given.items()}


def _default_policies() -> list[PolicySettings]:
    dangerous = ["send_email", "execute_command", "delete_database", "stripe_charge"]
    return [PolicySettings(tools=dangerous)]  # type: ignore[call-arg]


class Settings(_Section):
    """All settings; sections are the tables of ``agentstate.toml``. As a variable: AGENTSTATE_SERVER__PORT."""

    server: ServerSettings = Field(default_factory=ServerSettings)  # type: ignore[arg-type]
    store: StoreSettings = Field(default_factory=StoreSettings)  # type: ignore[arg-type]
    providers: dict[str, ProviderSettings] = Field(default_factory=_default_providers)
    upstream: UpstreamSettings = Field(default_factory=UpstreamSettings)  # type: ignore[arg-type]
    retry: RetrySettings = Field(default_factory=RetrySettings)  # type: ignore[arg-type]
    routes: list[RouteSettings] = Field(default_factory=list)
    shutdowns: list[ShutdownSettings] = Field(default_factory=list)
    breaker: BreakerSettings = Field(default_factory=BreakerSettings)  # type: ignore[arg-type]
    replay: ReplaySettings = Field(default_factory=ReplaySettings)  # type: ignore[arg-type]
    export: ExportSettings = Field(default_factory=ExportSettings)
    pause: PauseSettings = Field(default_factory=PauseSettings)  # type: ignore[arg-type]
    tools: ToolSettings = Field(default_factory=ToolSettings)
    mcp: dict[str, McpSettings] = Field(default_factory=dict)
    probes: list[ProbeSettings] = Field(default_factory=list)
    policies: list[PolicySettings] = Field(default_factory=_default_policies)
    approvals: ApprovalSettings = Field(default_factory=ApprovalSettings)  # type: ignore[arg-type]
    alerts: list[AlertSettings] = Field(default_factory=list)
    dashboard: DashboardSettings = Field(default_factory=DashboardSettings)  # type: ignore[arg-type]
    prices: list[PriceSettings] = Field(default_factory=list)
    budget: BudgetSettings = Field(default_factory=BudgetSettings)  # type: ignore[arg-type]
    retention: RetentionSettings = Field(default_factory=RetentionSettings)  # type: ignore[arg-type]
    label_retention: list[LabelRetentionSettings] = Field(default_factory=list)
    hints: HintSettings = Field(default_factory=HintSettings)  # type: ignore[arg-type]
    log: LogSettings = Field(default_factory=LogSettings)  # type: ignore[arg-type]
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)  # type: ignore[arg-type]
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings)  # type: ignore[arg-type]
    simulate: SimulateSettings = Field(default_factory=SimulateSettings)  # type: ignore[arg-type]


# Sections of which there may be many: each with a name, or one after the other.
_BY_NAME: dict[str, type[BaseModel]] = {"providers": ProviderSettings, "mcp": McpSettings}
_IN_ORDER: dict[str, type[BaseModel]] = {
    "routes": RouteSettings,
    "shutdowns": ShutdownSettings,
    "prices": PriceSettings,
    "probes": ProbeSettings,
    "policies": PolicySettings,
    "alerts": AlertSettings,
    "label_retention": LabelRetentionSettings,
}

# Short names of variables that are used often. The long form (AGENTSTATE_SECTION__NAME) works for every setting.
SHORT_VARIABLES: dict[str, tuple[str, ...]] = {
    "AGENTSTATE_HOST": ("server", "host"),
    "AGENTSTATE_PORT": ("server", "port"),
    "AGENTSTATE_ADMIN_TOKEN": ("server", "admin_token"),
    "AGENTSTATE_DB": ("store", "url"),
    "AGENTSTATE_OPENAI_URL": ("providers", "openai", "url"),
    "AGENTSTATE_ANTHROPIC_URL": ("providers", "anthropic", "url"),
    "AGENTSTATE_GEMINI_URL": ("providers", "gemini", "url"),
    "AGENTSTATE_OLLAMA_URL": ("providers", "ollama", "url"),
}

# Read by the Python wrappers, by `agentstate run`'s children and by commands, not by the server.
CLIENT_VARIABLES = (
    "AGENTSTATE_URL",
    "AGENTSTATE_RUN_ID",
    "AGENTSTATE_SESSION_ID",
    "AGENTSTATE_CONFIG",
    "AGENTSTATE_DATA",
    "AGENTSTATE_TOKEN",
)


def data_folder() -> Path:
    """The user's data folder (``AGENTSTATE_DATA`` overrides): the journal and the admin token live here."""
    override = os.environ.get("AGENTSTATE_DATA")
    return Path(override) if override else Path(platformdirs.user_data_dir("agentstate", appauthor=False))


def config_file(explicit: Path | None = None) -> Path | None:
    """The settings file in force: the given one, ``AGENTSTATE_CONFIG``, the working folder's, or the user's."""
    named = explicit or (Path(os.environ["AGENTSTATE_CONFIG"]) if os.environ.get("AGENTSTATE_CONFIG") else None)
    if named is not None:
        if not named.is_file():
            raise SettingsError(f"settings file {named} does not exist")
        return named
    for folder in (Path.cwd(), Path(platformdirs.user_config_dir("agentstate", appauthor=False))):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    return None


def load(
    file: Path | None = None, flags: dict[str, Any] | None = None, environ: dict[str, str] | None = None
) -> Settings:
    """Settings from file, then variables, then ``flags`` (nested like the file). Raises ``SettingsError``."""
    path = config_file(file)
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(path.read_text("utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise SettingsError(f"{path} is not TOML: {error}; mend that line") from error
        except (UnicodeDecodeError, OSError) as error:
            raise SettingsError(f"{path} cannot be read: {error}") from error
    _merge(values, _from_environment(dict(os.environ) if environ is None else environ))
    _merge(values, flags or {})
    _default_provider_parts(values)
    try:
        return Settings(**values)
    except ValidationError as error:
        raise SettingsError(_explain(error, path)) from error


def policies_of(text: str) -> list[PolicySettings]:
    """The policies of a text as a settings file has them, one ``[[policies]]`` after the other; nothing else may be in
    it. Raises ``SettingsError``."""
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(f"the policies are not TOML: {error}; mend that line") from error
    if others := sorted(values.keys() - {"policies"}):
        raise SettingsError(f"only [[policies]] can be tried, not {', '.join(others)}; leave the rest out")
    try:
        return Settings(policies=values.get("policies", [])).policies
    except ValidationError as error:
        raise SettingsError(_explain(error, None)) from error


def secret_values(part: Any) -> list[str]:
    """Every secret text in settings, or in a part of them."""
    if isinstance(part, SecretStr):
        return [part.get_secret_value()]
    inner = vars(part).values() if isinstance(part, BaseModel) else part.values() if isinstance(part, dict) else part
    if inner is None or isinstance(inner, str | int | float | bytes):
        return []
    return [text for each in inner for text in secret_values(each)]


def store_path(settings: Settings) -> Path:
    """The SQLite file of the settings; a plain path is taken as well. Raises ``SettingsError``."""
    url = settings.store.url
    if not url:
        return data_folder() / "agentstate.db"
    if url.startswith("sqlite:///"):
        return Path(url.removeprefix("sqlite:///"))
    if "://" in url:
        raise SettingsError(f"store.url {url.split('://')[0]}://… is not supported: use sqlite:///path/to/file.db")
    return Path(url)


def _from_environment(environ: dict[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, text in environ.items():
        if not name.startswith("AGENTSTATE_") or name in CLIENT_VARIABLES:
            continue
        if name in SHORT_VARIABLES:
            keys = SHORT_VARIABLES[name]
        elif "__" in name:
            keys = tuple(part.lower() for part in name.removeprefix("AGENTSTATE_").split("__"))
        else:
            known = [*SHORT_VARIABLES, *CLIENT_VARIABLES]
            raise SettingsError(f"unknown variable {name}{_nearest(name, known)}")
        _set(values, keys, _parsed(text, keys))
    return values


def _parsed(text: str, keys: tuple[str, ...]) -> Any:
    """A list in a variable is comma-separated; everything else is left to the types."""
    if keys[-1] in (
        "agent_keys",
        "allowed_hosts",
        "dialects",
        "read",
        "idempotent",
        "headers_env",
        "statuses",
        "keep_labels",
        "redact",
    ):
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _set(values: dict[str, Any], keys: tuple[str, ...], value: Any) -> None:
    for key in keys[:-1]:
        inside = values.setdefault(key, {})
        if not isinstance(inside, dict):
            raise SettingsError(f"the variable for {'.'.join(keys)} names a part of {key}, which has no parts")
        values = inside
    values[keys[-1]] = value


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        elif value is not None:
            into[key] = value


def _default_provider_parts(values: dict[str, Any]) -> None:
    """A file that names one provider keeps the default ones, first, and may give only a part of theirs."""
    given = values.get("providers")
    if not isinstance(given, dict):
        return
    known = {name: default.model_dump() for name, default in _default_providers().items()}
    for name, mine in given.items():
        known[name] = known.get(name, {}) | mine if isinstance(mine, dict) else mine
    values["providers"] = known


def _explain(error: ValidationError, path: Path | None) -> str:
    where = str(path) if path else "settings"
    lines = []
    for fault in error.errors():
        name = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            lines.append(f"{where}: unknown setting {name}{_nearest(name, [row[0] for row in reference()])}")
        else:
            lines.append(f"{where}: {name}: {fault['msg']}")
    return "\n".join(lines)


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""


def reference() -> list[tuple[str, str, str, str]]:
    """Every setting as (name, type, default, help); the reference page is compared with this."""
    rows: list[tuple[str, str, str, str]] = []
    for section, field in Settings.model_fields.items():
        kind, prefix = field.annotation, section
        if section in _BY_NAME:
            kind, prefix = _BY_NAME[section], f"{section}.NAME"
        elif section in _IN_ORDER:
            kind, prefix = _IN_ORDER[section], f"[[{section}]]"
        assert isinstance(kind, type) and issubclass(kind, BaseModel)
        for name, part in kind.model_fields.items():
            if part.default_factory is not None:
                default = repr(part.get_default(call_default_factory=True))
            else:
                default = "" if part.is_required() else repr(part.default)
            shown = getattr(part.annotation, "__name__", None)
            if shown is None or "[" in str(part.annotation):
                shown = str(part.annotation).replace("typing.", "").replace("pydantic.types.", "")
            rows.append((f"{prefix}.{name}".replace("]].", "]] "), shown, default, part.description or ""))
    return rows
