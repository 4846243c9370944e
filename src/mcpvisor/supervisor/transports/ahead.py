"""Owns the reading of messages so large that their checks and their parsing, in one go, would hold up everybody else."""

from __future__ import annotations

from typing import Any, Final

from mcpvisor.supervisor.pace import Account, Pace, let_go
from mcpvisor.supervisor.transports.codec import MAX_BATCH, Unreadable, decode, decode_messages
from mcpvisor.supervisor.transports.pieces import PIECE, PieceParser

LARGE: Final = 2 * PIECE
"""Bytes from which on a message is read in pieces."""

_Read = tuple[list[Any], bool]


class AheadReader:
    """Reads the messages of one wire. Large ones are read ahead, in pieces, by whoever takes them off the wire next."""

    def __init__(self, max_message: int, account: Account) -> None:
        self._max_message = max_message
        self._account = account
        self._ahead: tuple[bytes, _Read | Unreadable] | None = None

    async def ahead(self, data: bytes) -> None:
        """Read a text that is large; `messages` has to be asked for it before anything else is awaited."""
        if LARGE <= len(data) <= self._max_message:
            try:
                found: _Read | Unreadable = await _read(data, self._account)
            except Unreadable as error:
                found = error
            self._ahead = data, found

    def messages(self, data: bytes) -> _Read:
        """See `decode_messages`. Raises `Unreadable`."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[0] is not data:
            return decode_messages(data, max_bytes=self._max_message)
        if isinstance(ahead[1], Unreadable):
            raise ahead[1]
        return ahead[1]


async def _read(data: bytes, account: Account) -> _Read:
    """The messages of a text, and whether it has more than these; of an array nobody looks at more than `MAX_BATCH`."""
    value = await _in_pieces(data, account)
    return (value[:MAX_BATCH], len(value) > MAX_BATCH) if isinstance(value, list) else ([value], False)


async def decoded(data: bytes, *, max_bytes: int, account: Account) -> Any:
    """See `codec.decode`: others have their turns while a large text of the owner of `account` is read. Raises `Unreadable`."""
    return await _in_pieces(data, account) if LARGE <= len(data) <= max_bytes else decode(data, max_bytes=max_bytes)


async def _in_pieces(data: bytes, account: Account) -> Any:
    parser, pace = PieceParser(), Pace(account)
    try:
        for start in range(0, len(data), PIECE):
            parser.feed(data[start : start + PIECE])
            await pace.pause()
        return parser.end()
    except Unreadable:
        await let_go(parser.value)
        raise
