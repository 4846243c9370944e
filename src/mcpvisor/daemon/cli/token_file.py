"""Owns the reading of the gateway's token by whoever uses the gateway, and who else may read it."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path
from typing import Final

from mcpvisor.daemon.cli.exits import CliError, Exit

_MOST_BYTES: Final = 4096


def read_token(file: Path) -> str:
    """The token in a file. Raises CliError, which never quotes what the file holds."""
    try:
        with file.open("rb") as opened:
            token = opened.read(_MOST_BYTES).decode("ascii").strip()
    except PermissionError as error:
        raise CliError(Exit.PERMISSION, f"the token in {file} may not be read by you{readers_of(file)}") from error
    except UnicodeDecodeError as error:
        raise CliError(Exit.NO, f"{file} holds no token") from error
    except OSError as error:
        raise CliError(Exit.NO, f"the token in {file} cannot be read: {os.strerror(error.errno or 0)}") from error
    if not token or not token.isprintable() or " " in token:
        raise CliError(Exit.NO, f"{file} holds no token")
    return token


def readers_of(file: Path) -> str:
    """Who may read a file, as far as its mode can be seen; else nothing."""
    try:
        info = file.stat()
    except OSError:
        return ""  # its folder is closed to us, too
    who = ["root"]
    if info.st_uid != 0:
        who.append(_name(info.st_uid, of_group=False))
    if info.st_mode & stat.S_IRGRP:
        who.append(f"the group {_name(info.st_gid, of_group=True)}")
    return f" (readable by {', '.join(who)})"


def _name(number: int, *, of_group: bool) -> str:
    try:
        return grp.getgrgid(number).gr_name if of_group else pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
