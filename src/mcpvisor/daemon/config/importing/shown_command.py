"""Owns how a command line is shown to whoever is asked to let it run: every word of it, and nothing that steers a terminal."""

from __future__ import annotations

import shlex

from mcpvisor.daemon.config.importing.literal_secrets import masked_arguments, masked_text, runs_code
from mcpvisor.supervisor.secret import MASK


def shown_command(words: list[str]) -> str:
    """The command line as a shell would take it, on one line; what looks like a secret is masked."""
    program, *arguments = words
    is_code = runs_code(words)
    shown = [masked_text(program, is_code=is_code), *masked_arguments(arguments, is_code=is_code)]
    return " ".join(shown_word(word) for word in shown)


def spelt_out(text: str) -> str:
    """A text with every character written out that is not ASCII: letters of other scripts look like ours, some like nothing."""
    return text.encode("ascii", "backslashreplace").decode("ascii")


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
