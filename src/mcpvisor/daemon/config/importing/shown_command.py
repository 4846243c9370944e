"""Owns how a command line is shown to whoever is asked to let it run: every word of it, and nothing that steers a terminal."""

from __future__ import annotations

import shlex

from mcpvisor.daemon.config.importing.literal_secrets import masked_arguments, masked_text
from mcpvisor.supervisor.secret import MASK


def shown_command(words: list[str]) -> str:
    """The command line as a shell would take it, on one line; what looks like a secret is masked."""
    program, *arguments = words
    return " ".join(shown_word(word) for word in [masked_text(program), *masked_arguments(arguments)])


def shown_word(word: str) -> str:
    """One word in the quotes of a shell, which for control characters are those that have them written out."""
    if MASK in word and word.isprintable():
        return word if " " not in word else f"'{word}'"
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(_written_out(c) for c in word) + "'"


def _written_out(c: str) -> str:
    if c in "\\'":
        return f"\\{c}"
    return c if c.isprintable() else c.encode("unicode_escape").decode("ascii")
