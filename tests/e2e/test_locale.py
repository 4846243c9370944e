"""The bytes of servers are UTF-8, whatever the locale of the daemon says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys

import anyio

from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.spec import ServerSpec, StdioLaunch
from mcpvisor.supervisor.supervisor import Supervisor


async def main():
    async with Supervisor() as supervisor:
        await supervisor.apply([ServerSpec(name="p", target=StdioLaunch(command=sys.executable, args=(sys.argv[1],)))])
        params = {"name": "echo", "arguments": {"text": "\\u00dcbung \\u2603 \\u6587"}}
        with anyio.fail_after(60):
            result = await supervisor.connection("p").request("tools/call", params, principal=Principal("test"), deadline=60)
        sys.stdout.buffer.write(result["content"][0]["text"].encode("utf-8"))
        tool = supervisor.connection("p").offer.tools[0]
        sys.stdout.buffer.write(tool["description"].encode("utf-8"))


anyio.run(main)
"""


def test_text_is_utf8_in_any_locale(servers: Path) -> None:
    """In the locale C, with Python's own remedies for it switched off, text of any script goes out and comes in as it is."""
    bare = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(servers / "stdio_crlf_split.py")], env=bare, capture_output=True, timeout=90
    )

    assert (0, "\u00dcbung \u2603 \u6587Gibt den Text zur\u00fcck \U0001f680 \u6587\u5b57") == (
        done.returncode,
        done.stdout.decode(),
    )
