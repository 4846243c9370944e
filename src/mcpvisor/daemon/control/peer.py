"""Owns who may give orders on the control socket, by the kernel's word for the process at its other end."""

from __future__ import annotations

import os

from mcpvisor.daemon.peers import Peer, is_of_instance
from mcpvisor.supervisor.process.delegation import NOT_TAKEN, Subtree


def why_refused(peer: Peer, *, instance: str, group: int | None, subtree: Subtree = NOT_TAKEN) -> str | None:
    """Why this peer may not give orders; None when it may.

    Root, the daemon's own user and members of `group` may. The daemon's own servers may not, whoever they run as: what
    others tell them must never become an order to the daemon.
    """
    if peer.uid not in (0, os.geteuid()) and (group is None or group not in peer.groups):
        return f"uid {peer.uid} is neither root nor the daemon's user, nor in its group"
    if is_of_instance(peer, instance, subtree):
        return f"pid {peer.pid} is a process of one of this daemon's servers, or was gone before it could be told apart"
    return None
