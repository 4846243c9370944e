"""Owns the checks of the machine that need no daemon: versions, the clock, file watches, and the unit of systemd."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from mcpvisor import __version__
from mcpvisor.daemon.doctor.findings import Findings

UNIT: Final = "mcpvisor.service"
OLDEST_NOW: Final = 1_767_225_600.0
"""The beginning of 2026, in seconds since the epoch: a clock before it is wrong."""
_AHEAD: Final = 60.0
"""Seconds by which a file may be newer than now, before the clock is said to have gone back."""
_TIME_ERROR: Final = 5
"""What adjtimex(2) returns while nothing keeps the clock right."""
_TIMEX_BYTES: Final = 512
_FEW_WATCHES: Final = 1024
_SYSTEMD_SECONDS: Final = 5.0


def look_at_machine(files: Iterable[Path], findings: Findings) -> None:
    """All of it; `files` are those of the configuration, whose times tell whether the clock has gone back."""
    look_at_versions(findings)
    look_at_clock(files, time.time(), findings)
    look_at_watches(Path("/proc/sys/fs/inotify"), findings)
    look_at_unit(findings)


def look_at_versions(findings: Findings) -> None:
    """Python and the packages that the daemon runs on."""
    python = ".".join(map(str, sys.version_info[:3]))
    try:
        findings.ok("versions", f"mcpvisor {__version__}, mcp {version('mcp')}, Python {python}")
    except PackageNotFoundError:
        findings.error("versions", f"mcpvisor {__version__} without its package mcp", "install mcpvisor with all it needs")


def look_at_clock(files: Iterable[Path], now: float, findings: Findings, keeps: int | None = None) -> None:
    """The clock: plausible, not behind the files, and kept right by somebody. `keeps` is what adjtimex(2) says."""
    newest = max((file.stat().st_mtime for file in files if file.exists()), default=0.0)
    kept = _adjtimex() if keeps is None else keeps
    if now < OLDEST_NOW:
        text = f"it is {time.strftime('%Y-%m-%d', time.gmtime(now))} by the clock"
        findings.error("clock", text, "set the clock: certificates and tokens are judged by it")
    elif newest > now + _AHEAD:
        text = f"files of the configuration are {newest - now:.0f} s newer than now: the clock has gone back"
        findings.warning("clock", text, "look at the clock")
    elif kept == _TIME_ERROR:
        findings.warning("clock", "nothing keeps the clock right", "run a time service: chrony, or systemd-timesyncd")
    elif kept < 0:
        findings.unknown("clock", "whether anything keeps it right cannot be seen from here")
    else:
        findings.ok("clock", "it is kept right")


def _adjtimex() -> int:
    """The state of the kernel's clock, -1 where it may not be asked."""
    try:
        return int(ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES)))
    except (OSError, AttributeError):
        return -1


def look_at_watches(folder: Path, findings: Findings) -> None:
    """The kernel's limits for watching files, by which an edit is seen at once."""
    try:
        watches, instances = (int((folder / name).read_text()) for name in ("max_user_watches", "max_user_instances"))
    except (OSError, ValueError):
        findings.unknown("file watches", f"no limits are told in {folder}")
        return
    if watches < _FEW_WATCHES or instances < 16:  # a desktop has hundreds of them
        text = f"few files can be watched ({watches} watches, {instances} instances): edits are found by looking regularly"
        findings.warning("file watches", text, "sysctl fs.inotify.max_user_instances=512 fs.inotify.max_user_watches=65536")
    else:
        findings.ok("file watches", f"{watches} watches, {instances} instances for each user")


def look_at_unit(findings: Findings) -> None:
    """The unit `mcpvisor.service`, where this machine runs systemd."""
    if not Path("/run/systemd/system").is_dir():
        findings.unknown("systemd", "does not run this machine")
        return
    asked = ("LoadState", "ActiveState", "SubState", "UnitFileState", "NRestarts", "Delegate", "NeedDaemonReload", "Result")
    try:
        said = subprocess.run(
            ["systemctl", "show", UNIT, *(f"--property={name}" for name in asked)],
            capture_output=True, text=True, timeout=_SYSTEMD_SECONDS, check=True, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        findings.unknown("systemd", f"cannot be asked: {error}")
        return
    pairs = (line.partition("=") for line in said.stdout.splitlines())
    judge_unit({name: value for name, _, value in pairs}, findings)


def judge_unit(unit: Mapping[str, str], findings: Findings) -> None:
    """What the properties of the unit mean."""
    if unit.get("LoadState") != "loaded":
        findings.unknown("systemd", f"there is no unit {UNIT}")
        return
    state = f"{UNIT} is {unit.get('ActiveState')} ({unit.get('SubState')}), {unit.get('UnitFileState') or 'not installed'}"
    if unit.get("ActiveState") == "failed":
        findings.error("systemd", f"{state}: {unit.get('Result')}", f"journalctl -u {UNIT} -n 50; systemctl restart {UNIT}")
    elif unit.get("NeedDaemonReload") == "yes":
        findings.warning("systemd", f"{state}, and its file has changed since", "systemctl daemon-reload")
    elif unit.get("Delegate") != "yes":
        findings.warning("systemd", f"{state}, without Delegate=yes: limits of servers do not hold", f"systemctl edit {UNIT}")
    elif int(unit.get("NRestarts") or 0):
        findings.warning("systemd", f"{state}, restarted {unit['NRestarts']} times by itself", f"journalctl -u {UNIT} -p err")
    else:
        findings.ok("systemd", state)
