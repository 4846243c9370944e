"""What an error of the disk or of SQLite means, and which file systems are refused."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

import pytest

from mcpvisor.daemon.state.faults import FaultKind, fault_of, kind_of
from mcpvisor.daemon.state.filesystem import magic_of, why_unfit

ROOM = 1 << 30


@pytest.mark.parametrize(
    ("code", "free", "read_only", "expected"),
    [
        (sqlite3.SQLITE_FULL, ROOM, False, FaultKind.FULL),
        (sqlite3.SQLITE_READONLY_DBMOVED, ROOM, False, FaultKind.READ_ONLY),
        (sqlite3.SQLITE_CORRUPT_INDEX, ROOM, False, FaultKind.CORRUPT),
        (sqlite3.SQLITE_NOTADB, ROOM, False, FaultKind.CORRUPT),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, ROOM, False, FaultKind.LOCKED),
        (sqlite3.SQLITE_IOERR_WRITE, ROOM, False, FaultKind.BROKEN),
        (sqlite3.SQLITE_IOERR_SHMSIZE, 0, False, FaultKind.FULL),
        (sqlite3.SQLITE_CANTOPEN, 0, True, FaultKind.READ_ONLY),
        (sqlite3.SQLITE_ERROR, 0, True, FaultKind.BROKEN),
    ],
)
def test_each_code_of_sqlite_is_classed(code, free, read_only, expected):
    """Errors of input and output are looked behind: a full disk and a read-only one have many faces."""
    assert expected is kind_of(code, free=free, read_only=read_only)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, FaultKind.FULL),
        (errno.EDQUOT, FaultKind.FULL),
        (errno.EROFS, FaultKind.READ_ONLY),
        (errno.ELOOP, FaultKind.REFUSED),
        (errno.EIO, FaultKind.BROKEN),
    ],
)
def test_each_error_of_the_system_is_classed(number, expected):
    """The reason names the file."""
    fault = fault_of(OSError(number, "why"), Path("/var/lib/x/state.db"))

    assert (expected, "/var/lib/x/state.db: why") == (fault.kind, fault.reason)


@pytest.mark.parametrize(
    ("magic", "name"),
    [(0x6969, "NFS"), (0x517B, "SMB"), (0xFF534D42, "CIFS"), (-11317950, "CIFS"), (0xFE534D42, "SMB"), (0x5346414F, "AFS")],
)
def test_file_systems_of_other_machines_are_refused(magic, name):
    """The reason names the file system and the remedy, however the kernel signs the number."""
    assert f"it is on {name}" in why_unfit(magic)
    assert "name a local folder as daemon.state_dir" in why_unfit(magic)


@pytest.mark.parametrize("magic", [0xEF53, 0x01021994, 0x9123683E, 0x58465342, 0x794C7630])
def test_local_file_systems_are_used(magic):
    """ext4, tmpfs, btrfs, xfs and overlays do."""
    assert "" == why_unfit(magic)


def test_the_magic_number_is_that_of_the_folder():
    """The kernel is asked: /proc is of its own kind, and a folder that is not there is an error."""
    assert 0x9FA0 == magic_of(Path("/proc"))
    with pytest.raises(FileNotFoundError):
        magic_of(Path("/nowhere/at/all"))
