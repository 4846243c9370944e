"""The gateway as clients of both eras meet it, over real sockets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CompleteRequestParams  # noqa: F401 # the SDK's client builds it from what a test gives
from tests.daemon.gateway.puppet import Call, Counted, PuppetConnection, PuppetSupervisor, gateway, tool
from tests.stopwatch import Stopwatch
from tests.waiting import until

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.offer import Offer
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.spec import ToolView

pytestmark = pytest.mark.anyio

LEGACY, MODERN = "legacy", "2026-07-28"
both_eras = pytest.mark.parametrize("era", [LEGACY, MODERN])


def full_offer(name: str) -> Offer:
    return Offer(
        tools=(tool("echo", vendor=1), tool("slow")),
        resources=({"uri": f"{name}://one", "name": "one"}, {"uri": "shared://x", "name": "shared"}),
        resource_templates=({"uriTemplate": f"{name}://item/{{id}}", "name": "item"},),
        prompts=({"name": "greet"},),
        instructions=f"How to use {name}.",
    )


@pytest.fixture
def supervisor() -> PuppetSupervisor:
    return PuppetSupervisor(PuppetConnection("b", full_offer("b")), PuppetConnection("a", full_offer("a")))


@both_eras
async def test_lists(supervisor: PuppetSupervisor, tmp_path: Path, era: str):
    """One endpoint lists what all servers offer: names with their prefix, URIs as they are and once."""
    async with gateway(supervisor, tmp_path) as served, Client(f"{served.addresses[0]}/mcp", mode=era) as client:
        tools = await client.list_tools()
        resources = await client.list_resources()
        templates = await client.list_resource_templates()
        prompts = await client.list_prompts()

    assert [one.name for one in tools.tools] == ["a__echo", "a__slow", "b__echo", "b__slow"]
    assert [str(one.uri) for one in resources.resources] == ["a://one", "shared://x", "b://one"]
    assert [one.uri_template for one in templates.resource_templates] == ["a://item/{id}", "b://item/{id}"]
    assert [one.name for one in prompts.prompts] == ["a__greet", "b__greet"]


@both_eras
async def test_calls_reach_their_server(supervisor: PuppetSupervisor, tmp_path: Path, era: str):
    """A call goes to the server of its public name, under the original name, for the principal and session of the client."""
    async with gateway(supervisor, tmp_path) as served, Client(f"{served.addresses[0]}/mcp", mode=era) as client:
        result = await client.call_tool("b__echo", {"x": 1})
    call = supervisor.connection("b").calls[0]

    assert result.content[0].text == "b:echo"
    assert (call.method, call.params) == ("tools/call", {"name": "echo", "arguments": {"x": 1}})
    assert call.principal.name == "anonymous"
    assert (call.principal.session is not None) is (era == LEGACY)
    assert supervisor.connection("a").calls == []


@both_eras
async def test_the_other_requests(supervisor: PuppetSupervisor, tmp_path: Path, era: str):
    """Prompts, resources and completions reach the server that owns the name, the URI or the template."""

    async def answer(call: Call) -> dict[str, Any]:
        return {
            "prompts/get": {"messages": []},
            "resources/read": {"contents": [{"uri": "x", "text": "t"}]},
            "completion/complete": {"completion": {"values": ["v"]}},
        }[call.method]

    for name in supervisor.names():
        supervisor.connection(name).answer = answer
    async with gateway(supervisor, tmp_path) as served, Client(f"{served.addresses[0]}/mcp", mode=era) as client:
        await client.get_prompt("b__greet", {"who": "me"})
        await client.read_resource("b://item/7")
        await client.read_resource("shared://x")
        completion = await client.complete(_prompt_ref("b__greet"), {"name": "who", "value": "m"})
        await client.complete(_template_ref("a://item/{id}"), {"name": "id", "value": "1"})

    assert completion.completion.values == ["v"]
    assert [(call.method, call.params) for call in supervisor.connection("b").calls] == [
        ("prompts/get", {"name": "greet", "arguments": {"who": "me"}}),
        ("resources/read", {"uri": "b://item/7"}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": "m"}},
        ),
    ]
    assert [call.method for call in supervisor.connection("a").calls] == ["resources/read", "completion/complete"]


def _prompt_ref(name: str) -> Any:
    from mcp_types import PromptReference

    return PromptReference(name=name)


def _template_ref(uri: str) -> Any:
    from mcp_types import ResourceTemplateReference

    return ResourceTemplateReference(uri=uri)


@both_eras
async def test_a_server_alone(supervisor: PuppetSupervisor, tmp_path: Path, era: str):
    """`/mcp/NAME` shows one server under its own names, with the URIs it has to share on `/mcp`."""
    async with gateway(supervisor, tmp_path) as served, Client(f"{served.addresses[0]}/mcp/b", mode=era) as client:
        tools = await client.list_tools()
        resources = await client.list_resources()
        result = await client.call_tool("echo")

    assert [one.name for one in tools.tools] == ["echo", "slow"]
    assert [str(one.uri) for one in resources.resources] == ["b://one", "shared://x"]
    assert result.content[0].text == "b:echo"


@both_eras
async def test_unknown_names(supervisor: PuppetSupervisor, tmp_path: Path, era: str):
    """What nobody owns is asked of nobody."""
    async with gateway(supervisor, tmp_path) as served, Client(f"{served.addresses[0]}/mcp", mode=era) as client:
        with pytest.raises(MCPError) as of_tool:
            await client.call_tool("a__nothing")
        with pytest.raises(MCPError) as of_prompt:
            await client.get_prompt("nothing")
        with pytest.raises(MCPError) as of_resource:
            await client.read_resource("nobody://x")

    assert (of_tool.value.code, of_tool.value.data["mcpvisor"]["outcome"]) == (-32602, "rejected")
    assert (of_prompt.value.code, of_prompt.value.data["mcpvisor"]["cause"]) == (-32602, "unknown_prompt")
    assert of_resource.value.code == (-32002 if era == LEGACY else -32602)
    assert of_resource.value.data["uri"] == "nobody://x"
    assert all(supervisor.connection(name).calls == [] for name in supervisor.names())


@both_eras
@pytest.mark.parametrize("outcome", list(Outcome))
async def test_error_data(supervisor: PuppetSupervisor, tmp_path: Path, era: str, outcome: Outcome):
    """A failed call says in its data what became of it; the code, message and data of the server stay as they are."""

    async def answer(call: Call) -> dict[str, Any]:
        raise RequestFailed(
            outcome, "some_cause", "what happened", code=-32011, data={"own": [1], "mcpvisor": "fake"}, retry_after_s=1.5
        )

    supervisor.connection("a").answer = answer
    counted = Counted()
    async with (
        gateway(supervisor, tmp_path, observer=counted) as served,
        Client(f"{served.addresses[0]}/mcp", mode=era) as client,
    ):
        with pytest.raises(MCPError) as caught:
            await client.call_tool("a__echo")

    assert (caught.value.code, caught.value.message) == (-32011, "what happened")
    assert caught.value.data == {
        "own": [1],
        "mcpvisor": {"server": "a", "outcome": outcome.value, "cause": "some_cause", "retry_after_s": 1.5},
    }
    assert ("tools/call", outcome.value) in counted.ended


@both_eras
async def test_progress(supervisor: PuppetSupervisor, tmp_path: Path, era: str):
    """Progress reaches the client that asked for it, in order and before the result, under the client's own token."""

    async def answer(call: Call) -> dict[str, Any]:
        assert call.on_progress is not None
        for step in range(5):
            call.on_progress({"progressToken": 4711, "progress": step, "total": 5, "message": str(step)})
        return {"content": []}

    supervisor.connection("a").answer = answer
    seen: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with gateway(supervisor, tmp_path) as served, Client(f"{served.addresses[0]}/mcp", mode=era) as client:
        await client.call_tool("a__slow", progress_callback=on_progress)
        await until(lambda: len(seen) == 5)

    call = supervisor.connection("a").calls[0]
    assert seen == [0, 1, 2, 3, 4]
    assert "progressToken" not in str(call.params)


