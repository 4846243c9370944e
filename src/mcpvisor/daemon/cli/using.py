"""Owns the verbs that use a server through the daemon: its lists, `call` and `read`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mcpvisor.daemon.cli.client import ControlClient, server_path
from mcpvisor.daemon.cli.exits import CliError, Exit, Refused
from mcpvisor.daemon.cli.output import clean, clean_line, say, say_json, tell
from mcpvisor.daemon.cli.progress import Progress
from mcpvisor.daemon.cli.screen import screen_of
from mcpvisor.daemon.cli.table import table
from mcpvisor.daemon.cli.verb import Verbs, add_verb, duration
from mcpvisor.daemon.control.counts import counted

_CALLS: Final = (
    """mcpvisor call github search_code '{"q": "mcpvisor"}'""",
    "mcpvisor call github search_code @arguments.json --timeout 2m",
)

_LISTS: Final = {
    "tools": (("tools", "name"),),
    "resources": (("resources", "uri"), ("resource_templates", "uriTemplate")),
    "prompts": (("prompts", "name"),),
}
"""For each verb the lists it shows, and the key that names an entry."""


def register(verbs: Verbs) -> None:
    """Add the verbs of this family."""
    for kind in _LISTS:
        listing = add_verb(
            verbs, kind, show_list, f"list the {kind} of every server, or of one", examples=(f"mcpvisor {kind} github",)
        )
        listing.set_defaults(kind=kind)
        listing.add_argument("server", nargs="?", help="one server only")
    call = add_verb(verbs, "call", call_tool, "call a tool of a server, and print what it answers", examples=_CALLS)
    call.add_argument("server")
    call.add_argument("tool")
    call.add_argument("arguments", nargs="?", default="{}", metavar="JSON|@FILE", help="the arguments; @- reads stdin")
    call.add_argument("--timeout", type=duration, metavar="T", help="the most it may take (default: the server's own)")
    read = add_verb(verbs, "read", read_resource, "read a resource of a server", examples=("mcpvisor read docs docs://index",))
    read.add_argument("server")
    read.add_argument("uri")
    read.add_argument("--timeout", type=duration, metavar="T", help="the most it may take (default: the server's own)")


def show_list(arguments: argparse.Namespace) -> int:
    """`tools`, `resources`, `prompts`: what servers offer, as the daemon last heard it."""
    client, kind = ControlClient(arguments.socket), arguments.kind
    one = arguments.server
    offers = [client.get(server_path(one, "/offer"))] if one else client.get("/v1/offers")["servers"]
    if arguments.json:
        lists = [
            {
                "server": one["server"],
                "stale": one["stale"],
                **{key: one[key] for key, _ in _LISTS[kind]},
                **({"tools_denied": one["tools_denied"]} if kind == "tools" else {}),
            }
            for one in offers
        ]
        say_json({"servers": lists})
        return int(Exit.DONE)
    rows = [row for offer in offers for row in _rows(offer, kind)]
    if rows:
        for line in table(("SERVER", kind.upper().removesuffix("S"), "DESCRIPTION"), rows, screen_of(arguments).width):
            say(line)
    for offer in offers:
        if offer["stale"]:
            tell(f"{offer['server']} is away: its entries are the last known ones")
    return int(Exit.DONE)


def call_tool(arguments: argparse.Namespace) -> int:
    """`call`: 0 when the tool did it, 1 when the tool or the call failed."""
    body = {
        "tool": arguments.tool,
        "arguments": json_object(arguments.arguments, "the arguments"),
        "timeout": arguments.timeout,
    }
    result = _ask(arguments, "/call", body, f"call of {arguments.tool}")
    if arguments.json:
        say_json(result)
    else:
        _show_content(result)
    return int(Exit.NO if result.get("isError") else Exit.DONE)


def read_resource(arguments: argparse.Namespace) -> int:
    """`read`: the text of a resource; 1 when it cannot be read."""
    result = _ask(arguments, "/read", {"uri": arguments.uri, "timeout": arguments.timeout}, f"reading {arguments.uri}")
    if arguments.json:
        say_json(result)
        return int(Exit.DONE)
    for one in result.get("contents", []):
        _show_text(one["text"]) if isinstance(one.get("text"), str) else say(_described(one))
    return int(Exit.DONE)


def _ask(arguments: argparse.Namespace, route: str, body: dict[str, Any], what: str) -> dict[str, Any]:
    """The raw result of a request to a server; its progress is told meanwhile. Raises CliError."""
    path = server_path(arguments.server, route)
    with Progress(tell) as progress:
        for name, value in ControlClient(arguments.socket).follow(path, body=body):
            if name == "progress":
                if not arguments.json:
                    progress.heard(_progress(value))
            elif name == "result":
                return value if isinstance(value, dict) else {}
            else:
                raise _Failed(value, what, arguments.server)
    raise CliError(Exit.NO_ANSWER, f"{what} on {arguments.server}: the daemon ended before there was an answer")


class _Failed(Refused):
    """A request that got no result; says what became of it, so that a person knows whether to repeat it."""

    def __init__(self, body: dict[str, Any], what: str, server: str) -> None:
        super().__init__(body)
        known = self.detail("mcpvisor/RequestFailed")
        retry = f", try again in {known['retry_after_s']:.1f} s" if "retry_after_s" in known else ""
        known_of_it = f"outcome {known.get('outcome', 'unknown')}, cause {known.get('cause', 'unknown')}{retry}"
        self.args = (f"{what} on {server} failed: {body.get('message')} ({known_of_it})",)
        self.exit = Exit.NO


def json_object(text: str, what: str) -> dict[str, Any]:
    """A JSON object from the command line or a file (`@FILE`, `@-`); `what` says what it is. Raises CliError."""
    where = what
    if text.startswith("@"):
        where = text[1:]
        try:
            text = sys.stdin.read() if where == "-" else Path(where).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CliError(Exit.USAGE, f"cannot read {where}: {error}") from error
    try:
        value = json.loads(text)
    except ValueError as error:
        raise CliError(Exit.USAGE, f"{where} are no JSON: {error}; write an object such as '{{\"seconds\": 3}}'") from error
    if not isinstance(value, dict):
        raise CliError(Exit.USAGE, f"{where} must be a JSON object, such as '{{\"seconds\": 3}}'")
    return value


def _show_content(result: Mapping[str, Any]) -> None:
    content = [one for one in result.get("content") or [] if isinstance(one, dict)]
    for one in content:
        if one.get("type") == "text" and result.get("isError"):
            tell(f"the tool answered with an error: {one.get('text')}")
        elif one.get("type") == "text":
            _show_text(str(one.get("text", "")))
        else:
            say(_described(one))
    if not content and "structuredContent" in result:
        say_json(result["structuredContent"])
    if not content and result.get("isError"):
        tell("the tool answered with an error, and did not say which")


def _show_text(text: str) -> None:
    """A text of a server: as it is for programs, without control codes for a terminal."""
    say(clean(text) if sys.stdout.isatty() else text)


def _described(content: Mapping[str, Any]) -> str:
    """What cannot be shown as text, in words; `--json` has it whole."""
    kind = content.get("type", "content")
    size = len(content.get("data") or content.get("blob") or "")
    named = " ".join(str(content[key]) for key in ("mimeType", "uri", "name") if content.get(key))
    encoded = f", {counted(size, 'character')} of base64" if size else ""
    return clean_line(f"[{kind}{' ' + named if named else ''}{encoded}]")


def _progress(params: Mapping[str, Any]) -> str:
    done, total = params.get("progress"), params.get("total")
    message = params.get("message")
    return f"{done}{f' of {total}' if total is not None else ''}{f': {message}' if message else ''}"


def _rows(offer: Mapping[str, Any], kind: str) -> list[tuple[str, str, str]]:
    denied = frozenset(offer["tools_denied"] if kind == "tools" else ())
    return [_row(offer, entry, key, denied) for entries, key in _LISTS[kind] for entry in offer[entries]]


def _row(offer: Mapping[str, Any], entry: Mapping[str, Any], key: str, denied: frozenset[str]) -> tuple[str, str, str]:
    text = str(entry.get("description") or entry.get("title") or "").strip()
    shown = text.split("\n")[0]
    if entry.get(key) in denied:
        shown = f"(denied to clients) {shown}"
    return offer["server"], str(entry.get(key, "")), shown
