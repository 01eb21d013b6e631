"""Settings: file < variable < flag, mistakes are named with what was meant, secrets do not show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentstate import settings
from agentstate.errors import SettingsError
from agentstate.settings import Settings

SECRETS = {"AGENTSTATE_ADMIN_TOKEN": "sk-test-admin", "AGENTSTATE_SERVER__AGENT_KEYS": "sk-test-one, sk-test-two"}


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings file of the developer's is found."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agentstate.toml"


def load(environ: dict[str, str] | None = None, **flags: Any) -> Settings:
    return settings.load(None, flags, environ or {})


def refused(file: Path | None = None, environ: dict[str, str] | None = None) -> str:
    """What is said of settings that are wrong."""
    with pytest.raises(SettingsError) as caught:
        settings.load(file, None, environ or {})
    return str(caught.value)


def test_without_anything_the_defaults_hold() -> None:
    loaded = load()
    assert (loaded.server.host, loaded.server.port, loaded.server.admin_token) == ("127.0.0.1", 8080, None)
    assert list(loaded.providers) == ["openai", "anthropic", "gemini", "ollama"]


def test_a_variable_beats_the_file_and_a_flag_beats_both(file: Path) -> None:
    file.write_text('[server]\nhost = "10.0.0.1"\nport = 1001\n[log]\nlevel = "debug"\n')
    environ = {"AGENTSTATE_PORT": "1002", "AGENTSTATE_HOST": "10.0.0.2"}
    loaded = settings.load(file, {"server": {"port": 1003, "host": None}}, environ)
    assert (loaded.log.level, loaded.server.host, loaded.server.port) == ("debug", "10.0.0.2", 1003)


@pytest.mark.parametrize(
    ("name", "text", "place", "value"),
    [
        ("AGENTSTATE_HOST", "::1", "server.host", "::1"),
        ("AGENTSTATE_PORT", "0", "server.port", 0),
        ("AGENTSTATE_SERVER__PORT", "9000", "server.port", 9000),
        ("AGENTSTATE_SERVER__OPEN", "true", "server.open", True),
        ("AGENTSTATE_DB", "x.db", "store.url", "x.db"),
        ("AGENTSTATE_STORE__BUSY_S", "0.5", "store.busy_s", 0.5),
        ("AGENTSTATE_REPLAY__ON_DIVERGENCE", "strict", "replay.on_divergence", "strict"),
        ("AGENTSTATE_TOOLS__READ", "get_*, list_*,", "tools.read", ["get_*", "list_*"]),
        ("AGENTSTATE_TOOLS__IDEMPOTENT", "", "tools.idempotent", []),
        ("AGENTSTATE_SIMULATE__ENABLED", "1", "simulate.enabled", True),
    ],
)
def test_a_variable_sets(name: str, text: str, place: str, value: object) -> None:
    section, _, field = place.partition(".")
    assert getattr(getattr(load({name: text}), section), field) == value


def test_providers_are_merged_with_the_default_ones_first(file: Path) -> None:
    file.write_text('[providers.ollama]\nurl = "http://127.0.0.1:11434"\n[providers.openai]\nkey_env = "MY_KEY"\n')
    environ = {"AGENTSTATE_ANTHROPIC_URL": "http://127.0.0.1:2", "AGENTSTATE_PROVIDERS__OLLAMA__DIALECTS": "openai"}
    loaded = settings.load(file, None, environ).providers
    assert list(loaded) == ["openai", "anthropic", "gemini", "ollama"]
    assert (loaded["openai"].url, loaded["openai"].key_env) == ("https://api.openai.com/v1", "MY_KEY")
    assert (loaded["anthropic"].url, loaded["anthropic"].dialects) == ("http://127.0.0.1:2", ["anthropic"])
    assert (loaded["ollama"].url, loaded["ollama"].dialects) == ("http://127.0.0.1:11434", ["openai"])


def test_the_variables_that_only_clients_read_are_no_mistakes() -> None:
    assert load(dict.fromkeys(settings.CLIENT_VARIABLES, "x")) == load()
    assert load({"OTHER_PORT": "1", "agentstate_port": "1"}) == load()


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"AGENTSTATE_PROT": "1"}, "did you mean AGENTSTATE_PORT?"),
        ({"AGENTSTATE_OPENAI_ULR": "x"}, "did you mean AGENTSTATE_OPENAI_URL?"),
        ({"AGENTSTATE_SERVER__PROT": "1"}, "did you mean server.port?"),
        ({"AGENTSTATE_QQQQQQQQ": "1"}, "unknown variable AGENTSTATE_QQQQQQQQ"),
        ({"AGENTSTATE_PORT": "high"}, "server.port"),
        ({"AGENTSTATE_PORT": "65536"}, "server.port"),
        ({"AGENTSTATE_STORE__BUSY_S": "-1"}, "store.busy_s"),
        ({"AGENTSTATE_LOG__LEVEL": "loud"}, "log.level"),
        ({"AGENTSTATE_PROVIDERS__NEW__KEY_ENV": "K"}, "providers.new.url"),
        ({"AGENTSTATE_PROVIDERS__OPENAI__DIALECTS": "latin"}, "providers.openai.dialects"),
    ],
)
def test_a_wrong_variable_is_named(environ: dict[str, str], said: str) -> None:
    assert said in refused(environ=environ)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[server]\nprot = 1", "unknown setting server.prot (did you mean server.port?)"),
        ("[sever]\nport = 1", "unknown setting sever"),
        ("[server]\nport = 1\nport = 2", "agentstate.toml"),
        ("[server\n", "agentstate.toml is not TOML"),
        ("server = 3", "server"),
        ("providers = 3", "providers"),
        ("[providers]\nopenai = 3", "providers.openai"),
        ("[replay]\non_divergence = 'guess'", "replay.on_divergence"),
        ("[upstream]\nconnections = 0", "upstream.connections"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    message = refused(file)
    assert said in message
    assert str(file) in message


def test_all_mistakes_of_a_file_are_told_at_once(file: Path) -> None:
    file.write_text("[server]\nprot = 1\nport = -1\n[store]\nulr = 'x'\n")
    assert len(refused(file).splitlines()) == 3


def test_a_file_that_is_no_text_is_refused(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")
    assert str(file) in refused(file)


def test_a_variable_inside_a_setting_that_has_no_inside_is_refused() -> None:
    assert "server" in refused(environ={"AGENTSTATE_SERVER__PORT__X": "1"})
    assert "SERVER" in refused(environ={"AGENTSTATE_PORT": "1", "AGENTSTATE_SERVER__PORT__X": "1"}).upper()


def test_secrets_do_not_show() -> None:
    loaded = load(SECRETS)
    assert loaded.server.admin_token is not None
    assert loaded.server.admin_token.get_secret_value() == "sk-test-admin"
    assert [key.get_secret_value() for key in loaded.server.agent_keys] == ["sk-test-one", "sk-test-two"]
    assert "sk-test" not in repr(loaded) + str(loaded) + loaded.model_dump_json()


def test_a_mistake_beside_a_secret_does_not_show_it(file: Path) -> None:
    file.write_text('[server]\nadmin_token = "sk-test-admin"\nagent_keys = "sk-test-one"\nport = "x"\n')
    assert "sk-test" not in refused(file)


def test_the_file_in_force_is_the_named_one_then_the_working_folders_then_the_users(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "config" / "agentstate" / settings.FILE_NAME
    users.parent.mkdir(parents=True)
    users.write_text("")
    assert settings.config_file() == users
    Path(settings.FILE_NAME).write_text("")
    assert settings.config_file() == Path.cwd() / settings.FILE_NAME
    file.write_text("")
    monkeypatch.setenv("AGENTSTATE_CONFIG", str(file))
    assert settings.config_file() == file
    assert settings.config_file(users) == users
    with pytest.raises(SettingsError, match="does not exist"):
        settings.config_file(tmp_path / "none.toml")


def test_the_journals_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGENTSTATE_DATA", str(tmp_path))
    assert settings.store_path(load()) == tmp_path / "agentstate.db"
    assert settings.store_path(load({"AGENTSTATE_DB": "sqlite:////a/b.db"})) == Path("/a/b.db")
    assert settings.store_path(load({"AGENTSTATE_DB": "sqlite:///b.db"})) == Path("b.db")
    assert settings.store_path(load({"AGENTSTATE_DB": "b.db"})) == Path("b.db")


def test_a_store_that_is_not_supported_is_refused_without_its_password() -> None:
    with pytest.raises(SettingsError, match="use sqlite:///") as caught:
        settings.store_path(load({"AGENTSTATE_DB": "postgresql://me:sk-test-secret@host/db"}))
    assert "sk-test" not in str(caught.value)


def test_every_setting_has_help_and_a_type() -> None:
    rows = settings.reference()
    assert len(rows) == len({name for name, *_ in rows})
    assert all(name and kind and text for name, kind, _, text in rows)
