"""Owns the verb that takes a copy of the daemon's state: `backup`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from mcpvisor.daemon.cli.client import ControlClient
from mcpvisor.daemon.cli.exits import CliError, Exit
from mcpvisor.daemon.cli.output import clean_line, say, say_json
from mcpvisor.daemon.cli.verb import Verbs, add_verb

_EXAMPLES: Final = ("mcpvisor backup /var/backups/mcpvisor.db",)

_SECONDS: Final = 60.0
"""How long the copy may take to be made, and each part of it to come."""


def register(verbs: Verbs) -> None:
    """Add the verbs of this family."""
    backup = add_verb(
        verbs, "backup", write_backup, "write a consistent copy of the daemon's state to a file", examples=_EXAMPLES
    )
    backup.add_argument("file", type=Path, metavar="FILE", help="where to; it must not exist yet, and is readable by you only")


def write_backup(arguments: argparse.Namespace) -> int:
    """`backup`: 0 once the copy is on disk, 1 when it cannot be made or FILE exists; what is half written is removed."""
    file: Path = arguments.file
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except PermissionError as error:
        raise CliError(Exit.PERMISSION, f"{file} cannot be written: {error.strerror}") from error
    except OSError as error:
        raise CliError(Exit.NO, f"{file} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as to:
            ControlClient(arguments.socket).download("/v1/backup", to, timeout=_SECONDS)
            to.flush()
            os.fsync(to.fileno())
            size = to.tell()
    except OSError as error:
        file.unlink(missing_ok=True)
        raise CliError(Exit.NO, f"{file} cannot be written: {error.strerror or error}") from error
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    if arguments.json:
        say_json({"file": str(file.absolute()), "bytes": size})
    else:
        say(f"{clean_line(str(file))}: {size} bytes; it holds credentials, keep it as safe as the state itself")
    return int(Exit.DONE)
