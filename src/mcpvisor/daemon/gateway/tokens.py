"""Owns the gateway's token file: minted at first start, readable by those who may use the gateway."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Final

from mcpvisor.daemon.gateway.settings import GatewayError
from mcpvisor.daemon.unix_socket import group_id

TOKEN_FILE: Final = "gateway.token"  # noqa: S105 - the name of a file, no secret
TOKEN_NAME: Final = "default"  # noqa: S105 - the name of a principal, no secret

_MIN_LENGTH: Final = 16


def read_or_mint(state_dir: Path) -> str:
    """The gateway's token, minted where there is none yet. Raises GatewayError."""
    path = state_dir / TOKEN_FILE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return _mint(path)
    except OSError as error:
        raise GatewayError(f"{path}: cannot be read ({error.strerror}); remove it to have a new token minted") from error
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise GatewayError(f"{path}: is no file; remove it to have a new token minted")
        if info.st_uid not in {0, os.geteuid()}:
            raise GatewayError(f"{path}: belongs to uid {info.st_uid}, who knows it; remove it to have a new token minted")
        if stat.S_IMODE(info.st_mode) & 0o007:
            raise GatewayError(f"{path}: everybody may read it; remove it to have a new token minted")
        token = file.read(4096).decode("ascii", "replace").strip()
    if len(token) < _MIN_LENGTH or not token.isascii() or not token.isprintable() or " " in token:
        raise GatewayError(f"{path}: holds no token; remove it to have a new one minted")
    return token


def _mint(path: Path) -> str:
    token = secrets.token_urlsafe(32)
    draft = path.with_name(f"{path.name}.new")
    try:
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(token.encode() + b"\n")
            share_with_group(descriptor)
        draft.rename(path)
    except OSError as error:
        raise GatewayError(f"{path}: the gateway's token cannot be written ({error.strerror}); see daemon.state_dir") from error
    return token


def share_with_group(target: int | Path, mode: int = 0o640) -> None:
    """Give a file of ours, open or by its path, to the gateway's group; where there is none it stays ours alone."""
    group = group_id()
    if group is None:
        return
    if os.stat(target).st_gid != group:  # noqa: PTH116 - Path.stat takes no descriptor
        try:
            os.chown(target, -1, group)
        except PermissionError:  # not a member of it, or under a unit that lets no file be handed over
            return
    os.chmod(target, mode)  # noqa: PTH101 - Path.chmod takes no descriptor
