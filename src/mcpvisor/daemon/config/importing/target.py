"""Owns where imported entries go: which file, which names are taken there, and that nothing is ever overwritten."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from mcpvisor.daemon.config.discovery import DROP_INS, MAIN
from mcpvisor.daemon.config.load import load
from mcpvisor.daemon.config.places import config_paths, places
from mcpvisor.daemon.config.problems import ConfigError, Problem
from mcpvisor.daemon.config.trust import distrust

_UNFIT = re.compile(r"[^A-Za-z0-9_-]+", re.ASCII)
_MOST_OF_A_NAME: Final = 64


def target_of(to: Path | None, sources: Sequence[Path], environ: Mapping[str, str], uid: int) -> Path:
    """The file that will be written: `to` itself, or one named after the first source in the `servers.d` of a folder.

    Raises ConfigError where that cannot be told, or where it is there already.
    """
    if to is not None and to.suffix == ".toml" and not to.is_dir():
        file = to.absolute()
    else:
        file = _drop_ins(to, environ, uid) / f"{_name_after(sources[0])}.toml"
    if os.path.lexists(file):
        message = "is there already, and is not overwritten"
        raise ConfigError(Problem(file=file, message=message, expected="--to with another file, such as --to NEW.toml"))
    return file


def _drop_ins(to: Path | None, environ: Mapping[str, str], uid: int) -> Path:
    """The folder of drop-ins that `to`, or the configuration in use, has or is."""
    folder = to.absolute() if to is not None else config_paths(environ, uid)[0].absolute()
    if folder.is_dir():
        is_drop_ins = folder.name == DROP_INS and not (folder / MAIN).exists()
        return folder if is_drop_ins else folder / DROP_INS
    if to is None and folder == places(environ, uid).config.absolute() and not os.path.lexists(folder):
        return folder / DROP_INS  # of somebody who has none yet; it is made
    message = "is no folder of a configuration"
    raise ConfigError(Problem(file=folder, message=message, expected="--to with a folder that is there, or a new .toml file"))


def _name_after(source: Path) -> str:
    """`.cursor/mcp.json` becomes `cursor-mcp`, so that the files of two programs do not meet."""
    absolute = source.absolute()
    parent = absolute.parent.name
    parts = [parent[1:]] if parent.startswith(".") and len(parent) > 1 else []
    stem = absolute.name.lstrip(".").rpartition(".")[0] or absolute.name
    name = _UNFIT.sub("-", "-".join([*parts, stem])).strip("-_")[:_MOST_OF_A_NAME]
    return name or "imported"


def names_taken(file: Path, environ: Mapping[str, str], uid: int) -> dict[str, str]:
    """The names of servers in the configuration that `file` becomes a part of, each with its place."""
    if file.parent.name != DROP_INS:
        return {}
    loaded = load([file.parent.parent], environ, uid=uid)
    taken: dict[str, str] = {}
    for one in loaded.loads:
        taken |= {name: str(one.file.path) for name in one.rejected}
        taken |= {name: spec.origin for name, spec in one.specs.items()}
    return taken


def write_new(file: Path, text: str, uid: int) -> None:
    """Write a file that is not there: whole or not at all, for its owner alone to read. Raises ConfigError.

    Where root writes for the group of a folder, as that of the shipped unit, the group may read it: it is the daemon's.
    """
    folder = file.parent
    beside = folder / f".{file.name}.{os.getpid()}.new"
    try:
        _make(folder)
        info = folder.stat()
        reason = distrust(folder, uid)
        if reason:
            raise ConfigError(Problem(file=folder, message=reason))
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as opened:
                if uid == 0 and info.st_gid != 0 and info.st_mode & stat.S_IXGRP:
                    os.fchown(opened.fileno(), 0, info.st_gid)
                    os.fchmod(opened.fileno(), 0o640)
                opened.write(text.encode())
                opened.flush()
                os.fsync(opened.fileno())
            _put(beside, file)
        finally:
            with suppress(OSError):
                beside.unlink()
        _sync(folder)
    except FileExistsError as error:
        raise ConfigError(Problem(file=file, message="is there already, and is not overwritten")) from error
    except OSError as error:
        message = f"cannot be written: {(error.strerror or str(error)).lower()}"
        raise ConfigError(Problem(file=file, message=message)) from error


def _put(beside: Path, file: Path) -> None:
    """Give a file its name, unless there is one of that name by now. Raises FileExistsError."""
    try:
        os.link(beside, file)  # unlike a rename this fails where somebody was quicker
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}:
            raise
        if os.path.lexists(file):
            raise FileExistsError(errno.EEXIST, "exists") from error
        beside.rename(file)  # a file system without hard links


def _make(folder: Path) -> None:
    """The folder, and the one above it, where they are not there: for their owner alone."""
    for one in (folder.parent, folder):
        if not os.path.lexists(one):
            one.mkdir(mode=0o700, parents=True)


def _sync(folder: Path) -> None:
    """Have the name on the disk too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
