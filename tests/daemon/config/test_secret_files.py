"""Files with one secret: what may be one, what becomes of its text, and what a change of it changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpvisor.daemon.config.applied import decide
from mcpvisor.daemon.config.load import Loaded, load
from mcpvisor.daemon.config.look import fingerprint
from mcpvisor.daemon.config.secret_files import MAX_BYTES
from mcpvisor.supervisor.spec import Change, StdioLaunch, plan_changes

Write = Callable[[Path, str | bytes], Path]

THREE = """
[servers.process]
command = "true"
env = { KEY = "${file:secret}" }
[servers.session]
url = "https://mcp.example.com/"
headers = { X-Team = "docs" }
auth = { type = "bearer", token = "${file:secret}" }
[servers.apart]
command = "true"
"""


@pytest.fixture
def read(etc: Path, environ: dict[str, str], write: Write) -> Callable[[], Loaded]:
    """Loads three servers, two of which use one secret."""
    write(etc / "mcpvisor.toml", THREE)
    return lambda: load([etc], environ)


def key_in(loaded: Loaded) -> str:
    target = loaded.specs["process"].target
    assert isinstance(target, StdioLaunch)
    return dict(target.env)["KEY"].reveal()


@pytest.mark.parametrize(
    ("written", "read_as"),
    [
        (b"s3cret", "s3cret"),
        (b"s3cret\n", "s3cret"),
        (b"s3cret\r\n", "s3cret"),
        (b"s3cret\n\n", "s3cret\n"),
        (b" two\nlines ", " two\nlines "),
        ("\ufeffs3cret\n".encode(), "s3cret"),
        ("\ufeffs3cret".encode("utf-16-le"), "s3cret"),
        (b"x" * MAX_BYTES, "x" * MAX_BYTES),
    ],
)
def test_one_line_end_is_cut(read: Callable[[], Loaded], etc: Path, write: Write, written: bytes, read_as: str) -> None:
    """Editors and `echo` end a file with a line; all else is the secret, letter by letter."""
    write(etc / "secret", written)

    assert read_as == key_in(read())


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 30)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: None, "cannot be read: no such file or directory"),
        (lambda path: path.touch(0o600), "is empty"),
        (lambda path: path.write_text("\n"), "is empty"),
        (lambda path: path.mkdir(0o700), "is a folder"),
        (lambda path: os.mkfifo(path, 0o600), "is no regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "is no regular file"),
        (lambda path: path.symlink_to(path), "its symbolic links form a loop"),
        (_sparse, "larger than 128 KiB"),
        (lambda path: path.write_bytes(b"\xff\xfe\xff"), "is not UTF-16-LE"),
        (lambda path: path.write_bytes(b"a\0b"), "holds NUL characters"),
    ],
)
def test_what_is_no_secret(
    read: Callable[[], Loaded], etc: Path, write: Write, make: Callable[[Path], object], told: str
) -> None:
    """What cannot be a secret is refused at once, by an error of the entries that name it; the last good version stays."""
    write(etc / "secret", "good")
    good = decide(None, read(), 0.0)
    assert good is not None
    (etc / "secret").unlink()
    make(etc / "secret")
    if (etc / "secret").is_file() and not (etc / "secret").is_symlink():
        (etc / "secret").chmod(0o600)

    loaded = read()
    kept = decide(good, loaded, 0.0)

    assert ["process", "session"] == [problem.server for problem in loaded.problems]
    assert all(told in problem.message and str(etc / "secret") in problem.message for problem in loaded.problems)
    assert (etc / "secret",) == loaded.secret_files, "else nobody would see that it is mended"
    assert kept is not None
    assert all(problem.keeps_running for problem in kept.rejected)
    assert {Change.KEEP} == {one.change for one in plan_changes(dict(good.specs), dict(kept.specs))}


def _edit(etc: Path, text: str) -> None:
    (etc / "secret").write_text(text)


def _rename(etc: Path, text: str) -> None:
    (etc / "secret.new").write_text(text)
    (etc / "secret.new").chmod(0o600)
    (etc / "secret.new").rename(etc / "secret")


def _swap(etc: Path, text: str) -> None:
    """As Kubernetes changes a volume: the folder behind a link is another one at once."""
    folder = etc / f"..at-{text}"
    folder.mkdir(0o755)
    (folder / "secret").write_text(text)
    (folder / "secret").chmod(0o600)
    (etc / "..new").symlink_to(folder.name)
    (etc / "..new").rename(etc / "..data")
    if not (etc / "secret").is_symlink():
        (etc / "secret").unlink()
        (etc / "secret").symlink_to("..data/secret")


@pytest.mark.parametrize("change", [_edit, _rename, _swap])
def test_a_change_is_of_those_who_use_it(
    read: Callable[[], Loaded], etc: Path, write: Write, change: Callable[[Path, str], None]
) -> None:
    """A process gets another environment with its next start; a session carries another token in place; others are kept."""
    write(etc / "secret", "before")
    change(etc, "old")
    before = read()
    seen = fingerprint([etc], before.secret_files)
    change(etc, "new")
    after = read()

    assert seen.secrets != fingerprint([etc], before.secret_files).secrets, "the watcher sees it"

    planned = {one.server: (one.change, one.fields) for one in plan_changes(before.specs, after.specs)}
    assert ((), "new") == (after.problems, key_in(after))
    assert {
        "apart": (Change.KEEP, ()),
        "process": (Change.RESTART, ("env",)),
        "session": (Change.UPDATE, ("auth",)),
    } == planned


def test_what_a_variable_holds_is_not_told(etc: Path, environ: dict[str, str], write: Write) -> None:
    """A secret in the wrong place is not told by the error that refuses it."""
    canary = "canary-7f3a9c51e2"
    write(
        etc / "mcpvisor.toml",
        """
        [servers.key]
        url = "https://mcp.example.com/"
        auth = { type = "client_credentials", client_id = "c", private_key = "${CANARY}", issuer = "${CANARY}" }
        [servers.words]
        command = "true"
        era = "${CANARY}"
        allow = ["${CANARY}"]
        start_timeout = "${CANARY}"
        subscriptions = [{ uri = "a:b", poll = "${CANARY}" }]
        [servers.written]
        command = "true"
        era = "sk-canary7f3a9c51e2canary"
        """,
    )

    loaded = load([etc], {**environ, "CANARY": canary})

    assert {"key", "words", "written"} == {problem.server for problem in loaded.problems}
    assert [] == [str(problem) for problem in loaded.problems if "canary" in str(problem)]


@pytest.mark.parametrize("make", [lambda path: os.mkfifo(path, 0o600), lambda path: path.symlink_to("/dev/zero"), _sparse])
def test_credentials_that_are_settings(
    etc: Path, environ: dict[str, str], write: Write, make: Callable[[Path], object]
) -> None:
    """A credential with a setting is read as carefully as any other file."""
    folder = etc / "credentials"
    folder.mkdir(0o755)
    make(folder / "mcpvisor_log__level")
    write(etc / "mcpvisor.toml", "# no servers\n")

    loaded = load([etc], {**environ, "CREDENTIALS_DIRECTORY": str(folder)})

    assert [folder / "mcpvisor_log__level"] == [problem.file for problem in loaded.problems]


OF_FILES = """
[servers.trusting]
url = "https://a.test/mcp"
tls = { ca = "tls/ca.pem", client_cert = "tls/cert.pem", client_key = "tls/key.pem" }
[servers.other]
url = "https://b.test/mcp"
tls = { ca = "tls/other.pem" }
[handlers.hook]
type = "webhook"
url = "https://c.test/"
secret = "0123456789abcdef0123456789abcdef"
tls = { ca = "tls/hook.pem" }
[handlers.code]
type = "python"
path = "code"
object = "own.module:Object"
[handlers.installed]
type = "python"
object = "json:JSONDecoder"
"""


@pytest.mark.parametrize(
    ("file", "servers", "handlers"),
    [
        *((f"tls/{name}.pem", ["trusting"], []) for name in ("ca", "cert", "key")),
        ("tls/other.pem", ["other"], []),
        ("tls/hook.pem", [], ["hook"]),
        ("code/own/module.py", [], ["code"]),
        ("code/own/another.py", [], []),
    ],
)
def test_files_that_others_read(
    etc: Path, environ: dict[str, str], write: Write, file: str, servers: list[str], handlers: list[str]
) -> None:
    """Another key, certificate or module of the same name is an edit of the entries that name it, and of no others."""
    write(etc / "mcpvisor.toml", OF_FILES)
    names = [f"tls/{name}.pem" for name in ("ca", "cert", "key", "other", "hook")]
    for name in (*names, "code/own/module.py", "code/own/another.py"):
        (etc / name).parent.mkdir(parents=True, exist_ok=True)
        write(etc / name, "the first")
    before = load([etc], environ)
    same = load([etc], environ)
    write(etc / file, "the second")
    after = load([etc], environ)

    assert () == before.problems == after.problems
    assert {*(etc / name for name in names), etc / "code/own/module.py"} == set(before.secret_files)
    assert (before.specs, before.handlers) == (same.specs, same.handlers)
    changes = plan_changes(before.specs, after.specs)
    assert [(name, Change.RESTART) for name in servers] == [
        (one.server, one.change) for one in changes if one.change is not Change.KEEP
    ]
    assert handlers == [name for name in before.handlers if before.handlers[name] != after.handlers[name]]
