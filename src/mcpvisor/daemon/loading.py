"""Owns how the program of the daemon is loaded: nothing that is not needed for its first answers, and no collector meanwhile.

Until the daemon answers it is mostly Python at work: reading modules, and building a validator for each model of the SDK.
Only the daemon's own process loads in this way; programs that use the supervisor as a library load the SDK as it is.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, Final

OPENED_LATER: Final = ("mcp", "mcp.client", "mcp.server")
"""Packages whose `__init__` only collects names, of clients, servers and cryptography that the daemon has no use for."""


class _Unopened(ModuleType):
    """A package of which submodules can be imported; its own `__init__` runs when somebody asks for a name in it."""

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        if name.startswith("__") or spec is None or spec.loader is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        # First of all, so that the names which `__init__` looks for itself are found in the usual way.
        object.__setattr__(self, "__class__", ModuleType)
        spec.loader.exec_module(self)
        return getattr(self, name)


@contextmanager
def sparing() -> Generator[None]:
    """Import the daemon inside this; what was imported is never looked at by the collector."""
    is_collecting = gc.isenabled()
    gc.disable()  # imports make a great many objects and leave no garbage worth a look
    try:
        for package in OPENED_LATER:
            _leave_unopened(package)
        _build_models_when_used()
        yield
    finally:
        gc.freeze()
        if is_collecting:
            gc.enable()


def _leave_unopened(package: str) -> None:
    if package in sys.modules:
        return
    spec = find_spec(package)
    if spec is None:
        return  # the import that needs it says so
    module = module_from_spec(spec)
    module.__class__ = _Unopened
    sys.modules[package] = module
    above, _, name = package.rpartition(".")
    if above:
        setattr(sys.modules[above], name, module)


def _build_models_when_used() -> None:
    """Let pydantic build each model of the wire when it is first used: of two revisions' hundreds a client uses a few."""
    from mcp_types._wire_base import WireModel  # the SDK has no public door to it; a contract test fails when it moves

    WireModel.model_config["defer_build"] = True
