"""Owns how a worker gets its handler: which file the module is, whether that file is believed, and what makes the object."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, Final

from mcpvisor.daemon.config.trust import distrust

GROUP: Final = "mcpvisor.handlers"
"""The group of entry points whose names may stand in `entry_point`."""

METHODS: Final = ("deliver", "answer")

MAX_FILES: Final = 10_000
"""Entries of a `path` that are looked at; a folder with more is not one of handlers."""


class Unusable(Exception):
    """There is no handler as the entry wants it; the text says why, and names the remedy."""


async def load(words: dict[str, Any], stack: AsyncExitStack) -> Any:
    """The handler that the entry names, made and entered. Raises Unusable, and whatever the code of the handler raises.

    `words` are `object` or `entry_point`, `path` and `arguments`, as `PythonOptions` has them. The stack is left when the
    worker ends.
    """
    name: str | None = words["object"]
    module, _, attribute = (name or _entry_point(words["entry_point"])).partition(":")
    folder = None if words["path"] is None else Path(words["path"])
    if folder is not None:
        _demand_trust_below(folder)
        sys.path.insert(0, str(folder))
    _demand_trust(module, folder)
    found: Any = importlib.import_module(module)
    for step in attribute.split("."):
        try:
            found = getattr(found, step)
        except AttributeError:
            raise Unusable(f"module {module} has no {attribute!r}") from None
    made = await _made(found, f"{module}:{attribute}", words["arguments"])
    if hasattr(made, "__aenter__"):
        made = await stack.enter_async_context(made)
    if not methods_of(made):
        raise Unusable(f"{module}:{attribute} has neither `async def deliver(event)` nor `async def answer(question)`")
    return made


def methods_of(handler: object) -> list[str]:
    """Which of `METHODS` an object has as coroutine functions."""
    return [name for name in METHODS if inspect.iscoroutinefunction(getattr(handler, name, None))]


async def _made(found: Any, name: str, arguments: dict[str, Any]) -> Any:
    if not isinstance(found, type) and methods_of(found):
        if arguments:
            raise Unusable(f"{name} is an object already: `arguments` are for a class, or for a function that makes one")
        return found
    if not callable(found):
        raise Unusable(f"{name} is {type(found).__name__}, and no class, function or object with the methods of a handler")
    made = found(**arguments)
    return await made if inspect.isawaitable(made) else made


def _entry_point(name: str) -> str:
    known = importlib.metadata.entry_points(group=GROUP)
    values = sorted({point.value for point in known if point.name == name})
    if len(values) == 1:
        return values[0]
    if values:
        raise Unusable(
            f"entry point {name!r} of {GROUP} is there {len(values)} times: {', '.join(values)}; use the key `object`"
        )
    names = ", ".join(sorted({point.name for point in known})) or "none"
    raise Unusable(f"no installed package has an entry point {name!r} of {GROUP}; there is: {names}")


def _demand_trust(module: str, folder: Path | None) -> None:
    """Refuse a module whose file, or a folder above it, others may write. Looks at the file before a line of it is run."""
    top = module.partition(".")[0]
    where = f"below {folder}" if folder is not None else f"for {sys.executable}"
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise Unusable(f"no module {top!r} {where}: edit the key {'`path`' if folder else '`object`, or set `path`'}")
    files = list(_files(spec))
    for file in files:
        _demand(file)
    if folder is not None and not any(file.absolute().is_relative_to(folder.absolute()) for file in files):
        raise Unusable(f"no module {top!r} {where}: that name is {spec.origin or 'a part of Python'}")


def _files(spec: ModuleSpec) -> Iterator[Path]:
    if spec.has_location and spec.origin:
        yield Path(spec.origin)
    for folder in spec.submodule_search_locations or ():
        yield Path(folder)


def _demand_trust_below(folder: Path) -> None:
    """Refuse a folder in which others may write anything: what is imported from it may import all the rest."""
    if not folder.is_dir():
        raise Unusable(f"path {folder} is no folder: make it, or edit the key `path`")
    _demand(folder)
    looked = 0
    for parent, folders, files in os.walk(folder, followlinks=True):
        for name in (*folders, *files):
            looked += 1
            if looked > MAX_FILES:
                raise Unusable(f"path {folder} holds over {MAX_FILES} files: give the handlers a folder of their own")
            _demand(Path(parent, name))


def _demand(path: Path) -> None:
    try:
        reason = distrust(path, os.geteuid())
    except FileNotFoundError:  # a link to nothing, which nobody can import
        return
    if reason:
        raise Unusable(reason)
