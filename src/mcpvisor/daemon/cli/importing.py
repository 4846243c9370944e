"""Owns the verb `import`: another program's servers are shown, each with what would be run, and written when that is wanted."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mcpvisor.daemon.cli.exits import CliError, Exit
from mcpvisor.daemon.cli.output import clean_line, say, say_json, tell
from mcpvisor.daemon.cli.verb import Verbs, add_verb
from mcpvisor.daemon.control.counts import counted

if TYPE_CHECKING:
    from mcpvisor.daemon.config.importing.drafts import Draft, Drafts
    from mcpvisor.daemon.config.problems import Problem

_SHOWN = frozenset({"command", "args", "url", "env", "headers", "inherit_env", "cwd", "header_command", "enabled", "transport"})
_SUMMARY = "turn the servers of Claude, VS Code, Cursor, Windsurf, Kiro, OpenCode, Codex and others into entries of ours"


_EXAMPLES: Final = ("mcpvisor import ~/.cursor/mcp.json", "mcpvisor import .mcp.json --only github --yes")


def register(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(verbs, "import", import_files, _SUMMARY, asks=False, examples=_EXAMPLES)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a file of another program")
    parser.add_argument(
        "--to", type=Path, metavar="PATH", help="a folder of a configuration, or a .toml file that is not there yet"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="this server alone; more than once for more"
    )
    parser.add_argument("--yes", action="store_true", help="write without asking, for scripts")


def import_files(arguments: argparse.Namespace) -> int:
    """`import`: 0 when every server was written; 1 when one could not be carried over, or nothing was written."""
    from mcpvisor.daemon.config.importing.drafts import drafts_of
    from mcpvisor.daemon.config.importing.file_text import text_of
    from mcpvisor.daemon.config.importing.target import names_taken, target_of, write_new
    from mcpvisor.daemon.config.problems import ConfigError

    uid = os.geteuid()
    try:
        files = _only([drafts_of(file, os.environ) for file in arguments.files], arguments.only)
    except ConfigError as error:
        raise CliError(Exit.CONFIG, clean_line(str(error))) from error
    _check_names(files)
    try:
        target = target_of(arguments.to, arguments.files, os.environ, uid)
    except ConfigError as error:
        raise CliError(Exit.NO, f"nothing was written: {clean_line(str(error))}") from error
    usable = [draft for drafts in files for draft in drafts.usable]
    if not arguments.json:
        for drafts in files:
            _show(drafts)
        _show_target(target, usable)
    refusal = _refusal(usable, names_taken(target, os.environ, uid)) or _consent(usable, arguments.yes)
    if refusal is None:
        try:
            write_new(target, text_of(files), uid)
        except ConfigError as error:
            refusal = CliError(Exit.NO, f"nothing was written: {clean_line(str(error))}")
    if arguments.json:
        say_json(_as_json(files, target, written=refusal is None))
    if refusal is not None:
        raise refusal
    if not arguments.json:
        tell(f"{counted(len(usable), 'server')} written to {target}; a daemon that reads this folder takes them up by itself")
    is_whole = all(not drafts.unusable and not drafts.refused for drafts in files)
    return int(Exit.DONE if is_whole else Exit.NO)


def _only(files: Sequence[Drafts], names: Sequence[str]) -> Sequence[Drafts]:
    """The same without servers that nobody asked for. Raises CliError for a name that is in none of the files."""
    from dataclasses import replace

    if not names:
        return files
    known = {name for one in files for draft in one.servers for name in (draft.name, draft.written)}
    known |= {problem.server for one in files for problem in one.refused}
    missing = [name for name in names if name not in known]
    if missing:
        there = f"no server is called {missing[0]}; there are: {', '.join(sorted(known))}"
        raise CliError(Exit.USAGE, clean_line(there))
    return [
        replace(
            one,
            servers=tuple(draft for draft in one.servers if draft.name in names or draft.written in names),
            refused=tuple(problem for problem in one.refused if problem.server in names),
        )
        for one in files
    ]


def _check_names(files: Iterable[Drafts]) -> None:
    """Refuse a name that is in two of the files."""
    places: dict[str, str] = {}
    for draft in (draft for drafts in files for draft in drafts.usable):
        if draft.name in places:
            message = f'the name "{draft.name}" is in both {places[draft.name]} and {draft.place}; import one of them by --only'
            raise CliError(Exit.NO, f"nothing was written: {clean_line(message)}")
        places[draft.name] = draft.place


def _refusal(usable: Sequence[Draft], taken: Mapping[str, str]) -> CliError | None:
    """Why nothing may be written; None when it may."""
    if not usable:
        return CliError(Exit.NO, "nothing was written: no server could be carried over")
    there = [f'the name "{one.name}" of {one.place} is taken by {taken[one.name]}' for one in usable if one.name in taken]
    if there:
        remedy = "leave them out by --only, or rename one of each two"
        return CliError(Exit.NO, f"nothing was written: {clean_line('; '.join(there))}; {remedy}")
    return None


def _consent(usable: Sequence[Draft], is_given: bool) -> CliError | None:
    """Ask the person at the terminal; None when the answer is yes."""
    if is_given:
        return None
    if not sys.stdin.isatty():
        return CliError(Exit.USAGE, "nothing was written: there is no terminal to ask at; look at it, and then say --yes")
    sys.stdout.flush()
    sys.stderr.write(f"Write {counted(len(usable), 'server')}? A daemon would run them as its own user. [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in {"y", "yes"}:
        return None
    return CliError(Exit.NO, "nothing was written")


def _show(drafts: Drafts) -> None:
    say(clean_line(f"{drafts.file}: {drafts.form}"))
    for draft in drafts.usable:
        say()
        say(clean_line(f"  {draft.name}" + (f' (there "{draft.written}")' if draft.written != draft.name else "")))
        for label, text in _what_runs(draft):
            say(f"    {label:<8} {clean_line(text)}")
        for need in draft.needs:
            say(f"    needs    {clean_line(need)}")
        for label, problems in (("not carried over", draft.lost), ("hint", draft.hints), ("secret", draft.secrets)):
            for problem in problems:
                say(f"    {label}: {clean_line(str(problem))}")
    lost = [*((draft.written, fault) for draft in drafts.unusable for fault in draft.faults)]
    lost += [(problem.server, problem) for problem in (*drafts.refused, *drafts.lost)]
    if lost:
        say()
        say("  could not be carried over:")
        for name, problem in lost:
            say(clean_line(f"    {name + ': ' if name else ''}{problem}"))
    say()


def _show_target(target: Path, usable: Sequence[Draft]) -> None:
    if usable:
        say(clean_line(f"{counted(len(usable), 'server')} for {target}"))


def _what_runs(draft: Draft) -> list[tuple[str, str]]:
    """What would be run or called, each line with its label; what looks like a secret is masked."""
    from mcpvisor.daemon.config.importing.literal_secrets import masked_setting, masked_url
    from mcpvisor.daemon.config.importing.shown_command import shown_command, spelt_out

    table = draft.table
    lines: list[tuple[str, str]] = []
    if "command" in table:
        lines.append(("runs", shown_command([table["command"], *table.get("args", [])])))
    else:
        lines.append(("calls", masked_url(str(table["url"]))))
    if not lines[0][1].isascii():
        lines.append(("that is", spelt_out(lines[0][1])))
    for label in ("env", "headers"):
        settings = table.get(label, {})
        lines += [(label, f"{name}={masked_setting(name, value)}") for name, value in settings.items()]
    if "inherit_env" in table:
        lines.append(("inherits", ", ".join(table["inherit_env"])))
    if "cwd" in table:
        lines.append(("in", table["cwd"]))
    if "header_command" in table:
        lines.append(("runs", shown_command(list(table["header_command"]))))
    others = [key for key in table if key not in _SHOWN]
    if others:
        lines.append(("sets", ", ".join(others)))
    if table.get("enabled") is False:
        lines.append(("", "(disabled)"))
    return lines


def _as_json(files: Iterable[Drafts], target: Path, *, written: bool) -> dict[str, Any]:
    """What `--json` prints; fields are added, never changed."""
    return {
        "written": written,
        "to": str(target),
        "files": [
            {
                "file": str(drafts.file),
                "form": drafts.form,
                "servers": [_server(draft) for draft in drafts.usable],
                "failed": [{"server": draft.written, **_told(fault)} for draft in drafts.unusable for fault in draft.faults]
                + [{"server": problem.server, **_told(problem)} for problem in drafts.refused],
                "not_carried_over": [_told(problem) for problem in drafts.lost],
            }
            for drafts in files
        ],
    }


def _server(draft: Draft) -> dict[str, Any]:
    return {
        "name": draft.name,
        "written": draft.written,
        "where": draft.place,
        "shown": [{"what": label, "text": text} for label, text in _what_runs(draft)],
        "needs": list(draft.needs),
        "not_carried_over": [_told(problem) for problem in draft.lost],
        "hints": [_told(problem) for problem in draft.hints],
        "secrets": [_told(problem) for problem in draft.secrets],
    }


def _told(problem: Problem) -> dict[str, Any]:
    return {"where": problem.where, "key": problem.key_path, "message": problem.message}
