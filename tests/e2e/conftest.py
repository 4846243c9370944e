"""Owns what end-to-end tests run: a supervisor in this process, puppets under it, and daemons in processes of their own."""

from __future__ import annotations

import itertools
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests import nursery
from tests.e2e.case import Case
from tests.e2e.running import RunningDaemon
from tests.supervisor.transports.http_rig import Puppet
from tests.supervisor.transports.http_rig import puppet as http_puppet

from mcpvisor.supervisor.process.sweep import find_marked
from mcpvisor.supervisor.spec import HttpTarget, Intensity, RestartPolicy, ServerSpec, StdioLaunch, StopGraces
from mcpvisor.supervisor.supervisor import Supervisor


def pytest_runtest_setup(item: pytest.Item) -> None:
    nursery.start_for_real(item.get_closest_marker("alone") is not None)


@pytest.fixture
async def supervisor(anyio_backend: str) -> AsyncIterator[Supervisor]:
    """A guarded supervisor with real processes; after the test nothing that it started may be left."""
    async with Supervisor() as supervisor:
        yield supervisor
    assert [] == find_marked(supervisor.instance)


@pytest.fixture
def quick() -> RestartPolicy:
    """The one policy of these tests: the delays of the real one, a twentieth as long."""
    return RestartPolicy(delay=0.05, max_delay=0.4, intensity=Intensity(ends=5, within=60.0), crash_loop_retry=60.0)


@pytest.fixture
async def case(supervisor: Supervisor, servers: Path, tmp_path: Path, quick: RestartPolicy) -> Callable[..., Any]:
    """Puts puppets under supervision: `await case("stdio_banner", "glued")`; keywords are those of ServerSpec."""
    specs: dict[str, ServerSpec] = {}

    async def start(script: str, *args: str, name: str = "puppet", **keys: Any) -> Case:
        env = (("FIELD_LOG", str(tmp_path / f"{name}.log")), ("FIELD_STATE", str(tmp_path / f"{name}.state")))
        target = StdioLaunch(command=sys.executable, args=(str(servers / f"{script}.py"), *args), env=env)
        short = StopGraces(stdin=0.2, term=0.2)
        specs[name] = ServerSpec(name=name, target=target, **{"restart": quick, "stop": short, **keys})
        await supervisor.apply(specs.values())
        return Case(supervisor, name, tmp_path / f"{name}.log")

    return start


@pytest.fixture
async def http_case(supervisor: Supervisor, tmp_path: Path, quick: RestartPolicy) -> AsyncIterator[Callable[..., Any]]:
    """Puts HTTP puppets under supervision: `await http_case("http_get_refused", "405")`; gives the case and the puppet.

    Keywords are those of HttpTarget and of ServerSpec; `path` is put behind the address.
    """
    specs: dict[str, ServerSpec] = {}
    with ExitStack() as puppets:

        async def start(script: str, *args: str, name: str = "http", path: str = "", **keys: Any) -> tuple[Case, Puppet]:
            puppet = puppets.enter_context(http_puppet(f"{script}.py", *args))
            aim = {key: keys.pop(key) for key in ("transport", "headers", "auth", "tls") if key in keys}
            specs[name] = ServerSpec(name=name, target=HttpTarget(url=puppet.url + path, **aim), **{"restart": quick, **keys})
            await supervisor.apply(specs.values())
            return Case(supervisor, name, tmp_path / f"{name}.log"), puppet

        yield start


@pytest.fixture
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., RunningDaemon]]:
    """Starts daemons: `daemon(text_of_a_drop_in)`. What they have written is shown when the test fails.

    At the end each is told to end, and nothing that it started may be left.
    """
    running: list[RunningDaemon] = []
    numbers = itertools.count()

    def start(servers: str, **options: Any) -> RunningDaemon:
        # A short folder: the path of a unix socket has at most 107 bytes.
        started = RunningDaemon(tmp_path_factory.mktemp(f"d{next(numbers)}"), servers, **options)
        running.append(started)
        started.until_serving()
        return started

    yield start
    left = [pid for one in running for pid in one.clear()]
    for one in running:
        print(f"--- {one.folder}/stderr\n{one.log_text()}")
    assert [] == left
