"""Owns the exit codes of the command line, and the errors that lead to them."""

from __future__ import annotations

from enum import IntEnum
from typing import Any


class Exit(IntEnum):
    """What a verb's exit status says; the numbers from 64 on are those of sysexits."""

    DONE = 0
    NO = 1
    """The command ran, and the answer is no."""
    NOT_RUNNING = 3
    """No daemon answers: no socket, or refused."""
    USAGE = 64
    NO_ANSWER = 69
    """The daemon is there and does not answer."""
    TEMPORARY = 75
    """Try again later: another daemon runs already."""
    PERMISSION = 77
    CONFIG = 78
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class CliError(Exception):
    """A verb cannot go on; the text is for stderr, `exit` for the one who called."""

    def __init__(self, exit_code: Exit, message: str) -> None:
        super().__init__(message)
        self.exit = exit_code


class Refused(CliError):
    """The daemon answered with an error; `body` is its AIP-193 object."""

    def __init__(self, body: dict[str, Any]) -> None:
        status = str(body.get("status", "UNKNOWN"))
        super().__init__(_EXITS.get(status, Exit.NO), str(body.get("message") or status))
        self.body = body

    def detail(self, kind: str) -> dict[str, Any]:
        """The part of the details of that `@type`; empty where there is none."""
        found = (one for one in self.body.get("details", []) if isinstance(one, dict) and one.get("@type") == kind)
        return next(found, {})


_EXITS = {
    "INVALID_ARGUMENT": Exit.USAGE,
    "PERMISSION_DENIED": Exit.PERMISSION,
    "INTERNAL": Exit.NO_ANSWER,
}


def fault(error: Exception) -> str:
    """What is told of an error that nobody has foreseen: where it is, and not a word of its own, which may hold anything.

    Most likely the daemon is of another version, and has answered in a form that the verb does not know.
    """
    where: list[str] = []
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        where.append(f"{code.co_name} in line {step.tb_lineno} of {code.co_filename.rpartition('/')[2]}")
        step = step.tb_next
    told = "it has failed, by a fault of its own or of the daemon's answer"
    return f"{told}: {type(error).__name__} at {', from '.join(reversed(where[-3:]))}"
