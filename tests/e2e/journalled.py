"""The daemon, with the journal of a test in place of the machine's, and so little room in a datagram that files are used."""

from __future__ import annotations

import errno
import os
import socket
import sys
from typing import Any, Final

from mcpvisor.daemon import log
from mcpvisor.daemon.cli.main import main
from mcpvisor.daemon.log_writers import JournalWriter

MOST: Final = 1000
"""Bytes of a datagram; no record of a daemon is as long as what a kernel takes."""


class _NarrowSocket(socket.socket):
    def sendto(self, data: Any, *where: Any) -> int:
        if len(data) > MOST:
            raise OSError(errno.EMSGSIZE, "Message too long")
        return super().sendto(data, *where)


class _JournalOfTheTest(JournalWriter):
    def __init__(self) -> None:
        super().__init__(os.environ["TEST_JOURNAL_SOCKET"])
        self._socket.close()
        self._socket = _NarrowSocket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)


if __name__ == "__main__":
    log.JournalWriter = _JournalOfTheTest  # type: ignore[misc] # another one for this process
    sys.exit(main())
