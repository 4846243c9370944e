"""What goes over the wire to a stdio server, with real processes: framing, noise, order, limits, cancellation."""

from __future__ import annotations

import json
import os
import signal

import anyio
import pytest

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.process.stderr import StderrRing
from mcpvisor.supervisor.transports.outgoing import MAX_QUEUED

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


def echoed(text: str) -> dict:
    return {"content": [{"type": "text", "text": text}]}


async def echo(wire, text: str) -> dict:
    return await wire.request("tools/call", {"name": "echo", "arguments": {"text": text}})


async def failure_of(wire, method, params=None) -> RequestFailed:
    with pytest.raises(RequestFailed) as caught:
        await wire.request(method, params or {})
    return caught.value


async def test_results_are_raw(opened):
    """A result comes back as the server wrote it: unknown fields, exact numbers, text of any script."""
    value = {"x-vendor": {"n": 12345678901234567890, "f": 0.1}, "text": "größe 🦑 \u2028"}
    with anyio.fail_after(20):
        async with opened("stdio_scripted.py") as wire:
            result = await wire.request("echo", value)

    assert value == result


async def test_hundred_calls_at_a_time_get_their_own_answers(opened):
    """Many requests in flight are told apart by their ids."""
    answers = {}
    with anyio.fail_after(20):
        async with opened("stdio_scripted.py") as wire:

            async def call(number: int) -> None:
                answers[number] = (await wire.request("echo", {"n": number}))["n"]

            async with anyio.create_task_group() as tasks:
                for number in range(100):
                    tasks.start_soon(call, number)

    assert {number: number for number in range(100)} == answers


async def test_banner_and_log_lines_are_noise(opened, handshake, told):
    """Lines that are no message are skipped and counted; the connection and every reply stay."""
    with anyio.fail_after(20):
        async with opened("stdio_banner.py") as wire:
            await handshake(wire)
            answers = [await echo(wire, f"call {number}") for number in range(3)]

    assert [echoed(f"call {number}") for number in range(3)] == answers
    assert len(told.noises) > 3
    assert [] == told.refusals


async def test_reply_glued_to_noise_fails_its_request(opened, handshake, told):
    """A reply behind text without a line end is lost: its request fails with the reason, and the wire goes on."""
    with anyio.fail_after(20):
        async with opened("stdio_banner.py", "glued") as wire:
            await handshake(wire)
            failure = await failure_of(wire, "tools/call", {"name": "echo", "arguments": {"text": "x"}})

    assert (Outcome.MAYBE_EXECUTED, "answer_refused") == (failure.outcome, failure.cause)
    assert ["syntax"] == [reason for reason, _ in told.refusals]


async def test_crlf_pieces_and_many_messages_in_one_write(opened, handshake):
    """CRLF, writes that end inside a character, blank lines and several messages in one write are all read right."""
    with anyio.fail_after(20):
        async with opened("stdio_crlf_split.py") as wire:
            await handshake(wire)
            answer = await echo(wire, "größe 🦑")

    assert echoed("größe 🦑") == answer


async def test_byte_order_mark_before_the_first_line(opened):
    """A byte-order mark before the first message is no part of it."""
    script = (
        "import sys, json; m = json.loads(sys.stdin.readline());"
        "line = json.dumps({'jsonrpc': '2.0', 'id': m['id'], 'result': {}}).encode();"
        "sys.stdout.buffer.write(b'\\xef\\xbb\\xbf' + line + b'\\r\\n');"
        "sys.stdout.flush(); sys.stdin.read()"
    )
    with anyio.fail_after(20):
        async with opened("stdio_inline.py", script) as wire:
            result = await wire.request("initialize", {})

    assert {} == result


async def test_content_length_framing_is_named(opened):
    """A server that frames as LSP does ends the wire at once, with words that say so."""
    script = (
        "import sys; sys.stdin.readline();"
        'sys.stdout.write(\'Content-Length: 36\\r\\n\\r\\n{"jsonrpc":"2.0","id":1,"result":{}}\');'
        "sys.stdout.flush(); sys.stdin.read()"
    )
    with anyio.fail_after(20):
        async with opened("stdio_inline.py", script) as wire:
            failure = await failure_of(wire, "initialize")

    assert "protocol" == failure.cause
    assert "Content-Length" in failure.message


async def test_content_length_line_of_a_working_server_is_noise(opened, told):
    """The same line from a server that has already spoken MCP is only noise."""
    with anyio.fail_after(20):
        async with opened("stdio_scripted.py") as wire:
            await wire.request("echo", {})
            await wire.request("raw", {"text": "Content-Length: 36\r\n"})
            await wire.request("echo", {})

    assert [b"Content-Length: 36"] == told.noises


async def test_a_message_over_many_lines_is_noise(opened, told):
    """An indented notification costs no call anything, not even the only one that waits, and no answer after it."""
    indented = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x"}}, indent=2)
    async with opened("stdio_scripted.py") as wire:
        answer = await wire.request("raw", {"text": indented + "\n"})

        assert indented + "\n" == answer["text"]
        assert (indented.splitlines(), [], []) == ([noise.decode() for noise in told.noises], told.refusals, told.notifications)
        assert {"still": "there"} == await wire.request("echo", {"still": "there"})


