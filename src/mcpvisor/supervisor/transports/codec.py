"""Owns the reading and writing of JSON: strict, and counted before it is parsed."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

Refusal = Literal["size", "values", "depth", "syntax"]

MAX_VALUES: Final = 500_000
"""Values in one message: at some 100 bytes each they may cost 50 MB while it is handled."""

_QUOTES: Final = 4 * MAX_VALUES
"""Quotes in one message: two for each value and two for its name. More than that are more values than there may be."""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Unreadable(ValueError):
    """Bytes that are refused as a message; `reason` is of a closed set, the text says what was wrong."""

    def __init__(self, reason: Refusal, text: str) -> None:
        super().__init__(text)
        self.reason: Refusal = reason


def count_values(data: bytes) -> int:
    """How many values a JSON text has at most; commas and brackets inside strings are not taken for structure.

    The exact count costs a pass over the text, so it is only made when the cheap upper bound is over the limit.
    """
    bound = data.count(b",") + data.count(b"[") + data.count(b"{")
    if bound <= MAX_VALUES:
        return bound + 1
    # Without what is escaped, every second piece between quotes is outside of strings. Plain searches, no expression: these
    # take some 3 ms for a megabyte whatever is in it.
    data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if data.count(b'"') > _QUOTES:
        return bound + 1
    bare = b"".join(data.split(b'"')[::2])
    return bare.count(b",") + bare.count(b"[") + bare.count(b"{") + 1


def decode(data: bytes, *, max_bytes: int) -> Any:
    """The value of a JSON text of at most `max_bytes` bytes.

    Strict: UTF-8, no NaN, no lone surrogate, bounded depth and number of values. Raises `Unreadable`.
    """
    if len(data) > max_bytes:
        raise Unreadable("size", f"a message of {len(data)} bytes is over the limit of {max_bytes}")
    values = count_values(data)
    if values > MAX_VALUES:
        raise Unreadable("values", f"a message of {values} values is over the limit of {MAX_VALUES}")
    try:
        return _decode(data)
    except RecursionError:
        raise Unreadable("depth", "a message is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable("syntax", f"no valid JSON: {error}") from None


def encode(message: Any) -> bytes:
    """The message as one line of JSON without its line end. Raises ValueError for what JSON cannot carry."""
    try:
        return _encode(message)
    except (TypeError, UnicodeEncodeError, RecursionError, OverflowError) as error:
        raise ValueError(f"cannot be written as JSON: {error}") from error
