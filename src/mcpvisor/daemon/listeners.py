"""Owns what the daemon listens on: the gateway, the metrics and the control socket, each with what it answers from."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import anyio
import anyio.to_thread

from mcpvisor import __version__
from mcpvisor.daemon.control.facts import Facts
from mcpvisor.daemon.control.handling import HandlerRoutes
from mcpvisor.daemon.control.server import ControlServer
from mcpvisor.daemon.doctor.route import DoctorRoutes
from mcpvisor.daemon.gateway.app import Health
from mcpvisor.daemon.gateway.gateway import Gateway
from mcpvisor.daemon.gateway.settings import GatewaySettings
from mcpvisor.daemon.parts import Given, Parts
from mcpvisor.metrics.listener import MetricsServer
from mcpvisor.metrics.recorder import MetricsRecorder


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far the daemon is, as its listeners have to know it."""

    health: Health
    applied: anyio.Event
    """Set once a configuration was applied."""
    stage: Callable[[], str]
    """What is going on at the end, in words; empty before it."""


async def open_listeners(
    exits: AsyncExitStack, parts: Parts, given: Given, standing: Standing
) -> tuple[Gateway, dict[str, Sequence[str]]]:
    """The gateway, and the addresses by listener; `exits` ends them all. Raises what one raises that cannot be opened."""
    settings = given.settings
    metrics = await exits.enter_async_context(_serving_metrics(given.recorder, settings.metrics.listen))
    gateway = Gateway(
        parts.supervisor,
        GatewaySettings(
            listen=tuple(settings.gateway.listen),
            state_dir=settings.daemon.state_dir,
            auth=settings.gateway.auth,
            hosts=tuple(settings.gateway.hosts),
            origins=tuple(settings.gateway.origins),
            first_list_wait=settings.gateway.first_list_wait,
        ),
        instance=given.state.instance,
        subtree=given.subtree,
        health=standing.health,
        observer=given.recorder,
        keeper=parts.keeper.store,
        applied=standing.applied,
        desk=parts.desk,
    )
    await exits.enter_async_context(gateway)
    if gateway.token is not None:
        given.known_secrets.learn_own(gateway.token)
    addresses: dict[str, Sequence[str]] = {"gateway": gateway.addresses, "metrics": metrics.addresses}
    facts = Facts(
        version=__version__,
        started_at=time.time(),
        pid=os.getpid(),
        addresses=addresses,
        gateway_token=gateway.token_file,
        handlers=parts.handlers.views,
        stopping=standing.stage,
    )
    listening = [*gateway.addresses, *metrics.addresses, *settings.control.listen]
    doctor = DoctorRoutes(given.reloader, parts.supervisor, given.subtree, lambda: listening)
    control = ControlServer(
        parts.supervisor,
        parts.reloading,
        facts,
        listen=settings.control.listen,
        instance=given.state.instance,
        subtree=given.subtree,
        keeping=parts.keeper,
        desk=parts.desk,
        more=[
            *HandlerRoutes(parts.handlers, parts.reloading.last_config).routes(),
            *parts.level.routes(),
            *doctor.routes(),
        ],
    )
    await exits.enter_async_context(control)
    return gateway, addresses


@asynccontextmanager
async def _serving_metrics(recorder: MetricsRecorder, listen: Sequence[str]) -> AsyncGenerator[MetricsServer]:
    server = MetricsServer(recorder.registry, listen, on_refused=partial(recorder.refused, "metrics"))
    server.start()
    try:
        yield server
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(server.stop)
