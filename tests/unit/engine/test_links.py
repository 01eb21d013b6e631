"""A link in a message opens one approval, for a while, and nothing else."""

from __future__ import annotations

import stat
from pathlib import Path

import itsdangerous
import pytest

from agentstate import clock
from agentstate.engine.links import Links
from agentstate.engine.signing import KEY_FILE
from agentstate.errors import Forbidden

WEEK_S = 7 * 86400.0


class Time:
    """A clock that stands until it is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_700_000_000.0
        monkeypatch.setattr(clock, "now", lambda: self.now)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


def test_a_token_says_which_approval_and_for_whom(tmp_path: Path) -> None:
    token = Links(tmp_path, WEEK_S).make("apr_1", "slack-1")
    assert Links(tmp_path, WEEK_S).read(token) == ("apr_1", "slack-1")
    assert token.replace("-", "").replace("_", "").replace(".", "").isalnum()


def test_the_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    Links(folder, WEEK_S).make("apr_1", "x")
    file = folder / KEY_FILE
    key = file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and len(key.strip()) >= 40
    Links(folder, WEEK_S).make("apr_1", "x")
    assert file.read_text() == key


def test_a_key_file_left_empty_by_a_crash_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / KEY_FILE).write_text("\n")
    links = Links(tmp_path, WEEK_S)
    assert links.read(links.make("apr_1", "x")) == ("apr_1", "x")
    assert len((tmp_path / KEY_FILE).read_text().strip()) >= 40


def test_nothing_is_made_before_a_link_is_needed(tmp_path: Path) -> None:
    Links(tmp_path, WEEK_S)
    assert list(tmp_path.iterdir()) == []


def test_a_token_expires(tmp_path: Path, time: Time) -> None:
    links = Links(tmp_path, 60.0)
    token = links.make("apr_1", "x")
    time.now += 60
    assert links.read(token) == ("apr_1", "x")
    time.now += 2
    with pytest.raises(Forbidden, match="expired"):
        links.read(token)


def test_a_token_of_another_proxy_opens_nothing(tmp_path: Path) -> None:
    with pytest.raises(Forbidden, match="not one of this proxy's"):
        Links(tmp_path / "a", WEEK_S).read(Links(tmp_path / "b", WEEK_S).make("apr_1", "x"))


def test_a_token_for_another_purpose_opens_nothing(tmp_path: Path) -> None:
    links = Links(tmp_path, WEEK_S)
    links.make("apr_1", "x")
    key = (tmp_path / KEY_FILE).read_text().strip()
    other = itsdangerous.URLSafeTimedSerializer(key, salt="something else").dumps(["apr_1", "x"])
    with pytest.raises(Forbidden):
        links.read(str(other))


def test_no_change_of_a_token_is_overlooked(tmp_path: Path) -> None:
    links = Links(tmp_path, WEEK_S)
    token = links.make("apr_1", "x")
    changed = [
        token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :] for place in range(len(token))
    ]
    cut = [token[:end] for end in range(len(token))]
    for other in [*changed, *cut, token + "A", token + "=", "é", "\ud800", "..", "." * 100]:
        try:
            found = links.read(other)
        except Forbidden:
            continue
        # The last character of a signature holds bits that mean nothing, and what follows it is not read.
        assert found == ("apr_1", "x") and other.startswith(token[:-1])


def test_the_address_is_that_of_the_page_below_the_base(tmp_path: Path) -> None:
    links = Links(tmp_path, WEEK_S)
    url = links.url("https://approve.example.test/proxy/", "apr_1", "x")
    base, _, token = url.rpartition("/")
    assert base == "https://approve.example.test/proxy/approve" and links.read(token) == ("apr_1", "x")
