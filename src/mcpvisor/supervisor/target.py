"""Owns the digest of where and how a server is reached, by which what is remembered of it is told from that of another one."""

from __future__ import annotations

import hashlib
from urllib.parse import urlsplit

from mcpvisor.supervisor.secret import Secret, reveal
from mcpvisor.supervisor.spec import HttpTarget, ServerSpec, StdioLaunch, Text
from mcpvisor.supervisor.transports.codec import encode

_SECRET = [True]
"""Stands for a secret; no text of an entry looks like it."""


def target_digest(spec: ServerSpec) -> str:
    """A text that changes with the server behind an entry; nothing can be read from it.

    Secrets are left out, so that none can be guessed from it, and so that one that is replaced makes no other server. Of a
    URL that is secret as a whole its origin is kept.
    """
    target = spec.target
    where = _of_process(target) if isinstance(target, StdioLaunch) else _of_address(target)
    return hashlib.sha256(encode([*where, spec.era.value])).hexdigest()


def _of_process(target: StdioLaunch) -> list[object]:
    env = sorted((name, _plain(value)) for name, value in target.env if not isinstance(value, Secret))
    secret_env = sorted(name for name, value in target.env if isinstance(value, Secret))
    return ["stdio", _plain(target.command), [_plain(arg) for arg in target.args], env, secret_env, target.cwd]


def _of_address(target: HttpTarget) -> list[object]:
    url = urlsplit(reveal(target.url))
    origin = [url.scheme, url.hostname, url.port]
    rest = _SECRET if isinstance(target.url, Secret) else [url.path, url.query]
    headers = sorted(name.lower() for name, _ in target.headers)
    return ["http", origin, rest, headers, target.transport.value]


def _plain(text: Text) -> object:
    return _SECRET if isinstance(text, Secret) else text
