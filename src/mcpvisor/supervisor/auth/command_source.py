"""Owns the running of a header command: without a shell, within its time, and never more output than headers need."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from itertools import count
from typing import Final

import anyio
import anyio.to_thread

from mcpvisor.supervisor.auth.credential import CredentialsMissing
from mcpvisor.supervisor.auth.kinds import HeaderCommand
from mcpvisor.supervisor.auth.printed import WHERE, read_printed
from mcpvisor.supervisor.auth.token import Obtained, obtained
from mcpvisor.supervisor.cleaning import clean_text, clip
from mcpvisor.supervisor.masking import Mask
from mcpvisor.supervisor.process.environment import Marker, child_environment
from mcpvisor.supervisor.process.launch import ProcessExit, ServerProcess, launch
from mcpvisor.supervisor.process.sweep import kill_marked
from mcpvisor.supervisor.secret_looks import without_named
from mcpvisor.supervisor.secret_names import header_names_secret
from mcpvisor.supervisor.spec import StdioLaunch
from mcpvisor.supervisor.transports.wire import OpenFailed

COMMAND_SECONDS: Final = 10.0
MAX_OUTPUT: Final = 64 * 1024
MAX_WORDS: Final = 200
"""Characters of its stderr that are shown."""

MAX_PRINTED: Final = 8
"""Words of the stdout of a run that failed that are taken for secrets, the last ones."""

AGAIN: Final = 60.0
"""Seconds after which a command that failed is run again: it may only have been its network."""

_LAST_OUTPUT: Final = 0.3
"""Seconds for which a command that has ended may still be heard: something that it started may hold its output open."""

_READ: Final = 16 * 1024
_runs = count(1)


class CommandSource:
    """The headers that one program prints."""

    kind = "header_command"

    def __init__(self, command: HeaderCommand, instance: str, server: str, mask: Mask) -> None:
        """Its processes are marked for `instance`: should we be killed, they are ended with the servers."""
        self._launch = StdioLaunch(command=command.command[0], args=command.command[1:])
        self._instance = instance
        self._server = server
        self._mask = mask

    def kept(self) -> Obtained | None:
        """See `Source`: a command costs little, and its headers are not kept."""
        return None

    async def keep(self, fetched: Obtained) -> None:
        """See `Source`."""

    async def forget(self) -> None:
        """See `Source`."""

    async def fetch(self, challenge: dict[str, str]) -> Obtained:
        """See `Source`."""
        del challenge
        output = await self._run()
        try:
            credential, expires_at = read_printed(output, time.time())
        except ValueError as error:
            raise CredentialsMissing("auth", str(error), AGAIN) from error
        values = [value for _, value in credential.headers]
        secrets = (*values, *(value.partition(" ")[2] for value in values if " " in value))
        self._mask.learn_passing(secrets)
        # What is no credential by its name may be an ordinary word.
        telling = [value for name, value in credential.headers if header_names_secret(name)]
        self._mask.learn_fetched([part for value in telling for part in (value, value.rpartition(" ")[2])])
        return obtained(credential, secrets, expires_at, time.time(), random.random())  # noqa: S311 - spreads load

    async def _run(self) -> bytes:
        """What the command prints. Raises CredentialsMissing."""
        # No server has such a name, and no two runs the same number, not even where clients have instances of their own.
        marker = Marker(self._instance, f"{self._server}/headers", next(_runs))
        try:
            process = launch(self._launch, child_environment(self._launch, marker, os.environ))
        except OpenFailed as failed:
            detail = failed.end.detail.replace("the key `command`", "the key `header_command`")
            raise CredentialsMissing("auth", f"{WHERE}: {detail}", AGAIN) from failed
        out, err = bytearray(), bytearray()
        try:
            process.close_stdin()
            with anyio.fail_after(COMMAND_SECONDS):
                ended = await _heard(process, out, err)
        except TimeoutError:
            detail = f"{WHERE}: no headers within {COMMAND_SECONDS:g} s, so it was ended"
            raise CredentialsMissing("auth", f"{detail}{self._words(err, out)}", AGAIN) from None
        finally:
            process.signal_group(signal.SIGKILL)
            with anyio.CancelScope(shield=True):
                await process.wait()
                # Whatever it has started and left behind carries its mark.
                await anyio.to_thread.run_sync(kill_marked, marker.instance, marker.label, process.session)
                process.reap()
        if len(out) > MAX_OUTPUT:
            raise CredentialsMissing("auth", f"{WHERE}: printed more than {MAX_OUTPUT} bytes, so it was ended", AGAIN)
        if ended.exit_code != 0:
            raise CredentialsMissing("auth", f"{WHERE}: {ended}{self._words(err, out)}", AGAIN)
        return bytes(out)

    def _words(self, err: bytearray, out: bytearray) -> str:
        """What a run that failed has said, without what it has printed by then, which may be secret, and what is named so."""
        printed = re.findall(r"[^\s:,;=]{8,}", bytes(out[:MAX_OUTPUT]).decode("utf-8", "replace"))
        # Cut when it is masked: what is left of a secret that was cut in front is not known again.
        said = self._mask.text(clean_text(self._mask.raw(bytes(err).strip()), MAX_OUTPUT))
        said = without_named(Mask(printed[-MAX_PRINTED:]).text(said))
        said = clip(said[-MAX_WORDS * 4 :], MAX_WORDS).strip()
        return f": {said}" if said else ""


async def _heard(process: ServerProcess, out: bytearray, err: bytearray) -> ProcessExit:
    """Read what the process says until it has ended; a process that says too much is ended."""
    async with anyio.create_task_group() as tasks:
        silent = anyio.Event()

        async def read_out() -> None:
            while len(out) <= MAX_OUTPUT and (piece := await _read(process.stdout_fd)):
                out.extend(piece)
            if len(out) > MAX_OUTPUT:
                process.signal_group(signal.SIGKILL)
            silent.set()

        async def read_err() -> None:
            while piece := await _read(process.stderr_fd):
                err.extend(piece)
                del err[:-MAX_OUTPUT]

        tasks.start_soon(read_out)
        tasks.start_soon(read_err)
        await process.wait()
        with anyio.move_on_after(_LAST_OUTPUT):
            await silent.wait()
        tasks.cancel_scope.cancel()
    return await process.wait()


async def _read(fd: int) -> bytes:
    while True:
        await anyio.wait_readable(fd)
        try:
            return os.read(fd, _READ)
        except BlockingIOError:
            continue
