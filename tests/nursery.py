"""Owns the nursery: a process that has read the program once, and forks a copy of itself wherever a test starts the program.

Reading the modules of a daemon takes most of a second of a processor, and the tests start hundreds. A process from here is one
of its own like any other, with the files, folder, environment and exit code that were asked for; it has only been spared the
reading. What is about how Python itself starts (its locale, what it imports, its memory, a closed stdout) is started for real,
and so is what a test measures that is marked `alone`, and everything with MCPVISOR_REAL_STARTS=1.

As a program it is the nursery itself, and lives until its stdin ends:  nursery.py SOCKET
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mcpvisor.supervisor.process.sweep import INSTANCE_VARIABLE

NURSERY = "MCPVISOR_TEST_NURSERY"
"""Names the socket of one that runs, for programs that a test starts and that start daemons themselves."""

COMMAND = str(Path(sys.executable).with_name("mcpvisor"))
"""By what name the program is called, as it is installed."""

PYTHON = sys.executable
"""A test that puts another in its place is about the start."""

START_SECONDS = 60.0
LONGEST = 128 * 1024
"""Bytes of one request, of which most are an environment."""

READ_ALREADY = (
    *("mcpvisor.daemon.cli.main", "mcpvisor.daemon.run", "mcpvisor.daemon.demo.run", "mcpvisor.daemon.config.check"),
    # What a daemon reads only once it serves.
    *("anyio._backends._asyncio", "concurrent.futures.thread", "cryptography.hazmat.primitives.ciphers.aead"),
    *("encodings.ascii", "encodings.idna", "pkgutil", "uvicorn.lifespan.off"),
)
"""The modules that lead to all others; by name, so that they cannot be taken for imports that nobody uses."""

READ_ONCE = ("PYTHON", "LC_", "LANG", "TZ", "SSL_", "LISTEN_", INSTANCE_VARIABLE)

Process = Any
"""Either a Popen or a Nursling; tests use what both have."""


class Nursling:
    """A process from the nursery, with the face of Popen as far as tests look at it."""

    def __init__(self, line: socket.socket, args: Sequence[str]) -> None:
        self._line = line
        self.args = list(args)
        self.returncode: int | None = None
        told = line.recv(64)
        assert told, "the nursery has ended"
        self.pid = int(told)

    def wait(self, timeout: float | None = None) -> int:
        """See `Popen.wait`."""
        if self.returncode is None:
            self._line.settimeout(timeout)
            try:
                told = self._line.recv(64)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
            assert told, "the nursery has ended"
            self.returncode = int(told)
            self._line.close()
        return self.returncode

    def poll(self) -> int | None:
        """See `Popen.poll`."""
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        """See `Popen.send_signal`."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """See `Popen.kill`."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """See `Popen.terminate`."""
        self.send_signal(signal.SIGTERM)


def start(
    words: Sequence[str | Path],
    *,
    stdin: Any,
    stdout: Any,
    stderr: Any,
    program: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Process:
    """Start `mcpvisor WORDS`, or a `program` in Python that uses what a daemon uses, over files that are open."""
    args, env, cwd = list(map(str, words)), os.environ if env is None else env, Path.cwd() if cwd is None else cwd
    if _is_real or sys.executable != PYTHON or _concerns_the_start(env):
        command = [sys.executable, *([str(program)] if program else ["-m", "mcpvisor.daemon.cli.main"]), *args]
        return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd)
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line.connect(address())
    request = {"argv": [str(program or COMMAND), *args], "is_ours": program is None, "env": dict(env), "cwd": str(cwd)}
    socket.send_fds(line, [json.dumps(request).encode()], [file.fileno() for file in (stdin, stdout, stderr)])
    return Nursling(line, request["argv"])


def run(
    words: Sequence[str | Path],
    *,
    typed: str = "",
    stdin: Any = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 20.0,
) -> subprocess.CompletedProcess[str]:
    """Run `mcpvisor WORDS` to its end, with what was `typed` or an open file for its stdin; see `subprocess.run`."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(typed.encode())
        given.seek(0)
        process = start(words, stdin=given if stdin is None else stdin, stdout=out, stderr=err, env=env)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(process.args, process.returncode, out.read().decode(), err.read().decode())


