"""Reading large messages while others have their turns."""

from __future__ import annotations

import json

import anyio
import anyio.lowlevel
import pytest

from mcpvisor.supervisor.pace import Account
from mcpvisor.supervisor.transports import ahead
from mcpvisor.supervisor.transports.ahead import LARGE, AheadReader, decoded
from mcpvisor.supervisor.transports.codec import MAX_BATCH, Unreadable

MESSAGE = {"jsonrpc": "2.0", "id": 1, "result": {"text": ["x" * LARGE] * 100}}
TEXT = json.dumps(MESSAGE).encode()


@pytest.fixture
def at_once(monkeypatch):
    """The texts that were read in one go."""
    seen: list[bytes] = []
    read = ahead.decode_messages

    def watched(data: bytes, *, max_bytes: int):
        seen.append(data)
        return read(data, max_bytes=max_bytes)

    monkeypatch.setattr(ahead, "decode_messages", watched)
    return seen


@pytest.mark.anyio
async def test_others_have_their_turns_while_a_large_text_is_read(at_once):
    """It is read once, and by the time it is taken nothing is left to be done."""
    turns = 0

    async def others():
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    reader = AheadReader(2 * len(TEXT), Account())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(others)
        await reader.ahead(TEXT)
        tasks.cancel_scope.cancel()

    assert turns > 3
    assert ([MESSAGE], False) == reader.messages(TEXT)
    assert [] == at_once


@pytest.mark.anyio
async def test_a_small_text_is_read_where_it_is_taken(at_once):
    """No pieces of what is hardly more than one."""
    reader = AheadReader(LARGE, Account())
    await reader.ahead(b"{}")

    assert ([{}], False) == reader.messages(b"{}")
    assert [b"{}"] == at_once


@pytest.mark.anyio
@pytest.mark.parametrize(
    "text", [b"[" * LARGE, b'"' + b"x" * LARGE, b'{"a":' + b"[" * LARGE, b'{"a":NaN,"b":"' + b"x" * LARGE + b'"}']
)
async def test_a_large_text_is_refused_as_ever(text):
    """The refusal has the reason that reading in one go would have given it."""
    reader, other = AheadReader(2 * LARGE, Account()), AheadReader(2 * LARGE, Account())
    await reader.ahead(text)
    with pytest.raises(Unreadable) as beside:
        reader.messages(text)
    with pytest.raises(Unreadable) as in_one_go:
        other.messages(text)

    assert in_one_go.value.reason == beside.value.reason


@pytest.mark.anyio
async def test_a_text_over_the_limit_is_not_read_at_all(at_once):
    """It is refused for its size."""
    reader = AheadReader(len(TEXT) - 1, Account())
    await reader.ahead(TEXT)
    with pytest.raises(Unreadable) as refused:
        reader.messages(TEXT)

    assert "size" == refused.value.reason
    assert [TEXT] == at_once


@pytest.mark.anyio
async def test_a_large_array_is_a_batch(at_once):
    """Of which no more than `MAX_BATCH` are taken."""
    batch = json.dumps([{"n": number, "text": "x" * 100} for number in range(MAX_BATCH + 5)]).encode()
    assert len(batch) > LARGE
    reader = AheadReader(len(batch), Account())
    await reader.ahead(batch)
    messages, is_cut = reader.messages(batch)

    assert (list(range(MAX_BATCH)), True) == ([message["n"] for message in messages], is_cut)
    assert [] == at_once


@pytest.mark.anyio
async def test_what_was_read_ahead_and_not_taken_is_forgotten():
    """Another text is read for itself."""
    reader = AheadReader(2 * len(TEXT), Account())
    await reader.ahead(TEXT)

    assert ([{}], False) == reader.messages(b"{}")
    assert ([MESSAGE], False) == reader.messages(TEXT)


@pytest.mark.anyio
async def test_a_value_of_any_size():
    """Small or large, it is the same value; over the limit it is none."""
    assert MESSAGE == await decoded(TEXT, max_bytes=len(TEXT), account=Account())
    assert {"a": 1} == await decoded(b'{"a":1}', max_bytes=100, account=Account())
    with pytest.raises(Unreadable):
        await decoded(TEXT, max_bytes=len(TEXT) - 1, account=Account())
