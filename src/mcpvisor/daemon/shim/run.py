"""Owns one run of the shim: what it is made of, and what ends it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio
import anyio.abc

from mcpvisor.daemon.cli.exits import CliError, Exit
from mcpvisor.daemon.cli.output import tell
from mcpvisor.daemon.shim.door import Door, FindDoor, refusal
from mcpvisor.daemon.shim.gateway_http import ConnectionBroken, DialFailed, GatewayHttp, ResponseRefused
from mcpvisor.daemon.shim.messages import MAX_LINE, value_of
from mcpvisor.daemon.shim.push import Push
from mcpvisor.daemon.shim.relay import Relay
from mcpvisor.daemon.shim.standard_io import LineReader, LineWriter

CHECK_SECONDS: Final = 10.0
"""How long the gateway may take to say that it can be used: a daemon that starts applies its configuration first."""

LAST_ANSWERS_SECONDS: Final = 0.7
"""After the end of stdin: for the answers of what came before it. Clients give a server some two seconds in all."""

GOODBYE_SECONDS: Final = 0.7
"""For the end of the session at the gateway."""

STDIN, STDOUT = 0, 1


def main(find: FindDoor, server: str | None) -> int:
    """Be a stdio server until stdin ends, the client goes or a signal comes; the exit code. Raises CliError at the start."""
    door = find()
    return anyio.run(_serve, door, find, server)


async def _serve(door: Door, find: FindDoor, server: str | None) -> int:
    http = GatewayHttp(door, find)
    await _check(http, server)
    reader, out = LineReader(STDIN, MAX_LINE), LineWriter(STDOUT)
    relay = Relay(http, out, server, tell)
    code = int(Exit.DONE)
    async with anyio.create_task_group() as tasks:

        def end(with_code: int) -> None:
            nonlocal code
            code = with_code
            tasks.cancel_scope.cancel()

        await tasks.start(_until_signal, end)
        push = Push(http, out, relay.session, tell)
        relay.on_opened = lambda: tasks.start_soon(push.run)
        tasks.start_soon(http.reap)
        tasks.start_soon(_until_gone, out, end)
        tasks.start_soon(_until_said, relay, reader, end)
        tasks.start_soon(_until_over, reader, end)
        out.start()
        reader.start()
    with anyio.move_on_after(GOODBYE_SECONDS):
        # A gateway that is gone forgets idle sessions in time.
        with suppress(DialFailed, ConnectionBroken, ResponseRefused):
            await relay.session.end()
    await http.aclose()
    return code


async def _check(http: GatewayHttp, server: str | None) -> None:
    """Ask whether the endpoint is there and serves us. Raises CliError."""
    try:
        with anyio.fail_after(CHECK_SECONDS):
            async with http.exchange("GET", {"accept": "application/json"}) as reply:
                error = refusal(http.door, server, reply.status, value_of(await reply.body()))
    except TimeoutError as late:
        raise CliError(Exit.NO_ANSWER, f"the gateway {http.door} did not answer within {CHECK_SECONDS:g} s") from late
    except DialFailed as failed:
        code = {"permission": Exit.PERMISSION, "connect_failed": Exit.NOT_RUNNING}.get(failed.cause, Exit.NO_ANSWER)
        raise CliError(code, str(failed)) from failed
    except (ConnectionBroken, ResponseRefused) as broken:
        raise CliError(Exit.NO_ANSWER, f"the gateway {http.door} broke off its answer: {broken}") from broken
    if error is not None:
        raise error


End = Callable[[int], None]
"""Ends the run with an exit code."""


async def _until_said(relay: Relay, reader: LineReader, end: End) -> None:
    """Carry all that comes, until each request is answered after the last line."""
    await relay.run(reader.lines)
    end(Exit.DONE)


async def _until_over(reader: LineReader, end: End) -> None:
    """Nobody asks any more: what is not answered within a moment after that is for nobody."""
    await reader.ended.wait()
    await anyio.sleep(LAST_ANSWERS_SECONDS)
    end(Exit.DONE)


async def _until_gone(out: LineWriter, end: End) -> None:
    await out.gone.wait()
    end(Exit.DONE)


async def _until_signal(end: End, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        task_status.started()
        async for number in signals:
            end(Exit.INTERRUPTED if number == signal.SIGINT else Exit.DONE)
