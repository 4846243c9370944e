"""Owns what is wanted of handlers: one frozen spec for each, comparable, as the configuration says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Final

from mcpvisor.daemon.handlers.policy_options import PolicyOptions
from mcpvisor.daemon.handlers.python_options import PythonOptions
from mcpvisor.daemon.handlers.webhook_options import WebhookOptions
from mcpvisor.supervisor.process.environment import inherited_secrets
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import StdioLaunch


class HandlerType(StrEnum):
    """The kinds of handlers there are."""

    LOG = "log"
    EXEC = "exec"
    WEBHOOK = "webhook"
    PYTHON = "python"
    POLICY = "policy"


DURABLE: Final = frozenset({HandlerType.EXEC, HandlerType.WEBHOOK})
"""Types whose accepted events are in the state store until they are handled."""

TAKE_EVENTS: Final = frozenset({HandlerType.LOG, HandlerType.EXEC, HandlerType.WEBHOOK, HandlerType.PYTHON})
ANSWER_QUESTIONS: Final = frozenset({HandlerType.EXEC, HandlerType.WEBHOOK, HandlerType.PYTHON, HandlerType.POLICY})


OPERATOR: Final = "operator"
"""The built-in handler, which answers questions: whoever is at the control socket does. Routes name it; no table may."""


class LogLevel(StrEnum):
    """The levels of the daemon's own log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """`type = "log"`: each event is one line of the daemon's log."""

    level: LogLevel = LogLevel.INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecOptions:
    """`type = "exec"`: each event is one run of a program."""

    launch: StdioLaunch
    """Command line, environment and folder; started without a shell, as servers are."""


HandlerOptions = LogOptions | ExecOptions | WebhookOptions | PythonOptions | PolicyOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When an event that was not taken is tried again; times in seconds."""

    attempts: int = 10
    """Tries of one event, while others get through; then it is a dead letter."""
    delay: float = 1.0
    max_delay: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitPolicy:
    """When a handler is left alone."""

    failures: int = 5
    """Failures in a row after which nothing is given to it."""
    open_for: float = 30.0
    """Seconds until it is tried with one event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerSpec:
    """What is wanted of one handler. Two handlers are the same as long as their specs are equal; `origin` is not compared."""

    name: str
    options: HandlerOptions
    queue: int = 1000
    """Events that may wait."""
    concurrency: int = 1
    """Events that may be with it at one time."""
    deadline: float = 30.0
    """Seconds that one try may take."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    circuit: CircuitPolicy = field(default_factory=CircuitPolicy)
    origin: str = field(default="", compare=False)
    """Where it is written, as `file:line`."""

    @property
    def type(self) -> HandlerType:
        """Which kind of handler it is."""
        return _TYPES[type(self.options)]

    @property
    def is_durable(self) -> bool:
        """Whether what it has accepted outlives the daemon."""
        return self.type in DURABLE


_TYPES: Final[dict[type, HandlerType]] = {
    LogOptions: HandlerType.LOG,
    ExecOptions: HandlerType.EXEC,
    WebhookOptions: HandlerType.WEBHOOK,
    PythonOptions: HandlerType.PYTHON,
    PolicyOptions: HandlerType.POLICY,
}


def known_in_handler(spec: HandlerSpec, own: Mapping[str, str]) -> list[str]:
    """The plain values that are secret whoever tells them: of variables and files, signing keys, what is inherited.

    `own` is the environment of the daemon.
    """
    options = spec.options
    texts: Sequence[object]
    match options:
        case ExecOptions(launch=launch):
            texts = [launch.command, *launch.args, *(value for _, value in launch.env)]
        case WebhookOptions():
            texts = [options.url, options.proxy or "", *(value for _, value in options.headers), *options.secrets]
        case PythonOptions():
            texts = [*options.secrets, *(value for _, value in options.env)]
        case PolicyOptions():
            answers = [value for rule in options.rules for _, value in rule.content]
            texts = [text for value in answers for text in (value if isinstance(value, tuple) else [value])]
        case LogOptions():
            texts = []
    known = [part for text in texts if isinstance(text, Secret) for part in text.reveal_parts()]
    if isinstance(options, WebhookOptions):
        return [*known, *(secret.reveal() for secret in options.secrets)]
    if isinstance(options, ExecOptions | PythonOptions):
        inherit = options.launch.inherit_env if isinstance(options, ExecOptions) else options.inherit_env
        known += inherited_secrets(StdioLaunch(command="", inherit_env=inherit), own)
    return known


def changed_fields(old: HandlerSpec, new: HandlerSpec) -> tuple[str, ...]:
    """The fields in which two specs differ; `origin` does not count."""
    return tuple(one.name for one in fields(HandlerSpec) if one.compare and getattr(old, one.name) != getattr(new, one.name))
