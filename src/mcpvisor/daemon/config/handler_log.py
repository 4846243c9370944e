"""Owns the keys of a handler of type `log`."""

from __future__ import annotations

from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.daemon.handlers.specs import LogLevel, LogOptions


def read_log(entry: TableReader) -> LogOptions:
    """`type = "log"`, `level`."""
    return LogOptions(level=entry.choice("level", LogLevel.INFO))
