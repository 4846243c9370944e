"""The reference servers of the field, run by node, behind one daemon: over stdio, Streamable HTTP and HTTP+SSE."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from tests.e2e.running import RunningDaemon, entry, serving

pytestmark = [pytest.mark.node, pytest.mark.anyio]

LOOPBACK = Path(__file__).parents[1] / "node" / "loopback.cjs"
ERAS = {"legacy": "2025-11-25", "2026-07-28": "2026-07-28"}
EVERYTHING = ("everything", "web", "old")
"""One program over three transports."""


@dataclass(frozen=True)
class Node:
    """The npm packages, and the node that came with them."""

    modules: Path

    @property
    def program(self) -> Path:
        return self.modules / ".bin" / "node"

    def server(self, name: str) -> Path:
        """The file to run of a reference server."""
        return self.modules / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"

    def inspect(self, url: str, *args: str) -> Any:
        """What the inspector prints when it is asked to do something at `url`."""
        command = [self.program, self.modules / ".bin" / "mcp-inspector", "--cli", url, *args]
        path = f"{self.program.parent}:{os.environ['PATH']}"  # it starts a `node` of its own
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, env={**os.environ, "PATH": path})
        assert 0 == done.returncode, done.stderr
        return json.loads(done.stdout)

    @contextmanager
    def listening(self, transport: str, log: Path) -> Iterator[str]:
        """The everything server over HTTP; gives the HOST:PORT it was given."""
        with log.open("wb") as out:
            process = subprocess.Popen(
                [self.program, "-r", LOOPBACK, self.server("everything"), transport],
                stdout=out,
                stderr=out,
                env={**os.environ, "PORT": "0"},
            )
        try:
            yield _address_in(log, process)
        finally:
            process.kill()
            process.wait()


def _address_in(log: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 15
    while True:
        said = [
            line.split()[-1] for line in log.read_text().splitlines(keepends=True) if "listening on" in line and "\n" in line
        ]
        if said:
            return said[0]
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


@pytest.fixture(scope="module")
def node() -> Node:
    """The packages that NODE_SERVERS names."""
    return Node(Path(os.environ["NODE_SERVERS"]) / "node_modules")


def on_stdio(node: Node, files: Path) -> str:
    """The drop-in of three servers on stdio."""
    memory = {"MEMORY_FILE_PATH": str(files / "memory.jsonl")}
    return (
        entry("everything", node.program, node.server("everything"), "stdio")
        + entry("files", node.program, node.server("filesystem"), files)
        + entry("memory", node.program, node.server("memory"), env=memory)
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the filesystem server may see."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "greeting.txt").write_text("Grüezi 世界\n")
    return folder


@pytest.fixture(scope="module")
def all_five(node: Node, files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon with all five, each ready; at its end nothing that it started may be left."""
    folder = tmp_path_factory.mktemp("n")
    with ExitStack() as listening:
        web = listening.enter_context(node.listening("streamableHttp", folder / "web.log"))
        old = listening.enter_context(node.listening("sse", folder / "old.log"))
        addresses = entry("web", url=f"http://{web}/mcp") + entry("old", url=f"http://{old}/sse", type="sse")
        daemon = RunningDaemon(folder, on_stdio(node, files) + addresses)
        with serving(daemon):
            daemon.until_ready(30)
            yield daemon


@pytest.fixture(params=ERAS)
async def client(request: pytest.FixtureRequest, all_five: RunningDaemon, anyio_backend: str) -> AsyncIterator[Client]:
    """The SDK's own client of the gateway, in each era."""
    async with Client(all_five.gateway, mode=request.param) as client:
        assert ERAS[request.param] == client.protocol_version
        yield client