def start_for_real(is_real: bool) -> None:
    """Whether everything is started for real from now on, as for a test that measures."""
    global _is_real  # noqa: PLW0603 - of the process, as the nursery is
    _is_real = is_real or os.environ.get("MCPVISOR_REAL_STARTS") == "1"


_is_real = os.environ.get("MCPVISOR_REAL_STARTS") == "1"


def _concerns_the_start(env: Mapping[str, str]) -> bool:
    """Whether an environment differs from ours in what is read once, at a start, or by others in /proc."""
    return any(env.get(name) != os.environ.get(name) for name in env.keys() | os.environ.keys() if name.startswith(READ_ONCE))


@functools.cache
def address() -> str:
    """The socket of the nursery of this process, which is started when it is first needed and ends with us."""
    if (known := os.environ.get(NURSERY)) is not None:
        return known
    path = Path(tempfile.mkdtemp(prefix="nursery"), "socket")
    process = subprocess.Popen([sys.executable, __file__, str(path)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    atexit.register(_end, process, path.parent)
    deadline = time.monotonic() + START_SECONDS
    while not path.exists():
        assert process.poll() is None, f"the nursery ended with {process.returncode}"
        assert time.monotonic() < deadline, "the nursery does not listen"
        time.sleep(0.01)
    return str(path)


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    process.communicate()
    shutil.rmtree(folder)


class _Nursery:
    """The other side: forks on request, reaps, and tells of each end."""

    def __init__(self, path: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._lines: dict[int, socket.socket] = {}
        """Who is to be told of the end of which process."""
        self._woken, waker = socket.socketpair()
        for end in (self._woken, waker):
            end.setblocking(False)
        self._waker = waker
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the tests end by it, and we after them
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(f"{path}.new")
        self._listener.listen(100)
        for ready in (self._listener, self._woken, sys.stdin):
            self._selector.register(ready, selectors.EVENT_READ)
        os.rename(f"{path}.new", path)

    def run(self) -> Callable[[], None] | None:
        """Serve until stdin ends, and return None; or in a process that was forked, what is to be done in it."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is sys.stdin:
                    return None
                if key.fileobj is self._woken:
                    self._woken.recv(4096)
                    self._reap()
                elif key.fileobj is self._listener:
                    line, _ = self._listener.accept()
                    self._selector.register(line, selectors.EVENT_READ)
                elif (become := self._fork(key.fileobj)) is not None:
                    return become

    def _fork(self, line: Any) -> Callable[[], None] | None:
        self._selector.unregister(line)
        request, files, _, _ = socket.recv_fds(line, LONGEST, 3)
        if not request:
            line.close()
            return None
        pid = os.fork()
        if pid == 0:
            self._leave()
            line.close()
            return functools.partial(_become, json.loads(request), files)
        for file in files:
            os.close(file)
        self._lines[pid] = line
        _tell(line, pid)
        return None

    def _reap(self) -> None:
        while self._lines:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            line = self._lines.pop(pid)
            _tell(line, os.waitstatus_to_exitcode(status))
            line.close()

    def _leave(self) -> None:
        """Give up all that is the nursery's, in a process forked from it."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        for own in (self._listener, self._woken, self._waker, *self._lines.values()):
            own.close()


def _tell(line: socket.socket, number: int) -> None:
    with suppress(OSError):  # whoever started it may be gone
        line.send(str(number).encode())


def _become(request: dict[str, Any], files: list[int]) -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    for number, (name, mode, buffering) in enumerate((("stdin", "r", -1), ("stdout", "w", -1), ("stderr", "w", 1))):
        ours = getattr(sys, name)  # made for another file: one that can be sought, maybe
        setattr(sys, name, open(number, mode, buffering, ours.encoding, ours.errors, closefd=False))  # noqa: SIM115 - until its end
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = request["argv"]
    if request["is_ours"]:
        from mcpvisor.daemon.cli.main import main

        sys.exit(main())
    runpy.run_path(sys.argv[0], run_name="__main__")


def _main(path: str) -> None:
    from mcpvisor.daemon.loading import sparing

    with sparing():  # as `mcpvisor run` does it
        for module in READ_ALREADY:
            importlib.import_module(module)

    become = _Nursery(path).run()
    if become is not None:
        become()


if __name__ == "__main__":
    _main(sys.argv[1])
