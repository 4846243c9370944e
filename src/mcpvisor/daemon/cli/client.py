"""Owns the thin verbs' way to the daemon: HTTP/1.1 over its unix socket, by the standard library alone."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import quote, urlencode

from mcpvisor.daemon.cli.exits import CliError, Exit, Refused
from mcpvisor.daemon.cli.http import Answer, BadAnswer, send
from mcpvisor.daemon.cli.sockets import candidates, is_safe

ANSWER_SECONDS: Final = 5.0
"""How long an ordinary answer may take."""

SILENCE_SECONDS: Final = 40.0
"""How long a stream may say nothing; the daemon says something every 15 s."""

_PIECE: Final = 256 * 1024


def find_socket(explicit: str | None) -> socket.socket:
    """A connection to the first daemon that answers. Raises CliError, which names every path tried."""
    tried: list[str] = []
    forbidden = False
    is_named = bool(explicit or os.environ.get("MCPVISOR_SOCKET"))
    for path in candidates(explicit, os.environ, os.getuid()):
        if not is_named and not is_safe(path, os.getuid()):
            tried.append(f"{path} (its folder is not yours)")
            continue
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(ANSWER_SECONDS)
        try:
            connection.connect(os.fspath(path))
        except OSError as error:
            connection.close()
            if isinstance(error, TimeoutError | BlockingIOError):
                raise CliError(Exit.NO_ANSWER, f"the daemon at {path} does not accept connections") from error
            forbidden = forbidden or isinstance(error, PermissionError)
            tried.append(f"{path} ({error.strerror or error})")
        else:
            return connection
    if forbidden:
        raise CliError(Exit.PERMISSION, f"no permission to reach the daemon: tried {', '.join(tried)}")
    raise CliError(Exit.NOT_RUNNING, f"the daemon is not running: tried {', '.join(tried)}")


class ControlClient:
    """One verb's conversation with the daemon. Every method raises CliError, and Refused for an error of the API."""

    def __init__(self, explicit_socket: str | None) -> None:
        self._socket = explicit_socket

    def get(self, path: str, query: Mapping[str, Any] | None = None, *, timeout: float = ANSWER_SECONDS) -> Any:
        """The value at a path; `timeout` in seconds."""
        return self._value("GET", _with_query(path, query), None, timeout)

    def post(self, path: str, body: Any = None, *, timeout: float = ANSWER_SECONDS) -> Any:
        """The answer to an order."""
        return self._value("POST", path, {} if body is None else body, timeout)

    def follow(self, path: str, query: Mapping[str, Any] | None = None, *, body: Any = None) -> Iterator[tuple[str, Any]]:
        """The events of a stream, by name and value, until the daemon ends it."""
        method = "GET" if body is None else "POST"
        with self._ask(method, _with_query(path, query), body, SILENCE_SECONDS, "text/event-stream") as answer:
            if answer.content_type != "text/event-stream":
                raise CliError(Exit.NO_ANSWER, f"the daemon answered {path} with no event stream")
            yield from _events(_lines(answer))

    def download(self, path: str, to: BinaryIO, *, timeout: float) -> None:
        """Write what is at a path into a file, whole; `timeout` in seconds is for each part of it."""
        with self._ask("GET", path, None, timeout, "*/*") as answer:
            try:
                to.writelines(answer.pieces(_PIECE))
            except TimeoutError as error:
                raise CliError(Exit.NO_ANSWER, f"the daemon did not finish its answer to {path}") from error
            except (BadAnswer, ConnectionError) as error:
                raise CliError(Exit.NO_ANSWER, f"the daemon broke off its answer to {path}: {error}") from error

    def _value(self, method: str, target: str, body: Any, timeout: float) -> Any:
        with self._ask(method, target, body, timeout, "application/json") as answer:
            try:
                return json.loads(_read(answer, target))
            except (ValueError, RecursionError) as error:
                raise CliError(Exit.NO_ANSWER, f"the daemon's answer to {target} is no JSON") from error

    def _ask(self, method: str, target: str, body: Any, timeout: float, accept: str) -> Answer:
        """The head of the daemon's answer; whoever asks closes it."""
        connection = find_socket(self._socket)
        connection.settimeout(timeout)
        headers = {"Accept": accept}
        data = b""
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        try:
            with contextlib.suppress(BrokenPipeError):  # a refusal may come before all was sent: it is still to be read
                send(connection, method, target, headers, data)
            answer = Answer(connection)
            if answer.status >= 400:  # where HTTP's errors begin
                with answer:
                    raise _refusal(answer, target)
        except TimeoutError as error:
            connection.close()
            raise CliError(Exit.NO_ANSWER, f"the daemon did not answer {target} within {timeout:g} s") from error
        except (BadAnswer, ConnectionError) as error:
            connection.close()
            raise CliError(Exit.NO_ANSWER, f"the daemon broke off its answer to {target}: {error}") from error
        return answer


def server_path(server: str, rest: str = "") -> str:
    """The path of a server in the API; the name is quoted, whatever was typed."""
    return f"/v1/servers/{quote(server, safe='')}{rest}"


def absolute(paths: list[Path]) -> list[str]:
    """Paths as the daemon understands them, whose working folder is another."""
    return [os.fspath(path.absolute()) for path in paths]


def _with_query(path: str, query: Mapping[str, Any] | None) -> str:
    given = {key: value for key, value in (query or {}).items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _read(answer: Answer, target: str) -> bytes:
    try:
        return answer.read()
    except TimeoutError as error:
        raise CliError(Exit.NO_ANSWER, f"the daemon did not finish its answer to {target}") from error
    except (BadAnswer, ConnectionError) as error:
        raise CliError(Exit.NO_ANSWER, f"the daemon broke off its answer to {target}: {error}") from error


def _refusal(answer: Answer, target: str) -> CliError:
    try:
        body = json.loads(answer.read())["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        body = None
    if not isinstance(body, dict):
        return CliError(Exit.NO_ANSWER, f"the daemon answered {target} with {answer.status} and no reason")
    return Refused(body)


def _lines(answer: Answer) -> Iterator[bytes]:
    try:
        yield from answer.lines()
    except TimeoutError as error:
        raise CliError(Exit.NO_ANSWER, f"the daemon has said nothing for {SILENCE_SECONDS:g} s") from error
    except (BadAnswer, ConnectionError) as error:
        raise CliError(Exit.NO_ANSWER, f"the daemon broke off the stream: {error}") from error


def _events(lines: Iterator[bytes]) -> Iterator[tuple[str, Any]]:
    name, data = "message", b""
    for line in lines:
        if line.startswith(b"event: "):
            name = line[7:].decode("utf-8", "replace")
        elif line.startswith(b"data: "):
            data = line[6:]
        elif not line and data:
            try:
                value = json.loads(data)
            except (ValueError, RecursionError) as error:
                raise CliError(Exit.NO_ANSWER, "the daemon's stream holds what is no JSON") from error
            yield name, value
            name, data = "message", b""
