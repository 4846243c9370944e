"""Owns how a spec becomes a handler that takes events, for as long as a context lasts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from mcpvisor.daemon.handlers.contract import DeliveryFailed, EventHandler, HandlerEvent
from mcpvisor.daemon.handlers.exec_answer import AnsweringExec
from mcpvisor.daemon.handlers.log_handler import Emit, LogHandler
from mcpvisor.daemon.handlers.program import Programs
from mcpvisor.daemon.handlers.python_handler import PythonHandler
from mcpvisor.daemon.handlers.python_options import PythonOptions
from mcpvisor.daemon.handlers.specs import ExecOptions, HandlerSpec, HandlerType, LogOptions
from mcpvisor.daemon.handlers.webhook import WebhookHandler
from mcpvisor.daemon.handlers.webhook_options import WebhookOptions
from mcpvisor.supervisor.known_secrets import KnownSecrets
from mcpvisor.supervisor.process.delegation import NOT_TAKEN, Subtree


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What handlers are given of the daemon."""

    instance: str
    """The mark of all processes that are started here."""
    environ: Mapping[str, str]
    """The daemon's own environment, of which programs get a part."""
    emit: Emit = field(default=lambda _level, _message, _fields: None)
    """Writes a line into the daemon's log."""
    subtree: Subtree = NOT_TAKEN
    """Where workers get control groups of their own, as servers do."""
    known_secrets: KnownSecrets = field(default_factory=KnownSecrets)
    """Those of all servers and handlers, to be masked in what any handler says."""
    makers: Mapping[HandlerType, Maker] = field(default_factory=lambda: MAKERS)
    """One for each type that takes events."""

    def stderr_of(self, handler: str, lines: tuple[str, ...], dropped: int) -> None:
        """Write what a program of a handler says on stderr."""
        if dropped:
            told = f"handler {handler}: {dropped} lines of stderr over the rate were dropped"
            self.emit("warning", told, {"handler": handler, "dropped": dropped})
        for line in lines:
            self.emit("info", f"handler {handler}: stderr: {line}", {"handler": handler})


Maker = Callable[[HandlerSpec, Surroundings], AbstractAsyncContextManager[EventHandler]]
"""Makes the handler of a spec. Whatever it raises on entering is shown, and events fail with it until the spec is another."""


@asynccontextmanager
async def _log(spec: HandlerSpec, surroundings: Surroundings) -> AsyncGenerator[EventHandler]:
    assert isinstance(spec.options, LogOptions)
    yield LogHandler(spec.name, spec.options, surroundings.emit)


@asynccontextmanager
async def _exec(spec: HandlerSpec, surroundings: Surroundings) -> AsyncGenerator[EventHandler]:
    assert isinstance(spec.options, ExecOptions)
    programs = Programs(
        spec.name,
        spec.options.launch,
        instance=surroundings.instance,
        environ=surroundings.environ,
        stderr=partial(surroundings.stderr_of, spec.name),
        known_secrets=surroundings.known_secrets,
    )
    yield AnsweringExec(programs)


@asynccontextmanager
async def _webhook(spec: HandlerSpec, surroundings: Surroundings) -> AsyncGenerator[EventHandler]:
    assert isinstance(spec.options, WebhookOptions)
    async with WebhookHandler(spec.options, known_secrets=surroundings.known_secrets) as handler:
        yield handler


@asynccontextmanager
async def _python(spec: HandlerSpec, surroundings: Surroundings) -> AsyncGenerator[EventHandler]:
    assert isinstance(spec.options, PythonOptions)
    handler = PythonHandler(
        spec.name,
        spec.options,
        instance=surroundings.instance,
        environ=surroundings.environ,
        subtree=surroundings.subtree,
        emit=surroundings.emit,
        stderr=partial(surroundings.stderr_of, spec.name),
        known_secrets=surroundings.known_secrets,
    )
    async with handler:
        yield handler


MAKERS: Final[dict[HandlerType, Maker]] = {
    HandlerType.LOG: _log,
    HandlerType.EXEC: _exec,
    HandlerType.WEBHOOK: _webhook,
    HandlerType.PYTHON: _python,
}
"""Those of this program."""


class Unavailable:
    """Stands for a handler that could not be made: it takes nothing, and says why."""

    def __init__(self, why: str) -> None:
        self.trouble = why

    async def deliver(self, event: HandlerEvent) -> None:
        """See `EventHandler`."""
        del event
        raise DeliveryFailed(self.trouble, was_tried=False)
