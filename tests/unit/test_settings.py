"""Settings: file, then variables, then flags; a name that nothing knows is an error that names the nearest one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from agentstate import settings
from agentstate.errors import SettingsError
from agentstate.settings import SHORT_VARIABLES, Settings, load, reference, store_path

KEY = "sk-test-0123456789"


@pytest.fixture(autouse=True)
def _no_file_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "given.toml"
    file.write_text(text, "utf-8")
    return file


# --- where a value comes from -----------------------------------------------------------------------------------------


def test_defaults_serve_on_loopback_with_the_agents_own_credentials() -> None:
    found = load(environ={})
    assert (found.server.host, found.server.port, found.server.open) == ("127.0.0.1", 8080, False)
    assert found.providers["openai"].url == "https://api.openai.com/v1"
    assert found.providers["openai"].key_env == ""
    assert not found.simulate.enabled


def test_file_is_outweighed_by_variables_and_those_by_flags(tmp_path: Path) -> None:
    file = written(tmp_path, '[server]\nhost = "10.0.0.1"\nport = 1001\nlog_level = "debug"\n')
    environ = {"AGENTSTATE_PORT": "1002", "AGENTSTATE_SERVER__HOST": "10.0.0.2"}
    assert (load(file, environ={}).server.host, load(file, environ={}).server.port) == ("10.0.0.1", 1001)
    found = load(file, environ=environ).server
    assert (found.host, found.port, found.log_level) == ("10.0.0.2", 1002, "debug")
    found = load(file, {"server": {"port": 1003}}, environ).server
    assert (found.host, found.port, found.log_level) == ("10.0.0.2", 1003, "debug")


def test_flag_that_was_not_given_leaves_the_value(tmp_path: Path) -> None:
    file = written(tmp_path, "[server]\nport = 1001\n")
    assert load(file, {"server": {"port": None, "host": None}, "simulate": {}}, {}).server.port == 1001


def test_environment_of_the_process_is_read_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTSTATE_PORT", "1234")
    assert load().server.port == 1234


def test_short_variables_are_the_long_ones() -> None:
    for short, keys in SHORT_VARIABLES.items():
        long = "AGENTSTATE_" + "__".join(keys).upper()
        text = "7" if short.endswith("PORT") else "http://127.0.0.1:9/v1"
        assert load(environ={short: text}) == load(environ={long: text}), short
        assert load(environ={short: text}) != load(environ={})


@pytest.mark.parametrize(("text", "keys"), [("a", ["a"]), ("a, b ,,c", ["a", "b", "c"]), ("", []), (" , ", [])])
def test_list_in_a_variable_is_comma_separated(text: str, keys: list[str]) -> None:
    found = load(environ={"AGENTSTATE_SERVER__AGENT_KEYS": text, "AGENTSTATE_TOOLS__READ": text})
    assert [key.get_secret_value() for key in found.server.agent_keys] == keys
    assert found.tools.read == keys


@pytest.mark.parametrize("text", ["1", "true", "yes", "on", "True"])
def test_flag_in_a_variable_is_read_as_people_write_it(text: str) -> None:
    assert load(environ={"AGENTSTATE_SIMULATE__ENABLED": text}).simulate.enabled


def test_variables_of_the_wrappers_are_not_settings() -> None:
    names = ("AGENTSTATE_URL", "AGENTSTATE_RUN_ID", "AGENTSTATE_SESSION_ID", "AGENTSTATE_DATA", "AGENTSTATE_CONFIG")
    assert load(environ=dict.fromkeys(names, "x")) == load(environ={})
    assert load(environ={"PATH": "/bin", "agentstate_port": "1"}) == load(environ={})


# --- providers --------------------------------------------------------------------------------------------------------


def test_file_that_names_another_provider_keeps_the_default_ones(tmp_path: Path) -> None:
    found = load(written(tmp_path, '[providers.ollama]\nurl = "http://127.0.0.1:11434/v1"\n'), environ={})
    assert set(found.providers) == {"openai", "anthropic", "ollama"}
    assert found.providers["ollama"].dialects == ["openai"]


def test_part_of_a_default_provider_is_enough(tmp_path: Path) -> None:
    found = load(written(tmp_path, '[providers.openai]\nkey_env = "MY_KEY"\n'), environ={}).providers["openai"]
    assert (found.url, found.key_env, found.dialects) == ("https://api.openai.com/v1", "MY_KEY", ["openai"])


def test_provider_in_the_file_and_its_url_in_a_variable_are_one(tmp_path: Path) -> None:
    file = written(tmp_path, '[providers.openai]\nkey_env = "MY_KEY"\n')
    found = load(file, environ={"AGENTSTATE_OPENAI_URL": "http://127.0.0.1:9"}).providers["openai"]
    assert (found.url, found.key_env) == ("http://127.0.0.1:9", "MY_KEY")


def test_new_provider_without_url_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"providers\.mine\.url"):
        load(written(tmp_path, "[providers.mine]\ndialects = ['openai']\n"), environ={})


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "name", "nearest"), [
    ("[server]\nprot = 1\n", "server.prot", "server.port"),
    ("[replay]\non_divergance = 'fork'\n", "replay.on_divergance", "replay.on_divergence"),
    ("[servr]\nport = 1\n", "servr", ""),
    ("[providers.openai]\nurll = 'x'\n", "providers.openai.urll", ""),
    ("[nothing]\nlike = 'it'\n", "nothing", ""),
])  # fmt: skip
def test_typo_in_the_file_is_an_error_that_names_the_nearest(
    tmp_path: Path, text: str, name: str, nearest: str
) -> None:
    file = written(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load(file, environ={})
    assert name in str(caught.value) and str(file) in str(caught.value)
    if nearest:
        assert f"did you mean {nearest}?" in str(caught.value)


def test_typo_in_a_variable_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(SettingsError, match="AGENTSTATE_PROT.*did you mean AGENTSTATE_PORT"):
        load(environ={"AGENTSTATE_PROT": "1"})
    with pytest.raises(SettingsError, match="did you mean server.port"):
        load(environ={"AGENTSTATE_SERVER__PROT": "1"})
    with pytest.raises(SettingsError, match="AGENTSTATE_XYZZY"):
        load(environ={"AGENTSTATE_XYZZY": "1"})


@pytest.mark.parametrize(("environ", "name"), [
    ({"AGENTSTATE_PORT": "65536"}, "server.port"), ({"AGENTSTATE_PORT": "http"}, "server.port"),
    ({"AGENTSTATE_STORE__BUSY_S": "-1"}, "store.busy_s"), ({"AGENTSTATE_REPLAY__ON_DIVERGENCE": "x"}, "replay."),
    ({"AGENTSTATE_SERVER__LOG_LEVEL": "loud"}, "server.log_level"),
])  # fmt: skip
def test_value_out_of_range_is_an_error_that_names_its_setting(environ: dict[str, str], name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        load(environ=environ)


def test_two_mistakes_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load(written(tmp_path, "[server]\nprot = 1\nport = 'x'\n"), environ={})
    assert "server.prot" in str(caught.value) and "server.port" in str(caught.value)


@pytest.mark.parametrize("content", [b"[server\n", b"port = = 1\n", b"\xff\xfe"])
def test_file_that_is_no_toml_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "broken.toml"
    file.write_bytes(content)
    with pytest.raises(SettingsError, match=r"broken\.toml"):
        load(file, environ={})


@pytest.mark.parametrize("environ", [
    {"AGENTSTATE_SERVER__PORT__X": "1"}, {"AGENTSTATE_PORT": "1", "AGENTSTATE_SERVER__PORT__X": "1"},
    {"AGENTSTATE_SERVER__": "1"}, {"AGENTSTATE___PORT": "1"}, {"AGENTSTATE_PROVIDERS__OPENAI": "http://x"},
    {"AGENTSTATE_SERVER": "1"},
])  # fmt: skip
def test_odd_variable_is_an_error_and_no_crash(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        load(environ=environ)


@pytest.mark.parametrize("text", ["server = 1\n", "providers = 'x'\n", "[providers]\nopenai = 'http://x'\n",
                                  "[[server]]\nport = 1\n"])  # fmt: skip
def test_section_of_another_type_is_an_error_and_no_crash(tmp_path: Path, text: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(SettingsError):
        load(file, environ={})
    with pytest.raises(SettingsError):
        load(file, environ={"AGENTSTATE_PORT": "1", "AGENTSTATE_OPENAI_URL": "http://127.0.0.1:9"})


# --- which file -------------------------------------------------------------------------------------------------------


def test_file_of_the_working_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "agentstate.toml").write_text("[server]\nport = 1717\n")
    assert load(environ={}).server.port == 1717


def test_given_file_outweighs_the_variable_and_that_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agentstate.toml").write_text("[server]\nport = 1\n")
    (tmp_path / "named.toml").write_text("[server]\nport = 2\n")
    monkeypatch.setenv("AGENTSTATE_CONFIG", str(tmp_path / "named.toml"))
    assert load(environ={}).server.port == 2
    assert load(written(tmp_path, "[server]\nport = 3\n"), environ={}).server.port == 3


def test_named_file_that_is_not_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match=r"none\.toml"):
        load(tmp_path / "none.toml", environ={})
    monkeypatch.setenv("AGENTSTATE_CONFIG", str(tmp_path))
    with pytest.raises(SettingsError, match="does not exist"):
        load(environ={})


# --- the journal's file -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("url", "path"), [
    ("sqlite:///rel/a.db", "rel/a.db"), ("sqlite:////abs/a.db", "/abs/a.db"), ("plain.db", "plain.db"),
    ("/abs/plain.db", "/abs/plain.db"), ("sqlite:///with space%20.db", "with space%20.db"),
])  # fmt: skip
def test_journal_is_where_the_url_says(url: str, path: str) -> None:
    assert store_path(load(environ={"AGENTSTATE_DB": url})) == Path(path)


def test_journal_is_in_the_data_folder_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTSTATE_DATA", str(tmp_path / "data"))
    assert store_path(load(environ={})) == tmp_path / "data" / "agentstate.db"
    monkeypatch.delenv("AGENTSTATE_DATA")
    assert store_path(load(environ={})).parts[-2:] == ("agentstate", "agentstate.db")


@pytest.mark.parametrize("url", ["postgresql://u:sk-test-secret@h/d", "mysql://x", "sqlite://x.db"])
def test_journal_of_another_kind_is_an_error_that_shows_no_secret(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        store_path(load(environ={"AGENTSTATE_DB": url}))
    assert "sqlite:///" in str(caught.value)
    assert "sk-test-secret" not in str(caught.value)


# --- secrets and the reference ----------------------------------------------------------------------------------------


def test_secrets_show_nowhere() -> None:
    found = load(environ={"AGENTSTATE_ADMIN_TOKEN": KEY, "AGENTSTATE_SERVER__AGENT_KEYS": f"{KEY}a,{KEY}b"})
    for text in (repr(found), str(found), repr(found.server), found.model_dump_json(), str(found.model_dump())):
        assert KEY not in text
    assert found.server.admin_token is not None
    assert found.server.admin_token.get_secret_value() == KEY
    assert [key.get_secret_value() for key in found.server.agent_keys] == [f"{KEY}a", f"{KEY}b"]


def test_error_about_a_secret_does_not_show_it(tmp_path: Path) -> None:
    file = written(tmp_path, f"[server]\nadmin_token = ['{KEY}']\nagent_keys = '{KEY}'\n")
    with pytest.raises(SettingsError) as caught:
        load(file, environ={})
    assert "server.admin_token" in str(caught.value)
    assert KEY not in str(caught.value)


def test_every_setting_has_a_help_text_and_stands_in_the_reference() -> None:
    rows = {name: (kind, help_) for name, kind, _, help_ in reference()}
    assert all(help_ for _, help_ in rows.values())
    found = load(environ={})
    for section in type(found).model_fields:
        value = getattr(found, section)
        parts = value["openai"] if isinstance(value, dict) else value
        prefix = "providers.NAME" if isinstance(value, dict) else section
        for name in type(parts).model_fields:
            assert f"{prefix}.{name}" in rows


def test_no_default_is_a_secret() -> None:
    assert load(environ={}).server.admin_token is None
    assert Settings().server.agent_keys == []
    assert isinstance(load(environ={"AGENTSTATE_ADMIN_TOKEN": KEY}).server.admin_token, SecretStr)


def test_module_reads_no_file_by_itself(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("AGENTSTATE_PORT=1\n")
    assert settings.config_file() is None
    assert load(environ={}).server.port == 8080
