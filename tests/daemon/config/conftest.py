"""Owns the folder that configuration tests write into, and the loading of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpvisor.daemon.config.load import Loaded, load

TESTDATA = Path(__file__).parent / "testdata"


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    """An empty configuration folder with its `servers.d`, closed to others whatever the umask is."""
    folder = tmp_path / "etc"
    (folder / "servers.d").mkdir(parents=True)
    for path in (tmp_path, folder, folder / "servers.d"):
        path.chmod(0o755)
    return folder


@pytest.fixture
def write() -> Callable[[Path, str | bytes], Path]:
    """Writes a file that the daemon would trust."""

    def put(path: Path, content: str | bytes) -> Path:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(0o644)
        return path

    return put


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment with nothing of ours in it."""
    return {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}


@pytest.fixture
def load_text(etc: Path, environ: dict[str, str], write: Callable[[Path, str | bytes], Path]) -> Callable[..., Loaded]:
    """Loads one text as `mcpvisor.toml`, or under another name as a drop-in."""

    def put_and_load(text: str | bytes, name: str = "mcpvisor.toml", **more: str) -> Loaded:
        write(etc / name if name == "mcpvisor.toml" else etc / "servers.d" / name, text)
        return load([etc], {**environ, **more})

    return put_and_load
