"""Owns the checks of what the daemon stands on: its folders, its disk, its addresses, its limits and its control groups."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import stat
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from mcpvisor.daemon.config.settings import Settings
from mcpvisor.daemon.config.trust import distrust
from mcpvisor.daemon.doctor.findings import Findings
from mcpvisor.daemon.state.filesystem import magic_of, why_unfit
from mcpvisor.supervisor.process.delegation import CONTROLLERS, Subtree

FILES_OF_SERVER: Final = 5
"""Open files that a server costs the daemon."""
FILES_OF_DAEMON: Final = 128
"""Open files that the daemon needs for itself and a few clients."""
LEAST_ROOM: Final = 64 * 1024 * 1024
SCARCE_ROOM: Final = 1024 * 1024 * 1024
_MIB: Final = 1024 * 1024


def look_at_state(folder: Path, uid: int, findings: Findings) -> None:
    """The state folder: whose it is, whether it can be written, and how much room there is."""
    at = folder
    while not at.exists() and at != at.parent:
        at = at.parent
    if at != folder and not os.access(at, os.W_OK):
        findings.error("state_dir", f"there is no {folder}, and {at} cannot be written", f"run: install -d -m 700 {folder}")
        return
    reason = distrust(folder, uid) if at == folder else ""
    if reason:
        findings.error("state_dir", reason)
    elif not os.access(at, os.W_OK | os.X_OK):
        findings.error("state_dir", f"{folder} cannot be written by this user", f"run: chown {uid} {folder}")
    else:
        findings.ok("state_dir", f"{folder}{'' if at == folder else ' is made at the start'}")
    try:
        unfit = why_unfit(magic_of(at))
    except OSError as error:
        findings.unknown("file system", f"of {at}: {error.strerror}")
    else:
        if unfit:
            findings.error("file system", f"{folder}: {unfit}")
    _look_at_room(at, findings)


def _look_at_room(folder: Path, findings: Findings) -> None:
    room = shutil.disk_usage(folder).free
    inodes = os.statvfs(folder)
    text = f"{room // _MIB} MiB are free at {folder}"
    if inodes.f_files and not inodes.f_favail:
        findings.error("disk", f"no file can be made at {folder}: it has no inodes left", "remove files there")
    elif room < LEAST_ROOM:
        findings.error("disk", text, "make room: what is new is kept in memory only")
    elif room < SCARCE_ROOM:
        findings.warning("disk", text, "make room before it is full")
    else:
        findings.ok("disk", text)


def look_at_addresses(settings: Settings, ours: Sequence[str] | None, findings: Findings) -> None:
    """Each address to listen on: free, or the running daemon's own. `ours` are those that it listens on, None if unknown."""
    if ours is None:
        findings.unknown("address", "a daemon runs that could not be asked where it listens")
        return
    ports = {one.rpartition(":")[2] for one in ours if not one.startswith("unix:")}
    for key, addresses in (
        ("gateway.listen", settings.gateway.listen),
        ("metrics.listen", settings.metrics.listen),
        ("control.listen", settings.control.listen),
    ):
        for address in addresses:
            if address in ours or (not address.startswith("unix:") and address.rpartition(":")[2] in ports):
                findings.ok("address", f"{key}: {address} is the daemon's")
            elif address.startswith("unix:"):
                _look_at_socket(key, Path(address.removeprefix("unix:")), findings)
            else:
                _look_at_port(key, address, findings)


def _look_at_socket(key: str, path: Path, findings: Findings) -> None:
    folder = path.parent
    if not folder.is_dir():
        at = folder
        while not at.exists() and at != at.parent:
            at = at.parent
        if os.access(at, os.W_OK):
            findings.ok("address", f"{key}: {folder} is made at the start")
        else:
            findings.error("address", f"{key}: there is no folder {folder}, and {at} cannot be written", f"run: mkdir {folder}")
        return
    mode = folder.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        findings.error("address", f"{key}: everybody may write {folder}", f"run: chmod o-w {folder}")
    elif not os.access(folder, os.W_OK | os.X_OK):
        findings.error("address", f"{key}: {folder} cannot be written by this user", f"run: chown {os.geteuid()} {folder}")
    elif _answers(path):
        findings.error("address", f"{key}: another program answers on {path}", "stop it, or name another path")
    else:
        findings.ok("address", f"{key}: unix:{path} is free")


def _answers(path: Path) -> bool:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.settimeout(1)
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
        return True


def _look_at_port(key: str, address: str, findings: Findings) -> None:
    host, _, port = address.rpartition(":")
    if port == "0":
        findings.ok("address", f"{key}: {address} takes a free port")
        return
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with closing(socket.socket(family, kind, protocol)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as error:
        taken = isinstance(error, OSError) and error.errno in {98, 48}  # EADDRINUSE, here and elsewhere
        remedy = f"stop what listens there (ss -ltnp 'sport = :{port}'), or edit {key}" if taken else f"edit {key}"
        findings.error("address", f"{key}: {address} cannot be had: {error.strerror or error}", remedy)
    else:
        findings.ok("address", f"{key}: {address} is free")


def look_at_files(servers: int, findings: Findings) -> None:
    """How many files this process may open, beside what the servers need."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FILES_OF_DAEMON + FILES_OF_SERVER * servers
    if hard != resource.RLIM_INFINITY and hard < needed:
        text = f"{hard} files may be open, and {servers} servers need some {needed}"
        findings.error("open files", text, "raise LimitNOFILE= of the unit, or ulimit -Hn")
    elif hard != resource.RLIM_INFINITY and hard < 2 * needed:
        findings.warning("open files", f"{hard} files may be open, some {needed} are needed", "raise LimitNOFILE= of the unit")
    else:
        findings.ok("open files", f"{hard if hard != resource.RLIM_INFINITY else 'any number of'} files may be open")


def look_at_groups(subtree: Subtree, limited: Sequence[str], findings: Findings) -> None:
    """Whether servers get control groups; `limited` are those with limits that need them."""
    missing = [name for name in CONTROLLERS if name not in subtree.controllers]
    if subtree.path is None:
        wanted = f"; limits of {', '.join(limited)} do not hold" if limited else ""
        tell = findings.warning if limited else findings.unknown
        tell("control groups", f"servers get none of their own: {subtree.why_not}{wanted}", "Delegate=yes in the unit")
    elif missing and limited:
        text = f"without the controllers {', '.join(missing)}; limits of {', '.join(limited)} may not hold"
        findings.warning("control groups", text, "enable them for the group above")
    else:
        findings.ok("control groups", f"below {subtree.path}")
