"""Owns how a server is in its control group before its program runs: a shell enters, and becomes the program.

Nothing that the program starts can then be outside. The kernel can start a process in a group (CLONE_INTO_CGROUP), but nothing
in Python's reach does; code of ours between fork and exec is unsafe beside threads. The shell costs the child one exec, 0.7 ms.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

SHELL: Final = "/bin/sh"

# What shells add to the environment is taken out again. The words are for the server's stderr, where an operator looks.
_SCRIPT: Final = """\
echo 0 > "$0" || { echo "mcpvisor: the control group $0 cannot be entered" >&2; exit 126; }
unset OLDPWD PWD SHLVL _
exec "$@"
"""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHELLS_OWN: Final = frozenset(
    (
        *("BASHOPTS", "BASH_ENV", "ENV", "EUID", "IFS", "LINENO", "OLDPWD", "OPTARG", "OPTERR", "OPTIND", "POSIXLY_CORRECT"),
        *("PPID", "PS1", "PS2", "PS4", "PWD", "SHELLOPTS", "SHLVL", "UID", "_"),
    )
)
"""Variables that one shell or another sets, reads or refuses."""


def through_shell(
    entrance: Path, arguments: Sequence[str], environment: Mapping[str, str], cwd: str | None
) -> list[str] | None:
    """The command that enters the group and becomes the program; None where the shell would change what is started.

    That is so where it would not pass on a variable as it is, and where the start is likely to fail: the kernel's own answer
    then tells better what is wrong than the shell's.
    """
    if not all(_NAME.fullmatch(name) and name not in _SHELLS_OWN for name in environment):
        return None
    if arguments[0].startswith("-") or not _will_start(arguments[0], environment.get("PATH", ""), cwd):
        return None
    return [SHELL, "-c", _SCRIPT, str(entrance), *arguments]


def _will_start(program: str, path: str, cwd: str | None) -> bool:
    found = str(Path(cwd or ".", program)) if "/" in program else shutil.which(program, path=path)
    if found is None or not Path(found).is_file() or not os.access(found, os.X_OK):
        return False
    try:
        with Path(found).open("rb") as file:
            first = file.readline(256)
    except OSError:  # may be run, but not read
        return False
    if first.startswith(b"#!"):
        interpreter = first[2:].split()[:1]
        return bool(interpreter) and os.access(interpreter[0], os.X_OK)
    return first.startswith(b"\x7fELF")
