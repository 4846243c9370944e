"""Owns listening unix sockets in the file system: their folder, their modes, and what a former daemon left there."""

from __future__ import annotations

import errno
import grp
import os
import socket
import stat
from pathlib import Path
from typing import Final

from mcpvisor.supervisor.errors import McpvisorError

_PATH_BYTES: Final = 107
"""The longest path of a unix socket that Linux can bind."""

_BACKLOG: Final = 128


GROUP: Final = "mcpvisor"
"""Members of this group may use the daemon's sockets; where it does not exist, only the daemon's own user and root may."""


class ListenFailed(McpvisorError):
    """A socket cannot be opened; the text names the path or key and the remedy."""


class SocketInUse(ListenFailed):
    """Another daemon answers on that socket."""


def group_id(name: str = GROUP) -> int | None:
    """The id of a group; None where the system has no such group."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def socket_path(address: str, key: str) -> Path:
    """The path of an address of the form `unix:/path`; `key` is where it is configured. Raises ListenFailed."""
    scheme, _, path = address.partition(":")
    if scheme != "unix" or not path.startswith("/"):
        raise ListenFailed(f"{key}: {address!r} is not of the form unix:/PATH")
    if len(os.fsencode(path)) > _PATH_BYTES:
        raise ListenFailed(f"{key}: {path!r} is longer than the {_PATH_BYTES} bytes a unix socket may have")
    return Path(path)


def bind_unix(path: Path, gid: int | None, key: str) -> socket.socket:
    """A listening socket at `path`: 0660 for the group `gid` where there is one and it can be given, else 0600.

    The folder is made where it is missing (0750 or 0700); one that others could write to is refused. A socket that nobody
    answers on is replaced. `key` is where it is configured. Raises SocketInUse and ListenFailed.
    """
    _make_folder(path.parent, gid, key)
    _remove_stale(path, key)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listening.fileno(), 0o600)  # before bind: the socket is never open to others, not even for a moment
        listening.bind(os.fspath(path))
        if gid is not None and _give(path, gid):
            path.chmod(0o660)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise SocketInUse(f"another daemon has just taken {path}") from error
        raise ListenFailed(f"{key}: cannot listen on {path}: {error.strerror}") from error
    return listening


def remove(path: Path, inode: int) -> None:
    """Remove our socket, and only ours: `inode` is the one it had when it was bound."""
    try:
        if path.lstat().st_ino == inode:
            path.unlink()
    except FileNotFoundError:
        pass


def _give(path: Path, gid: int) -> bool:
    """Hand a file to the group; False where the daemon may not."""
    if path.stat().st_gid == gid:
        return True  # under the shipped unit no file may be handed over, and none has to be
    try:
        os.chown(path, -1, gid)
    except PermissionError:
        return False
    return True


def _make_folder(folder: Path, gid: int | None, key: str) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        _check_folder(folder, key)
        return
    except OSError as error:
        raise ListenFailed(f"{key}: cannot make the folder {folder}: {error.strerror}") from error
    if gid is not None and _give(folder, gid):
        folder.chmod(0o750)


def _check_folder(folder: Path, key: str) -> None:
    """Raise ListenFailed unless nobody but root and we can put another socket in our socket's place."""
    found = folder.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise ListenFailed(f"{key}: {folder} is no folder")
    if not {found.st_uid, folder.lstat().st_uid} <= {0, os.getuid()}:
        raise ListenFailed(
            f"{key}: {folder} belongs to another user (uid {found.st_uid}): use a folder of your own for the socket"
        )
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise ListenFailed(f"{key}: {folder} can be written by everybody: chmod o-w it, or use another folder")


def _remove_stale(path: Path, key: str) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise ListenFailed(f"{path} exists and is no socket: remove it, or change {key}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise SocketInUse(f"{path} exists and does not say whose it is: {error}") from error
        else:
            raise SocketInUse(f"another daemon listens on {path}: stop it, or give this one another {key}")
