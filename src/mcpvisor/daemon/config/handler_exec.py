"""Owns the keys of a handler of type `exec`."""

from __future__ import annotations

from typing import Final

from mcpvisor.daemon.config.argument_secrets import with_secrets
from mcpvisor.daemon.config.entry_scope import kind_of
from mcpvisor.daemon.config.launch import advise, read_environment, read_inherited, with_home
from mcpvisor.daemon.config.programs import check_program
from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.daemon.handlers.specs import ExecOptions
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import StdioLaunch

COMMAND_EXPECTED: Final = 'a list such as ["/usr/local/bin/program", "argument"]; there is no shell'


def read_exec(entry: TableReader) -> ExecOptions | None:
    """`type = "exec"`, `command`, `env`, `inherit_env`, `cwd`; None after a problem with the command itself."""
    item = entry.item("command")
    words = []
    if item is None:
        entry.scope.missing("command", expected=f"command = {COMMAND_EXPECTED}")
    elif not isinstance(item.value, list):
        entry.scope.problem(item, f"is {kind_of(item.value)}", expected=COMMAND_EXPECTED)
    else:
        elements = entry.elements("command")
        given = [text for element in elements if (text := entry.text_of(element)) is not None]
        if not given or not given[0]:
            entry.scope.problem(item, "names no program", expected=COMMAND_EXPECTED)
        if any(isinstance(word, Secret) for word in given):
            entry.scope.hint(item, "a variable in an argument is seen by everyone who may list processes; env is not")
        if len(given) == len(elements):
            advise(entry.scope, elements, given)
        words = with_secrets(given)
    command = with_home(words[0], entry.scope.sources.environ) if words else ""
    launch = StdioLaunch(
        command=command,
        args=tuple(words[1:]),
        env=read_environment(entry),
        inherit_env=read_inherited(entry),
        cwd=entry.path("cwd"),
    )
    if item is not None:
        check_program(entry, item, [command, *words[1:]], launch.cwd)
    return ExecOptions(launch=launch) if words else None
