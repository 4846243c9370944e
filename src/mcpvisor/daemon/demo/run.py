"""Owns the demonstration's life: a daemon without a configuration file, a tour of it, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from mcpvisor.daemon.demo.setting import Ports, choose_control, demo_loaded
from mcpvisor.daemon.demo.tour import Guide, command_line, show


def main() -> int:
    """Run the daemon with the bundled servers until Ctrl-C, and return its exit code."""
    from mcpvisor.daemon.run import serve

    with tempfile.TemporaryDirectory(prefix="mcpvisor-demo-") as name, closing(Ports()) as ports:
        folder = Path(name)
        place = choose_control(os.environ, os.geteuid(), folder)
        program = command_line(sys.argv[0], sys.executable)
        guide = Guide(program, None if place.is_found else place.path, show)
        return asyncio.run(serve(demo_loaded(folder, place.path, ports), on_ready=guide.begin))
