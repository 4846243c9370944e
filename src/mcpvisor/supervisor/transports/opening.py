"""Owns which transport a spec asks for."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from mcpvisor.supervisor.opening import Opening
from mcpvisor.supervisor.process.environment import Marker
from mcpvisor.supervisor.spec import HttpTransport, StdioLaunch
from mcpvisor.supervisor.transports.hop import hop_mark
from mcpvisor.supervisor.transports.open_http import open_http
from mcpvisor.supervisor.transports.stdio import open_stdio
from mcpvisor.supervisor.transports.wire import Wire


def open_wire(opening: Opening) -> AbstractAsyncContextManager[Wire]:
    """A wire to the server of a spec. Raises OpenFailed when it is entered."""
    spec = opening.spec
    if isinstance(spec.target, StdioLaunch):
        return open_stdio(
            spec.target,
            opening.hooks,
            opening.stderr,
            marker=Marker(opening.instance, opening.label or spec.name, opening.generation),
            graces=spec.stop,
            max_message=spec.max_message,
            processes=opening.processes,
            subtree=opening.subtree,
        )
    transport = HttpTransport.SSE if opening.only_sse else None
    return open_http(
        spec,
        opening.hooks,
        transport=transport,
        hop=hop_mark(opening.instance),
        memory=opening.memory,
        credentials=opening.credentials,
    )
