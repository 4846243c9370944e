"""Owns what the kernel knows of the process at the other end of a unix socket, and whether it is one of our servers."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mcpvisor.supervisor.process.delegation import Subtree

_UCRED: Final = struct.Struct("3i")
_SO_PEERGROUPS: Final = 59  # <asm-generic/socket.h>; the socket module has no name for it
_MAX_GROUPS: Final = 256
_MAX_ANCESTORS: Final = 64


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a unix socket, as the kernel knew it when it connected."""

    pid: int
    uid: int
    groups: frozenset[int]


def peer_of(sock: socket.socket) -> Peer | None:
    """The peer of a connected unix socket; None for any other family."""
    if sock.family != socket.AF_UNIX:
        return None
    pid, uid, gid = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    try:
        raw = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 4 * _MAX_GROUPS)
    except OSError:
        raw = b""  # more groups than fit: the primary one still counts
    return Peer(pid, uid, frozenset({gid, *struct.unpack(f"{len(raw) // 4}I", raw)}))


def is_of_instance(peer: Peer, instance: str, subtree: Subtree) -> bool:
    """Whether a peer is a process that this daemon started, or a descendant of one.

    It is known by its mark, by its ancestors, and by its control group where servers have such below `subtree`: without those,
    one that has left its parents and wiped its environment cannot be told from a stranger.

    A process that is gone cannot be told from one of ours and counts as such. Pid 0 is a process outside of our pid
    namespace, in which all of ours live. Where /proc shows no processes of other users (ProtectProc=invisible), those are
    none of ours, which all run as our own user.
    """
    if peer.pid in (0, os.getpid()):
        return False
    mark = f"MCPVISOR_INSTANCE={instance}".encode()
    try:
        if subtree.path is not None and subtree.holds(Path(f"/proc/{peer.pid}/cgroup").read_text()):
            return True
        return mark in Path(f"/proc/{peer.pid}/environ").read_bytes().split(b"\0") or _descends_from_us(peer.pid)
    except PermissionError:
        return _descends_from_us(peer.pid)  # another user's process, whose environment is not ours to read
    except (FileNotFoundError, ProcessLookupError):
        return peer.uid == os.geteuid() or not _is_hidden(peer.pid)


def _descends_from_us(pid: int) -> bool:
    for _ in range(_MAX_ANCESTORS):
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return not _is_hidden(pid)
        pid = int(stat.rpartition(b")")[2].split()[1])
        if pid == os.getpid():
            return True
        if pid <= 1:
            return False
    return True


def _is_hidden(pid: int) -> bool:
    """Whether a process that /proc does not show is there all the same, as another user's."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        pass
    return False
