"""Owns how one entry becomes a `ServerSpec`: every key of it, and the `[defaults]` beneath."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcpvisor.daemon.config import address, launch
from mcpvisor.daemon.config.entry_scope import Item, kind_of
from mcpvisor.daemon.config.policies import read_probe, read_restart, read_stop, read_tools
from mcpvisor.daemon.config.positions import Document, KeyPath
from mcpvisor.daemon.config.subscriptions import read_subscriptions
from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.daemon.config.transport_words import EXPECTED, WORDS, Kind, Meaning, meaning_of
from mcpvisor.supervisor.spec import ALLOWABLE, Era, HttpTarget, HttpTransport, ServerSpec, StdioLaunch

LATER: Final = ("prefix",)
"""Keys that are promised, and refused in so many words until they do something."""
LATER_OF_TOOLS: Final = ("rename", "describe")

OTHER_KIND: Final = {
    Kind.STDIO: "belongs to a server with a url",
    Kind.HTTP: "belongs to a server with a command",
}
OTHER_TRANSPORT: Final = {
    Kind.STDIO: "says another transport than command does",
    Kind.HTTP: "says another transport than url does",
}
MISFITS: Final = frozenset({*OTHER_KIND.values(), *OTHER_TRANSPORT.values()})
"""What is said of a key that would be right on a server of the other kind."""

_WHAT: Final = ("command", "args", "url", "type", "transport")
_MERGED: Final = frozenset({"env", "headers", "limits", "restart", "probe", "stop", "tools", "tls"})


def with_defaults(own: Mapping[str, Item], defaults: Mapping[str, Item]) -> dict[str, Item]:
    """The items of an entry over those of `[defaults]`: tables key by key, everything else as a whole.

    What says which server it is comes from one of the two, and defaults for the other kind of server do not count.
    """
    merged = dict(defaults)
    if "command" in own or "url" in own:
        merged = {key: item for key, item in merged.items() if key not in _WHAT}
        others = address.KEYS if "command" in own else launch.KEYS
        merged = {key: item for key, item in merged.items() if key not in others}
    for key, item in own.items():
        below = merged.get(key)
        if key in _MERGED and below is not None and isinstance(item.value, dict) and isinstance(below.value, dict):
            table = {k: Item(v, (*below.path, k), below.document) for k, v in below.value.items()}
            table.update(
                {k: v if isinstance(v, Item) else Item(v, (*item.path, k), item.document) for k, v in item.value.items()}
            )
            merged[key] = Item(table, item.path, item.document)
        else:
            merged[key] = item
    return merged


def read_entry(entry: TableReader, document: Document, path: KeyPath, *, shown_name: str = "") -> ServerSpec | None:
    """The spec of an entry; None when its scope has found a problem. One pass finds all problems."""
    scope = entry.scope
    for key in LATER:
        item = entry.item(key)
        if item is not None and scope.foreign:
            scope.unused(item, "not supported in this version")
        elif item is not None:
            scope.problem(item, "not supported in this version")
    target = _target(entry, Item(None, path, document))
    place = document.at(path)
    default = ServerSpec(name="default", target=StdioLaunch(command=""))
    spec = ServerSpec(
        name=scope.server,
        target=target or default.target,
        enabled=entry.flag("enabled", default.enabled),
        required=entry.flag("required", default.required),
        era=entry.choice("era", Era.AUTO),
        start_timeout=entry.seconds("start_timeout", default.start_timeout, positive=True),
        call_timeout=entry.seconds("call_timeout", default.call_timeout, positive=True),
        call_max=entry.seconds("call_max", default.call_max, positive=True),
        wait_ready=entry.seconds("wait_ready", default.wait_ready),
        drain=entry.seconds("drain", default.drain),
        overlap=entry.flag("overlap", default.overlap),
        stop=read_stop(entry),
        concurrency=entry.integer("concurrency", default.concurrency, least=1),
        queue=entry.integer("queue", default.queue, least=0),
        max_message=entry.size("max_message", default.max_message, least=1024),
        restart=read_restart(entry),
        probe=read_probe(entry),
        trust_hints=entry.flag("trust_hints", default.trust_hints),
        replay_on_session_loss=entry.flag("replay_on_session_loss", default.replay_on_session_loss),
        subscriptions=read_subscriptions(entry),
        tools=read_tools(entry, LATER_OF_TOOLS),
        rollback=entry.flag("rollback", default.rollback),
        sharing=entry.choice("sharing", default.sharing),
        allow=entry.known_words("allow", ALLOWABLE),
        origin=f"{document.file}:{place.line}" if place is not None else str(document.file),
        shown_name=shown_name,
    )
    entry.finish((*launch.KEYS, *address.KEYS))
    return None if scope.findings.problems or target is None else spec


def _target(entry: TableReader, place: Item) -> StdioLaunch | HttpTarget | None:
    command, url = entry.item("command"), entry.item("url")
    asked = _asked_transport(entry)
    if command is not None and url is not None:
        entry.scope.problem(url, "an entry has command or url, not both")
        _pass_over(entry, (*launch.KEYS, *address.KEYS))
        return None
    if command is None and url is None:
        words = ("command", "url")
        meant = {key: place.document.near(key, words) for key in entry.all_items()}
        near = next((key for key, word in meant.items() if word), "")
        message = (
            f'no server: it has neither command nor url, only "{near}"' if near else "no server: it has neither command nor url"
        )
        entry.scope.problem(place, message, expected="command or url", near=meant.get(near, ""))
        _pass_over(entry, (*launch.KEYS, *address.KEYS))
        return None
    kind = Kind.STDIO if command is not None else Kind.HTTP
    if asked is not None and asked[0] is not kind:
        item = entry.item("type") or entry.item("transport") or place
        entry.scope.problem(item, OTHER_TRANSPORT[kind], expected="no type, or one that fits")
    _refuse(entry, address.KEYS if kind is Kind.STDIO else launch.KEYS, kind)
    if kind is Kind.STDIO:
        return launch.read_launch(entry)
    return address.read_address(entry, asked[1] if asked is not None else HttpTransport.AUTO)


def _asked_transport(entry: TableReader) -> Meaning | None:
    """What `type` or `transport` says; None when neither is there or the word is unknown."""
    found: Meaning | None = None
    for key in ("type", "transport"):
        item = entry.item(key)
        if item is None:
            continue
        meaning = meaning_of(item.value) if isinstance(item.value, str) else None
        if not isinstance(item.value, str):
            entry.scope.problem(item, f"is {kind_of(item.value)}", expected=EXPECTED)
        elif meaning is None:
            entry.scope.problem(item, "unknown transport", expected=EXPECTED, near=item.document.near(item.value, WORDS))
        elif found is not None and found != meaning:
            entry.scope.problem(item, "type and transport say different things", expected="one of the two")
        found = found or meaning
    return found


def _refuse(entry: TableReader, keys: tuple[str, ...], kind: Kind) -> None:
    """Name each key that belongs to the other kind of server."""
    for key in keys:
        item = entry.item(key)
        if item is None:
            continue
        message = OTHER_KIND[kind]
        if entry.scope.foreign:
            entry.scope.unused(item, f"not used: it {message}")
        else:
            entry.scope.problem(item, message)


def _pass_over(entry: TableReader, keys: tuple[str, ...]) -> None:
    """Count keys as asked for where their entry is rejected as a whole, so that they are not called unknown too."""
    for key in keys:
        entry.item(key)
