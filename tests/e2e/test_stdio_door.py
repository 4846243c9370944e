"""`mcpvisor stdio`: a client that only speaks stdio has the whole gateway, and goes on when the daemon is started again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from tests.e2e.running import RunningDaemon, puppet
from tests.e2e.stdio_client import CHANGED, COMMAND, MODERN, StdioClient, modern
from tests.processes import resident

from mcpvisor.daemon.shim.messages import MAX_LINE

pytestmark = pytest.mark.anyio

ERAS = {"legacy": "2025-11-25", "auto": MODERN, "2026-07-28": MODERN}
MANY = 50
SERVERS = Path(__file__).parents[1] / "servers"


def moody(folder: Path, name: str = "moody", **keys: Any) -> str:
    """The entry of a puppet whose calls can last; what it is asked stands in a log."""
    return puppet(name, SERVERS / "stdio_moody.py", env={"FIELD_LOG": str(folder / f"{name}.log")}, **keys)


def asked(folder: Path, name: str = "moody") -> list[str]:
    """The methods that a puppet was sent."""
    log = folder / f"{name}.log"
    notes = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return [note["method"] for note in notes if note["event"] == "in"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """One daemon for all tests that do it no harm."""
    folder = tmp_path_factory.mktemp("door")
    work = [puppet(f"work_{era}", SERVERS / "sdk_logging.py", era=era) for era in ("legacy", "modern")]
    asking = puppet("asking", SERVERS / "sdk_eras.py", str(folder / "asking.log"), era="legacy")
    marked = puppet("marked", SERVERS / "sdk_conformance.py", era="modern")
    running = RunningDaemon(folder, moody(folder, concurrency=MANY, queue=1000) + "".join([*work, asking, marked]))
    running.until_serving()
    running.until_ready()
    yield running
    left = running.clear()
    print(running.log_text())
    assert [] == left


@pytest.fixture
def own(daemon: Callable[..., RunningDaemon], tmp_path: Path) -> RunningDaemon:
    """A daemon for one test, which may kill it."""
    running = daemon(moody(tmp_path))
    running.until_ready()
    return running


@pytest.fixture
def shim() -> Iterator[Callable[..., StdioClient]]:
    """Starts shims: `shim(daemon, "NAME")`; each is ended with the test."""
    running: list[StdioClient] = []

    def start(daemon: RunningDaemon, *arguments: str, **options: Any) -> StdioClient:
        running.append(StdioClient("--socket", str(daemon.socket), "stdio", *arguments, **options))
        return running[-1]

    yield start
    for one in running:
        one.clear()


def as_server(daemon: RunningDaemon, *arguments: str) -> StdioServerParameters:
    """The shim as a client's configuration names it."""
    return StdioServerParameters(command=COMMAND, args=["--socket", str(daemon.socket), "stdio", *arguments])


@pytest.mark.parametrize("mode", ERAS)
async def test_the_sdks_stdio_client_has_the_gateway(served, mode):
    """The SDK's client opens it in either era, lists and calls as if it were any stdio server."""
    async with Client(as_server(served), mode=mode) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        said = await client.call_tool("work_legacy__work", {"text": "hello"})
        version = client.protocol_version

    assert ERAS[mode] == version
    assert {"moody__pid", "work_legacy__work", "work_modern__work"} <= names
    assert "hello" == said.content[0].text


@pytest.mark.parametrize("mode", ERAS)
async def test_one_server_alone_is_shown_under_its_own_names(served, mode):
    """With a NAME it is the door to that server only."""
    async with Client(as_server(served, "moody"), mode=mode) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}

    assert "pid" in names
    assert [] == [name for name in names if "__" in name]


