"""Owns which control sockets a verb tries, and whether it may trust them."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

from mcpvisor.daemon.config.places import control_sockets


def candidates(explicit: str | None, environ: Mapping[str, str], uid: int) -> list[Path]:
    """The sockets to try, in order. One that is named, by option or `$MCPVISOR_SOCKET`, is the only one."""
    return [Path(explicit.removeprefix("unix:"))] if explicit else control_sockets(environ, uid)


def is_safe(path: Path, uid: int) -> bool:
    """Whether nobody but root and this user can have put that socket there.

    Only a folder whose own folder is open to everybody is in doubt: anybody could have made it first.
    """
    try:
        if not path.parent.parent.stat().st_mode & stat.S_IWOTH:
            return True
        folder = path.parent.lstat()
    except OSError:
        return True  # nothing is there, and connecting will say so
    return stat.S_ISDIR(folder.st_mode) and folder.st_uid in (0, uid) and not folder.st_mode & stat.S_IWOTH
