"""What is counted as noise of lines that nobody has the time to parse."""

from __future__ import annotations

import time

import pytest

from mcpvisor.supervisor.transports.noise import count_noise


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"", 0),
        (b"Welcome\n\n  to the server\n\t\r\n", 2),
        (b"[INFO] ready\n[ 1 ] x", 2),
        (b'5\n"text"\nnull', 3),
        (b'{"jsonrpc":"2.0"}\n [{"jsonrpc":"2.0"}]\n[]\n {broken', 0),
        (b'Fetching... {"jsonrpc":"2.0","id":1,"result":{}}\nplain', 1),
    ],
    ids=["nothing", "text", "brackets", "values", "messages", "glued"],
)
def test_what_may_be_a_message_is_not_counted(data: bytes, count: int) -> None:
    """Only lines that are surely no messages count: neither blank ones, nor what begins as a message or holds one."""
    assert count == count_noise(data)


@pytest.mark.parametrize("data", [b" " * 65536, b'"jsonrpc ' * 7000, b"[ " * 32000, b"x\n" * 32000, b" \n" * 32000])
def test_no_line_takes_long(data: bytes) -> None:
    """It is looked at in linear time, whatever stands in it."""
    began = time.thread_time()
    count_noise(data)

    assert time.thread_time() - began < 0.2