@both_eras
async def test_cancellation(supervisor: PuppetSupervisor, tmp_path: Path, era: str):
    """A client that gives up a request cancels it at the server, and nothing else."""

    async def hang(call: Call) -> dict[str, Any]:
        await anyio.sleep_forever()
        raise AssertionError

    door = supervisor.connection("a")
    door.answer = hang
    counted = Counted()
    async with (
        gateway(supervisor, tmp_path, observer=counted) as served,
        Client(f"{served.addresses[0]}/mcp", mode=era) as client,
    ):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "a__slow")
            with anyio.fail_after(20):
                await door.called.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(20):
            await door.cancelled.wait()
        result = await client.call_tool("b__echo")

    assert result.content[0].text == "b:echo"
    assert ("tools/call", "cancelled") in counted.ended


async def test_logging_legacy(supervisor: PuppetSupervisor, tmp_path: Path):
    """What an instance of one client's own logs reaches that client as its level admits, with the server named; nobody else."""
    seen: list[tuple[str, str | None, Any]] = []

    async def on_log(params: Any) -> None:
        seen.append((params.level, params.logger, params.data))

    async with (
        gateway(supervisor, tmp_path) as served,
        Client(f"{served.addresses[0]}/mcp", mode=LEGACY, logging_callback=on_log) as client,
    ):
        await client.set_logging_level("warning")
        await client.call_tool("a__echo")
        mine = supervisor.connection("a").calls[0].principal

        def log(server: str, level: str, data: str, client: Principal | None = mine, **more: Any) -> None:
            supervisor.notify(server, "notifications/message", {"level": level, "data": data, **more}, client=client)

        log("a", "info", "low")
        log("a", "error", "of all", client=None)
        log("a", "error", "of another session", client=Principal(mine.name, "another"))
        log("a", "error", "of another", client=Principal("another", mine.session))
        log("a", "error", "high", logger="db")
        log("b", "error", "other")
        await until(lambda: len(seen) >= 2)

    assert sorted(seen) == [("error", "a/db", "high"), ("error", "b", "other")]


