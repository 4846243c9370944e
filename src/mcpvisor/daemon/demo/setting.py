"""Owns the demonstration's configuration, made in code: its servers, its ports and its control socket."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mcpvisor.daemon.config.discovery import Found
from mcpvisor.daemon.config.load import Basis, FileLoad, Loaded
from mcpvisor.daemon.config.places import control_sockets
from mcpvisor.daemon.config.settings import (
    ControlSettings,
    DaemonSettings,
    GatewaySettings,
    LogSettings,
    MetricsSettings,
    Settings,
)
from mcpvisor.supervisor.spec import ServerSpec, StdioLaunch

SERVERS: Final = ("clock", "flaky", "slow")
GATEWAY_PORT: Final = 7433
METRICS_PORT: Final = 9433


@dataclass(frozen=True, slots=True)
class ControlPlace:
    """Where the demonstration's control socket is. `is_found` is whether verbs find it without `--socket`."""

    path: Path
    is_found: bool


def demo_specs() -> dict[str, ServerSpec]:
    """The bundled servers, run by the Python that runs us."""
    return {
        name: ServerSpec(
            name=name,
            target=StdioLaunch(command=sys.executable, args=("-m", f"mcpvisor.daemon.demo.{name}")),
            origin=f"mcpvisor.daemon.demo.{name}",
        )
        for name in SERVERS
    }


class Ports:
    """Ports that this demonstration may take: none that another one, which is just starting, has found free as well."""

    def __init__(self) -> None:
        self._claims: list[socket.socket] = []

    def take(self, port: int) -> str:
        """An address on 127.0.0.1 with that port, or with any free one where that is taken."""
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._claims.append(claim)
        try:
            # Names like this one are gone with the process that has bound them.
            claim.bind(f"\0mcpvisor-demo-{port}")
        except OSError:
            return loopback(0)
        return loopback(port)

    def close(self) -> None:
        """Give them back."""
        for claim in self._claims:
            claim.close()


def demo_loaded(folder: Path, control: Path, ports: Ports) -> Loaded:
    """What a configuration file for the demonstration would have said; `folder` is private and goes with it."""
    settings = Settings(
        daemon=DaemonSettings(state_dir=folder / "state"),
        log=LogSettings(level="warning", format="console"),
        gateway=GatewaySettings(listen=(ports.take(GATEWAY_PORT),), auth="open"),
        control=ControlSettings(listen=(f"unix:{control}",)),
        metrics=MetricsSettings(listen=(ports.take(METRICS_PORT),)),
    )
    written_nowhere = Found(folder / "mcpvisor.toml", is_main=True, is_named=True)
    return Loaded(
        basis=Basis(settings, {}, frozenset()),
        loads=(FileLoad(file=written_nowhere, specs=demo_specs()),),
        listed=(),
        problems=(),
        hints=(),
    )


def loopback(port: int) -> str:
    """An address on 127.0.0.1 with that port, or with any free one where that is taken."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            port = 0
    return f"127.0.0.1:{port}"


def choose_control(environ: Mapping[str, str], uid: int, folder: Path) -> ControlPlace:
    """The user's own control socket where no daemon answers on it, else one in the private folder."""
    places = control_sockets(environ, uid)
    own = places[min(1, len(places) - 1)]  # the first is the system's, unless one is named
    if answers(own):
        return ControlPlace(folder / "control.sock", is_found=False)
    return ControlPlace(own, is_found=not any(answers(place) for place in places[: places.index(own)]))


def answers(path: Path) -> bool:
    """Whether a daemon listens there; one that may not be asked counts as one that does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            return False
        except OSError:
            return True
    return True
