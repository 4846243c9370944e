"""Owns the rule that a file which an entry names is no edit of the entry while it cannot be read: what it was stays good.

Certificates and modules are replaced by deleting and writing, and for a moment there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from mcpvisor.daemon.config.look import EMPTY
from mcpvisor.daemon.config.problems import Problem
from mcpvisor.daemon.handlers.python_options import PythonOptions
from mcpvisor.daemon.handlers.specs import HandlerSpec
from mcpvisor.daemon.handlers.webhook_options import WebhookOptions
from mcpvisor.supervisor.spec import HttpTarget, ServerSpec, TlsTrust

Spec = TypeVar("Spec", ServerSpec, HandlerSpec)

Seen = Mapping[str, str]
"""By path what was seen of the files beside the configuration: a digest, or a reason with a colon in it."""


@dataclass(frozen=True, slots=True)
class Unread:
    """The file for which an entry stays as it was: the key that names it, and why it is not read."""

    key: str
    file: str
    why: str


def unread(old: Spec, new: Spec, seen: Seen) -> Unread | None:
    """The file that cannot be read, where `new` differs from `old` in nothing else; None where it is an edit, or the same."""
    if isinstance(old, ServerSpec) and isinstance(new, ServerSpec):
        before, after = old.target, new.target
        if not isinstance(before, HttpTarget) or not isinstance(after, HttpTarget) or before.tls == after.tls:
            return None
        is_same = old == replace(new, target=replace(after, tls=before.tls))
        return _of_tls(before.tls, after.tls, seen) if is_same else None
    assert isinstance(old, HandlerSpec)
    assert isinstance(new, HandlerSpec)
    match old.options, new.options:
        case WebhookOptions() as was, WebhookOptions() as now if old == replace(new, options=replace(now, tls=was.tls)):
            return _of_tls(was.tls, now.tls, seen)
        case PythonOptions() as was, PythonOptions() as now if old == replace(new, options=replace(now, code=was.code)):
            return Unread("path", now.path or "", "has no module that can be read") if was.code and not now.code else None
        case _:
            return None


def other_files(old: ServerSpec, new: ServerSpec) -> str:
    """The files in whose contents alone two versions differ, in words; empty where it is another edit, or none."""
    before, after = old.target, new.target
    if not isinstance(before, HttpTarget) or not isinstance(after, HttpTarget) or before.tls == after.tls:
        return ""
    if before.tls != replace(after.tls, contents=before.tls.contents) or old != replace(
        new, target=replace(after, tls=before.tls)
    ):
        return ""
    return ", ".join(file for file in (after.tls.ca, after.tls.client_cert, after.tls.client_key) if file)


def _of_tls(was: TlsTrust, now: TlsTrust, seen: Seen) -> Unread | None:
    if was.contents == now.contents or was != replace(now, contents=was.contents):
        return None
    named = {"ca": now.ca, "client_cert": now.client_cert, "client_key": now.client_key}
    for key, file in named.items():
        found = seen.get(file or "")
        if found is not None and (":" in found or found == EMPTY):
            return Unread(
                f"tls.{key}",
                file or "",
                "is empty" if found == EMPTY else f"cannot be read: {found.partition(': ')[2].lower()}",
            )
    return None


def problem_of(spec: ServerSpec | HandlerSpec, found: Unread) -> Problem:
    """What is told of it while the last version runs."""
    file, _, line = spec.origin.rpartition(":")
    is_server = isinstance(spec, ServerSpec)
    return Problem(
        file=Path(file) if file else None,
        line=int(line) if file and line.isdecimal() else None,
        key_path=f"{'servers' if is_server else 'handlers'}.{spec.name}.{found.key}",
        message=f"{found.file} {found.why}",
        meanwhile="the entry is right, and what was read of the file last stays in use",
        needs=found.file,
        server=spec.name if is_server else "",
        handler="" if is_server else spec.name,
        keeps_running=True,
    )
