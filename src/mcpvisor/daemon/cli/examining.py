"""Owns the verb `doctor`: it asks the daemon how it stands, looks for itself where none runs, and looks at the machine."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mcpvisor.daemon.cli.client import ControlClient
from mcpvisor.daemon.cli.exits import CliError, Exit, Refused
from mcpvisor.daemon.cli.output import clean_line, say, say_json
from mcpvisor.daemon.cli.verb import Verbs, add_verb
from mcpvisor.daemon.config.places import config_paths
from mcpvisor.daemon.control.counts import counted
from mcpvisor.daemon.doctor.findings import Finding, Findings, Level, exit_says_no

ANSWER_SECONDS: Final = 60.0
"""How long the daemon may look; a host that does not answer takes it some fifteen."""


def register(verbs: Verbs) -> None:
    """Add the verb of this family."""
    summary = "check the machine, what the daemon stands on, and each entry"
    doctor = add_verb(verbs, "doctor", show_findings, summary, examples=("mcpvisor doctor", "mcpvisor doctor github"))
    doctor.add_argument("server", nargs="?", help="one server only; the host of its url is looked up and connected to")


def show_findings(arguments: argparse.Namespace) -> int:
    """`doctor`: 1 where anything does not work; warnings, and what could not be seen, change nothing."""
    findings, files = _look(arguments.socket, arguments.server)
    if arguments.server is None:
        from mcpvisor.daemon.doctor.machine import look_at_machine

        of_machine = Findings()
        look_at_machine(_all_files(files), of_machine)
        findings = [*of_machine.found, *findings]
    if arguments.json:
        says_no = exit_says_no(findings)
        say_json({"ok": not says_no, "findings": [finding.as_json() for finding in findings]})
    else:
        for finding in findings:
            say(clean_line(_line(finding)))
        say(_summary(findings))
    return int(Exit.NO if exit_says_no(findings) else Exit.DONE)


def _look(socket: str | None, server: str | None) -> tuple[list[Finding], list[Path]]:
    """What the daemon finds, or we do where there is none; and the files of the configuration. Raises CliError."""
    query = None if server is None else {"server": server}
    try:
        answer = ControlClient(socket).get("/v1/doctor", query, timeout=ANSWER_SECONDS)
    except Refused as error:
        if error.exit is not Exit.PERMISSION:
            raise
        return _look_ourselves(server, error)
    except CliError as error:
        return _look_ourselves(server, error)
    found = [Finding.from_json(one) for one in answer["findings"]]
    if server is None:
        found.insert(0, Finding(level=Level.OK, check="daemon", text=f"runs as process {answer['pid']}"))
    return found, [Path(file) for file in answer["files"]]


def _look_ourselves(server: str | None, why: CliError) -> tuple[list[Finding], list[Path]]:
    from mcpvisor.daemon.config.load import load
    from mcpvisor.daemon.doctor.examining import Subject, examine

    paths = config_paths(os.environ, os.geteuid())
    loaded = load(paths, os.environ)
    subject = Subject(
        settings=loaded.settings,
        specs=loaded.specs,
        problems=loaded.problems,
        environ=os.environ,
        uid=os.geteuid(),
        is_daemon=False,
        addresses=() if why.exit is Exit.NOT_RUNNING else None,
    )
    try:
        found = examine(subject, server)
    except LookupError as error:
        raise CliError(Exit.NO, str(error.args[0])) from error
    level = Level.ERROR if why.exit is Exit.NO_ANSWER else Level.UNKNOWN
    remedy = "mcpvisor status; systemctl status mcpvisor" if level is Level.ERROR else ""
    return [Finding(level=level, check="daemon", text=str(why), remedy=remedy), *found], paths


def _all_files(paths: Sequence[Path]) -> list[Path]:
    """The files themselves, and those below the folders among them that we may see."""
    found: list[Path] = []
    for path in paths:
        try:
            found += [path, *path.rglob("*")] if path.is_dir() else [path]
            found = [one for one in found if one.exists()]
        except OSError:
            continue  # what is told of the clock is told by the others
    return found


def _line(finding: Finding) -> str:
    subject = f"{finding.server}: " if finding.server else ""
    remedy = f" -> {finding.remedy}" if finding.remedy else ""
    return f"{finding.level:<8} {subject}{finding.check}: {finding.text}{remedy}"


def _summary(findings: Sequence[Finding]) -> str:
    errors, warnings, unknown = (sum(one.level is level for one in findings) for level in _TOLD)
    return f"{counted(errors, 'error')}, {counted(warnings, 'warning')}, {unknown} unknown"


_TOLD: Final = (Level.ERROR, Level.WARNING, Level.UNKNOWN)
