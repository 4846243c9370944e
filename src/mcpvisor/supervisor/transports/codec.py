"""Owns the reading and writing of JSON: strict, and counted before it is parsed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec.structs import astuple

Refusal = Literal["size", "values", "depth", "syntax"]

MAX_VALUES: Final = 500_000
"""Values in one message: at some 100 bytes each they may cost 50 MB while it is handled."""

_QUOTES: Final = 4 * MAX_VALUES
"""Quotes in one message: two for each value and two for its name. More than that are more values than there may be."""

_MARKS: Final = (b",", b"[", b"{")
"""Each value but the first has one of these before it."""

_PIECE: Final = 256 * 1024

MAX_DEPTH: Final = 200
"""Lists and objects within each other: far more than any message has, and little enough to be walked from any stack."""

_OPENING: Final = (b"[", b"{")
_NEITHER_QUOTE_NOR_BRACKET: Final = bytes(set(range(256)) - set(b'"[]{}'))
_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")
_STEPS: Final = bytes.maketrans(b"[]", b"\x01\xff")
"""Up one level and down one, as signed bytes."""

MAX_BATCH: Final = 1000
"""Messages of one array that are looked at."""

_ROOM_FOR_MAX_BATCH: Final = 2 * MAX_BATCH
"""Bytes of an array within which there is no message more than `MAX_BATCH`: each needs a byte and a comma."""

_SPACES: Final = b" \t\r\n"

_T = TypeVar("_T")

_decode = msgspec.json.Decoder().decode
_Batch = msgspec.defstruct("_Batch", [(f"message{n}", msgspec.Raw, None) for n in range(MAX_BATCH + 1)], array_like=True)
"""The first messages of an array, unparsed, and one more to tell that there are others, which are skipped at once."""

_split = msgspec.json.Decoder(_Batch).decode
_encode = msgspec.json.Encoder().encode


class Unreadable(ValueError):
    """Bytes that are refused as a message; `reason` is of a closed set, the text says what was wrong."""

    def __init__(self, reason: Refusal, text: str) -> None:
        super().__init__(text)
        self.reason: Refusal = reason


def count_values(data: bytes) -> int:
    """How many values a JSON text has at most, or some number over `MAX_VALUES`, beyond which nobody counts.

    Commas and brackets inside strings are not taken for structure. The exact count costs a pass over the text, so it is only
    made when the cheap upper bound is over the limit.
    """
    bound = 1
    for start in range(0, len(data), _PIECE):
        bound += sum(data.count(mark, start, start + _PIECE) for mark in _MARKS)
        if bound > MAX_VALUES:
            return _count_outside_strings(data)
    return bound


def _count_outside_strings(data: bytes) -> int:
    values, quotes, start, is_outside = 1, 0, 0, True
    while start < len(data):
        piece = data[start : start + _PIECE]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece = data[start : start + _PIECE + 1]  # what is escaped belongs to its backslash
        start += len(piece)
        # Without what is escaped, every second part between quotes is outside of strings. Plain searches, no expression:
        # these take some 3 ms for a megabyte whatever is in it.
        parts = without_escapes(piece).split(b'"')
        quotes += len(parts) - 1
        bare = b"".join(parts[::2] if is_outside else parts[1::2])
        is_outside = is_outside == bool(len(parts) % 2)
        values += sum(bare.count(mark) for mark in _MARKS)
        if values > MAX_VALUES or quotes > _QUOTES:
            return max(values, MAX_VALUES + 1)
    return values


def without_escapes(data: bytes) -> bytes:
    """The same bytes with something else in place of escaped quotes and backslashes: each quote begins or ends a text."""
    return data.replace(b"\\\\", b"__").replace(b'\\"', b"__")


def is_too_deep(data: bytes) -> bool:
    """Whether a JSON text is nested over `MAX_DEPTH` levels; brackets inside strings are not counted.

    Linear: a pass over the text where it has enough brackets at all, and a step for each bracket that no cheaper way removes.
    """
    if sum(data.count(mark) for mark in _OPENING) <= MAX_DEPTH:
        return False
    marks = without_escapes(data).translate(_ONE_KIND, _NEITHER_QUOTE_NOR_BRACKET)
    # Two quotes with nothing between them change nothing for the others; without them there are no more quotes than brackets.
    brackets = b"".join(marks.replace(b'""', b"").split(b'"')[::2])
    depth = 0
    while len(brackets) > MAX_DEPTH:
        # The innermost level goes at one stroke, as long as that is a good part of all.
        outer = brackets.replace(b"[]", b"")
        if len(outer) > len(brackets) * 3 // 4:
            break
        brackets, depth = outer, depth + 1
    return depth + max(accumulate(memoryview(brackets.translate(_STEPS)).cast("b")), default=0) > MAX_DEPTH


def decode(data: bytes, *, max_bytes: int) -> Any:
    """The value of a JSON text of at most `max_bytes` bytes.

    Strict: UTF-8, no NaN, no lone surrogate, bounded depth and number of values. Raises `Unreadable`.
    """
    _check_size(data, max_bytes)
    return decode_counted(data)


def decode_counted(data: bytes) -> Any:
    """The value of a JSON text whose size and number of values are known to be within the limits. Raises `Unreadable`."""
    _check_depth(data)
    return _parsed(_decode, data)


def _check_size(data: bytes, max_bytes: int) -> None:
    if len(data) > max_bytes:
        raise Unreadable("size", f"a message of {len(data)} bytes is over the limit of {max_bytes}")
    if count_values(data) > MAX_VALUES:
        raise Unreadable("values", f"a message of more than {MAX_VALUES} values")


def _check_depth(data: bytes) -> None:
    if is_too_deep(data):
        raise Unreadable("depth", f"a message is nested over {MAX_DEPTH} levels")


def _parsed(parse: Callable[[bytes], _T], data: bytes) -> _T:
    try:
        return parse(data)
    except RecursionError:  # called from a stack that is nearly full
        raise Unreadable("depth", "a message is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable("syntax", f"no valid JSON: {error}") from None


def decode_messages(data: bytes, *, max_bytes: int) -> tuple[list[Any], bool]:
    """The messages of a JSON text, which is one or an array of them, and whether it holds more than these.

    Of an array the first `MAX_BATCH` are parsed; the others must only be JSON by their outline. Raises `Unreadable`.
    """
    if data.lstrip(_SPACES)[:1] != b"[":
        return [decode(data, max_bytes=max_bytes)], False
    if len(data) <= _ROOM_FOR_MAX_BATCH:  # cheap, as a flood of small ones is paid for line by line
        return decode(data, max_bytes=max_bytes), False
    _check_size(data, max_bytes)
    pieces = [piece for piece in astuple(_parsed(_split, data)) if piece is not None]
    first = b"[" + b",".join(pieces[:MAX_BATCH]) + b"]"  # nobody walks the others, so that their depth may be what it is
    _check_depth(first)
    return _parsed(_decode, first), len(pieces) > MAX_BATCH


def encode(message: Any) -> bytes:
    """The message as one line of JSON without its line end. Raises ValueError for what JSON cannot carry."""
    try:
        return _encode(message)
    except (TypeError, UnicodeEncodeError, RecursionError, OverflowError) as error:
        raise ValueError(f"cannot be written as JSON: {error}") from error
