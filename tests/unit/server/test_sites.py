"""Which names are the proxy's, and which pages may make a browser change something."""

from __future__ import annotations

from typing import Any

import pytest

from agentstate.errors import Forbidden
from agentstate.server.sites import Sites
from agentstate.settings import load

HERE = "127.0.0.1:8080"
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(autouse=True)
def _no_settings_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def sites(host: str = "127.0.0.1", public: str = "", key_env: str = "", **server: Any) -> Sites:
    given = {"server": {"host": host, **server}, "approvals": {"public_url": public}}
    return Sites(load(flags={**given, "providers": {"openai": {"key_env": key_env}}}, environ={}))


def pairs(**headers: str) -> list[tuple[bytes, bytes]]:
    return [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]


def named(found: Sites, host: str) -> bool:
    try:
        found.check_host(pairs(host=host))
    except Forbidden:
        return False
    return True


def changes(found: Sites, method: str = "POST", **headers: str) -> bool:
    try:
        found.check_change(method, pairs(**{"host": HERE, **headers}))
    except Forbidden:
        return False
    return True


def calls(found: Sites, method: str = "POST", path: str = "/v1/chat/completions", **headers: str) -> bool:
    try:
        found.check_agent(method, pairs(**{"host": HERE, **headers}), path)
    except Forbidden:
        return False
    return True


@pytest.mark.parametrize(
    "host", [HERE, "127.0.0.1", "localhost:8080", "LOCALHOST", "localhost.", "[::1]:8080", "[::1]"]
)
def test_a_proxy_on_loopback_goes_by_the_names_of_loopback(host: str) -> None:
    assert named(sites(), host)


@pytest.mark.parametrize(
    "host",
    ["evil.test", "evil.test:8080", "127.0.0.1.evil.test", "localhost.evil.test", "10.0.0.1", "", "[::2]", "é", "[]"],
)
def test_it_goes_by_no_other_name(host: str) -> None:
    assert not named(sites(), host)
    with pytest.raises(Forbidden, match="allowed_hosts"):
        sites().check_host([])
    with pytest.raises(Forbidden):
        sites().check_host([*pairs(host=HERE), *pairs(host=host)])


def test_it_goes_by_the_names_of_the_settings_too() -> None:
    found = sites("agents.lan", "https://Public.Example/path", allowed_hosts=["Other.Example", "[fd00::1]"])
    for host in ("agents.lan:8080", "public.example", "other.example:99", "[fd00::1]:8080", "localhost"):
        assert named(found, host), host
    assert not named(found, "evil.test")


@pytest.mark.parametrize("bound", ["0.0.0.0", "::"])
def test_listening_on_all_addresses_it_goes_by_each_but_by_no_unknown_name(bound: str) -> None:
    found = sites(bound)
    assert named(found, "192.0.2.1:8080") and named(found, "[2001:db8::1]:8080") and named(found, "localhost")
    assert not named(found, "evil.test") and not named(found, "192.0.2.1.evil.test")


def test_programs_and_the_proxys_own_page_may_change_things() -> None:
    assert changes(sites())
    assert changes(sites(), origin=f"http://{HERE}", sec_fetch_site="same-origin")
    assert changes(sites(), origin=f"http://{HERE}")
    assert changes(sites(), sec_fetch_site="none")
    assert changes(sites(), origin="null", sec_fetch_site="same-origin")
    assert changes(sites(), host="localhost", origin="http://localhost:80")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.test"},
        {"origin": "https://127.0.0.1:8080.evil.test"},
        {"origin": "http://127.0.0.1:3000"},
        {"origin": "https://127.0.0.1"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site", "origin": f"http://{HERE}"},
        {"sec_fetch_site": "Cross-Site"},
        {"origin": "file://"},
        {"origin": "app://notes"},
        {"host": "evil.test:8080", "origin": "http://evil.test:8080", "sec_fetch_site": "same-origin"},
    ],
)
def test_a_page_of_another_site_changes_nothing(method: str, headers: dict[str, str]) -> None:
    assert not changes(sites(), method, **headers)
    assert changes(sites(), "GET", **headers)


def test_a_page_under_the_public_address_may_change_things_whatever_stands_between() -> None:
    found = sites(public="https://agents.example:8443", allowed_hosts=["other.example"])
    assert changes(found, origin="https://agents.example:8443")
    assert changes(found, origin="https://other.example")
    assert not changes(found, origin="https://other.example:3000")
    assert not changes(found, origin="https://agents.example:8443", sec_fetch_site="cross-site")


def test_agents_call_by_any_name_and_with_any_content() -> None:
    for found in (sites(), sites(key_env="OPENAI_KEY")):
        for headers in ({"host": "odd.internal"}, {"content_type": FORM}, {"content_type": "text/plain"}, {}):
            assert calls(found, **headers)
        assert calls(found, origin="vscode-file://vscode-app", sec_fetch_site="cross-site", content_type=FORM)
        assert calls(found, origin=f"http://{HERE}", sec_fetch_site="same-origin")


@pytest.mark.parametrize("kind", [FORM, "text/plain", "multipart/form-data; boundary=x", "", "text/json"])
def test_a_form_of_another_site_makes_no_call(kind: str) -> None:
    headers = {"origin": "http://evil.test", "content_type": kind}
    assert not calls(sites(), **headers)
    assert not calls(sites(), sec_fetch_site="cross-site", content_type=kind)
    assert not calls(sites(agent_keys=["sk-test-key"]), **headers)
    # A browser asks before it sends a key, so whoever sends one has been allowed to.
    assert calls(sites(), **headers, authorization="Bearer sk-test-key")


def test_an_agent_in_a_page_may_pay_with_its_own_key_but_not_with_ours() -> None:
    page = {"origin": "http://127.0.0.1:3000", "content_type": "application/json", "authorization": "Bearer sk-test"}
    ours = sites(key_env="OPENAI_KEY")
    assert calls(sites(), **page) and calls(sites(), "OPTIONS", origin=page["origin"])
    assert not calls(ours, **page) and not calls(ours, "OPTIONS", origin=page["origin"])
    assert calls(sites(key_env="OPENAI_KEY", agent_keys=["sk-test-key"]), **page)


def test_a_name_that_was_pointed_at_us_spends_nothing_of_ours() -> None:
    rebound = {"host": "evil.test:8080", "origin": "http://evil.test:8080", "sec_fetch_site": "same-origin"}
    assert not calls(sites(key_env="OPENAI_KEY"), **rebound, content_type="application/json")
    assert not calls(sites(), **rebound, content_type="text/plain")


@pytest.mark.parametrize(
    "path", ["/mcp/bank", "/s/a/mcp/bank", "/k/key/s/a/r/b//v1/%6dcp/bank", "/s/a/tools/charge/claim"]
)
def test_no_page_of_another_site_comes_near_a_tool(path: str) -> None:
    foreign = {"origin": "http://evil.test", "sec_fetch_site": "cross-site", "content_type": "application/json"}
    rebound = {"host": "evil.test", "sec_fetch_site": "same-origin", "content_type": "application/json"}
    for headers in (foreign, rebound, {**rebound, "origin": "http://evil.test"}):
        for method in ("POST", "GET", "OPTIONS", "DELETE"):
            assert not calls(sites(), method, path, **headers)
            assert calls(sites(agent_keys=["sk-test-key"]), method, path, **headers)
    assert calls(sites(), path=path, host="odd.internal", content_type="application/json")
    assert calls(sites(), path=path, origin=f"http://{HERE}", sec_fetch_site="same-origin")
    assert calls(sites(), path=path, origin="vscode-file://vscode-app", sec_fetch_site="cross-site")
