"""Owns who asks: the principal of each request, by the peer of a unix socket or by a bearer token."""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from typing import Final, Protocol

from mcpvisor.daemon.peers import Peer, is_of_instance
from mcpvisor.supervisor.process.delegation import NOT_TAKEN, Subtree

ANONYMOUS: Final = "anonymous"
"""The principal of everybody who comes over TCP while `auth = "open"`; such clients are told apart by session only."""


class NotAdmitted(Exception):
    """The request has no principal here. `status` is 401 where credentials would help, else 403."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


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

    def __init__(self, *, tokens: Mapping[str, str], instance: str, group: int | None, subtree: Subtree = NOT_TAKEN) -> None:
        self._tokens = {name: token.encode() for name, token in tokens.items()}
        self._instance = instance
        self._subtree = subtree
        self._group = group
        self._own_uid = os.geteuid()

    def principal(self, peer: Peer | None, headers: Mapping[bytes, bytes]) -> str:
        """See `Admission`."""
        return self._by_peer(peer) if peer is not None else self._by_token(headers)

    def _by_peer(self, peer: Peer) -> str:
        in_group = self._group is not None and self._group in peer.groups
        if peer.uid not in (0, self._own_uid) and not in_group:
            raise NotAdmitted(403, "this user is not a member of the group that may use the gateway")
        if is_of_instance(peer, self._instance, self._subtree):
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
        raise NotAdmitted(401, "a bearer token is needed: the content of gateway.token in the daemon's state_dir")
