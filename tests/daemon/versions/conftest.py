"""Owns the folder that tests of versions write their configuration into."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    """An empty configuration folder, closed to others whatever the umask is."""
    folder = tmp_path / "etc"
    folder.mkdir()
    for path in (tmp_path, folder):
        path.chmod(0o755)
    return folder


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment with nothing of ours in it."""
    return {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
