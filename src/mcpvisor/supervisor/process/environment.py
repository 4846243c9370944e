"""Owns the environment of a server's process: what it inherits, what it is given, and what it must never see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from mcpvisor.supervisor.process.sweep import INSTANCE_VARIABLE, SERVER_VARIABLE
from mcpvisor.supervisor.secret import reveal
from mcpvisor.supervisor.secret_looks import passwords_in
from mcpvisor.supervisor.secret_names import names_secret
from mcpvisor.supervisor.spec import ServerSpec, StdioLaunch, resolved_in

INHERITED: Final = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"),  # what the SDK's own clients pass on
    *("LANG", "LC_*", "TZ", "TMPDIR", "XDG_*"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_*", "NODE_EXTRA_CA_CERTS"),
)
"""Names and patterns that every server inherits where the daemon has them."""

WITHHELD: Final = ("NOTIFY_SOCKET", "LISTEN_*", "WATCHDOG_*", "CREDENTIALS_DIRECTORY")
"""What belongs to the daemon alone: with these a server could speak to systemd in its name, or read its credentials."""

DEFAULT_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class Marker:
    """The mark that all processes of one generation carry in their environment, so that none of them gets away.

    No two processes that are started may have the same mark: the end of one would be the end of the other.
    """

    instance: str
    server: str
    generation: int

    @property
    def label(self) -> str:
        """The server and its generation as they stand in `MCPVISOR_SERVER`."""
        return f"{self.server}:{self.generation}"


def child_environment(launch: StdioLaunch, marker: Marker, own: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a server's process; `own` is the daemon's."""
    wanted = (*INHERITED, *launch.inherit_env)
    # A value that begins so is an exported shell function: code, not a setting.
    environment = {k: v for k, v in own.items() if _matches(k, wanted) and not v.startswith("()")}
    environment.setdefault("PATH", DEFAULT_PATH)
    environment.update((name, reveal(value)) for name, value in launch.env)
    environment = {name: value for name, value in environment.items() if not _matches(name, WITHHELD)}
    environment[INSTANCE_VARIABLE] = marker.instance
    environment[SERVER_VARIABLE] = marker.label
    return environment


def is_inherited(name: str) -> bool:
    """Whether every server gets the variable anyway, so that its value is no secret."""
    return _matches(name, INHERITED)


def inherited_secrets(launch: StdioLaunch, own: Mapping[str, str]) -> list[str]:
    """What a server inherits that must not be shown: variables of telling names, and passwords in a proxy's address."""
    wanted = (*INHERITED, *launch.inherit_env)
    found: list[str] = []
    for name, value in own.items():
        if _matches(name, wanted):
            found += passwords_in(value)
            if names_secret(name):
                found.append(value)
    return found


def known_in(spec: ServerSpec, own: Mapping[str, str]) -> list[str]:
    """The plain values that are secret whoever tells them: those of the entry, and what its processes inherit."""
    target = spec.target
    return [*resolved_in(spec), *(inherited_secrets(target, own) if isinstance(target, StdioLaunch) else [])]


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
