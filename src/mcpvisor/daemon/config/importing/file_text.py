"""Owns the text of an imported file: the entries, where each comes from, and in comments what could not be carried over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mcpvisor.daemon.config.importing.drafts import Draft, Drafts
from mcpvisor.daemon.config.importing.toml_text import toml_table
from mcpvisor.daemon.config.problems import Problem


def text_of(files: Sequence[Drafts]) -> str:
    """The whole file. Texts of other programs stand in it escaped, so that none of them can end a comment or a string."""
    lines = ["# Written by `mcpvisor import`; it is yours to edit."]
    for drafts in files:
        lines += ["", *_comment(f"From {drafts.file} ({drafts.form})")]
        for problem in (*drafts.lost, *drafts.refused):
            lines += _lost(problem)
        for draft in drafts.servers:
            lines += ["", *(_unusable(draft) if draft.faults else _entry(draft))]
    return "\n".join(lines) + "\n"


def _entry(draft: Draft) -> list[str]:
    return [*_about(draft), *toml_table(draft.name, draft.table)]


def _unusable(draft: Draft) -> list[str]:
    """The entry as a comment, as far as there is one: with the fault removed it can be used."""
    lines = [*_comment(f'The server "{draft.written}" could not be carried over:')]
    for fault in draft.faults:
        lines += _comment(f"{_at(fault)}: {fault.error}", indent="  ")
    try:
        table = toml_table(draft.name, draft.table) if {"command", "url"} & draft.table.keys() else []
    except TypeError:
        table = []  # it holds what TOML has no form for, as the faults say
    return [*lines, *_about(draft), *(f"#   {line}" for line in table)]


def _about(draft: Draft) -> list[str]:
    renamed = f', there "{draft.written}"' if draft.written != draft.name else ""
    lines = _comment(f"{draft.place}{renamed}")
    for problem in draft.lost:
        lines += _lost(problem)
    for hint in draft.hints:
        lines += _comment(f"{_at(hint)}: {hint.error}")
    if draft.needs:
        lines += _comment(f"Needs {_listed(draft.needs)}.")
    for secret in draft.secrets:
        lines += _comment(f"{_at(secret)}: {secret.error}")
    return lines


def _lost(problem: Problem) -> list[str]:
    return _comment(f"Not carried over: {_at(problem)}: {problem.error}")


def _at(problem: Problem) -> str:
    """The line alone: the file is named above."""
    return f"line {problem.line}" if problem.line is not None else "somewhere"


def _listed(words: Iterable[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def _comment(text: str, indent: str = "") -> list[str]:
    """A comment on one line. What is not printable is escaped: an end of a line within would else be one of the file."""
    return ["# " + indent + "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)]
