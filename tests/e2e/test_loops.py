"""A gateway that is entered as a server of itself, as it happens when a client's own file is taken over as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.e2e.running import RunningDaemon, entry, puppet


def test_a_gateway_does_not_feed_on_itself(daemon: Callable[..., RunningDaemon], servers: Path) -> None:
    """The entry says what is wrong, and what is offered does not grow."""
    running = daemon(puppet("files", servers / "lite.py"))
    running.until_ready()
    running.write("own.toml", entry("own", url=running.gateway))
    reason = running.until(lambda: own(running) and own(running)["reason"], "the entry")
    running.until(lambda: "the very daemon that asks" in own(running)["reason"], f"a better reason than {reason!r}")

    assert own(running)["tools"] == 0
    assert running.server("files")["state"] == "ready"


def own(running: RunningDaemon) -> dict[str, object] | None:
    return next((one for one in running.status()["servers"] if one["name"] == "own"), None)
