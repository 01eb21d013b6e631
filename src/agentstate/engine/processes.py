"""Owns the look-up of the process behind a loopback socket (Linux). Must not run on the event loop, but for the part of
it that takes some microseconds, ``owner_at_once``.

Invariant: an answer "pid:start" names one process for good, since a pid that is used again has another start time.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
from pathlib import Path

_PROC = Path("/proc")
_ESTABLISHED = "01"
# The kernel's look-up of one socket by its two ends: man 7 sock_diag, linux/inet_diag.h.
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _TCP = 4, 20, 1, 6
_NO_COOKIE = b"\xff" * 8
_HEADER, _QUESTION = struct.Struct("=IHHII"), struct.Struct("=BBBxI")
_INODE_AT = 84  # behind the message's header, four bytes, the socket's ends and four numbers

_searching = threading.Lock()
_recent: list[int] = []  # processes seen lately: most connections come from one of them
_QUICK, _QUICK_FILES = 4, 200  # processes, and open files of each, that are looked through at once


def identity(pid: int) -> str:
    """ "pid:start" of a living process; empty when there is none."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else f"{pid}:{fields[19]}"


def alive(owner: str) -> bool:
    """Whether the process still lives."""
    pid = owner.partition(":")[0]
    return pid.isdigit() and identity(int(pid)) == owner


def owner_at_once(client: tuple[str, int], server: tuple[str, int]) -> str | None:
    """The same as ``owner_of`` if the socket is that of a process seen lately with few files; ``None``: look for it."""
    inode = _asked_inode(client, server)
    if inode:
        for pid in _recent[:-_QUICK:-1]:
            if _holds(pid, f"socket:[{inode}]", _QUICK_FILES):
                return identity(pid) or None
    return None


def owner_of(client: tuple[str, int], server: tuple[str, int]) -> str:
    """ "pid:start" of the process at the client's end of a loopback connection; empty: unknown."""
    inode = _inode(client, server)
    if not inode:
        return ""
    with _searching:  # one search at a time: what it finds makes the next ones short
        return _search(f"socket:[{inode}]")


def _search(target: str) -> str:
    for pid in [*reversed(_recent), *_others()]:
        if _holds(pid, target):
            if pid in _recent:
                _recent.remove(pid)
            _recent.append(pid)
            del _recent[:-32]
            return identity(pid)
    return ""


def _others() -> list[int]:
    try:
        return sorted((int(entry) for entry in os.listdir(_PROC) if entry.isdigit()), reverse=True)
    except OSError:
        return []


def _holds(pid: int, target: str, most: int | None = None) -> bool:
    """Whether the process has that file open; ``most``: how many files are looked at, the newest first."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
        for name in names if most is None else names[: -most - 1 : -1]:
            try:
                if os.readlink(f"{folder}/{name}") == target:
                    return True
            except OSError:
                continue
    except OSError:
        return False
    return False


def _inode(client: tuple[str, int], server: tuple[str, int]) -> str:
    """The inode of the client's socket: asked for by its ends, else, where that is not allowed, looked for."""
    return _asked_inode(client, server) or _listed_inode(client, server)


def _asked_inode(client: tuple[str, int], server: tuple[str, int]) -> str:
    """From the kernel, for this one socket; empty: it does not say."""
    try:
        family = socket.AF_INET if ":" not in client[0] + server[0] else socket.AF_INET6
        near, far = (socket.inet_pton(family, end[0].partition("%")[0]).ljust(16, b"\0") for end in (client, server))
        ports = client[1].to_bytes(2, "big") + server[1].to_bytes(2, "big")
        question = _QUESTION.pack(family, _TCP, 0, 0xFFFFFFFF) + ports + near + far + bytes(4) + _NO_COOKIE
        size = _HEADER.size + len(question)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
            kernel.settimeout(0.2)
            kernel.sendall(_HEADER.pack(size, _BY_FAMILY, _REQUEST, 1, 0) + question)
            answer = kernel.recv(4096)
    except (OSError, AttributeError, ValueError):
        return ""
    if len(answer) < _INODE_AT + 4 or _HEADER.unpack_from(answer)[1] != _BY_FAMILY:
        return ""
    inode = int.from_bytes(answer[_INODE_AT : _INODE_AT + 4], sys.byteorder)
    return str(inode) if inode else ""


def _listed_inode(client: tuple[str, int], server: tuple[str, int]) -> str:
    """From the kernel's table of all sockets."""
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for near, far in _spellings(client, server, family):
            try:
                with open(f"/proc/net/{name}", encoding="ascii") as table:
                    for line in table:
                        fields = line.split()
                        if len(fields) > 9 and fields[1] == near and fields[2] == far and fields[3] == _ESTABLISHED:
                            return fields[9]
            except OSError:
                continue
    return ""


def _spellings(client: tuple[str, int], server: tuple[str, int], family: int) -> list[tuple[str, str]]:
    try:
        return [(_hex(client, family), _hex(server, family))]
    except OSError:
        return []


def _hex(address: tuple[str, int], family: int) -> str:
    """An address as the kernel prints it: words in the machine's byte order."""
    host = address[0].partition("%")[0]
    if family == socket.AF_INET6 and ":" not in host:
        host = "::ffff:" + host
    elif family == socket.AF_INET:
        host = host.removeprefix("::ffff:")  # how a listener for both families sees an IPv4 client
    packed = socket.inet_pton(family, host)
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    order = "".join(f"{int.from_bytes(word, 'little'):08X}" for word in words)
    return f"{order}:{address[1]:04X}"
