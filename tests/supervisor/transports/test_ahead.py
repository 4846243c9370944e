"""Reading large messages beside the loop."""

from __future__ import annotations

import json
import threading

import pytest

from mcpvisor.supervisor.transports import ahead
from mcpvisor.supervisor.transports.ahead import LARGE, AheadReader
from mcpvisor.supervisor.transports.codec import Unreadable

MESSAGE = {"jsonrpc": "2.0", "id": 1, "result": {"text": "x" * LARGE}}
TEXT = json.dumps(MESSAGE).encode()


@pytest.fixture
def threads(monkeypatch):
    """The threads in which texts were read."""
    seen: list[threading.Thread] = []
    read = ahead.decode_messages

    def watched(data: bytes, *, max_bytes: int):
        seen.append(threading.current_thread())
        return read(data, max_bytes=max_bytes)

    monkeypatch.setattr(ahead, "decode_messages", watched)
    return seen


@pytest.mark.anyio
async def test_a_large_text_is_read_once_and_beside_the_loop(threads):
    """What was read in a thread is what the loop gets, and is not read again."""
    reader = AheadReader(2 * len(TEXT))
    await reader.ahead(TEXT)

    assert ([MESSAGE], False) == reader.messages(TEXT)
    assert [False] == [thread is threading.current_thread() for thread in threads]


@pytest.mark.anyio
async def test_a_small_text_is_read_where_it_is_taken(threads):
    """No thread for what takes no time."""
    reader = AheadReader(LARGE)
    await reader.ahead(b"{}")

    assert ([{}], False) == reader.messages(b"{}")
    assert [threading.current_thread()] == threads


@pytest.mark.anyio
@pytest.mark.parametrize("text", [b"[" * LARGE, b'"' + b"x" * LARGE, b" " * LARGE + b"{}"])
async def test_a_large_text_is_refused_as_ever(text):
    """The refusal is the one that reading at once would have brought."""
    reader, other = AheadReader(LARGE), AheadReader(LARGE)
    await reader.ahead(text)
    with pytest.raises(Unreadable) as beside:
        reader.messages(text)
    with pytest.raises(Unreadable) as at_once:
        other.messages(text)

    assert (at_once.value.reason, str(at_once.value)) == (beside.value.reason, str(beside.value))


@pytest.mark.anyio
async def test_what_was_read_ahead_and_not_taken_is_forgotten():
    """Another text is read for itself."""
    reader = AheadReader(2 * len(TEXT))
    await reader.ahead(TEXT)

    assert ([{}], False) == reader.messages(b"{}")
    assert ([MESSAGE], False) == reader.messages(TEXT)