def test_calls_run_side_by_side(served, shim):
    """A slow call holds up none of those after it, and each is answered under its own id, whatever its type."""
    client = shim(served)
    client.open()
    client.send(id="slow", method="tools/call", params={"name": "moody__sleep", "arguments": {"seconds": 2}})
    for number in range(MANY // 2):
        client.send(id=number, method="tools/call", params={"name": "moody__pid", "arguments": {}})
        client.send(id=f"text {number}", method="tools/call", params={"name": "moody__pid", "arguments": {}})
    pid = str(served.server("moody")["pid"])
    answers = [client.answer(one)["result"]["content"][0]["text"] for n in range(MANY // 2) for one in (n, f"text {n}")]

    assert [pid] * MANY == answers
    assert "slept" == client.answer("slow")["result"]["content"][0]["text"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_withdrawn_call_is_withdrawn_at_the_server(served, shim, era):
    """A cancellation reaches the server in either era, and the call is not answered any more."""
    before = asked(served.folder)
    client = shim(served)
    params = {"name": "moody__sleep", "arguments": {"seconds": 30}}
    if era == "legacy":
        client.open()
    client.send(id=7, method="tools/call", params=params if era == "legacy" else modern(params))
    served.until(lambda: asked(served.folder).count("tools/call") > before.count("tools/call"), "the call")
    client.send(method="notifications/cancelled", params={"requestId": 7})
    withdrawn = "notifications/cancelled"
    served.until(lambda: asked(served.folder).count(withdrawn) > before.count(withdrawn), "the cancellation")
    code, said = client.end()

    assert (0, "") == (code, said)
    assert [] == [one for one in client.unread() if one.get("id") == 7]


def test_what_is_pushed_arrives(served, shim):
    """A session is told of a changed list by itself, as one over HTTP is."""
    client = shim(served)
    client.open()
    client.ask(1, "tools/list")
    served.write("pushed.toml", moody(served.folder, "pushed"))

    assert CHANGED == client.notified(CHANGED)["method"]


def test_a_stream_of_notifications_is_one_request(served, shim):
    """`subscriptions/listen` is acknowledged, carries changes, is open beside calls, and is withdrawn like any request."""
    client = shim(served)
    client.send(id="s", method="subscriptions/listen", params=modern({"notifications": {"toolsListChanged": True}}))
    acknowledged = client.notified("notifications/subscriptions/acknowledged")
    served.write("streamed.toml", moody(served.folder, "streamed"))
    changed = client.notified(CHANGED)
    answer = client.ask(2, "tools/call", modern({"name": "moody__pid", "arguments": {}}))
    client.send(method="notifications/cancelled", params={"requestId": "s"})
    code, _ = client.end()

    assert {"toolsListChanged": True} == acknowledged["params"]["notifications"]
    assert "s" == changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"]
    assert str(served.server("moody")["pid"]) == answer["result"]["content"][0]["text"]
    assert (0, []) == (code, client.unread())


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_what_a_call_logs_comes_before_its_answer(served, shim, era):
    """What a server says within a call stands before the answer, on the same pipe."""
    client = shim(served)
    params = {"name": f"work_{era}__work", "arguments": {"text": "x"}}
    if era == "legacy":
        client.open()
        client.ask("level", "logging/setLevel", {"level": "error"})
        served.until(lambda: levels(client), "a level at the server")
    answer = client.ask(1, "tools/call", params if era == "legacy" else modern(params, logLevel="error"))
    said = client.notified("notifications/message")

    assert "x" == answer["result"]["content"][0]["text"]
    assert "x error" == said["params"]["data"]


def levels(client: StdioClient) -> list[str]:
    """The levels that the logging puppet was asked for so far."""
    answer = client.call(f"state {time.monotonic()}", "work_legacy__state")
    return json.loads(answer["result"]["content"][0]["text"])["asked"]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_questions_of_servers_reach_the_client(served, mode):
    """What a server asks within a call comes as a request in the older era, in rounds in the newer one, and is answered."""
    asked = []

    async def answer(_, params):
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "anna"})

    async with Client(as_server(served, "asking"), mode=mode, elicitation_callback=answer) as client:
        result = await client.call_tool("ask", {"who": "anna"})

    assert ["[asking] Your name, anna?"] == asked
    assert "anna: accept anna" == result.content[0].text


def test_changes_of_watched_resources_arrive(served, shim):
    """A subscription of the older era and a stream of the newer one are told of a change, each in its own way."""
    uri = "memo://anna"
    older, newer = shim(served, "asking"), shim(served, "asking")
    older.open()
    older.ask(1, "resources/subscribe", {"uri": uri})
    newer.send(id="s", method="subscriptions/listen", params=modern({"notifications": {"resourceSubscriptions": [uri]}}))
    newer.notified("notifications/subscriptions/acknowledged")
    older.call(2, "touch", uri=uri)
    told = [client.notified("notifications/resources/updated")["params"]["uri"] for client in (older, newer)]

    assert [uri, uri] == told


def test_marked_arguments_are_shown_in_headers(served, shim):
    """A tool may want arguments in headers, which stdio has not: they are added, whether its list was read before or not."""
    client = shim(served, "marked")
    call = modern({"name": "test_custom_headers", "arguments": {"region": "Zürich", "level": 3}})
    before = client.ask(1, "tools/call", call)
    client.ask(2, "tools/list", modern({}))
    after = client.ask(3, "tools/call", call)

    assert ["ok", "ok"] == [answer["result"]["content"][0]["text"] for answer in (before, after)]


# The daemon is started again


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_session_goes_on_after_a_restart_of_the_daemon(own, shim, how):
    """The same session, the same process: calls wait for the next daemon, which listens on another port, and push goes on."""
    client = shim(own)
    client.open()
    before = client.call(1, "moody__pid")
    own.until(lambda: own.rows("SELECT count(*) FROM sessions") == [(1,)], "the session in the state file")
    own.end(how)
    client.send(id=2, method="tools/call", params={"name": "moody__pid", "arguments": {}})
    own.start()
    own.until_serving()
    after = client.answer(2, 30)
    client.notified(CHANGED, 20)
    code, said = client.end()

    assert "result" in before
    assert str(own.server("moody")["pid"]) == after["result"]["content"][0]["text"]
    assert 0 == code
    assert ["mcpvisor: the gateway is back"] == said.splitlines()[-1:]


def test_clients_of_2026_go_on_after_a_restart_of_the_daemon(own, shim):
    """A client without a session just goes on; what it asks meanwhile waits."""
    client = shim(own)
    params = modern({"name": "moody__pid", "arguments": {}})
    client.ask(1, "tools/call", params)
    own.end(signal.SIGKILL)
    client.send(id=2, method="tools/call", params=params)
    own.start()
    own.until_serving()

    assert "result" in client.answer(2, 30)


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_call_in_flight_is_told_what_became_of_it(own, shim, tmp_path, era):
    """A daemon that is killed under a call: the answer is an error at once, which says that the call may have run."""
    client = shim(own)
    params = {"name": "moody__sleep", "arguments": {"seconds": 60}}
    if era == "legacy":
        client.open()
    client.send(id=1, method="tools/call", params=params if era == "legacy" else modern(params))
    own.until(lambda: "tools/call" in asked(tmp_path), "the call")
    own.end(signal.SIGKILL)
    error = client.answer(1, 5)["error"]

    assert ("maybe_executed", "gateway_lost") == tuple(error["data"]["mcpvisor"][key] for key in ("outcome", "cause"))


def test_a_session_that_the_gateway_has_forgotten_is_opened_anew(own, shim):
    """A stdio client cannot initialise anew: where its session is unknown the shim does that, and the call is answered."""
    client = shim(own)
    client.open()
    client.call(1, "moody__pid")
    own.end()
    for name in (own.folder / "state").glob("state.db*"):
        name.unlink()
    own.start()
    own.until_serving()
    answer = client.call(2, "moody__pid", 30)
    client.notified(CHANGED)
    code, said = client.end()

    assert "result" in answer
    assert 0 == code
    assert "the gateway had forgotten the session" in said


# Hostile lines


def test_lines_that_are_no_messages_are_answered_and_end_nothing(served, shim):
    """Each bad line has its own error, under its id where that can be seen, and the conversation goes on."""
    client = shim(served)
    client.open()
    bad = {
        b"{": -32700,
        b"\xff\xfe": -32700,
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b"[" * 1000 + b"]" * 1000 + b"}": -32700,
        b"[]": -32600,
        b'"text"': -32600,
        b'{"id":1}': -32600,
        b'{"jsonrpc":"2.0","id":{},"method":"ping"}': -32600,
        b'{"jsonrpc":"2.0","id":true,"method":"ping"}': -32600,
        b'{"jsonrpc":"2.0","id":5,"method":"ping","params":[]}': -32600,
    }
    codes = []
    for line in bad:
        client.write(line + b"\n")
        codes.append(client.receive(lambda one: "error" in one)["error"]["code"])
    client.write(b"\r\n \n")
    tail = client.ask("last", "ping")

    assert list(bad.values()) == codes
    assert {"jsonrpc": "2.0", "id": "last", "result": {}} == tail


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_line_over_the_limit_is_refused_under_its_id(served, shim, place):
    """A request that no gateway would take is refused here, in bounded memory, and the next one is answered."""
    client = shim(served)
    client.open()
    params = b'"params":{"name":"moody__pid","arguments":{"id":"x","text":"' + b"x" * MAX_LINE + b'"}}'
    head, tail = (b'"id":77,', b"") if place == "first" else (b"", b',"id":77')
    client.write(b'{"jsonrpc":"2.0",' + head + b'"method":"tools/call",' + params + tail + b"}\n")
    error = client.answer(77)["error"]

    assert "over the limit" in error["message"]
    assert "rejected" == error["data"]["mcpvisor"]["outcome"]
    assert "result" in client.call(78, "moody__pid")


def test_an_endless_line_costs_no_memory(served, shim):
    """A client that never ends its line cannot make the shim grow."""
    client = shim(served)
    client.open()
    before = resident(client.process.pid)
    for _ in range(64):
        client.write(b"x" * 1024 * 1024)
    client.write(b"\n")
    error = client.receive(lambda one: "error" in one)
    grown = resident(client.process.pid) - before

    assert None is error["id"]
    assert grown < 32 * 1024 * 1024
    assert "result" in client.call(1, "moody__pid")


def test_an_id_in_use_and_a_flood_are_refused(served, shim):
    """An id can be in flight once, and a client that asks beyond all measure is refused before the gateway's others pay."""
    client = shim(served)
    client.open()
    for number in [*range(256), 0, 999]:
        client.send(id=number, method="tools/call", params={"name": "moody__sleep", "arguments": {"seconds": 30}})
    causes = {client.answer(number)["error"]["data"]["mcpvisor"]["cause"] for number in (0, 999)}
    client.process.send_signal(signal.SIGTERM)  # which ends the session, and with it the calls: others want their places
    client.wait()

    assert {"id_in_use", "too_many"} == causes


# Its end


@pytest.mark.alone
def test_the_end_of_stdin_ends_it_and_its_session(own, shim):
    """What was asked before the end is still answered where that takes no time, and the gateway holds no session of it."""
    before = sessions(own)
    client = shim(own)
    client.open()
    client.send(id=1, method="tools/call", params={"name": "moody__pid", "arguments": {}})
    client.send(id=2, method="tools/call", params={"name": "moody__sleep", "arguments": {"seconds": 60}})
    began = time.monotonic()
    code, said = client.end()
    took = time.monotonic() - began

    assert (0, "") == (code, said)
    assert [1] == [one["id"] for one in client.unread() if "result" in one]
    assert took < 2
    assert before == sessions(own)


def sessions(running: RunningDaemon) -> str:
    """How many sessions of the older era the gateway has, as its metrics write it."""
    with urlopen(f"http://{running.addresses('metrics')[0]}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return next(line for line in lines if line.startswith('mcpvisor_gateway_sessions{era="legacy"}'))


def test_lines_from_a_pipe_are_answered(served):
    """It can be used from a shell: requests in, answers out, and it ends by itself."""
    lines = [
        {"id": 1, "method": "server/discover", "params": modern({})},
        {"id": 2, "method": "tools/call", "params": modern({"name": "pid", "arguments": {}})},
    ]
    text = "".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines)
    command = [COMMAND, "--socket", str(served.socket), "stdio", "moody"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=20)
    answers = {one["id"]: one for one in map(json.loads, done.stdout.splitlines())}

    assert (0, "") == (done.returncode, done.stderr)
    assert {1, 2} == answers.keys()
    assert str(served.server("moody")["pid"]) == answers[2]["result"]["content"][0]["text"]


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGHUP, 0)])
def test_a_signal_ends_it_at_once(served, shim, number, expected):
    """A signal ends it with the calls in flight, without a word, and its session with it."""
    before = sessions(served)
    client = shim(served)
    client.open()
    client.send(id=1, method="tools/call", params={"name": "moody__sleep", "arguments": {"seconds": 60}})
    client.call(2, "moody__pid")
    client.process.send_signal(number)
    code, said = client.wait()

    assert (expected, "") == (code, said)
    assert before == sessions(served)


