"""Owns what is seen from outside of a daemon's processes while they live, also of those that live for a moment only."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.e2e.canaries import CANARY, END

EVERY: Final = 0.02
"""Seconds between two looks: a Python that only starts takes longer than this."""


@dataclass(frozen=True)
class Process:
    """Whose a process is (`daemon`, `helper`, a server or a handler), and the places of the canaries that are seen in it."""

    whose: str
    arguments: frozenset[str]
    environ: frozenset[str]


class Sampler:
    """Looks at a daemon and all that it has started, again and again, until it is told to end."""

    def __init__(self, pid: int, own: Collection[str]) -> None:
        """`own` are variables that were given to the daemon with secrets in them, which are not looked at there."""
        self.seen: set[Process] = set()
        self._pid = pid
        self._own = own
        self._known: dict[int, bytes] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(EVERY):
            for pid in _family(self._pid):
                self._look(pid)

    def _look(self, pid: int) -> None:
        proc = Path(f"/proc/{pid}")
        try:
            arguments = proc.joinpath("cmdline").read_bytes()
            if not arguments or self._known.get(pid) == arguments:
                return
            environ = proc.joinpath("environ").read_bytes()
            if arguments != proc.joinpath("cmdline").read_bytes():
                return  # it has become another program meanwhile: at the next look
        except OSError:
            return
        self._known[pid] = arguments
        self.seen.add(self._process(pid, arguments.decode("utf-8", "replace"), environ.decode("utf-8", "replace")))

    def _process(self, pid: int, arguments: str, environ: str) -> Process:
        variables = dict(one.partition("=")[::2] for one in environ.split("\0"))
        if pid == self._pid or arguments.encode() == self._known.get(self._pid):  # forked, and not yet another program
            kept = "\0".join(value for name, value in variables.items() if name not in self._own)
            return Process("daemon", _places(arguments), _places(kept))
        whose = re.sub(r":\d+$", "", variables.get("MCPVISOR_SERVER", "helper"))
        return Process(whose, _places(arguments), _places(environ))


def _family(pid: int) -> list[int]:
    """A process and all that descend from it; those whose parent has ended are somebody else's by then."""
    found = [pid]
    for one in found:
        with suppress(OSError):
            for task in os.listdir(f"/proc/{one}/task"):
                found += map(int, Path(f"/proc/{one}/task/{task}/children").read_text().split())
    return found


def _places(text: str) -> frozenset[str]:
    return frozenset(re.findall(rf"{CANARY}-(.*?)-{END}", text))
