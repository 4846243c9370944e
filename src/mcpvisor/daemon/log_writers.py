"""Owns the forms of a log line: journal fields over journald's own socket, JSON lines, and lines for a terminal."""

from __future__ import annotations

import array
import errno
import fcntl
import json
import os
import re
import socket
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from structlog.dev import ConsoleRenderer

from mcpvisor.daemon.log_sink import LogRecord
from mcpvisor.supervisor.cleaning import escape_json, marked

JOURNAL_SOCKET: Final = "/run/systemd/journal/socket"
PRIORITIES: Final = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
MESSAGE_IDS: Final = uuid.UUID("6f0d1f6e-3c5b-4c0b-9d0e-5b1b6c3a7e52")
"""The name space of the message ids: `uuid5(MESSAGE_IDS, event name)` is the MESSAGE_ID of an event type, for good."""

_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_NO_FIELD_CHARACTER: Final = re.compile(r"[^A-Z0-9_]")


def message_id(event: str) -> str:
    """The MESSAGE_ID of an event type: 32 hexadecimal digits, the same in every version."""
    return uuid.uuid5(MESSAGE_IDS, event).hex


def sentence(record: LogRecord) -> str:
    """The record as one readable text; an event's message says all of it, another's fields are put behind it."""
    if "mcp_event" in record.fields:
        return record.message
    shown = (f"{key}={value}" for key, value in record.fields.items() if key not in ("exception", "logger"))
    text = " ".join((record.message, *shown))
    return f"{text}\n{record.fields['exception']}" if "exception" in record.fields else text


def journal_fields(record: LogRecord) -> dict[str, str]:
    """The fields of a record: MESSAGE, PRIORITY, MCP_SERVER, MCP_EVENT, MESSAGE_ID, the others as MCP_<NAME>."""
    fields = {
        "MESSAGE": sentence(record),
        "PRIORITY": str(PRIORITIES.get(record.level, 6)),
        "SYSLOG_IDENTIFIER": "mcpvisor",
    }
    for key, value in record.fields.items():
        if key == "mcp_event":
            fields["MCP_EVENT"] = str(value)
            fields["MESSAGE_ID"] = message_id(str(value))
        else:
            fields[f"MCP_{_NO_FIELD_CHARACTER.sub('_', key.upper())}"[:64]] = _as_text(value)
    return fields


def encode_journal(fields: Mapping[str, str]) -> bytes:
    """The native form of journald: `NAME=value` lines, and a length before a value that has a line break of its own."""
    parts: list[bytes] = []
    for name, text in fields.items():
        value = text.encode("utf-8", "backslashreplace")
        if b"\n" in value:
            parts += [name.encode(), b"\n", len(value).to_bytes(8, "little"), value, b"\n"]
        else:
            parts += [name.encode(), b"=", value, b"\n"]
    return b"".join(parts)


class JournalWriter:
    """Writes to journald natively; a record too big for a datagram goes as a sealed memory file."""

    name = "journal"

    def __init__(self, path: str = JOURNAL_SOCKET) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def write(self, record: LogRecord) -> None:
        data = encode_journal(journal_fields(record))
        try:
            self._socket.sendto(data, self._path)  # unconnected, so that a journald that was restarted is found again
        except OSError as error:
            if error.errno not in (errno.EMSGSIZE, errno.ENOBUFS):
                raise
            self._send_file(data)

    def close(self) -> None:
        self._socket.close()

    def _send_file(self, data: bytes) -> None:
        descriptor = os.memfd_create("mcpvisor-log", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        try:
            _write_all(descriptor, data)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))
            self._socket.sendmsg([b""], [rights], 0, self._path)
        finally:
            os.close(descriptor)


class JsonWriter:
    """Writes one JSON object a line; `timestamp` is UTC."""

    name = "json"

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, record: LogRecord) -> None:
        line = {"timestamp": _utc(record.at), "level": record.level, "message": record.message, **record.fields}
        text = escape_json(json.dumps(line, ensure_ascii=False, default=str, separators=(",", ":")))
        # What UTF-8 cannot say (a lone surrogate) becomes \udXXX, which JSON reads as the same.
        _write_all(self._descriptor, text.encode("utf-8", "backslashreplace") + b"\n")

    def close(self) -> None:
        """Nothing: the descriptor is its owner's."""


class ConsoleWriter:
    """Writes lines for a person at a terminal; what cannot be seen never reaches it."""

    name = "console"

    def __init__(self, descriptor: int, *, colors: bool) -> None:
        self._descriptor = descriptor
        self._render = ConsoleRenderer(colors=colors, sort_keys=False)

    def write(self, record: LogRecord) -> None:
        clock = datetime.fromtimestamp(record.at).astimezone().strftime("%H:%M:%S")
        told = "mcp_event" in record.fields  # then the message says it all
        fields = {key: _visible(value) for key, value in record.fields.items() if not told and key != "logger"}
        event = {"timestamp": clock, "level": record.level, "event": _visible(record.message), **fields}
        text = self._render(None, record.level, event)
        _write_all(self._descriptor, text.encode("utf-8", "backslashreplace") + b"\n")

    def close(self) -> None:
        """Nothing: the descriptor is its owner's."""


def _visible(value: Any) -> Any:
    return "\n".join(map(marked, value.split("\n"))) if isinstance(value, str) else value


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
