"""Owns the start of the daemon as a program: configuration or a clear refusal, the state folder, the log, an exit code."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry

from mcpvisor import __version__
from mcpvisor.daemon.cli.exits import Exit
from mcpvisor.daemon.config.load import Loaded
from mcpvisor.daemon.config.reload import NoConfiguration, Reloader
from mcpvisor.daemon.daemon import Daemon, OnReady
from mcpvisor.daemon.gateway.settings import GatewayError
from mcpvisor.daemon.log import open_log
from mcpvisor.daemon.parts import Given
from mcpvisor.daemon.redaction import clean_text
from mcpvisor.daemon.reloading import count_reload, learn_secrets
from mcpvisor.daemon.state_dir import SecondInstance, StateDirUnusable, taken
from mcpvisor.daemon.systemd import Handover, take_handover
from mcpvisor.daemon.unix_socket import ListenFailed, SocketInUse
from mcpvisor.daemon.versions.reading import read_past
from mcpvisor.metrics.recorder import MetricsRecorder
from mcpvisor.supervisor.known_secrets import KnownSecrets
from mcpvisor.supervisor.process.delegation import take_subtree


def main(paths: Sequence[Path]) -> int:
    """Run the daemon on the files or folders of `paths` until it is told to end; returns the exit code."""
    return asyncio.run(run(paths))


async def run(paths: Sequence[Path]) -> int:
    """See `main`."""
    handover = take_handover()  # first of all, so that nothing else sees what is meant for us
    recorder = MetricsRecorder(CollectorRegistry(), version=__version__)
    past = partial(read_past, paths=paths, environ=os.environ)
    reloader = Reloader(paths, os.environ, on_report=partial(count_reload, recorder), past=past)
    return await _run(reloader, recorder, handover, None)


async def serve(loaded: Loaded, *, on_ready: OnReady) -> int:
    """Run the daemon on a configuration that was made in code; `on_ready` is called once everything listens."""
    recorder = MetricsRecorder(CollectorRegistry(), version=__version__)
    reloader = Reloader.of(loaded, on_report=partial(count_reload, recorder))
    return await _run(reloader, recorder, take_handover(), on_ready)


async def _run(reloader: Reloader, recorder: MetricsRecorder, handover: Handover, on_ready: OnReady | None) -> int:
    known_secrets = KnownSecrets()
    try:
        return await _run_with(known_secrets, reloader, recorder, handover, on_ready)
    except Exception as error:  # noqa: BLE001 - a fault of ours; Python itself would print whatever secret it tells of
        told = "".join(traceback.format_exception(error)).rstrip()
        _complain(clean_text(known_secrets.text(f"it has failed, by a fault of its own\n{told}")))
        return Exit.NO


async def _run_with(
    known_secrets: KnownSecrets,
    reloader: Reloader,
    recorder: MetricsRecorder,
    handover: Handover,
    on_ready: OnReady | None,
) -> int:
    try:
        applied = await reloader.start()
    except NoConfiguration as error:
        for problem in error.problems:
            _complain(str(problem))
        return Exit.CONFIG
    settings = applied.running
    learn_secrets(known_secrets, applied)
    log = open_log(
        level=settings.log.level, log_format=settings.log.format, on_drop=recorder.log_dropped, known_secrets=known_secrets
    )
    try:
        with taken(settings.daemon.state_dir) as state:
            given = Given(
                reloader=reloader,
                state=state,
                log=log,
                handover=handover,
                recorder=recorder,
                subtree=take_subtree(),
                known_secrets=known_secrets,
            )
            daemon = Daemon(given)
            await daemon.serve(on_ready)
    except (SecondInstance, SocketInUse) as error:
        _complain(str(error))
        return Exit.TEMPORARY
    except PermissionError as error:
        _complain(_told(error))
        return Exit.PERMISSION
    except (StateDirUnusable, ListenFailed, GatewayError, OSError) as error:
        _complain(_told(error))
        return Exit.TEMPORARY if _is_passing(error) else Exit.CONFIG
    finally:
        log.close()
    return Exit.DONE


def _is_passing(error: BaseException) -> bool:
    """Whether a fault may be gone at the next try: a full disk must not keep the daemon down for good."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)


def _told(error: Exception) -> str:
    """Its own words, without the number that Python puts before those of the system."""
    if isinstance(error, OSError) and error.filename is None and error.strerror:
        return error.strerror
    return str(error)


def _complain(text: str) -> None:
    sys.stderr.write(f"mcpvisor: {text}\n")
