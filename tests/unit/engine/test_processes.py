"""The process behind a loopback socket is found, and told from a later one with the same pid."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from agentstate.engine import processes

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the look-up reads /proc")

_CLIENT = """
import socket, sys
sock = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=30)
print("connected", flush=True)
sys.stdin.read()
"""

_ODD_NAME = """
import pathlib, sys
pathlib.Path("/proc/self/comm").write_text(") Z 1 (x")
print(1, flush=True)
sys.stdin.read()
"""

Address = tuple[str, int]


def _child(script: str, *args: str) -> subprocess.Popen[str]:
    """A Python process that runs until its input is closed."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _end(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.close()
    child.wait(30)
    if child.stdout is not None:
        child.stdout.close()


@pytest.fixture(params=["127.0.0.1", "::1", "mapped"])
def connected(request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[str], Address, Address]]:
    """A child process with an open connection to this one: (child, its address, ours)."""
    family = socket.AF_INET if request.param == "127.0.0.1" else socket.AF_INET6
    listener = socket.socket(family)
    try:
        if request.param == "mapped":
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::" if request.param == "mapped" else request.param, 0))
    except OSError as error:
        listener.close()
        pytest.skip(f"no IPv6 here: {error}")
    listener.settimeout(30)
    listener.listen()
    host = "127.0.0.1" if request.param == "mapped" else request.param
    child = _child(_CLIENT, host, str(listener.getsockname()[1]))
    accepted, client = listener.accept()
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "connected\n"
        yield child, client[:2], accepted.getsockname()[:2]
    finally:
        accepted.close()
        listener.close()
        _end(child)


def test_the_owner_of_a_clients_socket_is_found(
    connected: tuple[subprocess.Popen[str], Address, Address],
) -> None:
    child, client, server = connected
    owner = processes.owner_of(client, server)
    assert owner == processes.identity(child.pid)
    assert owner.startswith(f"{child.pid}:")
    assert processes.alive(owner)
    assert processes.owner_of(client, server) == owner  # from among those seen lately
    _end(child)
    assert not processes.alive(owner)
    assert processes.owner_of(client, server) == ""


def test_a_connection_that_does_not_exist_has_no_owner() -> None:
    assert processes.owner_of(("127.0.0.1", 1), ("127.0.0.1", 2)) == ""
    assert processes.owner_of(("not an address", 1), ("127.0.0.1", 2)) == ""


def test_a_process_is_named_by_its_pid_and_start() -> None:
    mine = processes.identity(os.getpid())
    assert mine == processes.identity(os.getpid())
    assert processes.alive(mine)
    pid, _, start = mine.partition(":")
    assert not processes.alive(f"{pid}:{int(start) + 1}")  # an earlier process with the same pid


@pytest.mark.parametrize("owner", ["", ":", "x:1", "-1:5", "999999999:1"])
def test_what_names_no_process_is_not_alive(owner: str) -> None:
    assert not processes.alive(owner)


def test_a_process_that_ended_and_was_not_awaited_is_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert processes.identity(child.pid) == ""
    finally:
        child.wait(30)


def test_a_process_whose_name_looks_like_fields_is_read_right() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", _ODD_NAME], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "1\n"
        owner = processes.identity(child.pid)
        assert owner.startswith(f"{child.pid}:")
        assert owner.partition(":")[2].isdigit()
        assert processes.alive(owner)
    finally:
        _end(child)


def test_the_kernel_says_of_one_socket_what_its_table_of_all_says(
    connected: tuple[subprocess.Popen[str], Address, Address],
) -> None:
    _, client, server = connected
    listed = processes._listed_inode(client, server)
    assert listed
    assert processes._asked_inode(client, server) == listed
    assert processes._asked_inode((client[0], 1), server) == ""


def test_where_the_kernel_may_not_be_asked_its_table_is_read(
    connected: tuple[subprocess.Popen[str], Address, Address], monkeypatch: pytest.MonkeyPatch
) -> None:
    child, client, server = connected
    real = socket.socket

    def refusing(family: int = -1, *args: int, **named: int) -> socket.socket:
        if family == socket.AF_NETLINK:
            raise PermissionError(1, "Operation not permitted")
        return real(family, *args, **named)

    monkeypatch.setattr(socket, "socket", refusing)
    assert processes._asked_inode(client, server) == ""
    assert processes.owner_of(client, server) == processes.identity(child.pid)
