"""Owns what becomes of errors that task groups have wrapped: one alone is told as itself."""

from __future__ import annotations

from types import TracebackType

import anyio.abc


def only_error(error: BaseException) -> BaseException:
    """The one error in groups of one; a group of several as it is."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def end_tasks(
    tasks: anyio.abc.TaskGroup, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
) -> None:
    """Cancel a task group that was entered by hand, and leave it; an error of the body leaves as it was, not in a group."""
    tasks.cancel_scope.cancel()
    try:
        await tasks.__aexit__(kind, value, tb)
    except BaseExceptionGroup as group:
        if only_error(group) is not value:
            raise