async def text_of(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    return result.content[0].text


def test_each_is_ready_over_its_transport(all_five):
    """Three on stdio with a process each, one over Streamable HTTP, one over the old HTTP+SSE; each said what it is."""
    shown = {one["name"]: (one["state"], one["transport"], one["pid"] is not None) for one in all_five.status()["servers"]}
    names = {one["name"]: one["implementation"].split()[0] for one in all_five.status()["servers"]}

    assert {
        "everything": ("ready", "stdio", True),
        "files": ("ready", "stdio", True),
        "memory": ("ready", "stdio", True),
        "old": ("ready", "sse", False),
        "web": ("ready", "http", False),
    } == shown
    assert (
        dict.fromkeys(EVERYTHING, "mcp-servers/everything")
        | {
            "files": "secure-filesystem-server",
            "memory": "memory-server",
        }
        == names
    )


async def test_one_list_has_the_tools_of_all(client, all_five):
    """The list of the gateway holds every tool of every server, under its server's name."""
    tools = [tool.name for tool in (await client.list_tools()).tools]
    counts = {one["name"]: one["tools"] for one in all_five.status()["servers"]}

    assert counts == {name: sum(tool.startswith(f"{name}__") for tool in tools) for name in counts}
    assert {"web__echo", "old__echo", "everything__echo", "files__read_text_file", "memory__create_entities"} <= set(tools)


async def test_each_can_be_called(client, files):
    """A call reaches the server it names, and its answer comes back as it is."""
    for name in EVERYTHING:
        assert f"Echo: to {name}" == await text_of(client, f"{name}__echo", message=f"to {name}")
        assert "The sum of 2 and 40 is 42." == await text_of(client, f"{name}__get-sum", a=2, b=40)
    assert "Grüezi 世界\n" == await text_of(client, "files__read_text_file", path=str(files / "greeting.txt"))
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
    await text_of(client, "memory__create_entities", entities=[entity])
    found = await client.call_tool("memory__search_nodes", {"query": "Ada"})

    assert [entity] == found.structured_content["entities"]


async def test_structured_and_other_content_comes_through(client):
    """What is no text, an image or structured content, is relayed unchanged."""
    for name in EVERYTHING:
        image = await client.call_tool(f"{name}__get-tiny-image", {})
        weather = await client.call_tool(f"{name}__get-structured-content", {"location": "Chicago"})

        assert ["text", "image", "text"] == [part.type for part in image.content]
        assert "image/png" == image.content[1].mime_type
        assert {"temperature", "conditions", "humidity"} == set(weather.structured_content)


async def test_a_tools_own_error_is_relayed(client, files):
    """A tool that says no is no failure of the gateway."""
    result = await client.call_tool("files__read_text_file", {"path": str(files.parent / "elsewhere")})

    assert result.is_error
    assert "Access denied" in result.content[0].text


async def test_resources_can_be_read(client):
    """Listed resources and those of a template are read at the first server in name order that has them."""
    listed = [str(one.uri) for one in (await client.list_resources()).resources]
    features = await client.read_resource("demo://resource/static/document/features.md")
    dynamic = await client.read_resource("demo://resource/dynamic/text/7")

    assert "demo://resource/static/document/features.md" in listed
    assert features.contents[0].text.startswith("# Everything Server")
    assert "demo://resource/dynamic/text/7" == str(dynamic.contents[0].uri)


async def test_prompts_can_be_had(client):
    """Prompts are listed under their server's name, and take arguments."""
    prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
    for name in EVERYTHING:
        prompt = await client.get_prompt(f"{name}__args-prompt", {"city": "Bern"})

        assert f"{name}__args-prompt" in prompts
        assert ["What's weather in Bern?"] == [message.content.text for message in prompt.messages]


async def test_progress_arrives_in_order(client):
    """A long call tells its steps while it runs, whatever lies between."""
    for name in EVERYTHING:
        seen: list[tuple[float, float | None]] = []

        async def note(progress: float, total: float | None, _: str | None, seen: list[Any] = seen) -> None:
            seen.append((progress, total))

        result = await client.call_tool(
            f"{name}__trigger-long-running-operation", {"duration": 0.3, "steps": 3}, progress_callback=note
        )

        assert [(1, 3), (2, 3), (3, 3)] == seen
        assert "Long running operation completed" in result.content[0].text


def test_the_inspector_can_use_the_gateway(node, all_five):
    """The field's own debugging tool lists and calls through `/mcp`."""
    listed = node.inspect(all_five.gateway, "--method", "tools/list")["tools"]
    call = ("--method", "tools/call", "--tool-name", "web__echo", "--tool-arg", "message=hello")

    assert {"web__echo", "files__read_text_file"} <= {tool["name"] for tool in listed}
    assert {"content": [{"type": "text", "text": "Echo: hello"}]} == node.inspect(all_five.gateway, *call)


async def test_one_server_alone_has_its_own_names(all_five, client):
    """At `/mcp/NAME` a server is shown without a prefix."""
    async with Client(f"{all_five.gateway}/old", mode=client.mode) as alone:
        tools = [tool.name for tool in (await alone.list_tools()).tools]
        text = await text_of(alone, "echo", message="alone")

    assert "echo" in tools
    assert [] == [tool for tool in tools if "__" in tool]
    assert "Echo: alone" == text


async def test_one_that_is_killed_is_back_for_the_next_call(client, all_five, files):
    """`kill -9` of a server: the next call of the same session is answered, by a new process, and no other is touched."""
    before = {one["name"]: one["pid"] for one in all_five.status()["servers"]}
    os.kill(before["files"], signal.SIGKILL)
    all_five.until(lambda: not Path(f"/proc/{before['files']}").exists(), "the end of the process")
    text = await text_of(client, "files__read_text_file", path=str(files / "greeting.txt"))
    after = {one["name"]: one["pid"] for one in all_five.status()["servers"]}

    assert "Grüezi 世界\n" == text
    assert {"files"} == {name for name in before if before[name] != after[name]}


def test_the_end_of_the_daemon_leaves_none(node: Node, files: Path, daemon: Callable[..., RunningDaemon]):
    """SIGTERM: the daemon ends with 0 within seconds, and with it every node it started."""
    running = daemon(on_stdio(node, files))
    running.until_ready()
    pids = [one["pid"] for one in running.status()["servers"]]
    living = running.living()
    began = time.monotonic()

    assert 0 == running.end(signal.SIGTERM)
    assert time.monotonic() - began < 10
    assert set(pids) <= set(living)
    assert [] == running.living()
    assert [] == [pid for pid in living if Path(f"/proc/{pid}").exists()]
