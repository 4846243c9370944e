"""Owns the verbs that deal with configuration: `check`, `plan` and `reload`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mcpvisor.daemon.cli.client import ANSWER_SECONDS, ControlClient, absolute
from mcpvisor.daemon.cli.exits import Exit
from mcpvisor.daemon.cli.output import clean_line, say, say_json, tell
from mcpvisor.daemon.cli.verb import Verbs, add_verb, duration
from mcpvisor.daemon.config.places import config_paths
from mcpvisor.daemon.control.counts import counted

RELOAD_SECONDS: Final = 60.0
_KEPT: Final = "keep"
_PLANS: Final = ("mcpvisor plan", "mcpvisor plan --exit-code /etc/mcpvisor.next")
_RELOADS: Final = ("mcpvisor reload --wait --timeout 30s",)


def register(verbs: Verbs) -> None:
    """Add the verbs of this family."""
    examples = ("mcpvisor check", "mcpvisor check ~/.config/mcpvisor servers.json")
    check = add_verb(verbs, "check", check_files, "validate the configuration, without a daemon", asks=False, examples=examples)
    check.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="files or folders (default as for `run`)")
    plan = add_verb(verbs, "plan", show_plan, "say what a reload would do to each server, and why", examples=_PLANS)
    plan.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="other files or folders than the daemon's own")
    plan.add_argument("--exit-code", action="store_true", help="exit with 1 when something would change")
    reload = add_verb(verbs, "reload", reload_config, "read the configuration again and apply it", examples=_RELOADS)
    reload.add_argument("--wait", action="store_true", help="also wait for the changed servers to be ready")
    reload.add_argument("--timeout", type=duration, default=RELOAD_SECONDS, metavar="T", help="how long to wait (60s)")


def show_plan(arguments: argparse.Namespace) -> int:
    """`plan`: one line for each server that would not stay as it is; 78 when something would be rejected."""
    plan = ControlClient(arguments.socket).post("/v1/plan", {"paths": absolute(arguments.paths)}, timeout=RELOAD_SECONDS)
    changing = [change for change in plan["changes"] if change["change"] != _KEPT]
    of_handlers = _handler_lines(plan)
    if arguments.json:
        say_json(plan)
    else:
        for change in changing:
            say(f"{change['change']:<8} {change['server']}{_why(change)}")
        for line in of_handlers:
            say(line)
        if not changing and not of_handlers:
            kept = len(plan["changes"])
            what = "no server" if plan["needs_restart"] else "nothing"
            say(f"{what} would change ({counted(kept, 'server')} {'is' if kept == 1 else 'are'} kept)")
    for setting in plan["needs_restart"]:
        tell(f"{setting} is another: it is read when the daemon starts")
    if _tell_rejected(plan["config"]):
        return int(Exit.CONFIG)
    return int(Exit.NO if (changing or of_handlers or plan["needs_restart"]) and arguments.exit_code else Exit.DONE)


def reload_config(arguments: argparse.Namespace) -> int:
    """`reload`: 0 applied; 78 something was rejected; with `--wait`, 1 when not all are ready in time."""
    body = {"wait": arguments.wait, "timeout": arguments.timeout}
    report = ControlClient(arguments.socket).post("/v1/reload", body, timeout=arguments.timeout + ANSWER_SECONDS)
    if arguments.json:
        say_json(report)
    else:
        for change in report["changes"]:
            say(f"{change['change']:<8} {change['server']}{_why(change)}: {_then(change)}")
        for line in (of_handlers := _handler_lines(report)):
            say(line)
        if not report["changes"] and not of_handlers:
            say("nothing has changed")
    for hint in report["hints"]:
        tell(f"{hint['where']}: hint: {hint['hint']}")
    for setting in report["needs_restart"]:
        tell(f"{setting} has changed: it is read when the daemon starts")
    if _tell_rejected(report):
        return int(Exit.CONFIG)
    return int(Exit.NO if report["ready"] is False else Exit.DONE)


def check_files(arguments: argparse.Namespace) -> int:
    """`check`: every error with its place; 78 if there is any."""
    from mcpvisor.daemon.config.check import check

    result = check(arguments.paths or config_paths(os.environ, os.geteuid()), os.environ)
    if arguments.json:
        say_json(result.as_json())
    else:
        for line in result.lines():
            say(clean_line(line))
    return result.exit_code


def _handler_lines(report: Mapping[str, Any]) -> list[str]:
    """What happens to handlers and routes, one line each."""
    lines = [f"{change['change']:<8} handler {change['handler']}{_why(change)}" for change in report.get("handlers", ())]
    return [*lines, "update   routes"] if report.get("routes_changed") else lines


def _why(change: Mapping[str, Any]) -> str:
    return f" ({', '.join(change['fields'])})" if change["fields"] else ""


def _then(change: Mapping[str, Any]) -> str:
    """What a changed server does next."""
    if change["state"] is None:
        return "gone"
    reason = f": {clean_line(change['reason'])}" if change["reason"] else ""
    return f"now {change['state']}{reason}"


def _tell_rejected(config: Mapping[str, Any]) -> bool:
    """Say what was not accepted; True when anything was not."""
    for one in config["rejected"]:
        tell(f"{one['where']}: {one['error']}")
    return not config["ok"]
