"""Owns the keys under which `requestState` is sealed: minted at the first start, kept in the state folder, renewed in time."""

from __future__ import annotations

import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

KEYS_FILE: Final = "request-state.keys"

KEY_BYTES: Final = 32
ID_BYTES: Final = 4

RENEW_SECONDS: Final = 30 * 86400.0
"""How old a key may be when the gateway starts; an older one only opens what it has sealed."""

KEPT: Final = 2
"""The key that seals, and the one before it: nothing sealed is good for as long as a key is."""

_MAX_FILE: Final = 4096
_LINE: Final = re.compile(rf"([0-9a-f]{{{2 * ID_BYTES}}}) ([0-9a-f]{{{2 * KEY_BYTES}}}) (\d{{1,12}})")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Key:
    """One key; `id` goes with what it has sealed, `minted_at` is in wall-clock seconds."""

    id: bytes
    secret: bytes = field(repr=False)
    minted_at: int


def read_keys(path: Path) -> list[Key]:
    """The keys in a file, the one that seals first; none where there is no file of ours."""
    try:
        return _read(path)
    except (OSError, ValueError):
        return []


def read_or_mint(
    state_dir: Path,
    now: Callable[[], float] = time.time,
    *,
    name: str = KEYS_FILE,
    renew: float = RENEW_SECONDS,
    lost: str = "questions that wait for an answer",
) -> list[Key]:
    """The keys, the one that seals first; `lost` is what is lost with them, for people.

    Never raises: where they cannot be read new ones are made, where they cannot be kept they last as long as the daemon, and
    either is logged. All that is lost with a key are the questions that wait for an answer.
    """
    path = state_dir / name
    try:
        keys = _read(path)
    except FileNotFoundError:
        keys = []
    except (OSError, ValueError) as error:
        _log.warning("%s: %s; new keys are made, and %s are lost", path, _why(error), lost)
        keys = []
    at = int(now())
    if keys and abs(at - keys[0].minted_at) < renew:  # a clock that was wrong must not make one last for ever
        return keys
    keys = [Key(secrets.token_bytes(ID_BYTES), secrets.token_bytes(KEY_BYTES), at), *keys][:KEPT]
    try:
        _write(path, keys)
    except OSError as error:
        _log.warning("%s: %s; %s will be lost with the daemon", path, _why(error), lost)
    return keys


def _read(path: Path) -> list[Key]:
    """What the file holds. Raises OSError, and ValueError for what is no file of ours."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise ValueError("is no file")
        if info.st_uid not in {0, os.geteuid()} or stat.S_IMODE(info.st_mode) & 0o077:
            raise ValueError("others may know what is in it")
        text = file.read(_MAX_FILE).decode("ascii", "replace")
    found = [_LINE.fullmatch(line) for line in text.splitlines()]
    keys = [Key(bytes.fromhex(one[1]), bytes.fromhex(one[2]), int(one[3])) for one in found if one is not None]
    if not keys or len(keys) != len(found):
        raise ValueError("does not hold keys")
    return keys[:KEPT]


def _write(path: Path, keys: list[Key]) -> None:
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.writelines(f"{key.id.hex()} {key.secret.hex()} {key.minted_at}\n" for key in keys)
    draft.replace(path)


def _why(error: Exception) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else str(error)
