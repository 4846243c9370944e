"""Owns who asks: the principal of each request, by the peer of a unix socket or by a bearer token."""

from __future__ import annotations

import hmac
import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

ANONYMOUS: Final = "anonymous"
"""The principal of everybody who comes over TCP while `auth = "open"`; such clients are told apart by session only."""

_UCRED: Final = struct.Struct("3i")
_SO_PEERGROUPS: Final = 59  # <asm-generic/socket.h>; the socket module has no name for it
_MAX_GROUPS: Final = 256
_MAX_ANCESTORS: Final = 64


class NotAdmitted(Exception):
    """The request has no principal here. `status` is 401 where credentials would help, else 403."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


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


class Admission(Protocol):
    """Decides who a request is made for."""

    def principal(self, peer: Peer | None, headers: Mapping[bytes, bytes]) -> str:
        """The name of the principal. Raises NotAdmitted."""
        ...


class OpenAdmission:
    """Everybody is welcome: what `auth = "open"` says."""

    def principal(self, peer: Peer | None, headers: Mapping[bytes, bytes]) -> str:  # noqa: ARG002 - nothing is presented
        """See `Admission`."""
        return f"uid:{peer.uid}" if peer is not None else ANONYMOUS


class AutoAdmission:
    """Unix peers by uid and group, everybody else by bearer token; never the servers' own processes."""

    def __init__(self, *, tokens: Mapping[str, str], instance: str, group: int | None) -> None:
        self._tokens = {name: token.encode() for name, token in tokens.items()}
        self._instance = instance
        self._group = group
        self._own_uid = os.geteuid()

    def principal(self, peer: Peer | None, headers: Mapping[bytes, bytes]) -> str:
        """See `Admission`."""
        return self._by_peer(peer) if peer is not None else self._by_token(headers)

    def _by_peer(self, peer: Peer) -> str:
        in_group = self._group is not None and self._group in peer.groups
        if peer.uid not in (0, self._own_uid) and not in_group:
            raise NotAdmitted(403, "this user is not a member of the group that may use the gateway")
        if is_of_instance(peer.pid, self._instance):
            raise NotAdmitted(403, "the servers' own processes may not use the gateway")
        return f"uid:{peer.uid}"

    def _by_token(self, headers: Mapping[bytes, bytes]) -> str:
        scheme, _, presented = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer":
            presented = presented.strip()
            # Every token is compared, each in constant time: how long it takes tells nothing.
            matching = [name for name, token in self._tokens.items() if hmac.compare_digest(token, presented)]
            if matching:
                return f"token:{matching[0]}"
        raise NotAdmitted(401, "a bearer token is needed; `mcpvisor connect` shows it")


def is_of_instance(pid: int, instance: str) -> bool:
    """Whether a process is one that this daemon started, or a descendant of one: by its mark or by its ancestors.

    A process that is gone cannot be told from one of ours and counts as such. Pid 0 is a process outside of our pid
    namespace, in which all of ours live.
    """
    if pid in (0, os.getpid()):
        return False
    mark = f"MCPVISOR_INSTANCE={instance}".encode()
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") or _descends_from_us(pid)
    except PermissionError:
        return _descends_from_us(pid)  # another user's process, whose environment is not ours to read
    except (FileNotFoundError, ProcessLookupError):
        return True


def _descends_from_us(pid: int) -> bool:
    for _ in range(_MAX_ANCESTORS):
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return True
        pid = int(stat.rpartition(b")")[2].split()[1])
        if pid == os.getpid():
            return True
        if pid <= 1:
            return False
    return True
