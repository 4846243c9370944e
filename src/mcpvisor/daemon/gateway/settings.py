"""Owns what can be set about the gateway, and its limits with their one default each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mcpvisor.supervisor.errors import McpvisorError

AuthMode = Literal["auto", "open"]
"""`auto`: unix peers by uid and group, TCP by bearer token. `open`: everybody; it must be written by hand."""


class GatewayError(McpvisorError):
    """The gateway cannot be opened as it is configured; the text names the key or the file, and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits:
    """What clients may cost. Sizes in bytes, durations in seconds; over a limit a request is refused. Openings alone wait."""

    head_seconds: float = 10.0
    """From the first byte of a request to the end of its head; also from a connection to its first byte."""
    head_bytes: int = 64 * 1024
    body_seconds: float = 30.0
    """From the end of the head to the end of the body."""
    body_bytes: int = 4 * 1024 * 1024
    bodies_bytes: int = 64 * 1024 * 1024
    """All bodies of requests that are not over; one principal may hold as much as is free beside it."""
    keep_alive_seconds: float = 75.0
    """Between two requests on a connection; 5 s at most until one was admitted."""
    connections: int = 2048
    """On each listener. Where all are taken the oldest that was never admitted is closed."""
    pipelined: int = 4
    """Requests on one connection that wait for the answer to one before them; more close the connection."""
    exchanges_per_principal: int = 512
    """HTTP requests without a complete answer, open streams included."""
    sessions: int = 4096
    sessions_per_principal: int = 256
    session_idle_seconds: float = 1800.0
    openings_burst: int = 64
    """Sessions that one principal may open at once; what is above waits its time, and is not refused."""
    openings_per_second: float = 100.0
    listen_streams: int = 1024
    """Open `subscriptions/listen` streams on one endpoint."""
    listen_streams_per_principal: int = 256
    subscriptions_per_client: int = 512
    """Resources that one session, or one `subscriptions/listen` stream, may watch."""
    subscriptions_per_principal: int = 4096
    subscriptions: int = 16_384
    """Resources that all clients may watch, each counted once for each client."""
    parked_calls: int = 256
    """Calls that wait for a client of 2026-07-28 to come back with its answers."""
    parked_calls_per_principal: int = 32
    parked_seconds: float = 600.0
    """How long one waits before it is withdrawn from its server."""
    state_seconds: float = 3600.0
    """For how long a client may come back with a `requestState`."""
    grace_seconds: float | None = None
    """What requests in flight get to finish once the gateway closes; None: the largest `drain` of the servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Where the gateway listens and whom it serves.

    `listen` entries are `HOST:PORT` (port 0 takes a free one), `[IPV6]:PORT` or `unix:/path`. `hosts` are names under which
    a proxy presents us, `origins` the web origins whose pages may call us. `first_list_wait` is in seconds.
    """

    listen: tuple[str, ...]
    state_dir: Path
    auth: AuthMode = "auto"
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    first_list_wait: float = 5.0
    limits: GatewayLimits = GatewayLimits()
