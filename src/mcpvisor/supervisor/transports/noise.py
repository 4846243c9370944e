"""Owns which lines of stdout are no messages at a first look: in a flood nobody has the time for a second one. Pure."""

from __future__ import annotations

import re
from typing import Final

_NO_MESSAGE: Final = re.compile(rb'(?m)^[ \t\r]*+(?!\{|\[[ \t]*[\]{])[^\s](?![^\n]*"jsonrpc")')
"""A line with something in it that does not begin as a message or an array of them, nor has one within it."""


def count_noise(data: bytes) -> int:
    """How many of the lines are surely no messages. What begins as one may be a notification, and is not among them."""
    return sum(1 for _ in _NO_MESSAGE.finditer(data))
