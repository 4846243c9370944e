"""Owns the control group that a test may do with as it likes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpvisor.supervisor.process.delegation import empty, group_folder


@pytest.fixture
def group() -> Iterator[Path]:
    """A group of our own, for tests marked `cgroup`; whatever is still in it afterwards is killed."""
    own = group_folder(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    group = own / f"mcpvisor-test-{uuid.uuid4().hex[:12]}"
    group.mkdir()
    yield group
    assert empty(group), f"{group} cannot be emptied"
