"""Owns the verbs that deal with configuration: `check`, `plan` and `reload`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mcpvisor.daemon.cli.client import ANSWER_SECONDS, ControlClient, absolute
from mcpvisor.daemon.cli.exits import CliError, Exit
from mcpvisor.daemon.cli.output import clean_line, say, say_json, tell
from mcpvisor.daemon.cli.verb import Verbs, add_verb, duration
from mcpvisor.daemon.config.places import config_paths
from mcpvisor.daemon.control import not_in_force
from mcpvisor.daemon.control.counts import counted
from mcpvisor.daemon.control.explain_text import clock_time

RELOAD_SECONDS: Final = 60.0
_KEPT: Final = "keep"
_COMING: Final = frozenset({"starting", "negotiating", "restoring", "draining"})
"""States that lead on by themselves."""
_PLANS: Final = ("mcpvisor plan", "mcpvisor plan --exit-code /etc/mcpvisor.next")
_RELOADS: Final = ("mcpvisor reload --wait --timeout 30s",)


def register(verbs: Verbs) -> None:
    """Add the verbs of this family."""
    examples = ("mcpvisor check", "mcpvisor check ~/.config/mcpvisor servers.json")
    check = add_verb(verbs, "check", check_files, "validate the configuration, without a daemon", asks=False, examples=examples)
    check.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="files or folders (default as for `run`)")
    plan = add_verb(verbs, "plan", show_plan, "say what a reload would do to each server, and why", examples=_PLANS)
    plan.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="other files or folders than the daemon's own")
    plan.add_argument(
        "--exit-code", action="store_true", help="exit with 1 when something would change, or is ordered otherwise"
    )
    plan.add_argument("--event", metavar="KIND", help="also say which handlers such an event would reach after it")
    plan.add_argument("--server", metavar="S", help="the server of that event")
    plan.add_argument("--uri", metavar="U", help="of a resource_updated")
    plan.add_argument("--tool", metavar="T", help="of progress, or an elicitation")
    plan.add_argument("--level", metavar="L", help="of a log_message")
    reload = add_verb(verbs, "reload", reload_config, "read the configuration again and apply it", examples=_RELOADS)
    reload.add_argument("--wait", action="store_true", help="also wait for the changed servers to be ready")
    reload.add_argument("--timeout", type=duration, default=RELOAD_SECONDS, metavar="T", help="how long to wait (60s)")


def show_plan(arguments: argparse.Namespace) -> int:
    """`plan`: one line for each server that would not stay as it is, or is by order; 78 when something would be rejected."""
    body = {"paths": absolute(arguments.paths), **_event_asked(arguments)}
    plan = ControlClient(arguments.socket).post("/v1/plan", body, timeout=RELOAD_SECONDS)
    drift = _drift_lines(plan)
    changing = [change for change in plan["changes"] if change["change"] != _KEPT]
    of_handlers = _handler_lines(plan)
    if arguments.json:
        say_json(plan)
    else:
        for change in changing:
            say(clean_line(f"{change['change']:<8} {change['server']}{_why(change)}{_unless_back(change, plan['config'])}"))
        for line in of_handlers:
            say(line)
        for line in (*drift, *_under_way_lines(plan), *_waiting_lines(plan["config"])):
            say(line)
        if not changing and not of_handlers:
            kept = len(plan["changes"])
            what = "no server" if plan["needs_restart"] else "nothing"
            say(f"{what} would change ({counted(kept, 'server')} {'is' if kept == 1 else 'are'} kept)")
        for line in _way_lines(plan, arguments):
            say(line)
    for setting in plan["needs_restart"]:
        tell(f"{setting} is another: it is read when the daemon starts")
    if _tell_rejected(plan["config"]):
        return int(Exit.CONFIG)
    is_otherwise = bool(changing or of_handlers or plan["needs_restart"] or drift)
    return int(Exit.NO if is_otherwise and arguments.exit_code else Exit.DONE)


def reload_config(arguments: argparse.Namespace) -> int:
    """`reload`: 0 applied; 78 something was rejected; with `--wait`, 1 when not all are ready in time."""
    body = {"wait": arguments.wait, "timeout": arguments.timeout}
    report = ControlClient(arguments.socket).post("/v1/reload", body, timeout=arguments.timeout + ANSWER_SECONDS)
    if arguments.json:
        say_json(report)
    else:
        for change in report["changes"]:
            say(clean_line(f"{change['change']:<8} {change['server']}{_why(change)}: {_then(change)}"))
        for line in (of_handlers := _handler_lines(report)):
            say(line)
        if not report["changes"] and not of_handlers:
            say(clean_line(_nothing(report)))
        for line in (*_under_way_lines(report), *_waiting_lines(report), *_removal_lines(report)):
            say(line)
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


def _event_asked(arguments: argparse.Namespace) -> dict[str, Any]:
    """The event that is asked about, as the control API takes it. Raises CliError."""
    keys = ("server", "uri", "tool", "level")
    given = {key: getattr(arguments, key) for key in keys if getattr(arguments, key) is not None}
    if arguments.event is None and given:
        raise CliError(Exit.USAGE, f"--{next(iter(given))} is of an event: say which kind by --event")
    if arguments.event is None:
        return {}
    if "server" not in given:
        raise CliError(Exit.USAGE, "an event is of a server: say which by --server")
    return {"event": {"kind": arguments.event, **given}}


def _drift_lines(plan: Mapping[str, Any]) -> list[str]:
    """What operators have ordered against the files, one line each."""
    return [
        clean_line(
            f"{'drift':<8} {one['server'] or one['what']} is {one['actual']} by order of {one['by']} "
            f"since {clock_time(one['at'])}, the files say {one['configured']}"
        )
        for one in plan.get("drift", ())
    ]


def _way_lines(plan: Mapping[str, Any], arguments: argparse.Namespace) -> list[str]:
    """Where an event would go, and where it goes now if that is elsewhere."""
    if arguments.event is None:
        return []
    after, now = ([f"{way['handler']} by {way['route']}" for way in plan[key]] for key in ("ways", "ways_now"))
    lines = [f"{'event':<8} {arguments.event} of {arguments.server} would reach {', '.join(after) or 'no handler'}"]
    if after != now:
        lines.append(f"{'':<8} now it reaches {', '.join(now) or 'no handler'}")
    return [clean_line(line) for line in lines]


def _under_way_lines(report: Mapping[str, Any]) -> list[str]:
    """What an earlier edit, or the end of a server, has brought on its way, one line for each server."""
    return [clean_line(f"{_way_of(one):<8} {one['server']}: {_then(one)}") for one in report.get("under_way", ())]


def _way_of(one: Mapping[str, Any]) -> str:
    """How far that is: on trial, on its way, or at its end since somebody has waited for it."""
    return "trial" if one["trial"] else "coming" if one["state"] in _COMING else "settled"


def _waiting_lines(config: Mapping[str, Any]) -> list[str]:
    """What is right and waits for what is wrong elsewhere, one line each."""
    waiting = config.get("waiting", ())
    return [clean_line(f"{'waits':<8} {not_in_force.waiting_briefly(one, clock_time)}") for one in waiting]


def _removal_lines(report: Mapping[str, Any]) -> list[str]:
    """What goes by itself, one line for each server."""
    gone = report.get("removals", ())
    return [clean_line(f"{'goes':<8} {one['server']}: {not_in_force.removal(one, clock_time)}") for one in gone]


def _nothing(report: Mapping[str, Any]) -> str:
    """That nothing has changed, since when, and by whose reload: whoever has just edited a file looks for that edit."""
    if report.get("waiting"):
        return "nothing is applied"
    if report.get("removals"):
        return "nothing has changed yet"
    last = report.get("last_change")
    if last is None:
        return "nothing has changed"
    whose = {"watch": "an edit was seen and applied by itself"}.get(last["trigger"], "another reload was ordered")
    names = f" ({', '.join(last['servers'])})" if last["servers"] else ""
    return f"nothing has changed since {clock_time(last['at'])}, when {whose}{names}"


def _unless_back(change: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """When a server goes whose file is away."""
    due = [one["at"] for one in config.get("removals", ()) if one["server"] == change["server"]]
    return f"; at {clock_time(due[0])}, unless that comes back" if due else ""


def _why(change: Mapping[str, Any]) -> str:
    if gone := change.get("gone_file"):
        return f" (its file {gone} is gone)"
    return f" ({', '.join(change['fields'])})" if change["fields"] else ""


def _then(change: Mapping[str, Any]) -> str:
    """What a changed server does next."""
    if change["state"] is None:
        return "gone"
    reason = f": {clean_line(change['reason'])}" if change["reason"] else ""
    return (
        f"{'rolled back, ' if change.get('rolled_back') else ''}now {change['state']}{reason}{_on_trial(change.get('trial'))}"
    )


def _on_trial(trial: Mapping[str, Any] | None) -> str:
    """When a version would be taken back; nothing where none is on trial."""
    return f"; {not_in_force.trial(trial)}" if trial is not None else ""


def _tell_rejected(config: Mapping[str, Any]) -> bool:
    """Say what was not accepted; True when anything was not."""
    for one in config["rejected"]:
        tell(not_in_force.rejected(one, clock_time))
    return not config["ok"]
