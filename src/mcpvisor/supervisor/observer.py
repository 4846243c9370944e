"""The direct line for what happens once per call: too often for the event stream, too useful to lose."""

from __future__ import annotations

from typing import Any, Protocol


class CallObserver(Protocol):
    """Counts calls; every method must be O(1), quick and free of failure."""

    def call_started(self, server: str) -> None:
        """A request was let through the door."""
        ...

    def call_ended(self, server: str, transport: str, method: str, outcome: str, error_type: str, seconds: float) -> None:
        """A request is over.

        `outcome` is `ok` or an `Outcome`; `error_type` is empty, `tool_error` (a result with `isError`) or `error`.
        """
        ...

    def call_progressed(self, server: str, tool: str | None, progress: dict[str, Any]) -> None:
        """The server told of the progress of a request whose caller wants to know; `tool` is the one called, if any."""
        ...

    def notification_received(self, server: str, method: str) -> None:
        """A notification arrived, wanted or not."""
        ...

    def message_refused(self, server: str, reason: str) -> None:
        """A message of the server was refused: `size`, `values`, `depth`, `syntax`, `rate`."""
        ...

    def noise_received(self, server: str, lines: int) -> None:
        """Lines that are no messages came where only messages may."""
        ...


class NoObserver:
    """Counts nothing; what the supervisor uses when it is a library."""

    def call_started(self, server: str) -> None:
        """See `CallObserver`."""

    def call_ended(self, server: str, transport: str, method: str, outcome: str, error_type: str, seconds: float) -> None:
        """See `CallObserver`."""

    def call_progressed(self, server: str, tool: str | None, progress: dict[str, Any]) -> None:
        """See `CallObserver`."""

    def notification_received(self, server: str, method: str) -> None:
        """See `CallObserver`."""

    def message_refused(self, server: str, reason: str) -> None:
        """See `CallObserver`."""

    def noise_received(self, server: str, lines: int) -> None:
        """See `CallObserver`."""
