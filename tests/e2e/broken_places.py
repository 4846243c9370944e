"""Owns what can stand in the place of a configuration file without being a file of ours: each put there, and taken away."""

from __future__ import annotations

import os
import random
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.broken_texts import JSON, LIMIT, MAIN, TARGETS, TOML


@dataclass(frozen=True, slots=True)
class Place:
    """One thing in the place of a file. `put` is given the folder of the configuration; `names` is what the error names."""

    kind: str
    target: str
    put: Callable[[Path], None]
    said: str
    """Words of the error."""


def all_places(good: dict[str, str], seed: int, each: int) -> Iterator[Place]:
    """`each` places of every kind."""
    chance = random.Random(seed)
    for _ in range(each):
        yield _link(chance, chance.choice(TARGETS))
        yield _no_file(chance, chance.choice(TARGETS))
        yield _huge(chance, chance.choice(TARGETS))
        yield _open_to_others(chance, chance.choice(TARGETS))
        yield _odd_name(chance, good)


def unreadable_places(seed: int, each: int) -> Iterator[Place]:
    """`each` files and folders that a process without privileges over files cannot read."""
    chance = random.Random(seed)
    for _ in range(each):
        target = chance.choice((MAIN, TOML, JSON, "servers.d", "."))
        mode = chance.choice((0o000, 0o200, 0o100) if target in TARGETS else (0o000, 0o200))

        def put(folder: Path, target: str = target, mode: int = mode) -> None:
            (folder / target).chmod(mode)

        yield Place("unreadable", target, put, "permission denied")


def clear(folder: Path) -> None:
    """Take away whatever is in the folder of the configuration."""
    for closed in (folder, folder / "servers.d"):
        if closed.is_dir() and not closed.is_symlink():
            closed.chmod(0o755)
    for path in [folder / MAIN, *(folder / "servers.d").iterdir(), *folder.glob("link*")]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _link(chance: random.Random, target: str) -> Place:
    """Links that lead nowhere: to themselves, in a ring, to nothing, through a file, to a name that is too long."""

    def itself(folder: Path) -> None:
        (folder / target).symlink_to((folder / target).name)

    def ring(folder: Path) -> None:
        count = chance.randrange(2, 60)
        for number in range(count):
            (folder / f"link{number}").symlink_to(folder / f"link{(number + 1) % count}")
        (folder / target).symlink_to(folder / "link0")

    def through(folder: Path) -> None:
        (folder / target).symlink_to(folder / "link0" / "x.toml")
        (folder / "link0").symlink_to("link0")

    def nowhere(folder: Path) -> None:
        (folder / target).symlink_to(chance.choice(("nowhere", "/dev/null/x", "/proc/self/nothing", "x" * 255)))

    put, said = chance.choice(
        ((itself, "form a loop"), (ring, "form a loop"), (through, "form a loop"), (nowhere, "cannot be read"))
    )
    return Place("link", target, put, said)


def _no_file(chance: random.Random, target: str) -> Place:
    """What is no regular file."""

    def pipe(folder: Path) -> None:
        os.mkfifo(folder / target, 0o644)

    def folder_of_that_name(folder: Path) -> None:
        (folder / target).mkdir()

    def unix_socket(folder: Path) -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            here = Path.cwd()
            os.chdir((folder / target).parent)  # a short path: that of a socket has at most 107 bytes
            try:
                listener.bind((folder / target).name)
            finally:
                os.chdir(here)

    def device(folder: Path) -> None:
        (folder / target).symlink_to(chance.choice(("/dev/zero", "/dev/null", "/dev/full", "/dev/urandom")))

    put, said = chance.choice(
        (
            (pipe, "no regular file"),
            (folder_of_that_name, "is a folder"),
            (unix_socket, "cannot be read"),
            (device, "no regular file"),
        )
    )
    return Place("no file", target, put, said)


def _huge(chance: random.Random, target: str) -> Place:
    size = chance.choice((LIMIT + 1, LIMIT * 2, 3 * 1024**3, 2**40))

    def put(folder: Path) -> None:
        with (folder / target).open("wb") as file:
            file.truncate(size)

    return Place("huge", target, put, "larger than 4 MiB")


def _open_to_others(chance: random.Random, target: str) -> Place:
    mode = chance.choice((0o666, 0o646, 0o602, 0o777, 0o622))
    closed = chance.choice((target, target, "servers.d")) if target != MAIN else MAIN

    def put(folder: Path) -> None:
        text = "{}" if target == JSON else "# nothing"
        (folder / target).write_text(text)
        (folder / closed).chmod(mode | 0o111 if closed == "servers.d" else mode)

    return Place("open to others", target, put, "run: chmod o-w")


def _odd_name(chance: random.Random, good: dict[str, str]) -> Place:
    """A further file of a name that is hard to print, or the same file under a second name."""
    name = chance.choice(
        (b"\xff\xfe.toml", b"a\nb.toml", b"\x1b[31m.toml", b"x" * 250 + b".toml", "\u202ea.toml".encode(), b" .json")
    )
    text = "[" if name.endswith(b".toml") else "{"
    as_alias = chance.random() < 0.3

    def put(folder: Path) -> None:
        for target in (TOML, JSON):
            (folder / target).write_text(good[target])
        if as_alias:
            (folder / "servers.d/zz-alias.toml").symlink_to("own.toml")
        else:
            with open(os.fsencode(folder / "servers.d") + b"/" + name, "wb") as file:
                file.write(text.encode())

    if as_alias:
        return Place("odd name", "servers.d/zz-alias.toml", put, "is written at")
    return Place("odd name", "servers.d/" + os.fsdecode(name), put, "not valid")
