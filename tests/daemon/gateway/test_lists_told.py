"""Clients of both eras are told that lists differ: when they do, once, and on the stream that is theirs for that."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest
from tests.daemon.gateway.hearing import SUBSCRIPTION, listening, opened, subscribe
from tests.daemon.gateway.puppet import PuppetConnection, PuppetSupervisor, gateway, tool
from tests.daemon.gateway.wire import Wire
from tests.waiting import until

from mcpvisor.daemon.gateway.gateway import Gateway
from mcpvisor.daemon.gateway.settings import GatewaySettings
from mcpvisor.supervisor.offer import Offer
from mcpvisor.supervisor.spec import ServerSpec, StdioLaunch
from mcpvisor.supervisor.supervisor import Supervisor

pytestmark = pytest.mark.anyio

TOOLS, PROMPTS, RESOURCES = (f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources"))
LIST = {"jsonrpc": "2.0", "id": 5, "method": "tools/list"}


async def test_each_difference_is_told_once(tmp_path: Path):
    """However many events it took, in both eras; nothing is told of a list that is the same, or that nobody asked for."""
    resource = {"uri": "a://1", "name": "1"}
    supervisor = PuppetSupervisor(PuppetConnection("a", Offer(tools=(tool("echo"),), resources=(resource,))))
    async with (
        gateway(supervisor, tmp_path) as served,
        Wire(served.addresses[0]) as legacy,
        Wire(served.addresses[0]) as modern,
        Wire(served.addresses[0]) as other,
        anyio.create_task_group() as tasks,
    ):
        await legacy.open()
        session = opened(legacy, tasks)
        await subscribe(legacy, "a://1")
        stream = await listening(
            modern, tasks, "a://1", toolsListChanged=True, resourcesListChanged=True, promptsListChanged=False
        )
        narrow = await listening(other, tasks, request=2, promptsListChanged=True)
        for tools in (("new",), ("new", "newer"), ("new", "newer")):
            supervisor.change("a", "tools", *(tool(name) for name in tools))
        await until(lambda: TOOLS in methods(session) and TOOLS in methods(stream))
        supervisor.change("a", "tools", tool("new"), tool("newer"))
        supervisor.change("a", "resources", resource, {"uri": "a://2", "name": "2"})
        supervisor.change("a", "resource_templates", {"uriTemplate": "a://t/{x}", "name": "t"})
        await until(lambda: RESOURCES in methods(session) and RESOURCES in methods(stream))
        supervisor.change("a", "prompts", {"name": "greet"})
        await until(lambda: PROMPTS in methods(session) and PROMPTS in methods(narrow))
        told = [methods(one) for one in (session, stream, narrow)]
        tags = [{one["params"]["_meta"][SUBSCRIPTION] for one in heard.messages} for heard in (stream, narrow)]
        tasks.cancel_scope.cancel()

    assert told == [[TOOLS, RESOURCES, PROMPTS], [TOOLS, RESOURCES], [PROMPTS]]
    assert tags == [{"s1"}, {2}]
    assert stream.messages[0]["params"]["notifications"] == {
        "toolsListChanged": True,
        "resourcesListChanged": True,
        "resourceSubscriptions": ["a://1"],
    }


def methods(hearing: object) -> list[str]:
    """What a stream brought of lists, in order."""
    return [one["method"] for one in hearing.messages if one.get("method", "").endswith("list_changed")]  # type: ignore[attr-defined]


async def test_a_tool_that_is_added_later(servers: Path, tmp_path: Path):
    """A server that says that it has other tools is asked for them, and clients of both eras are told and see them."""
    launch = StdioLaunch(command=sys.executable, args=(str(servers / "stdio_list_changed_storm.py"), "30"))
    settings = GatewaySettings(listen=("127.0.0.1:0",), auth="open", state_dir=tmp_path, first_list_wait=0.01)
    async with Supervisor() as supervisor:  # noqa: SIM117 # reads better
        async with (
            Gateway(supervisor, settings, instance=supervisor.instance, health=lambda *_: (200, "ok")) as served,
            Wire(served.addresses[0]) as legacy,
            Wire(served.addresses[0]) as modern,
            anyio.create_task_group() as tasks,
        ):
            await legacy.open()
            first = await legacy.post(LIST)
            session, stream = opened(legacy, tasks), await listening(modern, tasks, toolsListChanged=True)
            await supervisor.apply([ServerSpec(name="storm", target=launch)])
            shown: list[set[str]] = [set(), set()]
            with anyio.fail_after(20):
                while not all("storm__extra_final" in names for names in shown):
                    seen = len(methods(session)), len(methods(stream))
                    await until(lambda seen=seen: len(methods(session)) > seen[0] and len(methods(stream)) > seen[1], 20)  # type: ignore[misc]
                    answers = [await legacy.post(LIST), await modern.modern(LIST)]
                    shown = [{one["name"] for one in answer.json()["result"]["tools"]} for answer in answers]
            tasks.cancel_scope.cancel()

    assert first.json()["result"]["tools"] == []
    assert shown == [{"storm__echo", "storm__extra_final"}] * 2
