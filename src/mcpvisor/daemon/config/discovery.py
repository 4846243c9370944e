"""Owns which files are the configuration: what a path stands for, in which order, and which names are passed over."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mcpvisor.daemon.config.problems import Problem

MAIN: Final = "mcpvisor.toml"
DROP_INS: Final = "servers.d"

_PASSED_OVER = re.compile(r"\..*|.*~|#.*#|.*\.(bak|swp|swo|tmp|orig|rej|old|save|rpmsave|rpmnew|rpmorig|dpkg-[a-z]+)|.*\.\..*")
_READ: Final = frozenset({".toml", ".json", ".jsonc"})
_LOOSE_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Found:
    """One file of the configuration. `is_main` may hold settings and defaults; `is_named` is never removed by its absence."""

    path: Path
    is_main: bool
    is_named: bool


@dataclass(slots=True)
class Discovery:
    """The files in order, the folders to watch for others, and which folders of drop-ins could be listed."""

    files: list[Found] = field(default_factory=list[Found])
    folders: list[Path] = field(default_factory=list[Path])
    listed: list[Path] = field(default_factory=list[Path])
    problems: list[Problem] = field(default_factory=list[Problem])
    hints: list[Problem] = field(default_factory=list[Problem])
    unreachable: list[Path] = field(default_factory=list[Path])
    """Paths of which it cannot even be seen what is there."""
    loose: list[tuple[Path, tuple[str, ...]]] = field(default_factory=list[tuple[Path, tuple[str, ...]]])
    """Folders of which nothing is read, with the files in them that somebody may mean to be."""


def discover(paths: Iterable[Path]) -> Discovery:
    """The files that `paths` stand for: a file is itself, a folder its `mcpvisor.toml` and then its `servers.d`."""
    found = Discovery()
    named = list(dict.fromkeys(path.absolute() for path in paths))
    for absolute in named:
        fault = _unreachable(absolute)
        if fault:
            # Whether it is a folder or a file is not known, nor what is in it: it is no configuration without servers.
            found.problems.append(Problem(file=absolute, message=fault))
            found.folders.append(absolute.parent)
            found.unreachable.append(absolute)
        elif os.path.isdir(absolute):  # noqa: PTH112 - the other raises where a folder above is closed to us
            _folder(absolute, found)
        else:
            if absolute.suffix not in _READ and os.path.lexists(absolute):
                message = "not a kind of file that is read"
                found.problems.append(Problem(file=absolute, message=message, expected="a .toml or .json file, or a folder"))
                continue
            found.files.append(Found(absolute, is_main=absolute.suffix not in {".json", ".jsonc"}, is_named=True))
            found.folders.append(absolute.parent)
    found.files = list({file.path: file for file in found.files}.values())
    for folder in named:
        if folder in found.folders and folder not in found.unreachable:
            _tell_loose(folder, found)
    found.folders = list(dict.fromkeys(found.folders))
    return found


def _unreachable(path: Path) -> str:
    """Why it cannot be seen what is at a path, such as a folder above that must not be entered; empty when it can."""
    try:
        path.lstat()
        if path.is_dir():
            (path / MAIN).lstat()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return f"cannot be read: {reason.lower()}"
    return ""


def _folder(folder: Path, found: Discovery) -> None:
    found.folders.append(folder)
    main, drop_ins = folder / MAIN, folder / DROP_INS
    # A link whose target is gone is there, and cannot be read: that is an error, not an absence.
    has_main = os.path.lexists(main)
    if has_main:
        found.files.append(Found(main, is_main=True, is_named=True))
    has_drop_ins = os.path.lexists(drop_ins)
    if not has_drop_ins:
        return
    found.folders.append(drop_ins)
    try:
        names = sorted(entry.name for entry in drop_ins.iterdir())
    except OSError as error:
        message = f"the folder cannot be listed: {(error.strerror or str(error)).lower()}"
        found.problems.append(Problem(file=drop_ins, message=message))
        return
    found.listed.append(drop_ins)
    for name in names:
        path = drop_ins / name
        if path.suffix not in _READ or _PASSED_OVER.fullmatch(name):
            if path.suffix in {".yaml", ".yml", ".conf", ".ini"} and not _PASSED_OVER.fullmatch(name):
                found.hints.append(Problem(file=path, message="not read: only *.toml, *.json and *.jsonc are"))
            continue
        found.files.append(Found(path, is_main=False, is_named=False))


def _tell_loose(folder: Path, found: Discovery) -> None:
    """Tell of files of servers that lie beside the places which are read, and are not named by themselves.

    Where there is nothing else they are what somebody means to run, and that is an error; beside others they may be anybody's.
    """
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError:
        names = []
    drop_ins, known = folder / DROP_INS, {file.path for file in found.files}
    loose = [name for name in names if _is_loose(folder / name) and folder / name not in known]
    if os.path.lexists(folder / MAIN) or os.path.lexists(drop_ins):
        for name in loose:
            if name.endswith(".toml"):
                found.hints.append(Problem(file=folder / name, message=f"not read: files of servers are in {drop_ins}"))
    elif loose:
        more = len(loose) - _LOOSE_SHOWN
        shown = ", ".join(loose[:_LOOSE_SHOWN]) + (f" and {more} more" if more > 0 else "")
        lie = "lie" if len(loose) > 1 else "lies"
        message = f"nothing of this folder is read: it holds neither {MAIN} nor {DROP_INS}, and {shown} {lie} beside"
        expected = f"files of servers in {drop_ins}, or each of them named by itself (--config FILE)"
        found.problems.append(Problem(file=folder, message=message, expected=expected))
        found.loose.append((folder, tuple(loose)))
    else:
        found.hints.append(Problem(file=folder, message=f"holds neither {MAIN} nor {DROP_INS}: no servers"))


def _is_loose(path: Path) -> bool:
    """Whether it is a file that is read in the right place."""
    return path.suffix in _READ and path.name != MAIN and not _PASSED_OVER.fullmatch(path.name) and os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises for a loop of links
