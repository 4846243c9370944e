"""Owns where things are when nobody says otherwise: sockets, state and configuration, of the system or of one user."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

SYSTEM_CONFIG: Final = Path("/etc/mcpvisor")


class Places(NamedTuple):
    """The folders of one daemon. `is_system` is whether it serves the machine, not one user."""

    is_system: bool
    runtime: Path
    state: Path
    config: Path


def places(environ: Mapping[str, str], uid: int) -> Places:
    """The folders for a process of user `uid`: those that systemd names, else the system's for root, else XDG's."""
    runtime = environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    is_system = uid == 0 or (bool(runtime) and not runtime.startswith("/run/user/"))
    home = Path(environ.get("HOME") or "/")
    own_runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime:
        run = Path(runtime)
    elif is_system:
        run = Path("/run/mcpvisor")
    else:
        run = Path(own_runtime) / "mcpvisor" if own_runtime else Path(f"/tmp/mcpvisor-{uid}")  # noqa: S108 - ours, mode 0700
    state = environ.get("STATE_DIRECTORY", "").split(":")[0]
    if not state:
        own_state = environ.get("XDG_STATE_HOME") or str(home / ".local/state")
        state = "/var/lib/mcpvisor" if is_system else f"{own_state}/mcpvisor"
    own_config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "mcpvisor"
    return Places(is_system, run, Path(state), SYSTEM_CONFIG if is_system else own_config)


def config_paths(environ: Mapping[str, str], uid: int) -> list[Path]:
    """What `run`, `check` and `plan` read when no path is given: `$MCPVISOR_CONFIG` (split at colons), or the folder."""
    named = [Path(part) for part in environ.get("MCPVISOR_CONFIG", "").split(":") if part]
    return named or [places(environ, uid).config]


def control_sockets(environ: Mapping[str, str], uid: int) -> list[Path]:
    """Where to look for the control socket when `--socket` is not given, best first."""
    named = environ.get("MCPVISOR_SOCKET", "")
    if named:
        return [Path(named)]
    found = [Path("/run/mcpvisor/control.sock")]
    own_runtime = environ.get("XDG_RUNTIME_DIR", "")
    if own_runtime:
        found.append(Path(own_runtime) / "mcpvisor/control.sock")
    return [*found, Path(f"/tmp/mcpvisor-{uid}/control.sock")]  # noqa: S108 - its folder is ours, mode 0700
