"""Owns the set-up of the daemon's log: one pipeline for structlog and the standard library, one sink, nothing that waits."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final, Literal, NoReturn

import structlog

from mcpvisor.daemon.log_repeats import RepeatLimit
from mcpvisor.daemon.log_sink import LogRecord, LogSink, Writer
from mcpvisor.daemon.log_writers import ConsoleWriter, JournalWriter, JsonWriter
from mcpvisor.daemon.redaction import redact
from mcpvisor.supervisor.cleaning import clip
from mcpvisor.supervisor.known_secrets import KnownSecrets

_Fields = MutableMapping[str, Any]
LogFormat = Literal["auto", "journal", "console", "json"]

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_OURS: Final = "mcpvisor"
_STDERR: Final = 2
_REPR: Final = 200
"""Characters that are shown of an object of which nothing else is known."""
_ALIASES: Final = {"warn": "warning", "exception": "error", "fatal": "critical"}


class Log:
    """The log while the daemon runs. `install` makes it the one of the process, `close` writes what is left.

    From every thread: emitting queues a record and returns. A sink that does not keep up loses the oldest records, and
    `on_drop(sink, number)` is told.
    """

    def __init__(
        self,
        writer: Writer,
        *,
        level: str = "info",
        on_drop: Callable[[str, int], None] | None = None,
        known_secrets: KnownSecrets | None = None,
    ) -> None:
        self._known_secrets = known_secrets or KnownSecrets()
        self._threshold = _number_of(level)
        self._repeats = RepeatLimit()
        self._sink = LogSink(writer, on_drop=on_drop, idle=lambda: self._repeats.expired(time.time()))
        self._handler = _StandardHandler(self)
        self._hooks = threading.excepthook, sys.unraisablehook
        """Those of the process, while ours are in their place."""

    @property
    def sink(self) -> str:
        """Where the log goes: `journal`, `console` or `json`."""
        return self._sink.name

    @property
    def dropped(self) -> int:
        """How many records were lost so far."""
        return self._sink.dropped

    def set_level(self, level: str) -> None:
        """Show records of `level` and above from now on. Raises ValueError for a word that is no level."""
        self._threshold = _number_of(level)
        logging.getLogger(_OURS).setLevel(self._threshold)

    def is_shown(self, level: str) -> bool:
        """Whether records of that level are written."""
        return LEVELS[level] >= self._threshold

    def install(self) -> None:
        """Route structlog, the standard library's logging, its warnings and what nobody has caught here.

        Other people's loggers are heard from WARNING on: the SDK writes session ids at INFO.
        """
        self._sink.start()
        structlog.configure(
            processors=[
                self._drop_hidden,
                structlog.contextvars.merge_contextvars,
                _pop_exception,
                self._mask,
                redact,
                self._queue,
            ],
            wrapper_class=structlog.BoundLogger,
            logger_factory=lambda *_: None,
            cache_logger_on_first_use=False,
        )
        root = logging.getLogger()
        root.handlers[:] = [self._handler]
        root.setLevel(logging.WARNING)
        logging.getLogger(_OURS).setLevel(self._threshold)
        logging.captureWarnings(capture=True)
        self._hooks = threading.excepthook, sys.unraisablehook
        threading.excepthook, sys.unraisablehook = self._thread_failed, self._unraisable

    def emit(self, level: str, message: str, fields: Mapping[str, Any], at: float | None = None) -> None:
        """Queue a record whose texts are cleaned already; whatever is known to be secret is masked here, whoever wrote it."""
        known = self._known_secrets
        record = LogRecord(time.time() if at is None else at, level, known.text(message), known.value(fields))
        for admitted in self._repeats.admit(record):
            self._sink.put(admitted)

    def close(self, timeout: float = 1.0) -> None:
        """Write what is queued, for at most `timeout` seconds. The last act of the daemon: later records are lost."""
        logging.captureWarnings(capture=False)
        threading.excepthook, sys.unraisablehook = self._hooks
        logging.getLogger().removeHandler(self._handler)
        self._sink.close(timeout)

    def _drop_hidden(self, _logger: object, method: str, event_dict: _Fields) -> _Fields:
        """First in the pipeline, so that a record which nobody sees costs next to nothing."""
        if not self.is_shown(_level_of(method)):
            raise structlog.DropEvent
        return event_dict

    def _mask(self, _logger: object, _method: str, event_dict: _Fields) -> _Fields:
        """Before the rules for credentials, which may take a part of a secret out, and leave the rest."""
        return {name: self._known_secrets.value(value) for name, value in event_dict.items()}

    def emit_raw(self, level: str, event: Mapping[str, Any], at: float | None = None) -> None:
        """Queue a record of somebody else, whose message is its `event`."""
        cleaned = dict(redact(None, level, self._mask(None, level, dict(event))))
        self.emit(level, str(cleaned.pop("event")), cleaned, at=at)

    def _thread_failed(self, failed: threading.ExceptHookArgs) -> None:
        if failed.exc_value is not None and not isinstance(failed.exc_value, SystemExit):
            name = failed.thread.name if failed.thread is not None else "?"
            self.emit_raw("error", {"event": f"the thread {name} has failed", "exception": _told(failed.exc_value)})

    def _unraisable(self, ignored: sys.UnraisableHookArgs) -> None:
        told = f"{ignored.err_msg or 'an exception was ignored in'}: {clip(repr(ignored.object), _REPR)}"
        self.emit_raw("error", {"event": told, **({"exception": _told(ignored.exc_value)} if ignored.exc_value else {})})

    def _queue(self, _logger: object, method: str, event_dict: _Fields) -> NoReturn:
        message = str(event_dict.pop("event", ""))
        self.emit(_level_of(method), message, dict(event_dict))
        raise structlog.DropEvent  # the record is queued: there is nothing left to hand on


class _StandardHandler(logging.Handler):
    """Takes the records of the standard library's loggers."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one record; a record that cannot be formatted is told as such instead of being printed to stderr."""
        level = _level_of(logging.getLevelName(record.levelno).lower())
        try:
            event: dict[str, Any] = {"event": record.getMessage(), "logger": record.name}
        except Exception as error:  # noqa: BLE001  # the arguments of a foreign log call may do anything
            event = {"event": f"a log call of {record.name} failed: {error}", "logger": record.name}
        if record.exc_info and record.exc_info[1] is not None:
            event["exception"] = _told(record.exc_info[1])
        self._log.emit_raw(level, event, record.created)


