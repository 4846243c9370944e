"""Whose files are believed: what others may write, or belongs to others, is refused with its remedy."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpvisor.daemon.config import config_file
from mcpvisor.daemon.config.config_file import read_bytes
from mcpvisor.daemon.config.load import load
from mcpvisor.daemon.config.problems import ConfigError
from mcpvisor.daemon.config.trust import Replaced, distrust

Write = Callable[[Path, str], Path]

US = os.geteuid()
AS_ROOT = pytest.mark.skipif(US != 0, reason="only root can give files away")


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder in which everybody may replace everything."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def test_each_step_of_a_chain_of_links_counts(etc: Path, write: Write, open_folder: Path) -> None:
    """A link that leads to another one, in a folder that others may write, leads wherever they like."""
    secret = write(etc / "secret", "x")
    (open_folder / "second").symlink_to(secret)
    (etc / "first").symlink_to("../open/second")

    assert "" == distrust(secret, US)
    assert distrust(etc / "first", US) == f"not used: everybody may write {open_folder}; run: chmod o-w {open_folder}"


def test_a_sticky_folder_may_be_open(etc: Path, write: Write, open_folder: Path) -> None:
    """In a folder with the sticky bit nobody replaces what belongs to others, as in /tmp and in folders of credentials."""
    open_folder.chmod(0o1777)
    write(open_folder / "secret", "x")
    (etc / "link").symlink_to(open_folder / "secret")

    assert "" == distrust(etc / "link", US)


@AS_ROOT
def test_what_belongs_to_another_is_refused(etc: Path, write: Write, open_folder: Path) -> None:
    """A file, a folder and a link of another user are refused; the remedy is for a link of its own kind."""
    file = write(etc / "a file", "x")
    os.chown(file, 12345, -1)
    open_folder.chmod(0o1777)
    (open_folder / "link").symlink_to(etc)
    os.chown(open_folder / "link", 12345, -1, follow_symlinks=False)

    assert distrust(file, 0).endswith(f"belongs to uid 12345, neither root nor the daemon; run: chown 0 '{file}'")
    assert distrust(open_folder / "link" / "servers.d", 0).endswith(f"run: chown -h 0 {open_folder / 'link'}")
    assert "" == distrust(file, 12345)


@pytest.mark.parametrize(("mode", "remedy"), [(0o664, "g-w"), (0o646, "o-w")])
@AS_ROOT
def test_what_a_group_may_write(etc: Path, write: Write, mode: int, remedy: str) -> None:
    """A group that is neither root's nor the owner's own counts as others."""
    file = write(etc / "file", "x")
    os.chown(file, 0, 12345)
    file.chmod(mode)

    assert distrust(file, 0).endswith(f"run: chmod {remedy} {file}")
    os.chown(file, 0, 0)
    assert ("" == distrust(file, 0)) == (mode == 0o664)


@AS_ROOT
@pytest.mark.parametrize(("tag", "whose", "refused"), [(0x02, 12345, True), (0x02, 0, False), (0x08, 12345, True)])
def test_access_control_lists(etc: Path, write: Write, tag: int, whose: int, refused: bool) -> None:
    """A list that lets another user or a group write hides behind the bits of a group that may; narrowed, it is harmless."""
    file = write(etc / "file", "x")
    nobody = 0xFFFFFFFF
    entries = sorted([(0x01, 6, nobody), (tag, 6, whose), (0x04, 6, nobody), (0x10, 6, nobody), (0x20, 4, nobody)])
    data = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in entries)
    try:
        os.setxattr(file, "system.posix_acl_access", data)
    except OSError as error:
        pytest.skip(f"no access control lists here: {error}")

    reason = distrust(file, 0)

    assert refused == reason.endswith(f"its access control list lets others write {file}; run: chmod g-w {file}")
    file.chmod(0o640)
    assert "" == distrust(file, 0)


def test_ways_that_lead_nowhere(etc: Path) -> None:
    """A loop of links and a link to nothing are errors of the system, not a reason to believe."""
    (etc / "loop").symlink_to("loop")
    (etc / "nothing").symlink_to("gone")

    with pytest.raises(OSError, match="symbolic links"):
        distrust(etc / "loop", US)
    with pytest.raises(FileNotFoundError):
        distrust(etc / "nothing", US)


def test_a_file_that_was_replaced_is_looked_at_again(etc: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that was opened is the one that was judged; one that is another each time is not read."""
    opened, other = write(etc / "opened", "1"), write(etc / "other", "2")
    with pytest.raises(Replaced):
        distrust(etc / "opened", US, other.stat())
    assert "" == distrust(opened, US, opened.stat())

    turns = iter([Replaced(opened), None])

    def once(_file: Path, _uid: int, _opened: os.stat_result) -> str:
        if (error := next(turns)) is not None:
            raise error
        return ""

    monkeypatch.setattr(config_file, "distrust", once)
    assert b"1" == read_bytes(opened, US)

    turns = iter([Replaced(opened)] * 3)
    with pytest.raises(ConfigError, match="replaced again and again"):
        read_bytes(opened, US)


PROGRAMS = """
[handlers.run]
type = "exec"
command = ["{script}"]
[handlers.interpreted]
type = "exec"
command = ["/bin/sh", "-e", "{script}", "more"]
[handlers.module]
type = "python"
object = "m:O"
path = "{folder}"
[handlers.hook]
type = "webhook"
url = "https://127.0.0.1/"
secret = "0123456789abcdef0123456789abcdef"
tls = {{ ca = "{script}" }}
[servers.printed]
url = "https://127.0.0.1/"
header_command = ["{script}"]
[servers.keyed]
url = "https://127.0.0.1/"
tls = {{ client_cert = "{script}", client_key = "{script}" }}
"""


def test_programs_and_keys(etc: Path, environ: dict[str, str], write: Write, open_folder: Path) -> None:
    """What a handler runs or imports, what prints credentials, and keys and certificates are held to the rule as well."""
    script = write(open_folder / "script", "#!/bin/sh\n")
    write(etc / "mcpvisor.toml", PROGRAMS.format(script=script, folder=open_folder))

    loaded = load([etc], environ)

    remedy = f"not used: everybody may write {open_folder}; run: chmod o-w {open_folder}"
    found = [(problem.key_path, problem.message) for problem in loaded.problems]
    assert sorted(
        [
            ("handlers.run.command", remedy),
            ("handlers.interpreted.command", remedy),
            ("handlers.module.path", remedy),
            ("handlers.hook.tls.ca", remedy),
            ("servers.printed.header_command", remedy),
            ("servers.keyed.tls.client_cert", remedy),
            ("servers.keyed.tls.client_key", remedy),
        ]
    ) == sorted(found)

    open_folder.chmod(0o755)
    assert () == load([etc], environ).problems
