from __future__ import annotations

import re
import sys

import anyio
import pytest

from mcpvisor.daemon.control.explain_text import as_text
from mcpvisor.supervisor.spec import Intensity, RestartPolicy, ServerSpec, StdioLaunch, StopGraces
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor

pytestmark = pytest.mark.anyio


@pytest.fixture
async def explained(api, servers):
    """Runs one real server under a real supervisor until it is as a test wants it, and gives the text of `explain`."""

    async def run(until, *command, **keys):
        async with Supervisor() as supervisor:
            api.supervisor = supervisor
            words = [str(servers / word) if word.endswith(".py") else word for word in command]
            launch = StdioLaunch(command=words[0], args=tuple(words[1:]))
            async with api.served(), api.client() as client:
                with anyio.fail_after(30):
                    await supervisor.apply([ServerSpec(name="s", target=launch, origin="/etc/m.toml:3", **keys)])
                    while not until(explanation := (await client.get("/v1/servers/s")).json()):
                        await anyio.sleep(0.05)
        return as_text(explanation)

    return run


async def test_a_server_that_hangs_at_initialize(explained):
    """`explain` says of a server that never answers its handshake that this is so, and names the limit."""
    text = await explained(
        lambda now: now["state"] == "backoff" and now["next_at"],
        sys.executable, "lite.py", "--hang-init",
        start_timeout=1.0, stop=StopGraces(stdin=0.1, term=0.5),
    )  # fmt: skip

    assert text.startswith("s is down: did not answer the handshake within 1 s (start_timeout)")
    assert "Next: the daemon tries again by itself" in text


async def test_a_server_that_is_not_installed(explained):
    """`explain` says of a missing program that it is missing, when it is looked for again, and where it is written."""
    what, following, remedy, *_ = (await explained(lambda now: now["cause"], "no-such-program-anywhere")).split("\n")

    assert "no program 'no-such-program-anywhere'" in what
    assert following.endswith("in 5 min.")
    assert "`command` in /etc/m.toml:3" in remedy


async def test_a_server_that_floods_stderr(explained):
    """`explain` says of a server that floods stderr that it is ready all the same, and how much was dropped."""
    text = await explained(
        lambda now: now["state"] == State.READY and now["stderr_dropped"], sys.executable, "stdio_stderr_flood.py"
    )

    assert text.startswith("s is ready, but it floods stderr (")


async def test_a_server_that_ends_at_once(explained):
    """`explain` of a server that ends again and again has how it ended."""
    text = await explained(
        lambda now: now["state"] == "crash_loop",
        sys.executable, "-c", "import sys; sys.exit('no token')",
        restart=RestartPolicy(delay=0.02, intensity=Intensity(ends=2, within=60)),
    )  # fmt: skip

    assert "exited with code 1" in text.split("\n")[0]
    assert re.search(r"^  \d\d:\d\d:\d\d no token$", text, re.MULTILINE)
