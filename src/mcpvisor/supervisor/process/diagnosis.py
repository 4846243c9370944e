"""Owns the words for a program that could not be started: what is missing, where it was looked for, which key to edit."""

from __future__ import annotations

import errno
import shutil
from contextlib import suppress
from pathlib import Path

from mcpvisor.supervisor.secret import reveal
from mcpvisor.supervisor.spec import StdioLaunch
from mcpvisor.supervisor.transports.wire import WireEnd


def explain_failure(spec: StdioLaunch, path: str, error: OSError | ValueError) -> WireEnd:
    """What a failed start means, in words that name the program, the PATH that was searched, and the key to edit."""
    program = spec.command if isinstance(spec.command, str) else "(secret)"
    if isinstance(error, ValueError):
        return WireEnd(
            cause="no_such_program", detail=f"command, args or env of {program!r} hold a NUL or an unpaired surrogate"
        )
    if spec.cwd is not None and error.filename == spec.cwd:
        return WireEnd(cause="bad_cwd", detail=f"cwd {spec.cwd!r} cannot be entered ({error.strerror}): edit the key `cwd`")
    if error.errno == errno.ENOENT:
        return WireEnd(cause="no_such_program", detail=_missing(reveal(spec.command), program, spec.cwd, path))
    if error.errno == errno.ENOTDIR:
        return WireEnd(cause="no_such_program", detail=f"the path of {program!r} leads through a file: edit the key `command`")
    if error.errno in (errno.ENOEXEC, errno.ELIBBAD):
        detail = f"{program!r} is no program for this machine, and has no `#!` line: edit the key `command`"
        return WireEnd(cause="no_such_program", detail=detail)
    if error.errno in (errno.EACCES, errno.EPERM):
        detail = f"{program!r} may not be run (PATH={path}): it needs the x bit for this user, or edit the key `command`"
        return WireEnd(cause="permission", detail=detail)
    return WireEnd(cause="connect_failed", detail=f"{program!r} could not be started: {error.strerror}")


def _missing(program: str, shown: str, cwd: str | None, path: str) -> str:
    if "/" in program:
        found = str(Path(cwd or ".", program)) if Path(cwd or ".", program).exists() else None
    else:
        found = shutil.which(program, path=path)
    if found is None:
        where = "" if "/" in program else f" on PATH={path}"
        return f"no program {shown!r}{where}: install it, or edit the key `command`"
    with suppress(OSError), Path(found).open("rb") as file:
        first = file.readline(256)
        if first.startswith(b"#!"):
            interpreter = first[2:].decode("utf-8", "replace").strip()
            return f"{shown!r} needs the interpreter {interpreter!r}, which is missing: install it, or edit the key `command`"
    return f"{shown!r} is there, but its loader or a library of it is missing: install what it needs, or edit the key `command`"
