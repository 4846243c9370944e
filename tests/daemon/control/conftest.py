"""Owns the puppet supervisor for the tests of the control API, and a client that speaks to it over a real socket."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import ModuleType

import httpx2
import pytest


def _load() -> ModuleType:
    name = "mcpvisor_tests_puppet"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("puppet.py"))
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture
def puppet() -> ModuleType:
    """The module of the puppet."""
    return _load()


class Api:
    """A control server over a puppet, and a client of it."""

    def __init__(self, folder: Path) -> None:
        self.puppet = _load()
        self.path = folder / "control.sock"
        self.supervisor = self.puppet.PuppetSupervisor(
            self.puppet.a_status("good"), self.puppet.a_status("bad", self.puppet.State.BACKOFF, reason="it exited")
        )
        self.reloading = self.puppet.PuppetReloading()

    def served(self, **more) -> AbstractAsyncContextManager:
        return self.puppet.served(self.supervisor, self.path, "instance-of-tests", self.reloading, **more)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx2.AsyncClient]:
        transport = httpx2.AsyncHTTPTransport(uds=str(self.path), verify=False)  # else it reads certificates first
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=20) as client:
            yield client


@pytest.fixture
def api(tmp_path: Path) -> Api:
    """A control server over a puppet with the servers `good` and `bad`; a test enters `served()` and `client()`."""
    return Api(tmp_path)
