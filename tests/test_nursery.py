"""What a process from the nursery is spared, and what it is given."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests import nursery

PROGRAM = """
import json, os, sys
read = [name for name in ("mcpvisor.daemon.daemon", "mcpvisor.daemon.cli.main", "starlette", "uvicorn") if name in sys.modules]
print(json.dumps({"read": read, "argv": sys.argv, "env": os.environ.get("GIVEN"), "cwd": os.getcwd(), "name": __name__}))
sys.exit(3)
"""


def test_a_process_has_read_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins with the modules of a daemon in memory, and as its own program in all else."""
    monkeypatch.setattr(nursery, "_is_real", False)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with (tmp_path / "out").open("w+") as out, Path(os.devnull).open() as nothing:
        environ = {**os.environ, "GIVEN": "value"}
        process = nursery.start(["a"], program=program, stdin=nothing, stdout=out, stderr=out, env=environ, cwd=tmp_path)
        code = process.wait(20)
        out.seek(0)
        told = json.loads(out.read())

    assert 3 == code
    assert {
        "read": ["mcpvisor.daemon.daemon", "mcpvisor.daemon.cli.main", "starlette", "uvicorn"],
        "argv": [str(program), "a"],
        "env": "value",
        "cwd": str(tmp_path),
        "name": "__main__",
    } == told