async def test_bytes_that_are_no_utf8_fail_that_message_only(opened):
    """An answer with a stray byte fails its own request; the next one works."""
    line = b'{"jsonrpc":"2.0","id":1,"result":{"text":"caf\xe9"}}\n'
    with anyio.fail_after(20):
        async with opened("stdio_scripted.py") as wire:
            failure = await failure_of(wire, "hex", {"hex": line.hex()})
            after = await wire.request("echo", {"n": 2})

    assert (Outcome.MAYBE_EXECUTED, "answer_refused") == (failure.outcome, failure.cause)
    assert {"n": 2} == after


async def test_line_over_the_limit_fails_that_request_only(opened, handshake, told):
    """A reply over the limit is refused by its size, for its own request; ordinary calls go on."""
    with anyio.fail_after(20):
        async with opened("stdio_huge_line.py", "10", max_message=1024 * 1024) as wire:
            await handshake(wire)
            failure = await failure_of(wire, "tools/call", {"name": "blob", "arguments": {}})
            after = await echo(wire, "still here")

    assert (Outcome.MAYBE_EXECUTED, "answer_refused") == (failure.outcome, failure.cause)
    assert ["size"] == [reason for reason, _ in told.refusals]
    assert echoed("still here") == after


async def test_large_reply_within_the_limit_is_delivered(opened, handshake):
    """Ten megabytes on one line arrive whole."""
    with anyio.fail_after(20):
        async with opened("stdio_huge_line.py", "10") as wire:
            await handshake(wire)
            result = await wire.request("tools/call", {"name": "blob", "arguments": {}})

    assert len(result["content"][0]["text"]) >= 10_000_000


async def test_large_request_reaches_the_server_whole(opened):
    """A request of many pipes' size is written as the server reads, while its answer comes back."""
    text = "x" * 5_000_000
    with anyio.fail_after(20):
        async with opened("stdio_scripted.py") as wire:
            result = await wire.request("echo", {"text": text})

    assert text == result["text"]


async def test_early_traffic_is_answered(opened, handshake, told):
    """Notifications and requests before the handshake's answer are taken; pings are answered, the unknown is refused."""
    with anyio.fail_after(20):
        async with opened("stdio_early_traffic.py") as wire:
            await handshake(wire)
            answer = await echo(wire, "hello")

    assert echoed("hello") == answer
    assert {"notifications/message", "notifications/tools/list_changed"} <= {method for method, _ in told.notifications}


async def test_question_during_a_call_is_answered(opened):
    """A request of the server that arrives while ours is pending gets its answer before ours comes."""
    with anyio.fail_after(20):
        async with opened("stdio_scripted.py") as wire:
            result = await wire.request("ask", {"method": "ping"})
            refused = await wire.request("ask", {"method": "roots/list"})

    assert {"jsonrpc": "2.0", "id": "q1", "result": {}} == result["answer"]
    assert -32601 == refused["answer"]["error"]["code"]


async def test_cancelled_caller_is_told_to_the_server(opened, told):
    """When the caller gives up, the server gets notifications/cancelled with the id of that request."""
    with anyio.fail_after(20):
        async with opened("stdio_scripted.py") as wire:
            with anyio.move_on_after(0.1):
                await wire.request("silent", {})
            await told.until(lambda: bool(told.notifications))
            in_flight = wire.in_flight

    (method, seen) = told.notifications[0]
    assert ("notifications/seen", 1) == (method, seen["params"]["requestId"])
    assert 0 == in_flight


async def test_request_that_was_not_begun_is_withdrawn(opened):
    """Of two requests to a server that does not read, the second had not begun and is taken back; the first is finished."""
    with anyio.fail_after(20):
        async with opened("stdio_scripted.py") as wire:
            await wire.request("deaf", {})
            async with anyio.create_task_group() as tasks:

                async def give_up(name: str, text: str) -> None:
                    with anyio.move_on_after(0.1):
                        await wire.request(name, {"text": text})

                tasks.start_soon(give_up, "first", "a" * 200_000)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(give_up, "second", "b" * 1000)
            waiting = b"".join(bytes(line.rest) for line in wire._outgoing._lines)

    assert b"aaaa" in waiting
    assert b'"second"' not in waiting
    assert b"notifications/cancelled" in waiting


async def test_server_that_does_not_read_fills_a_bounded_queue(opened):
    """When enough waits for a server that does not read, a further request fails at once as not sent."""
    with anyio.fail_after(20):
        async with opened("stdio_scripted.py") as wire:
            await wire.request("deaf", {})
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(failure_of, wire, "echo", {"text": "x" * (MAX_QUEUED - 100_000)})
                await anyio.wait_all_tasks_blocked()
                failure = await failure_of(wire, "echo", {"text": "x" * 400_000})
                os.kill(wire.pid, signal.SIGKILL)

    assert (Outcome.NOT_SENT, "queue_full") == (failure.outcome, failure.cause)


