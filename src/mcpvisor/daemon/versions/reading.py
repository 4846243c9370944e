"""Owns how a start finds what an earlier run has kept: in which state folder, and what of it is still to be run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mcpvisor.daemon.config.config_file import decode, read_bytes
from mcpvisor.daemon.config.discovery import MAIN
from mcpvisor.daemon.config.good_files import GoodFile, GoodHandlers
from mcpvisor.daemon.config.layers import credentials_layer, environment_layer
from mcpvisor.daemon.config.load import Loaded, recall
from mcpvisor.daemon.config.past import Former, Past
from mcpvisor.daemon.config.places import places
from mcpvisor.daemon.config.problems import ConfigError
from mcpvisor.daemon.config.written import Written
from mcpvisor.daemon.gateway.questions.keys import read_keys
from mcpvisor.daemon.state.keeper import STATE_FILE
from mcpvisor.daemon.state.kept import KeptVersion
from mcpvisor.daemon.state.opening import read_versions
from mcpvisor.daemon.versions.keys import HANDLERS, HELD, SERVER, SETTINGS, key_of, named_by
from mcpvisor.daemon.versions.seal import KEY_FILE, VersionSeal

_KINDS: Final = (SERVER, SETTINGS, HANDLERS)

_STATE_DIR: Final = re.compile(r"""^\s*(?:daemon\s*\.\s*)?state_dir\s*=\s*(?:"([^"\\\n]+)"|'([^'\n]+)')""", re.MULTILINE)
"""Where a main file that cannot be read as a whole says that the state is."""


def read_past(loaded: Loaded, *, paths: Sequence[Path], environ: Mapping[str, str], uid: int | None = None) -> Past | None:
    """What is kept; None where nothing is, or where all that is written is what was good the last time."""
    user = os.geteuid() if uid is None else uid
    folder = loaded.settings.daemon.state_dir if loaded.settings is not None else _state_dir(loaded, environ, user)
    versions = read_versions(folder / STATE_FILE) if _is_ours(folder / STATE_FILE, user) else {}
    keys = read_keys(folder / KEY_FILE)
    if not versions or not keys:
        return None
    seal = VersionSeal(keys)
    written = {name: one for load in loaded.loads for name, one in load.written.items()}
    gone = [key for key in versions if named_by(key)[0] == SETTINGS and Path(named_by(key)[1]) not in loaded.files]
    if not loaded.problems and not gone and not _news(versions, written, seal):
        return None
    return _past(_opened(versions, seal), versions, written, seal, loaded, paths, environ, user)


def _news(versions: Mapping[str, KeptVersion], written: Mapping[str, Written], seal: VersionSeal) -> bool:
    """Whether something is written that is not what its server was ready with."""
    for key, version in versions.items():
        kind, name = named_by(key)
        if kind == HELD or (
            kind == SERVER and version.ready and name in written and seal.digest(written[name]) != version.digest
        ):
            return True
    return False


def _opened(versions: Mapping[str, KeptVersion], seal: VersionSeal) -> dict[str, Written]:
    opened = {key: seal.open(version.sealed(), key) for key, version in versions.items()}
    return {key: one for key, one in opened.items() if one is not None}


def _past(
    opened: Mapping[str, Written],
    versions: Mapping[str, KeptVersion],
    written: Mapping[str, Written],
    seal: VersionSeal,
    loaded: Loaded,
    paths: Sequence[Path],
    environ: Mapping[str, str],
    uid: int,
) -> Past:
    here = {key: one for key, one in opened.items() if _is_still_part(one.file, loaded, paths)}
    good = {key: one for key, one in here.items() if named_by(key)[0] != HELD}
    entries, sections, ways = ([one for key, one in good.items() if named_by(key)[0] == kind] for kind in _KINDS)
    recalled = recall(entries, sections, ways, environ, uid=uid)
    files: dict[Path, GoodFile] = {}
    for key, one in good.items():
        kind, name = named_by(key)
        file = files.get(one.file) or GoodFile({}, is_named=_is_named(one.file, paths))
        if kind == SETTINGS:
            file = replace(file, sections=one)
        elif kind == HANDLERS:
            found = recalled.handlers[one.file]
            handlers = GoodHandlers(handlers=found.handlers, routes=tuple(found.routes), options=found.options)
            file = replace(file, ways=one, handlers=handlers)
        elif name in recalled.specs:
            spec = recalled.specs[name]
            file = replace(file, specs={**file.specs, name: spec}, written={**file.written, name: one})
        files[one.file] = file
    held = {
        name: (version.good_at, version.why)
        for key, version in versions.items()
        for kind, name in [named_by(key)]
        if kind == HELD and name in written and seal.digest(written[name]) == version.digest
    }
    return Past(
        basis=recalled.basis,
        files=files,
        ready={
            name: Former(spec, versions[key].good_at)
            for name, spec in recalled.specs.items()
            for key in [key_of(SERVER, name)]
            if key in versions and versions[key].ready
        },
        held=held,
        good_at={name: versions[key_of(SERVER, name)].good_at for name in recalled.specs},
        file_at=_newest(good, versions),
    )


def _newest(good: Mapping[str, Written], versions: Mapping[str, KeptVersion]) -> dict[Path, float]:
    newest: dict[Path, float] = {}
    for key, one in good.items():
        newest[one.file] = max(newest.get(one.file, 0.0), versions[key].good_at)
    return newest


def _is_named(file: Path, paths: Iterable[Path]) -> bool:
    """Whether a file is one that is never removed by its absence: named itself, or the main file of a folder."""
    named = [path.absolute() for path in paths]
    return file in named or (file.name == MAIN and file.parent in named)


def _is_still_part(file: Path, loaded: Loaded, paths: Sequence[Path]) -> bool:
    """Whether a file is there, or is one whose absence says nothing: a removal while no daemon ran is a removal."""
    if file in loaded.files or _is_named(file, paths):
        return True
    folder = file.parent
    if folder.parent not in [path.absolute() for path in paths] or folder in loaded.listed:
        return False
    # A folder that was named is never removed by its absence either: it may be on a disk that is not there yet.
    return os.path.lexists(folder) or not os.path.lexists(folder.parent)


def _is_ours(file: Path, uid: int) -> bool:
    """Whether a state file is there that nobody else can have written."""
    try:
        info = file.lstat()
    except OSError:
        return False
    return info.st_uid in {0, uid} and not info.st_mode & 0o022


def _state_dir(loaded: Loaded, environ: Mapping[str, str], uid: int) -> Path:
    """The state folder where no settings can be made: as the environment, a credential or a line of the main file has it."""
    layers: list[Mapping[str, Mapping[str, Any]]] = [environment_layer(environ)[0].values]
    layers.append(credentials_layer(environ.get("CREDENTIALS_DIRECTORY", ""), uid)[0].values)
    for values in layers:
        if isinstance(named := values.get("daemon", {}).get("state_dir"), str):
            return Path(named)
    for load in loaded.loads:
        found = _STATE_DIR.search(_text(load.file.path, uid)) if load.file.is_main else None
        if found is not None:
            return Path(found[1] or found[2])
    return places(environ, uid).state


def _text(file: Path, uid: int) -> str:
    try:
        return decode(read_bytes(file, uid), file)
    except ConfigError:
        return ""
