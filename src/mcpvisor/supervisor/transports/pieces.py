"""Owns the parsing of a JSON text in pieces: no step of it is long, however large the text is.

The text is cut behind a comma or an opening bracket. What stands before the cut is made a whole text by opening again, in
front of it, whatever was open there, and by closing, behind it, whatever is open at the cut; then it is parsed as any other,
and its values are put where they belong. A long text value is cut, too, and joined when it is whole.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from mcpvisor.supervisor.transports.codec import MAX_VALUES, Unreadable, decode_counted, without_escapes

PIECE: Final = 8 * 1024
"""Bytes that are to be looked at in one step; where they are nothing but brackets, that takes half a millisecond."""

_LONG: Final = 64 * 1024
"""Bytes without any place to cut at: above that it is one long text, or nothing that makes sense."""

_TOKEN: Final = secrets.token_hex(8)  # so that nobody can write what is taken for ours
_BEGIN: Final = f"begin-{_TOKEN}"
_END: Final = f"end-{_TOKEN}"

_CUT_BEHIND: Final = (b",", b"[", b"{")
_COMMA: Final = ord(",")
_BLANKS: Final = b" \t\r\n"
_NO_BRACKET: Final = bytes(set(range(256)) - set(b"[]{}"))
_CLOSER: Final = {ord("["): ord("]"), ord("{"): ord("}")}
_ROUNDS: Final = 8

_PARTS_BACK: Final = 4
"""Parts between quotes among which there is a place to cut at, if there is one: a name and its value are two of them."""

_UNSAFE_END: Final = re.compile(rb"(?:\\u[dD][89abAB][0-9a-fA-F]{2})?(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z")
"""What a text must not be cut behind: the first half of a pair, and an escape that is not whole."""

_LEAD: Final = 0xC0
_FOLLOWING: Final = 0x80

_Place = Literal["first", "next", "after"]
"""What stands before the pending bytes: the opening bracket of what is open, a comma, or a value."""


@dataclass(slots=True)
class _Level:
    """A list or an object that is open at the cut."""

    bracket: int
    values: Any

    @property
    def is_list(self) -> bool:
        return self.bracket == ord("[")


@dataclass(slots=True)
class _LongText:
    """A text value that is put together from several pieces, and where it belongs; `key` is of no meaning in a list."""

    values: Any
    key: str
    parts: list[str] = field(default_factory=list[str])

    def end(self) -> None:
        text = "".join(self.parts)
        if isinstance(self.values, list):
            self.values.append(text)
        else:
            self.values[self.key] = text


class PieceParser:
    """Parses one text: `feed` takes its bytes, about `PIECE` at a time, and `end` gives its value.

    As strict as `codec.decode`: both raise `Unreadable`, after which the parser is of no use.
    """

    def __init__(self) -> None:
        self._levels: list[_Level] = []
        self.value: Any = None
        """What there is of the value so far."""
        self._place: _Place = "first"
        self._pending: list[bytes] = []
        """What has come since the last cut."""
        self._brackets = b""
        """The brackets in it, which are closing ones only."""
        self._waiting = 0
        """Bytes of it."""
        self._is_within_text = False
        """Whether it ends within a text."""
        self._held = b""
        """The last bytes that came, where they only have a meaning together with the next ones."""
        self._long: _LongText | None = None
        self._count = 1
        self._size = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._size += len(data)
        data, self._held = self._held + data, b""
        if self._long is not None:
            data = self._continue_text(self._long, data)
        if data:
            self._take(data)
            if self._is_within_text and self._waiting > _LONG:
                self._begin_text()
            elif self._waiting > 2 * _LONG:
                raise self._malformed(f"{self._waiting} bytes of it have no comma and no opening bracket")

    def end(self) -> Any:
        """The value of the text, which is whole now."""
        if self._long is not None:
            raise self._malformed("it ends within a text")
        value = self._parsed(self._opened() + b"".join(self._pending) + self._held)
        if not self._levels:
            return value
        self._merge(value)
        return self.value

    # Structure

    def _take(self, data: bytes) -> None:
        if (len(data) - len(data.rstrip(b"\\"))) % 2:
            data, self._held = data[:-1], data[-1:]
        parts = without_escapes(data).split(b'"')
        first = 1 if self._is_within_text else 0  # of the parts that are outside of texts
        self._is_within_text = self._is_within_text == bool(len(parts) % 2)
        cut = _last_cut(parts, first, len(data))
        if cut is None:
            self._wait(data, b"".join(parts[first::2]))
            return
        at, part, offset = cut
        bare = b"".join([*parts[first:part:2], parts[part][:offset]])
        self._count += sum(bare.count(mark) for mark in _CUT_BEHIND)
        if self._count > MAX_VALUES:
            raise Unreadable("values", f"a message of more than {MAX_VALUES} values")
        whole = b"".join([self._opened(), *self._pending, data[:at]])
        brackets = self._brackets + bare.translate(None, _NO_BRACKET)
        self._pending, self._brackets, self._waiting = [], b"", 0
        self._cut(whole, brackets)
        self._place = "next" if data[at - 1] == _COMMA else "first"
        self._wait(data[at:], b"".join([parts[part][offset:], *parts[part + 2 :: 2]]))

    def _wait(self, data: bytes, bare: bytes) -> None:
        """Keep what has no place to cut at; `bare` is the same without its texts."""
        if not self._is_within_text and (end := data.rstrip(_BLANKS)) != data:
            # Blanks may go on for ever, and mean no more than one does.
            follows = not end and bool(self._pending) and self._pending[-1].endswith(b" ")
            data = end if follows else end + b" "
        if data:
            self._pending.append(data)
            self._brackets += bare.translate(None, _NO_BRACKET)
            self._waiting += len(data)

    def _cut(self, whole: bytes, marks: bytes) -> None:
        """Parse what stands before a cut; `marks` are its brackets."""
        closing, opening = _unmatched(marks)
        kept = len(self._levels) - len(closing)
        if kept < 0 or not (kept or opening) or (self.value is not None and not kept):
            raise self._malformed("something stands behind its end")
        if any(_CLOSER[level.bracket] != mark for level, mark in zip(reversed(self._levels), closing, strict=False)):
            raise self._malformed("brackets do not match")
        brackets = [*(level.bracket for level in self._levels[:kept]), *opening]
        member = b'"%s"' if brackets[-1] == ord("[") else b'"%s":0'
        value = self._parsed(whole + member % _END.encode() + _closed(brackets))
        self._open(value, kept, opening)

    def _opened(self) -> bytes:
        """What stands in front of the pending bytes: everything that is open there."""
        if not self._levels:
            return b""
        *outer, inner = self._levels
        begin = b'{"%s":' % _BEGIN.encode()
        opened = b"".join(b"[" if level.is_list else begin for level in outer)
        if self._place == "first":
            return opened + bytes([inner.bracket])
        return opened + (b"[0 " if inner.is_list else begin + b"0 ") + (b"," if self._place == "next" else b"")

    def _open(self, value: Any, kept: int, opening: list[int]) -> None:
        """Put the values of a parsed piece where they belong, and open what it has opened."""
        node = value
        for level in self._levels[: max(kept - 1, 0)]:
            node = node[0] if level.is_list else node[_BEGIN]
        opened = _path(node, len(opening)) if kept else [value, *_path(value, len(opening) - 1)]
        innermost = opened[-1] if opened else node
        if isinstance(innermost, list):
            innermost.pop()
        else:
            del innermost[_END]
        if self._levels:
            self._merge(value)
        else:
            self.value = value
        self._levels = [
            *self._levels[:kept],
            *(_Level(bracket, values) for bracket, values in zip(opening, opened, strict=True)),
        ]

    def _merge(self, value: Any) -> None:
        """Add the members of a parsed piece to the lists and objects that were open in front of it."""
        inner = self._levels[-1]
        for level in self._levels:
            child = None
            if level is not inner or self._place != "first":  # of all but the innermost it is what was open within them
                child = value.pop(0) if level.is_list else value.pop(_BEGIN)
            if level.is_list:
                level.values.extend(value)
            else:
                level.values.update(value)
            value = child

    # Long texts

    def _begin_text(self) -> None:
        """What waits ends within a text that is a long one: from here on its parts are parsed as they come."""
        data = b"".join(self._pending)
        if not self._levels:
            raise self._malformed("a text is no message")
        quote = without_escapes(data).rfind(b'"')
        value = self._parsed(self._opened() + data[:quote] + b'""' + _closed([level.bracket for level in self._levels]))
        for level in self._levels[:-1]:
            value = value[0] if level.is_list else value[_BEGIN]
        inner = self._levels[-1]
        self._long = _LongText(inner.values, "" if inner.is_list else next(name for name in value if name != _BEGIN))
        self._pending, self._brackets, self._waiting, self._is_within_text = [], b"", 0, False
        held, self._held = self._held, b""
        self._continue_text(self._long, data[quote + 1 :])
        self._held += held

    def _continue_text(self, text: _LongText, data: bytes) -> bytes:
        """Add to a long text; returns what stands behind its end, if that has come."""
        plain = without_escapes(data)
        quote = plain.find(b'"')
        end = quote if quote >= 0 else _safe_end(plain)
        text.parts.append(self._parsed(b'"' + data[:end] + b'"'))
        if quote < 0:
            self._held = data[end:]
            return b""
        text.end()
        self._long, self._place = None, "after"
        return data[quote + 1 :]

    def _parsed(self, text: bytes) -> Any:
        try:
            return decode_counted(text)
        except Unreadable as error:
            raise self._malformed("it is malformed") if error.reason == "syntax" else error from None

    def _malformed(self, why: str) -> Unreadable:
        return Unreadable("syntax", f"no valid JSON: {why} (within {self._size} bytes)")


def _closed(brackets: list[int]) -> bytes:
    """What closes all of these, the innermost first."""
    return bytes(_CLOSER[bracket] for bracket in reversed(brackets))


def _last_cut(parts: list[bytes], first: int, size: int) -> tuple[int, int, int] | None:
    """The last place to cut behind: how many bytes are before it, and which part it is in, behind how many of its bytes.

    `parts` are what stands between the quotes of `size` bytes; each second one from `first` on is outside of texts.
    """
    last = len(parts) - 1 - (len(parts) - 1 - first) % 2
    end = sum(len(part) + 1 for part in parts[last:])
    for number in range(last, max(first - 1, last - 2 * _PARTS_BACK), -2):
        offset = 1 + max(parts[number].rfind(mark) for mark in _CUT_BEHIND)
        if offset:
            return size + 1 - end + offset, number, offset
        if number >= 2:
            end += len(parts[number - 1]) + len(parts[number - 2]) + 2
    return None


def _unmatched(brackets: bytes) -> tuple[list[int], list[int]]:
    """The closing brackets of what was open before, and the opening ones of what is open behind them, in their order."""
    for _ in range(_ROUNDS):
        outer = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(outer) > len(brackets) * 3 // 4:
            break
        brackets = outer
    closing: list[int] = []
    opening: list[int] = []
    for bracket in brackets:
        if bracket in _CLOSER:
            opening.append(bracket)
        elif opening and _CLOSER[opening[-1]] == bracket:
            opening.pop()
        elif opening:
            raise Unreadable("syntax", "no valid JSON: brackets do not match")
        else:
            closing.append(bracket)
    return closing, opening


def _path(node: Any, depth: int) -> list[Any]:
    """The lists and objects that are open at the end of a parsed piece: `depth` of them, one within the other, within `node`.

    Each is the last member of the one around it; where a name stands twice in an object, it may not look so.
    """
    found = _find(node, depth)
    assert found is not None, "the sentinel is at its place"
    return found


def _find(node: Any, depth: int) -> list[Any] | None:
    if not depth:
        is_it = node[-1:] == [_END] if isinstance(node, list) else _END in node
        return [] if is_it else None
    members = node[-1:] if isinstance(node, list) else reversed(node.values())
    for member in members:
        if isinstance(member, list | dict) and (found := _find(member, depth - 1)) is not None:
            return [member, *found]
    return None


def _safe_end(text: bytes) -> int:
    """Where the inside of a text may be cut: behind no half of a character."""
    found = _UNSAFE_END.search(text, max(0, len(text) - 12))
    end = found.start() if found is not None else len(text)
    if end == len(text):
        start = end
        while start and end - start < 4 and _FOLLOWING <= text[start - 1] < _LEAD:
            start -= 1
        if start and text[start - 1] >= _LEAD:
            return start - 1
    return end
