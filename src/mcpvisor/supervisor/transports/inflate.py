"""Owns the decoding of compressed bodies, counted while they inflate."""

from __future__ import annotations

import zlib
from typing import Final, Protocol

from mcpvisor.supervisor.transports.http_response import ResponseRefused

_PIECE: Final = 64 * 1024
"""How much is inflated at one time: some hundred microseconds of work."""

_DEFLATE_METHOD: Final = 8


class _Decoder(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes: ...


class Inflater:
    """Decodes `gzip` or `deflate` piece by piece.

    We always ask for `identity`; this is for servers and proxies that compress all the same. Raises ResponseRefused on
    any other coding.
    """

    def __init__(self, coding: str) -> None:
        if coding not in ("gzip", "x-gzip", "deflate"):
            raise ResponseRefused("syntax", f"content coding {coding[:40]!r}, though identity was asked for")
        self._gzip = coding != "deflate"
        self._decoder: _Decoder | None = None
        self._waiting = b""

    def feed(self, data: bytes) -> None:
        """Take compressed bytes; `piece` gives what they hold."""
        self._waiting += data

    def piece(self) -> bytes:
        """At most 64 KiB of what is decoded; empty when more input is needed. Raises ResponseRefused."""
        if not self._waiting:
            return b""
        if self._decoder is None:
            # Servers send "deflate" both with and without the zlib header: the first byte tells.
            bare = not self._gzip and self._waiting[0] & 0x0F != _DEFLATE_METHOD
            self._decoder = zlib.decompressobj(47 if self._gzip else -15 if bare else 15)
        try:
            piece = self._decoder.decompress(self._waiting, _PIECE)
        except zlib.error as error:
            raise ResponseRefused("syntax", f"a compressed body that cannot be read: {error}") from None
        self._waiting = b"" if self._decoder.eof else self._decoder.unconsumed_tail
        return piece

    @property
    def finished(self) -> bool:
        """Whether the compressed data has come to its own end."""
        return self._decoder is None or self._decoder.eof
