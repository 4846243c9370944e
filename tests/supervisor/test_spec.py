"""What is wanted of a server: which differences need a restart, and which of its texts are secret."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mcpvisor.supervisor.auth.kinds import Bearer
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import (
    Change,
    Era,
    HttpTarget,
    PlannedChange,
    ProbePolicy,
    ResourceLimits,
    ServerSpec,
    StdioLaunch,
    change_between,
    secrets_of,
)

FILES = ServerSpec(name="files", target=StdioLaunch(command="files"))


def test_a_changed_target_is_named_by_its_keys() -> None:
    """What a person has written is named, and both keys where the kind of server is another."""
    here, there = (ServerSpec(name="x", target=HttpTarget(url=f"https://{host}/mcp")) for host in ("here", "there"))
    process = ServerSpec(name="x", target=StdioLaunch(command="x"))

    assert ("url",) == change_between(here, there).fields
    assert ("command", "url") == change_between(here, process).fields


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Change.KEEP),
        ({"origin": "b.toml:9"}, Change.KEEP),
        ({"call_timeout": 1.0}, Change.UPDATE),
        ({"probe": ProbePolicy(interval=1.0)}, Change.UPDATE),
        ({"target": StdioLaunch(command="files", args=("-v",))}, Change.RESTART),
        ({"target": StdioLaunch(command="files", env=(("TOKEN", Secret("new")),))}, Change.RESTART),
        ({"target": StdioLaunch(command="files", limits=ResourceLimits(files=64))}, Change.RESTART),
        ({"era": Era.LEGACY}, Change.RESTART),
        ({"enabled": False}, Change.STOP),
    ],
)
def test_only_what_a_session_is_built_on_needs_a_restart(changes: dict[str, object], expected: Change) -> None:
    """Timeouts, limits of the door and filters are applied in place; where an entry is written is no part of the goal."""
    assert change_between(FILES, replace(FILES, **changes)).change is expected


def test_the_fields_that_changed_are_named() -> None:
    """A plan tells why, in the order of the keys."""
    changed = replace(FILES, queue=1, call_timeout=1.0)

    assert change_between(FILES, changed) == PlannedChange("files", Change.UPDATE, ("call_timeout", "queue"))


def test_every_secret_of_an_entry_is_known() -> None:
    """Whatever a server may write of them can be masked."""
    launch = StdioLaunch(command="x", args=("--token", Secret("in-args")), env=(("A", "plain"), ("B", Secret("in-env"))))
    target = HttpTarget(url="http://127.0.0.1/", headers=(("X-Key", Secret("in-header")),), auth=Bearer(Secret("in-bearer")))

    assert secrets_of(replace(FILES, target=launch)) == ["in-args", "in-env"]
    assert secrets_of(replace(FILES, target=target)) == ["in-header", "in-bearer"]


def test_what_follows_a_known_word_is_a_secret_by_itself() -> None:
    """An option, a scheme and the parameters of a query are no part of what must not be shown."""
    launch = StdioLaunch(command="x", args=(Secret("--token=in-option"),))
    url = Secret("http://127.0.0.1/?key=in%20query&flag")
    target = HttpTarget(url=url, headers=(("A", Secret("Bearer in-scheme")),))

    assert secrets_of(replace(FILES, target=launch)) == ["--token=in-option", "in-option"]
    assert secrets_of(replace(FILES, target=target)) == ["Bearer in-scheme", "in-scheme", "in%20query", "flag", "in query"]