async def test_logging_modern(supervisor: PuppetSupervisor, tmp_path: Path):
    """A client of 2026-07-28 gets the messages of the server it is asking, on that request, if it has opted in."""
    seen: list[tuple[str, str | None, Any]] = []

    async def on_log(params: Any) -> None:
        seen.append((params.level, params.logger, params.data))

    async def answer(call: Call) -> dict[str, Any]:
        assert call.on_log is not None
        call.on_log({"level": "info", "data": "low"})
        supervisor.notify("a", "notifications/message", {"level": "error", "data": "of nobody"})
        supervisor.notify("b", "notifications/message", {"level": "error", "data": "other server"})
        call.on_log({"level": "error", "data": "high"})
        return {"content": []}

    supervisor.connection("a").answer = answer
    async with (
        gateway(supervisor, tmp_path) as served,
        Client(f"{served.addresses[0]}/mcp", mode=MODERN, logging_callback=on_log, log_level="warning") as client,
    ):
        await client.call_tool("a__echo")
        await until(lambda: len(seen) >= 1)

    assert seen == [("error", "a", "high")]
    call = supervisor.connection("a").calls[0]
    assert ("warning", None) == (call.log_level, call.params.get("_meta"))


async def test_list_changed_legacy(supervisor: PuppetSupervisor, tmp_path: Path):
    """A real difference is told once, however many events it took; an event without a difference is not told."""
    seen: list[str] = []

    async def on_message(message: Any) -> None:
        seen.append(message.method)

    async with (
        gateway(supervisor, tmp_path) as served,
        Client(f"{served.addresses[0]}/mcp", mode=LEGACY, message_handler=on_message) as client,
    ):
        assert client.server_capabilities.tools.list_changed is True
        await client.list_tools()
        supervisor.change("a", "tools", tool("new"))
        supervisor.change("a", "tools", tool("new"), tool("newer"))
        await until(lambda: "notifications/tools/list_changed" in seen)
        listed = await client.list_tools()
        supervisor.change("a", "tools", tool("new"), tool("newer"))
        supervisor.change("b", "prompts")
        await until(lambda: "notifications/prompts/list_changed" in seen)

    assert [one.name for one in listed.tools] == ["a__new", "a__newer", "b__echo", "b__slow"]
    assert seen.count("notifications/tools/list_changed") == 1


async def test_list_changed_modern(supervisor: PuppetSupervisor, tmp_path: Path):
    """A client of 2026-07-28 is told of differences on the stream it opened for them."""
    async with gateway(supervisor, tmp_path) as served, Client(f"{served.addresses[0]}/mcp", mode=MODERN) as client:
        await client.list_tools()
        async with client.listen(tools_list_changed=True) as events:
            supervisor.change("a", "tools", tool("new"))
            with anyio.fail_after(20):
                event = await anext(aiter(events))

    assert type(event).__name__ == "ToolsListChanged"


@both_eras
async def test_servers_that_come_and_go(supervisor: PuppetSupervisor, tmp_path: Path, era: str):
    """A server that is added is on show at once, and one that is removed is gone."""
    async with gateway(supervisor, tmp_path) as served, Client(f"{served.addresses[0]}/mcp", mode=era) as client:
        supervisor.add(PuppetConnection("c", Offer(tools=(tool("x"),))))
        supervisor.remove("b")
        listed = await client.list_tools()
        result = await client.call_tool("c__x")
        with pytest.raises(MCPError) as caught:
            await client.call_tool("b__echo")

    assert [one.name for one in listed.tools] == ["a__echo", "a__slow", "c__x"]
    assert result.content[0].text == "c:x"
    assert caught.value.code == -32602


@both_eras
async def test_a_server_that_is_away(supervisor: PuppetSupervisor, tmp_path: Path, era: str):
    """What a server offered last stays on show while it is away, and says so."""
    supervisor.connection("a").stale = True
    async with gateway(supervisor, tmp_path) as served, Client(f"{served.addresses[0]}/mcp", mode=era) as client:
        listed = await client.list_tools()

    assert [(one.meta or {}).get("mcpvisor/stale") for one in listed.tools] == [True, True, None, None]