async def test_what_was_not_begun_at_the_end_was_not_sent(opened):
    """At the end of a wire a request whose line had begun is maybe executed, one that only waited was not sent."""
    failures = {}
    with anyio.fail_after(20):
        async with opened("stdio_scripted.py") as wire:
            await wire.request("deaf", {})

            async def call(name: str, size: int) -> None:
                failures[name] = (await failure_of(wire, name, {"text": "x" * size})).outcome

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, "begun", 200_000)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(call, "waiting", 10)
                await anyio.wait_all_tasks_blocked()
                os.kill(wire.pid, signal.SIGKILL)

    assert {"begun": Outcome.MAYBE_EXECUTED, "waiting": Outcome.NOT_SENT} == failures


async def test_request_that_json_cannot_carry_is_rejected(opened):
    """A lone surrogate in a request is refused here, and hurts nothing else."""
    with anyio.fail_after(20):
        async with opened("stdio_scripted.py") as wire:
            failure = await failure_of(wire, "echo", {"text": "\ud800"})
            after = await wire.request("echo", {"n": 1})

    assert Outcome.REJECTED == failure.outcome
    assert {"n": 1} == after


async def test_progress_goes_to_its_request(opened, told):
    """Progress under our own token reaches the caller in order, and nobody else."""
    script = (
        "import sys, json; m = json.loads(sys.stdin.readline()); t = m['params']['_meta']['progressToken'];"
        "w = lambda **k: print(json.dumps({'jsonrpc': '2.0', **k}), flush=True);"
        "[w(method='notifications/progress', params={'progressToken': t, 'progress': n}) for n in range(3)];"
        "w(id=m['id'], result={}); sys.stdin.read()"
    )
    seen = []
    with anyio.fail_after(20):
        async with opened("stdio_inline.py", script) as wire:
            await wire.request("slow", {}, on_progress=lambda params: seen.append(params["progress"]))

    assert [0, 1, 2] == seen
    assert [] == told.notifications


async def test_progress_is_only_asked_for_where_somebody_listens(opened):
    """A request without a listener carries no token, so that the server tells nobody."""
    async with opened("stdio_scripted.py") as wire:
        unheard = await wire.request("echo", {"a": 1})
        heard = await wire.request("echo", {"a": 1}, on_progress=lambda params: None)

    assert ({"a": 1}, {"a": 1, "_meta": {"progressToken": 2}}) == (unheard, heard)


async def test_flood_on_stderr_blocks_nothing(opened, handshake, told):
    """A server that writes 256 KiB to stderr before each reply gives every reply; only a bounded tail is kept."""
    ring = StderrRing(told.stderr)
    with anyio.fail_after(20):
        async with opened("stdio_stderr_flood.py", ring=ring) as wire:
            await handshake(wire)
            answers = [await echo(wire, f"call {number}") for number in range(3)]

    assert [echoed(f"call {number}") for number in range(3)] == answers
    assert len(ring.tail()) <= 201
    assert all(len(line) <= 500 and "\x1b" not in line for line in ring.tail())


async def test_last_words_on_stderr_are_kept(opened, told):
    """What a server says on stderr before it dies is known by the time its end is."""
    ring = StderrRing(told.stderr)
    with anyio.fail_after(20):
        async with opened("stdio_exit_after_init.py", "before", ring=ring) as wire:
            await wire.ended.wait()
            tail = ring.tail()

    assert 2 == wire.end.exit_code
    assert tail


async def test_environment_is_the_allow_list_and_the_entry(opened, monkeypatch, told):
    """A server sees what is allowed and what its entry gives it, its mark, and nothing of the daemon's own."""
    for name in ("NOTIFY_SOCKET", "LISTEN_FDS", "WATCHDOG_USEC", "CREDENTIALS_DIRECTORY", "SOME_TOKEN"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("LC_TIME", "C")
    with anyio.fail_after(20):
        async with opened("stdio_scripted.py", env=(("GIVEN", "1"),)) as wire:
            environment = await wire.request("environment", {})

    assert "secret" not in json.dumps(environment)
    assert ("C", "1") == (environment["LC_TIME"], environment["GIVEN"])
    assert (told.instance, "puppet:1") == (environment["MCPVISOR_INSTANCE"], environment["MCPVISOR_SERVER"])


async def test_process_starts_clean(opened):
    """A server starts with default signals, no core dumps, at most 1024 soft files, and no descriptor but its pipes."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with anyio.fail_after(20):
            async with opened("stdio_scripted.py") as wire:
                about = await wire.request("about", {})
    finally:
        signal.signal(signal.SIGHUP, before)

    # Python itself ignores two; those that belong to the C library (32 and 33) no program can set, and `make` hands them on.
    ours = sum(1 << number - 1 for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ})
    assert 0 == about["SigIgn"] & ours
    assert 0 == about["SigBlk"]
    assert [0, 0] == about["core"]
    assert about["files"][0] <= 1024
    assert [] == about["fds"]
