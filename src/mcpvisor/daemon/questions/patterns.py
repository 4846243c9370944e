"""Owns the patterns of a form: regular expressions that are matched in steps that are counted, and never by trying back.

Read are the expressions of ECMA 262 that need no memory: letters, classes, groups, alternatives, repeats, `^` and `$`. Each
becomes a small machine all of whose states are followed at once (Thompson, 1968), so that no text can make it slow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from mcpvisor.daemon.questions.misunderstanding import NotUnderstood

MOST_PATTERN: Final = 500
MOST_STATES: Final = 1000
"""Of the machine of one pattern; repeats with numbers are written out."""
_MOST_REPEATS: Final = 500
_DEEPEST: Final = 32
_LAST: Final = 0x10FFFF

Ranges = tuple[tuple[int, int], ...]

_DIGITS: Final[Ranges] = ((0x30, 0x39),)
_WORDS: Final[Ranges] = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACES: Final[Ranges] = (
    (0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F),
    (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
)  # fmt: skip # a list of ranges
_LINE_ENDS: Final[Ranges] = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_CONTROLS: Final = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D, "0": 0x00}


class OutOfSteps(Exception):
    """What may be spent on one answer is spent."""


class Steps:
    """How much work the check of one answer may still be."""

    def __init__(self, most: int) -> None:
        self._left = most

    def spend(self, number: int) -> None:
        """Raises OutOfSteps."""
        self._left -= number
        if self._left < 0:
            raise OutOfSteps


@dataclass(frozen=True, slots=True)
class _State:
    """One state: it eats a letter of `eats` and goes on to `to`; or it goes to all of `to` at once, at the place `at` alone."""

    to: tuple[int, ...]
    eats: Ranges | None = None
    at: str = ""
    """`^` or `$` where it can be passed only there."""


class Pattern:
    """A pattern that was read; found anywhere in a text, as JSON Schema has it."""

    def __init__(self, source: str, states: Sequence[_State], first: int) -> None:
        self.source = source
        self._states = tuple(states)
        self._first = first
        self._prices = tuple(1 + len(state.eats or ()) for state in states)

    def __len__(self) -> int:
        """How many states it has."""
        return len(self._states)

    def found_in(self, text: str, steps: Steps) -> bool:
        """Whether the pattern is found in the text. Raises OutOfSteps."""
        current: set[int] = set()
        for index in range(len(text) + 1):
            is_end = index == len(text)
            self._reach(current, self._first, index == 0, is_end, steps)
            if 0 in current:
                return True
            if is_end:
                return False
            steps.spend(sum(self._prices[number] for number in current))
            letter = ord(text[index])
            following: set[int] = set()
            for number in current:
                state = self._states[number]
                if state.eats is not None and any(low <= letter <= high for low, high in state.eats):
                    self._reach(following, state.to[0], False, index + 1 == len(text), steps)
            current = following
        return False

    def _reach(self, reached: set[int], number: int, is_start: bool, is_end: bool, steps: Steps) -> None:
        """Add a state and all that is reached from it without a letter; state 0 is the end."""
        waiting = [number]
        while waiting:
            number = waiting.pop()
            if number in reached:
                continue
            steps.spend(1)
            state = self._states[number]
            if (state.at == "^" and not is_start) or (state.at == "$" and not is_end):
                continue
            reached.add(number)
            if state.eats is None:
                waiting.extend(state.to)


def read_pattern(source: str) -> Pattern:
    """The pattern of that source. Raises NotUnderstood for what is no such expression, also where it needs memory."""
    if len(source) > MOST_PATTERN:
        raise NotUnderstood(f"its pattern has more than {MOST_PATTERN} characters")
    return _Reader(source).read()


_Build = Callable[[int], int]
"""Adds the states of a part in front of that state, and returns the first of them."""


class _Reader:
    """One pass over an expression; its parts know how to add their states in front of whatever follows them."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._depth = 0
        self._copies = 0
        self._states: list[_State] = [_State(())]

    def read(self) -> Pattern:
        whole = self._alternatives()
        if self._at < len(self._source):
            raise NotUnderstood("its pattern has a ) without a (")
        return Pattern(self._source, self._states, whole(0))

    # From the source to parts

    def _alternatives(self) -> _Build:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        if len(branches) == 1:
            return branches[0]
        return lambda then: self._add(_State(tuple(branch(then) for branch in branches)))

    def _sequence(self) -> _Build:
        parts: list[_Build] = []
        while self._at < len(self._source) and self._source[self._at] not in "|)":
            parts.append(self._repeated())

        def build(then: int) -> int:
            for part in reversed(parts):
                then = part(then)
            return then

        return build

    def _repeated(self) -> _Build:
        if self._source[self._at] in "^$":
            sign = self._next()
            return lambda then: self._add(_State((then,), at=sign))
        part = self._one()
        least, most = self._counts()
        return part if (least, most) == (1, 1) else lambda then: self._times(part, least, most, then)

    def _counts(self) -> tuple[int, int | None]:
        counts: tuple[int, int | None] = (1, 1)
        if self._take("*"):
            counts = (0, None)
        elif self._take("+"):
            counts = (1, None)
        elif self._take("?"):
            counts = (0, 1)
        elif self._take("{"):
            counts = self._braces()
        else:
            return counts
        self._take("?")  # whether few or many are tried first makes no difference to whether it is found
        if self._at < len(self._source) and self._source[self._at] in "*+?{":
            raise NotUnderstood("its pattern repeats a repeat")
        return counts

    def _braces(self) -> tuple[int, int | None]:
        inner, end, _ = self._source[self._at : self._at + 12].partition("}")
        self._at += len(inner) + 1
        low, comma, high = inner.partition(",")
        if not end or not _is_number(low) or not (high == "" or _is_number(high)):
            raise NotUnderstood("its pattern has a { that begins no repeat")
        least, most = int(low), int(low) if not comma else int(high) if high else None
        if least > _MOST_REPEATS or (most is not None and not least <= most <= _MOST_REPEATS):
            raise NotUnderstood(f"its pattern repeats something more than {_MOST_REPEATS} times")
        return least, most

    def _one(self) -> _Build:
        letter = self._next()
        if letter == "(":
            return self._group()
        if letter == "[":
            return self._eat(self._letters())
        if letter == ".":
            return self._eat(_others(_LINE_ENDS))
        if letter == "\\":
            return self._eat(self._escaped())
        if letter in "*+?{}]":
            raise NotUnderstood(f"its pattern has a {letter} where none can be")
        return self._eat(((ord(letter), ord(letter)),))

    def _group(self) -> _Build:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise NotUnderstood("its pattern has too many groups within groups")
        if self._take("?") and not self._take(":"):
            self._take("P")
            name, end, _ = self._source[self._at + 1 :].partition(">")
            if not self._take("<") or not end or not name.isidentifier():
                raise NotUnderstood("its pattern looks around, or sets flags")
            self._at += len(name) + 1
        inner = self._alternatives()
        if not self._take(")"):
            raise NotUnderstood("its pattern has a ( without a )")
        self._depth -= 1
        return inner

    def _letters(self) -> Ranges:
        """A class, after its bracket."""
        is_negated = self._take("^")
        found: list[tuple[int, int]] = []
        while not self._take("]"):
            low = self._letter_of_class()
            if self._source[self._at : self._at + 1] == "-" and self._source[self._at + 1 : self._at + 2] not in {"]", ""}:
                self._next()
                high = self._letter_of_class()
                if len(low) != 1 or len(high) != 1 or low[0][0] != low[0][1] or not low[0][0] <= high[0][0] == high[0][1]:
                    raise NotUnderstood("its pattern has a range of letters that is none")
                found.append((low[0][0], high[0][1]))
            else:
                found += low
        return _others(tuple(found)) if is_negated else tuple(found)

    def _letter_of_class(self) -> Ranges:
        letter = self._next()
        return self._escaped() if letter == "\\" else ((ord(letter), ord(letter)),)

    def _escaped(self) -> Ranges:
        letter = self._next()
        for name, ranges in (("d", _DIGITS), ("w", _WORDS), ("s", _SPACES)):
            if letter.lower() == name:
                return ranges if letter == name else _others(ranges)
        if letter in _CONTROLS:
            return ((_CONTROLS[letter], _CONTROLS[letter]),)
        if letter in "xu":
            return self._number(2 if letter == "x" else 4)
        if letter.isascii() and not letter.isalnum() and letter != "_":
            return ((ord(letter), ord(letter)),)
        raise NotUnderstood(f"its pattern has the escape \\{letter if letter.isprintable() else '?'}")

    def _number(self, digits: int) -> Ranges:
        text = self._source[self._at : self._at + digits]
        if len(text) < digits or any(one not in "0123456789abcdefABCDEF" for one in text):
            raise NotUnderstood("its pattern has an escape without its number")
        self._at += digits
        return ((int(text, 16), int(text, 16)),)

    def _next(self) -> str:
        if self._at >= len(self._source):
            raise NotUnderstood("its pattern ends too early")
        self._at += 1
        return self._source[self._at - 1]

    def _take(self, sign: str) -> bool:
        is_there = self._source.startswith(sign, self._at)
        self._at += is_there
        return is_there

    # From parts to states

    def _add(self, state: _State) -> int:
        if len(self._states) >= MOST_STATES:
            raise NotUnderstood("its pattern is too large")
        self._states.append(state)
        return len(self._states) - 1

    def _eat(self, ranges: Ranges) -> _Build:
        return lambda then: self._add(_State((then,), eats=ranges))

    def _times(self, part: _Build, least: int, most: int | None, then: int) -> int:
        first = self._any_number(part, then) if most is None else self._up_to(part, most - least, then)
        for _ in range(least):
            first = self._copy(part, first)
        return first

    def _any_number(self, part: _Build, then: int) -> int:
        turn = self._add(_State((then,)))
        self._states[turn] = _State((self._copy(part, turn), then))
        return turn

    def _up_to(self, part: _Build, times: int, then: int) -> int:
        first = then
        for _ in range(times):
            first = self._add(_State((self._copy(part, first), then)))
        return first

    def _copy(self, part: _Build, then: int) -> int:
        self._copies += 1
        if self._copies > MOST_STATES:
            raise NotUnderstood("its pattern is too large")
        return part(then)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 4


def _others(ranges: Ranges) -> Ranges:
    """Every letter that is in none of the ranges."""
    others: list[tuple[int, int]] = []
    free = 0
    for low, high in sorted(ranges):
        if low > free:
            others.append((free, low - 1))
        free = max(free, high + 1)
    return (*others, (free, _LAST)) if free <= _LAST else tuple(others)
