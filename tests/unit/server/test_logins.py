"""Links that log in: each works once, and there are never more than so many."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from agentstate.errors import Forbidden
from agentstate.server import logins
from agentstate.server.logins import Logins
from agentstate.store.reader import Reader

NOBODY = cast(Reader, None)  # the admin is known without a look


def token_of(path: str) -> str:
    return path.partition("token=")[2]


class Racing(dict[bytes, Any]):
    """Another thread takes each link while somebody looks through them."""

    def items(self) -> Any:
        found = list(super().items())
        self.clear()
        return found


def test_a_link_that_is_taken_while_another_is_made_stays_taken(tmp_path: Path) -> None:
    made = Logins("t" * 20, tmp_path, 60.0)
    first = token_of(made.link("admin"))
    made._links = Racing(made._links)
    second = token_of(made.link("admin"))
    with pytest.raises(Forbidden):
        made.take(NOBODY, first)
    assert made.take(NOBODY, second).name == "admin"


def test_the_oldest_links_go_when_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "_MOST_LINKS", 3)
    made = Logins("t" * 20, tmp_path, 60.0)
    tokens = [token_of(made.link("admin")) for _ in range(5)]
    assert len(made._links) == 3
    for token in tokens[:2]:
        with pytest.raises(Forbidden):
            made.take(NOBODY, token)
    assert [made.take(NOBODY, token).name for token in tokens[2:]] == ["admin"] * 3
