"""Owns how a configuration file is read from disk: what may be read, how much of it, and in which encoding."""

from __future__ import annotations

import codecs
import errno
import os
import stat
from pathlib import Path
from typing import Final

from mcpvisor.daemon.config.json_source import parse_json
from mcpvisor.daemon.config.positions import Document, LineIndex
from mcpvisor.daemon.config.problems import ConfigError, Problem
from mcpvisor.daemon.config.toml_source import parse_toml
from mcpvisor.daemon.config.trust import Replaced, distrust

MAX_BYTES: Final = 4 * 1024 * 1024
"""The largest file that is read as configuration."""

_LOOKS: Final = 3
"""How often a file is opened anew that is being replaced while it is looked at."""

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is the first half of this one
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def read_document(file: Path, uid: int) -> Document:
    """Read and parse a `.toml` or `.json`/`.jsonc` file for a daemon of user `uid`.

    Raises ConfigError for a file that cannot be read, is not to be trusted, is empty or is not what its name says.
    """
    text = decode(read_bytes(file, uid), file)
    if not text.strip():
        raise ConfigError(Problem(file=file, message="the file is empty", expected="{} or a comment for no servers"))
    return parse_toml(text, file) if file.suffix == ".toml" else parse_json(text, file)


def read_bytes(file: Path, uid: int | None, what: str = "a configuration file", limit: int = MAX_BYTES) -> bytes:
    """The bytes of a file that only root or `uid` can change. Raises ConfigError where that is not so.

    `what` says what is expected, and `limit` how many bytes of it. No `uid` is for a file that is only looked at, whoever can
    change it.
    """
    for _ in range(_LOOKS):
        try:
            return _read_once(file, uid, what, limit)
        except Replaced:
            continue
    raise ConfigError(Problem(file=file, message="cannot be read: it is replaced again and again", expected=what))


def _read_once(file: Path, uid: int | None, what: str, limit: int) -> bytes:
    try:
        # Not blocking: opening a named pipe would else wait for its other end for ever.
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        raise ConfigError(Problem(file=file, message=_why(error))) from error
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            kind = "a folder" if stat.S_ISDIR(info.st_mode) else "no regular file"
            raise ConfigError(Problem(file=file, message=f"is {kind}", expected=what))
        if info.st_size > limit:
            raise ConfigError(Problem(file=file, message=f"larger than {_shown(limit)}", expected=what))
        reason = distrust(file, uid, info) if uid is not None else ""
        if reason:
            raise ConfigError(Problem(file=file, message=reason))
        return _all_of(descriptor, limit)
    except OSError as error:
        raise ConfigError(Problem(file=file, message=_why(error))) from error
    finally:
        os.close(descriptor)


def _shown(limit: int) -> str:
    return f"{limit // 1024**2} MiB" if limit % 1024**2 == 0 else f"{limit // 1024} KiB"


def _all_of(descriptor: int, limit: int) -> bytes:
    pieces: list[bytes] = []
    while sum(map(len, pieces)) <= limit and (piece := os.read(descriptor, limit)):
        pieces.append(piece)
    return b"".join(pieces)


def decode(raw: bytes, file: Path) -> str:
    """The text in `raw`: UTF-8, or what its byte order mark says. Raises ConfigError that names the encoding."""
    encoding = "utf-8"
    for mark, name in _MARKS:
        if raw.startswith(mark):
            encoding, raw = name, raw[len(mark) :]
            break
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        # What comes before is known to be of that encoding.
        message = f"byte {error.start} is not {encoding.upper()}"
        raise ConfigError(_behind(raw[: error.start].decode(encoding), file, message)) from error
    before, nul, _ = text.partition("\x00")
    if nul:
        raise ConfigError(_behind(before, file, "holds NUL characters, as UTF-16 without a byte order mark does"))
    return text


def _behind(before: str, file: Path, message: str) -> Problem:
    """A problem of what follows a text."""
    place = LineIndex(before).at(len(before))
    return Problem(file=file, line=place.line, column=place.column, message=message, expected="UTF-8 text")


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, ValueError):
        return "cannot be read: a path cannot hold a NUL character"
    if error.errno == errno.ELOOP:
        return "cannot be read: its symbolic links form a loop"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return "cannot be read: permission denied; the user of the daemon needs read access"
    return f"cannot be read: {(error.strerror or str(error)).lower()}"