def open_log(
    *,
    level: str = "info",
    log_format: LogFormat = "auto",
    on_drop: Callable[[str, int], None] | None = None,
    environ: Mapping[str, str] = os.environ,
    known_secrets: KnownSecrets | None = None,
) -> Log:
    """The daemon's log on stderr or the journal, installed.

    `auto`: the journal when stderr is connected to it, else lines for a person when stderr is a terminal, else JSON lines.
    `known_secrets` are masked in every record. Raises ValueError for an unknown level or format.
    """
    log = Log(choose_writer(log_format, environ), level=level, on_drop=on_drop, known_secrets=known_secrets)
    log.install()
    return log


def choose_writer(log_format: LogFormat, environ: Mapping[str, str] = os.environ, descriptor: int = _STDERR) -> Writer:
    """The writer of a format; see `open_log` for `auto`."""
    if log_format == "auto":
        if is_journal(environ.get("JOURNAL_STREAM", ""), descriptor):
            log_format = "journal"
        else:
            log_format = "console" if os.isatty(descriptor) else "json"
    if log_format == "journal":
        return JournalWriter()
    if log_format == "console":
        return ConsoleWriter(descriptor, colors=os.isatty(descriptor) and not environ.get("NO_COLOR"))
    if log_format == "json":
        return JsonWriter(descriptor)
    raise ValueError(f"[log] format: {log_format!r} is none of auto, journal, console, json")


def is_journal(journal_stream: str, descriptor: int = _STDERR) -> bool:
    """Whether `$JOURNAL_STREAM` (device:inode) names the very file that the descriptor is.

    The variable alone proves nothing: it is inherited by programs whose stderr was redirected.
    """
    device, colon, inode = journal_stream.partition(":")
    if not colon or not device.isdigit() or not inode.isdigit():
        return False
    try:
        status = os.fstat(descriptor)
    except OSError:  # stderr is closed
        return False
    return (status.st_dev, status.st_ino) == (int(device), int(inode))


def _level_of(method: str) -> str:
    """The level of a logger's method; a method of no known name is an `info`."""
    return method if method in LEVELS else _ALIASES.get(method, "info")


def _pop_exception(_logger: object, method: str, event_dict: _Fields) -> _Fields:
    """Turn `exc_info` into text at once: a queued traceback would keep its frames alive."""
    info = event_dict.pop("exc_info", method == "exception")
    error = info if isinstance(info, BaseException) else sys.exc_info()[1] if info else None
    if error is not None:
        event_dict["exception"] = _told(error)
    return event_dict


def _told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


def _number_of(level: str) -> int:
    if level not in LEVELS:
        raise ValueError(f"[log] level: {level!r} is none of {', '.join(LEVELS)}")
    return LEVELS[level]
