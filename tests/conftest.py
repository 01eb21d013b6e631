"""Owns the fixtures that any folder of tests may use: a scripted upstream, a real proxy before it, a fresh session id.

Must not hold anything that one folder alone needs. Invariant: no setting of the developer's shell reaches a test.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator

import pytest

from tests.support import traffic
from tests.support.proxy import Proxy
from tests.support.upstream import Upstream

_numbers = itertools.count(1)

# A job in a shell's background, or under nohup, ignores these, and so would every process that a test starts.
for _number, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_the_shell() -> None:
    assert traffic.REQUIRED in (True, False)  # read before the variables go
    for name in [name for name in os.environ if name.startswith("AGENTSTATE_")]:
        del os.environ[name]


@pytest.fixture(scope="module")
def shared_upstream() -> Iterator[Upstream]:
    """One scripted upstream for a module; tests take ``upstream``, which forgets what earlier tests did."""
    with Upstream() as running:
        yield running


@pytest.fixture
def upstream(shared_upstream: Upstream) -> Upstream:
    """The module's upstream, with nothing seen and the default script."""
    shared_upstream.reset()
    return shared_upstream


@pytest.fixture(scope="module")
def proxy(shared_upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """One real proxy process for a module, before the module's upstream. Tests keep apart by their session ids."""
    with Proxy(tmp_path_factory.mktemp("proxy") / "data", shared_upstream.url, file="policies = []\n") as running:
        yield running


@pytest.fixture
def session() -> str:
    """A session id that no other test of this process uses."""
    return f"session-{next(_numbers)}"


@pytest.fixture
def no_traceback(proxy: Proxy) -> Iterator[None]:
    """The test must not make the module's proxy log a traceback, nor end it."""
    before = len(proxy.log)
    yield
    assert "Traceback" not in proxy.log[before:]
    assert proxy.alive
