"""Owns the checks of an entry that starts a program: whether it is there, may be run, and what it needs beside itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from mcpvisor.daemon.doctor.findings import Findings
from mcpvisor.supervisor.process.environment import DEFAULT_PATH
from mcpvisor.supervisor.secret import Secret, reveal
from mcpvisor.supervisor.spec import StdioLaunch

_NEEDS: Final[Mapping[str, str]] = {
    "npx": "node",
    "npm": "node",
    "pnpm": "node",
    "pnpx": "node",
    "yarn": "node",
    "bunx": "bun",
    "uvx": "uv",
}
"""What a launcher runs on, which is a program by itself."""

_INTERPRETERS: Final = frozenset({"python", "python3", "node", "deno", "bun", "ruby", "php", "perl", "sh", "bash"})
_SCRIPTS: Final = (".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".php", ".pl", ".sh")


def look_at_program(launch: StdioLaunch, environ: Mapping[str, str], findings: Findings) -> None:
    """The program, what it runs on, its script and its folder. `environ` is the daemon's: it searches its own PATH."""
    path = environ.get("PATH") or DEFAULT_PATH
    program = reveal(launch.command)
    shown = "the program" if isinstance(launch.command, Secret) else program
    found = _found(program, launch.cwd, path)
    if found is None:
        where = "" if "/" in program else f" on the daemon's PATH={path}"
        remedy = "install it, or write its whole path into command" if "/" not in program else "install it, or edit command"
        findings.error("program", f"there is no {shown}{where}", remedy)
    elif found.is_dir():
        findings.error("program", f"{found} is a folder", "edit command")
    elif not os.access(found, os.X_OK):
        findings.error("program", f"{found} may not be run by the daemon's user", f"run: chmod a+x {found}")
    else:
        _look_at_interpreter(found, path, findings)
        _look_at_launcher(found, path, findings)
    _look_at_script(launch, findings)
    _look_at_folder(launch.cwd, findings)


def _found(program: str, cwd: str | None, path: str) -> Path | None:
    if "/" in program:
        whole = Path(cwd or ".", program)
        return whole if whole.exists() else None
    found = shutil.which(program, mode=os.F_OK, path=path)
    return Path(found) if found is not None else None


def _look_at_interpreter(program: Path, path: str, findings: Findings) -> None:
    """The program of the first line of a script, and the one that `env` is to find for it."""
    try:
        with program.open("rb") as file:
            first = file.readline(256)
    except OSError as error:
        findings.unknown("program", f"{program} cannot be read: {error.strerror}")
        return
    words = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
    if words and not Path(words[0]).exists():
        findings.error("program", f"{program} needs {words[0]}, which is not there", f"install {words[0]}")
        return
    wanted = next((word for word in words[1:] if not word.startswith("-")), "") if words[:1] == ["/usr/bin/env"] else ""
    if wanted and shutil.which(wanted, path=path) is None:
        text = f"{program} needs {wanted}, which is not on the daemon's PATH={path}"
        findings.error("program", text, f"install {wanted}, or put its folder on the daemon's PATH")
        return
    findings.ok("program", str(program))


def _look_at_launcher(program: Path, path: str, findings: Findings) -> None:
    name = program.name
    needed = _NEEDS.get(name)
    beside = program.resolve().parent
    if needed is not None and shutil.which(needed, path=f"{path}:{beside}") is None:
        findings.error("launcher", f"{name} runs on {needed}, which is not on the daemon's PATH={path}", f"install {needed}")


def _look_at_script(launch: StdioLaunch, findings: Findings) -> None:
    """The script that an interpreter is given by its whole path, or one below `cwd`."""
    name = PurePosixPath(reveal(launch.command)).name.rstrip("0123456789.")
    first = next((arg for arg in launch.args if isinstance(arg, Secret) or not arg.startswith("-")), None)
    if name not in _INTERPRETERS or not isinstance(first, str) or not first.endswith(_SCRIPTS):
        return
    script = Path(launch.cwd or ".", first)
    if not script.is_absolute():
        return  # it depends on where the daemon was started
    if not script.exists():
        findings.error("script", f"there is no {script}", "edit args")
    elif not os.access(script, os.R_OK):
        findings.error("script", f"{script} may not be read by the daemon's user", f"run: chmod a+r {script}")


def _look_at_folder(cwd: str | None, findings: Findings) -> None:
    if cwd is None:
        return
    folder = Path(cwd)
    if not folder.exists():
        findings.error("cwd", f"there is no folder {folder}", f"run: mkdir -p {folder}; or edit cwd")
    elif not folder.is_dir():
        findings.error("cwd", f"{folder} is no folder", "edit cwd")
    elif not os.access(folder, os.X_OK):
        findings.error("cwd", f"{folder} may not be entered by the daemon's user", f"run: chmod a+x {folder}")
    else:
        findings.ok("cwd", str(folder))
