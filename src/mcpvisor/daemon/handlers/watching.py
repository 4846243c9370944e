"""Owns which resources are watched for routes: those that a route names whole, with their server, and no pattern of them."""

from __future__ import annotations

from typing import Final

from mcpvisor.daemon.handlers.routing import Routing
from mcpvisor.supervisor.subscriptions.standing import Wish
from mcpvisor.supervisor.supervisor import Supervisor

HOLDER: Final = "routes"
"""As whom they are wanted, beside the entry of the server and the clients."""


def named_by(routing: Routing) -> dict[str, dict[str, Wish]]:
    """The URIs by server; a pattern names none, since nobody could be asked for all that it may mean."""
    found: dict[str, dict[str, Wish]] = {}
    for route in routing.routes:
        if "resource_updated" not in route.kinds:
            continue
        uris = [glob.pattern for glob in route.uris if glob.is_literal]
        for server in (glob.pattern for glob in route.servers if glob.is_literal):
            found.setdefault(server, {}).update((uri, Wish()) for uri in uris)
    return found


def watch(supervisor: Supervisor, routing: Routing) -> None:
    """Have the named resources of every server watched, and no others for routes any more."""
    named = named_by(routing)
    for server in supervisor.names():
        supervisor.subscriptions(server).replace(HOLDER, named.get(server, {}))
