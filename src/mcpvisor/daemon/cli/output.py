"""Owns how verbs write: data to stdout, messages to stderr, and never a server's control codes."""

from __future__ import annotations

import json
import sys
from typing import Any

from mcpvisor.supervisor.cleaning import escape_json


def clean(text: str) -> str:
    """A text of a server, made safe for a terminal: control codes are written out, line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\n\t" else repr(one)[1:-1] for one in text)


def clean_line(text: str) -> str:
    """As `clean`, on one line."""
    return clean(text).replace("\n", "\\n").replace("\t", " ")


def say(text: str = "") -> None:
    """Write a line of data."""
    sys.stdout.write(text + "\n")


def say_json(value: Any) -> None:
    """Write a value as data, for programs."""
    sys.stdout.write(escape_json(json.dumps(value, indent=2, ensure_ascii=False)))
    sys.stdout.write("\n")


def say_json_line(value: Any) -> None:
    """Write one value of a stream as one line, at once."""
    sys.stdout.write(escape_json(json.dumps(value, ensure_ascii=False)) + "\n")
    sys.stdout.flush()


def tell(message: str) -> None:
    """Write a message for the person; it is never data. No line of it can pass for a message of its own."""
    sys.stdout.flush()
    sys.stderr.write(f"mcpvisor: {set_in(clean(message))}\n")


def set_in(text: str) -> str:
    """The text with all lines but the first set in: no line of it can pass for one of ours."""
    return text.replace("\n", "\n    ")