def test_a_client_that_reads_no_more_ends_it(served, shim):
    """When nobody reads its stdout it has nobody to speak to."""
    command = [COMMAND, "--socket", str(served.socket), "stdio"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        process.stdin.flush()
        code = process.wait(20)
        said = process.stderr.read()

    assert (0, b"") == (code, said)


# How it finds the gateway, and what it says where it does not


def told(*arguments: str) -> tuple[int, list[str]]:
    """The exit code, and the lines on stderr, of a shim that cannot begin."""
    done = subprocess.run([COMMAND, *arguments], input="", capture_output=True, text=True, timeout=30)
    assert "" == done.stdout
    return done.returncode, done.stderr.splitlines()


def test_no_daemon_is_one_line(tmp_path):
    """Without a daemon it ends with 3, whether it was to be found by its control socket or by its address."""
    nowhere = tmp_path / "none.sock"
    by_control = told("--socket", str(nowhere), "stdio")
    by_socket = told("stdio", "--gateway", f"unix:{nowhere}")
    by_url = told("stdio", "--gateway", "http://127.0.0.1:1")

    assert [(3, 1)] * 3 == [(code, len(lines)) for code, lines in (by_control, by_socket, by_url)]
    assert "the daemon is not running" in by_control[1][0]
    assert str(nowhere) in by_socket[1][0]
    assert "127.0.0.1:1" in by_url[1][0]


def test_an_unknown_name_is_one_line(served):
    """A server that nobody has configured is no door: 1, and where to look."""
    code, lines = told("--socket", str(served.socket), "stdio", "nosuch")

    assert (1, 1) == (code, len(lines))
    assert "no server is called 'nosuch'" in lines[0]


def test_a_bad_address_is_a_usage_error():
    """An address that is none is a mistake of who calls."""
    code, lines = told("stdio", "--gateway", "ftp://x")

    assert (64, 1) == (code, len(lines))


@pytest.mark.parametrize("listen", ['"127.0.0.1:0"', '["127.0.0.1:0", "unix:{folder}/gw.sock"]', '"0.0.0.0:0"'])
def test_the_daemon_says_where_its_gateway_is(daemon, shim, listen, tmp_path, tmp_path_factory):
    """The token of a TCP listener is found by itself; a unix socket is preferred, which needs none."""
    folder = tmp_path_factory.mktemp("gw")
    running = daemon(moody(tmp_path), auth="auto", listen=listen.format(folder=folder))
    running.until_ready()
    client = shim(running, "moody")
    client.open()

    assert "result" in client.call(1, "pid")


def test_an_address_can_be_named(daemon, tmp_path):
    """With `--gateway` no control socket is asked; a token comes from a file, and without it the refusal is one line."""
    running = daemon(moody(tmp_path), auth="auto", listen=f'["127.0.0.1:0", "unix:{tmp_path}/gw.sock"]')
    running.until_ready()
    tcp = next(one for one in running.addresses("gateway") if one.startswith("http"))
    token = tmp_path / "token"
    token.write_text((running.folder / "state" / "gateway.token").read_text())
    nobody = ["--socket", str(tmp_path / "none")]
    for where in (["--gateway", f"{tcp}/mcp", "--token-file", str(token)], ["--gateway", f"unix:{tmp_path}/gw.sock"]):
        client = StdioClient(*nobody, "stdio", "moody", *where)
        try:
            client.open()
            assert "result" in client.call(1, "pid")
        finally:
            client.clear()
    code, lines = told(*nobody, "stdio", "--gateway", tcp)

    assert (77, 1) == (code, len(lines))
    assert "a bearer token is needed" in lines[0]


def test_it_imports_neither_the_sdk_nor_pydantic(served):
    """The door is thin: it starts beside every client, so what is heavy is left to the daemon."""
    code = (
        "import sys\nfrom mcpvisor.daemon.cli.main import main\nmain(sys.argv[1:])\n"
        "print(sorted({'mcp', 'mcp_types', 'pydantic', 'starlette', 'uvicorn', 'structlog'} & sys.modules.keys()))"
    )
    arguments = ["--socket", str(served.socket), "stdio"]
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": modern({})}) + "\n"
    done = subprocess.run([sys.executable, "-c", code, *arguments], input=line, capture_output=True, text=True, timeout=20)

    assert "" == done.stderr
    assert [1, "[]"] == [json.loads(done.stdout.splitlines()[0])["id"], done.stdout.splitlines()[-1]]
