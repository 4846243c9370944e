"""What `import` makes of other programs' files runs: every golden file, one daemon, every server ready."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.daemon.config import golden
from tests.e2e.running import RunningDaemon
from tests.supervisor.transports.http_rig import puppet


def test_the_servers_of_every_golden_file_run(tmp_path: Path, daemon: Callable[..., RunningDaemon]) -> None:
    """The golden files of all dialects, imported together, give servers that all get ready, but for those that are off."""
    with puppet("http_get_refused.py", "405") as http:
        url = http.url.removesuffix("/mcp")
        files = [golden.put(name, tmp_path / name, str(tmp_path), url).file for name in golden.DIALECTS]
        target = tmp_path / "imported.toml"
        command = [sys.executable, "-m", "mcpvisor.daemon.cli.main", "import", *map(str, files), "--to", str(target), "--yes"]
        done = subprocess.run(
            command,
            env={**os.environ, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=30,
            stdin=subprocess.DEVNULL,
        )
        running = daemon(target.read_text(), env=golden.VARIABLES)
        status = running.until_ready(60)

    states = {server["name"]: server["state"] for server in status["servers"]}
    off = {"code-sse", "codex-off", "kiro_defaults", "opencode-off", "opencode2-off"}
    asked_for = {"vs-asks", "sep-asks", "sep-chain", "sep-vault"}
    assert 1 == done.returncode, done.stderr
    assert off == {name for name, state in states.items() if state == "disabled"}
    assert {"ready"} == {state for name, state in states.items() if name not in off}
    assert golden.NAMES == set(states)
    assert [] == status["config"]["rejected"]
    assert [] == [name for name in asked_for if f"    {name}: {tmp_path}" not in done.stdout]
    assert 0o600 == target.stat().st_mode & 0o777
    assert "sekret" not in done.stdout + done.stderr
