"""Owns one run of a program for a handler: what it is given, what it may take, and that nothing of it is left."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final

import anyio
import anyio.lowlevel

from mcpvisor.daemon.handlers.contract import DeliveryFailed
from mcpvisor.supervisor.known_secrets import KnownSecrets
from mcpvisor.supervisor.masking import Mask
from mcpvisor.supervisor.process.ending import end_process
from mcpvisor.supervisor.process.environment import Marker, child_environment, inherited_secrets
from mcpvisor.supervisor.process.launch import ProcessExit, ServerProcess, launch
from mcpvisor.supervisor.process.stderr import StderrRing
from mcpvisor.supervisor.spec import ServerSpec, StdioLaunch, StopGraces, secrets_of
from mcpvisor.supervisor.transports.wire import OpenFailed

MOST_OUTPUT: Final = 1024 * 1024
"""Bytes of stdout that are kept of one run; the rest is read, and dropped."""

GRACES: Final = StopGraces(stdin=0.0, term=1.0)
"""What a program gets that has outstayed its deadline: `SIGTERM`, and then `SIGKILL`, to its group."""

_PIECE: Final = 65536
_TAIL: Final = 5
"""Lines of stderr that tell of a failure."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A program that has ended by itself with exit code 0; `output` is its stdout, cut at `MOST_OUTPUT`."""

    output: bytes
    is_cut: bool


StderrSink = Callable[[tuple[str, ...], int], None]
"""Takes lines, cleaned, and how many before them were over the rate."""


class Programs:
    """Starts the programs of one handler, each with a mark of its own."""

    _numbers = count(1)

    def __init__(
        self,
        name: str,
        spec: StdioLaunch,
        *,
        instance: str,
        environ: Mapping[str, str],
        stderr: StderrSink,
        known_secrets: KnownSecrets | None = None,
    ) -> None:
        self._name = name
        self._spec = spec
        self._instance = instance
        self._environ = environ
        self._stderr = stderr
        secrets = [*secrets_of(ServerSpec(name=name, target=spec)), *inherited_secrets(spec, environ)]
        self._mask = Mask(secrets, known_secrets)

    async def run(self, given: bytes, variables: Mapping[str, str]) -> Finished:
        """Start the program with `given` on stdin and `variables` besides its environment, and wait for its end.

        Raises DeliveryFailed where it cannot be started or ends with anything but exit code 0. Cancelled, it is ended with its
        group and with whatever carries its mark, within `GRACES`.
        """
        marker = Marker(self._instance, f"handler:{self._name}", next(Programs._numbers))
        environment = child_environment(self._spec, marker, self._environ)
        try:
            process = launch(self._spec, {**environment, **variables})
        except OpenFailed as error:
            raise DeliveryFailed(self._mask.text(error.end.detail)) from error
        running = _Running(process, StderrRing(self._stderr, mask=self._mask))
        try:
            ended = await running.until_end(given)
        except BaseException:
            await end_process(process, marker, GRACES, running.drains, running.take_rest)
            raise
        running.take_rest()
        process.reap()
        if ended.exit_code != 0:
            raise DeliveryFailed(f"the program {ended}{running.last_words}")
        return Finished(bytes(running.output), running.is_cut)


class _Running:
    """The pipes of one program."""

    def __init__(self, process: ServerProcess, ring: StderrRing) -> None:
        self._process = process
        self._ring = ring
        self.output = bytearray()
        self.is_cut = False

    @property
    def drains(self) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
        return (self._drain_output, partial(self._ring.drain, self._process.stderr_fd))

    @property
    def last_words(self) -> str:
        """The last lines of its stderr, as the end of a sentence."""
        lines = [line for line in self._ring.tail(_TAIL) if line]
        return f"; its stderr ends: {' / '.join(lines)}" if lines else ""

    async def until_end(self, given: bytes) -> ProcessExit:
        async with anyio.create_task_group() as tasks:
            for drain in self.drains:
                tasks.start_soon(drain)
            tasks.start_soon(self._give, given)
            await self._process.wait()
            tasks.cancel_scope.cancel()
        return await self._process.wait()

    def take_rest(self) -> None:
        """What a program that has ended has left in its pipes."""
        with suppress(OSError):
            for _ in range(MOST_OUTPUT // _PIECE):  # whoever has got away from its group may write for ever
                if not (piece := os.read(self._process.stdout_fd, _PIECE)):
                    break
                self._take(piece)
        self._ring.drain_rest(self._process.stderr_fd)

    async def _give(self, given: bytes) -> None:
        """Write to stdin, as far as the program reads it, and close it."""
        rest = memoryview(given)
        with suppress(OSError):  # it has closed its stdin, or has ended: its exit code says what became of it
            while rest:
                try:
                    rest = rest[os.write(self._process.stdin_fd, rest) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._process.stdin_fd)
            self._process.close_stdin()

    async def _drain_output(self) -> None:
        while True:
            await anyio.wait_readable(self._process.stdout_fd)
            try:
                piece = os.read(self._process.stdout_fd, _PIECE)
            except BlockingIOError:
                continue
            if not piece:
                return
            self._take(piece)
            await anyio.lowlevel.checkpoint()

    def _take(self, piece: bytes) -> None:
        room = MOST_OUTPUT - len(self.output)
        self.output += piece[:room]
        self.is_cut = self.is_cut or len(piece) > room
