"""Owns what can be said of a handler that is an object of Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import ResourceLimits, Text

MEMORY: Final = 512 * 1024 * 1024
"""Bytes that a worker may use where its entry says nothing: code that leaks is ended before the machine is short of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonOptions:
    """`type = "python"`: exactly one of `object` and `entry_point` says which object takes the events."""

    object: str | None = None
    """As `module:object`."""
    entry_point: str | None = None
    """A name in the entry-point group `mcpvisor.handlers`."""
    path: str | None = None
    """The folder that the module of `object` is in; None for one that is installed beside the daemon."""
    arguments: Secret = field(default_factory=lambda: Secret("{}"))
    """A JSON object: the keyword arguments with which a class or a function is called to make the object."""
    secrets: tuple[Secret, ...] = ()
    """Those of the arguments that came out of variables; they are never shown."""
    env: tuple[tuple[str, Text], ...] = ()
    inherit_env: tuple[str, ...] = ()
    cwd: str | None = None
    code: str = ""
    """What tells the file of the module in `path` from a former one."""
    limits: ResourceLimits = field(default_factory=lambda: ResourceLimits(memory=MEMORY))

    @property
    def named(self) -> str:
        """The object, as the entry names it."""
        return self.object or f"entry point {self.entry_point}"