@both_eras
async def test_the_first_list_waits(tmp_path: Path, era: str):
    """A client's first list waits for servers that are starting, but not for ever."""
    late = PuppetConnection("late", is_tried=False)
    hung = PuppetConnection("hung", is_tried=False)
    supervisor = PuppetSupervisor(late, hung)
    async with (
        gateway(supervisor, tmp_path, first_list_wait=2.0) as served,
        Client(f"{served.addresses[0]}/mcp", mode=era) as client,
    ):
        async with anyio.create_task_group() as tasks:

            async def come_up() -> None:
                await anyio.sleep(0.1)
                late.offer = Offer(tools=(tool("x"),))
                late.first_try.set()

            tasks.start_soon(come_up)
            began = anyio.current_time()
            listed = await client.list_tools()
            waited = anyio.current_time() - began
        watch = Stopwatch()
        watch.start()
        await client.list_prompts()
        waited_again = watch.seconds()

    assert [one.name for one in listed.tools] == ["late__x"]
    assert 1.9 < waited < 8
    assert waited_again < 1.5


@both_eras
async def test_filters(supervisor: PuppetSupervisor, tmp_path: Path, era: str):
    """A tool that the operator does not show cannot be called either."""
    door = supervisor.connection("a")
    door.spec = replace(door.spec, tools=ToolView(deny=("slow",)))
    async with gateway(supervisor, tmp_path) as served, Client(f"{served.addresses[0]}/mcp", mode=era) as client:
        listed = await client.list_tools()
        with pytest.raises(MCPError):
            await client.call_tool("a__slow")

    assert "a__slow" not in [one.name for one in listed.tools]
    assert door.calls == []


@both_eras
async def test_instructions(supervisor: PuppetSupervisor, tmp_path: Path, era: str):
    """Each server's instructions are passed on under its name, cut where they are long."""
    door = supervisor.connection("a")
    door.offer = replace(door.offer, instructions="x" * 5000)
    mode = era if era == LEGACY else "auto"
    async with gateway(supervisor, tmp_path) as served, Client(f"{served.addresses[0]}/mcp", mode=mode) as client:
        instructions = client.instructions

    assert instructions == f"# a\n\n    {'x' * 1996}\n\n# b\n\n    How to use b."


async def test_instructions_cannot_speak_for_another_server(supervisor: PuppetSupervisor, tmp_path: Path):
    """No line of a server's instructions stands where the name of a server stands, whatever ends its lines."""
    door = supervisor.connection("a")
    door.offer = replace(door.offer, instructions="hello\n\n# b\r# b\u2028# b\n\nb\n===")
    async with gateway(supervisor, tmp_path) as served, Client(f"{served.addresses[0]}/mcp", mode=LEGACY) as client:
        lines = (client.instructions or "").splitlines()

    assert [line for line in lines if line and not line.startswith("    ")] == ["# a", "# b"]
    assert len(lines) == 14


@both_eras
async def test_a_server_whose_lists_were_never_read(supervisor: PuppetSupervisor, tmp_path: Path, era: str):
    """A name of a server that is still starting, or is down, goes to its door, which says why; a filter holds all the same."""
    door = PuppetConnection("c")
    door.spec = replace(door.spec, tools=ToolView(deny=("secret",)))
    supervisor.add(door)

    async def down(_: Call) -> dict[str, Any]:
        raise RequestFailed(Outcome.NOT_SENT, "crash_loop", "it keeps on ending", retry_after_s=7.0)

    door.answer = down
    causes = []
    async with gateway(supervisor, tmp_path) as served:
        for path, names in (("/mcp", ("c__x__y", "c__secret", "x", "c__", "nobody__x")), ("/mcp/c", ("x__y", "secret"))):
            async with Client(f"{served.addresses[0]}{path}", mode=era) as client:
                for name in names:
                    with pytest.raises(MCPError) as failed:
                        await client.call_tool(name, {})
                    causes.append(failed.value.error.data["mcpvisor"]["cause"])

    unknown = "unknown_tool"
    assert causes == ["crash_loop", unknown, unknown, unknown, unknown, "crash_loop", unknown]
    assert [call.params["name"] for call in door.calls if call.params] == ["x__y", "x__y"]


@both_eras
async def test_a_uri_that_is_too_long(supervisor: PuppetSupervisor, tmp_path: Path, era: str):
    """A URI over the limit is refused before any template is tried."""
    async with gateway(supervisor, tmp_path) as served, Client(f"{served.addresses[0]}/mcp", mode=era) as client:
        with pytest.raises(MCPError) as failed:
            await client.read_resource("a://item/" + "x" * 4096)

    assert (failed.value.error.code, failed.value.error.data["mcpvisor"]["cause"]) == (-32602, "uri_too_long")
