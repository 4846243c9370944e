"""Owns the words for what runs while something that is written cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcpvisor.daemon.config.problems import LAST_GOOD, Problem
from mcpvisor.daemon.config.settings import SECTIONS

STRICT: Final = "daemon.strict is set, so nothing of this reload is applied: everything keeps running as it was"


def of_server(problem: Problem, keeps: bool, owner: str) -> str:
    """What runs under the name of a server; `owner` is the place of the entry that does, if it is not its last version."""
    if keeps:
        return LAST_GOOD
    return f"the one of {owner} runs" if owner else f"no server of the name {problem.server} runs"


def of_handler(problem: Problem, keeps: bool, owner: str) -> str:
    """As `of_server`, of a handler."""
    if keeps:
        return "the last good version stays in use"
    return f"the one of {owner} is in use" if owner else f"no handler of the name {problem.handler} is in use"


def of_file(counts: Mapping[str, int] | None, *, is_main: bool) -> str:
    """What stays of a file that cannot be used; `counts` are what it held when it was good: `server`, `handler`, `route`."""
    if counts is None:
        return "nothing of this file runs"
    parts = ["settings", "defaults"] if is_main else []
    parts += [f"{number} {what}{'' if number == 1 else 's'}" for what, number in counts.items() if number]
    if not parts:
        return "nothing of this file runs"
    held = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    return f"its {held} {'stays as it was' if not is_main and sum(counts.values()) == 1 else 'stay as they were'}"


def of_routes(keeps: bool) -> str:
    """What becomes of events where the routes of a file are wrong."""
    return "the routes of this file stay as they were" if keeps else "none of the wrong routes counts"


def of_the_rest(problem: Problem, keeps: bool) -> str:
    """What is said of a setting, a default, or something else that is neither server nor handler; empty for nothing."""
    root = problem.key_path.partition(".")[0]
    if root in SECTIONS or problem.source:
        return "the settings stay as they were" if keeps else ""
    if root == "defaults":
        return "the defaults stay as they were" if keeps else "the servers have the built-in default"
    return "all else is as it is written" if root else ""
