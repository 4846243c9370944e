"""Owns how one `[handlers.NAME]` becomes a `HandlerSpec`: the keys that all have, and which reader has the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from mcpvisor.daemon.config.entry_scope import Item, kind_of
from mcpvisor.daemon.config.handler_exec import read_exec
from mcpvisor.daemon.config.handler_log import read_log
from mcpvisor.daemon.config.handler_policy import read_policy
from mcpvisor.daemon.config.handler_python import read_python
from mcpvisor.daemon.config.handler_webhook import read_webhook
from mcpvisor.daemon.config.positions import Document, KeyPath
from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.daemon.handlers.specs import (
    CircuitPolicy,
    HandlerOptions,
    HandlerSpec,
    HandlerType,
    LogOptions,
    RetryPolicy,
)

READERS: Final[Mapping[HandlerType, Callable[[TableReader], HandlerOptions | None]]] = {
    HandlerType.LOG: read_log,
    HandlerType.EXEC: read_exec,
    HandlerType.WEBHOOK: read_webhook,
    HandlerType.PYTHON: read_python,
    HandlerType.POLICY: read_policy,
}
"""The reader of each type's own keys: the options, or None after a problem that leaves none."""

_WORDS: Final = tuple(kind.value for kind in HandlerType)
TYPE_EXPECTED: Final = "one of " + ", ".join(f'"{word}"' for word in _WORDS)


def read_handler(entry: TableReader, document: Document, path: KeyPath) -> HandlerSpec | None:
    """The spec of a handler; None when its scope has found a problem. One pass finds all problems."""
    scope = entry.scope
    kind = _type(entry)
    if kind is None:
        return None  # which keys it may have is not known
    options = READERS[kind](entry)
    default = HandlerSpec(name="default", options=LogOptions())
    place = document.at(path)
    spec = HandlerSpec(
        name=scope.handler,
        options=options or default.options,
        queue=entry.integer("queue", default.queue, least=1),
        concurrency=entry.integer("concurrency", default.concurrency, least=1),
        deadline=entry.seconds("deadline", default.deadline, positive=True),
        retry=_retry(entry),
        circuit=_circuit(entry),
        origin=f"{document.file}:{place.line}" if place is not None else str(document.file),
    )
    entry.finish()
    return None if scope.findings.problems or options is None else spec


def _type(entry: TableReader) -> HandlerType | None:
    item = entry.item("type")
    if item is None:
        entry.scope.missing("type", expected=f"type = {TYPE_EXPECTED}")
        return None
    if not isinstance(item.value, str):
        entry.scope.problem(item, f"is {kind_of(item.value)}", expected=TYPE_EXPECTED)
        return None
    if item.value not in _WORDS:
        message = f"{shown(item)}: not a type of handler"
        entry.scope.problem(item, message, expected=TYPE_EXPECTED, near=item.document.near(item.value, _WORDS))
        return None
    return HandlerType(item.value)


def _retry(entry: TableReader) -> RetryPolicy:
    """`retry = { attempts, delay, max_delay }`."""
    default = RetryPolicy()
    table = entry.table("retry")
    if table is None:
        return default
    policy = RetryPolicy(
        attempts=table.integer("attempts", default.attempts, least=1),
        delay=table.seconds("delay", default.delay, positive=True),
        max_delay=table.seconds("max_delay", default.max_delay, positive=True),
    )
    table.finish()
    item = table.item("max_delay") or table.item("delay")
    if item is not None and policy.max_delay < policy.delay:
        entry.scope.problem(item, "max_delay is shorter than delay", expected="delay <= max_delay")
    return policy


def _circuit(entry: TableReader) -> CircuitPolicy:
    """`circuit = { failures, open_for }`."""
    default = CircuitPolicy()
    table = entry.table("circuit")
    if table is None:
        return default
    policy = CircuitPolicy(
        failures=table.integer("failures", default.failures, least=1),
        open_for=table.seconds("open_for", default.open_for, positive=True),
    )
    table.finish()
    return policy


def shown(item: Item) -> str:
    """A word as it is written, cut, for an error about it; for keys that hold no secrets."""
    text = "".join(c if c.isprintable() else "?" for c in str(item.value))
    return f'"{text if len(text) <= 40 else text[:40] + "..."}"'
