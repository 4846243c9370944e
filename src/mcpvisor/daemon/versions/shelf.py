"""Owns which versions are kept for the next run: of each server the last good one, and of settings and handlers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

from mcpvisor.daemon.config.applied import Applied
from mcpvisor.daemon.config.written import Written
from mcpvisor.daemon.gateway.questions.keys import read_or_mint
from mcpvisor.daemon.state.kept import KeptVersion
from mcpvisor.daemon.state.store import StateStore
from mcpvisor.daemon.versions.keys import HANDLERS, HELD, SERVER, SETTINGS, key_of
from mcpvisor.daemon.versions.seal import KEY_FILE, VersionSeal
from mcpvisor.daemon.versions.trials import Good

GoodOf = Callable[[str], Good | None]


class Shelf:
    """Brings what is good into the state store, and takes out what is no longer part of the configuration."""

    def __init__(self, store: StateStore, seal: VersionSeal) -> None:
        self._store = store
        self._seal = seal

    @classmethod
    def of(cls, store: StateStore, folder: Path) -> Self:
        """A shelf in the store, with the key of the state folder."""
        keys = read_or_mint(folder, name=KEY_FILE, renew=math.inf, lost="the kept versions of the configuration")
        return cls(store, VersionSeal(keys))

    def keep(self, applied: Applied, good: GoodOf) -> None:
        """Keep all that is good of what is in force."""
        wanted: set[str] = set()
        for path, file in applied.files.items():
            for kind, written in ((SETTINGS, file.sections), (HANDLERS, file.ways)):
                if written is not None:
                    wanted.add(key := key_of(kind, str(path)))
                    self._put(key, written, ready=False, settled=True)
            for name in file.specs:
                wanted |= {key_of(SERVER, name), *([key_of(HELD, name)] if name in applied.held else [])}
                self.keep_server(applied, name, good)
        for key in self._store.versions():
            if key not in wanted:
                self._store.keep_version(key, None)

    def keep_server(self, applied: Applied, name: str, good: GoodOf) -> None:
        """Keep the version of one server, where it is as good as the one that is kept."""
        written = _written(applied, name)
        if written is None:
            return
        held = applied.held.get(name)
        if held is not None:
            self._put(key_of(HELD, name), written, ready=False, settled=True, at=held.since, why=held.why)
            return
        spec, known = applied.specs[name], good(name)
        is_ready = known is not None and known.spec == spec
        # What is not measured by being ready is good once it is in force: else a server that was disabled would be back.
        settled = is_ready or not spec.rollback or not spec.enabled
        at = known.at if known is not None and is_ready else None
        self._put(key_of(SERVER, name), written, ready=is_ready, settled=settled, at=at)

    def _put(self, key: str, written: Written, *, ready: bool, settled: bool, at: float | None = None, why: str = "") -> None:
        former = self._store.versions().get(key)
        if former is not None and former.ready and not settled:
            return
        digest = self._seal.digest(written)
        if former is not None and former.digest == digest:
            if ready and at is not None and not (former.ready and former.good_at == at):  # one time, whoever tells of it
                self._store.keep_version(key, replace(former, ready=True, good_at=at))
            return
        content = self._seal.content(written)
        if content is None:
            return
        sealed = partial(self._seal.seal, content, key)
        at = time.time() if at is None else at
        self._store.keep_version(key, KeptVersion(digest=digest, sealed=sealed, good_at=at, ready=ready, why=why))


def _written(applied: Applied, name: str) -> Written | None:
    """The entry of a server as it is written in the file that counts."""
    spec = applied.written.get(name)
    for file in applied.files.values():
        if spec is not None and file.specs.get(name) is spec:
            return file.written.get(name)
    return None
