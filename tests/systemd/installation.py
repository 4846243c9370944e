"""Owns the program's installation in a machine for tests, done the way its operator would do it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path

from tests.systemd.machine import Machine

ROOT = Path(__file__).parents[2]
PROGRAM = "/opt/mcpvisor"
PYTHON = "/usr/bin/python3"
"""The machine's own: a version manager's lives in somebody's home, where the unit's user may not look."""

PUPPETS = "/opt/puppets"

_PLACES = {
    "systemd/mcpvisor.service": "/usr/lib/systemd/system/mcpvisor.service",
    "systemd/mcpvisor.sysusers.conf": "/usr/lib/sysusers.d/mcpvisor.conf",
    "systemd/mcpvisor.tmpfiles.conf": "/usr/lib/tmpfiles.d/mcpvisor.conf",
}


_OURS = ("/var/lib/mcpvisor", "/var/cache/mcpvisor", "/etc/mcpvisor", PROGRAM)


def install(machine: Machine, puppets: Path) -> None:
    """All that docs/operations.md says, the shipped unit unchanged, and puppet servers in /opt/puppets."""
    machine.run("rm", "-rf", *_OURS)  # the machine shows the host's files, where a daemon may have run
    _install_program(machine)
    for name, place in _PLACES.items():
        machine.copy(ROOT / name, place)
    machine.run("systemd-sysusers", "mcpvisor.conf")
    machine.run("systemd-tmpfiles", "--create", "mcpvisor.conf")
    machine.copy(ROOT / "configs" / "mcpvisor.toml", "/tmp/mcpvisor.toml")
    machine.run("install", "-m", "640", "-g", "mcpvisor", "/tmp/mcpvisor.toml", "/etc/mcpvisor/mcpvisor.toml")
    machine.copy(puppets, PUPPETS)
    machine.run("systemctl", "daemon-reload")


def _install_program(machine: Machine) -> None:
    """A virtual environment of the machine's Python, and this checkout in it, from a wheel.

    The machine has no network. What the program depends on is therefore copied from where the tests run, pip included.
    """
    machine.run(PYTHON, "-m", "venv", "--without-pip", PROGRAM)
    packages = f"{PROGRAM}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    for name in (*_locked(), "pip"):
        try:
            found = Distribution.from_name(name)
        except PackageNotFoundError:  # of another system or Python
            continue
        for file in found.files or ():
            source = Path(str(found.locate_file(file)))
            if ".." not in file.parts and source.is_file():  # neither scripts, which name our own Python, nor what is gone
                machine.copy(source, f"{packages}/{file}")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "flit_core.wheel", "--outdir", folder, str(ROOT)], check=True, capture_output=True
        )
        [wheel] = Path(folder).glob("*.whl")
        machine.copy(wheel, f"/tmp/{wheel.name}")
        machine.run(f"{PROGRAM}/bin/python", "-m", "pip", "install", "-q", "--no-index", "--no-deps", f"/tmp/{wheel.name}")


def _locked() -> list[str]:
    """What the program is installed with."""
    return re.findall(r"^([A-Za-z0-9._-]+)==", (ROOT / "requirements" / "runtime.lock").read_text(), re.MULTILINE)
