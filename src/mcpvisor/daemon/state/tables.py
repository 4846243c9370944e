"""Owns how values become rows of the state file, and rows values again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final

from mcpvisor.daemon.state.checks import NotOurs, flag, json_object, moment, text
from mcpvisor.daemon.state.kept import KeptEvent, KeptSession, KeptVersion, KnownOrder, KnownServer
from mcpvisor.supervisor.entries import is_kept_entry
from mcpvisor.supervisor.events import CatalogKind
from mcpvisor.supervisor.lifecycle_messages import Wanted
from mcpvisor.supervisor.offer import MAX_OFFER, Offer
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import Era
from mcpvisor.supervisor.store import KeptToken, Remembered, StandingOrder
from mcpvisor.supervisor.transports.codec import encode

Row = tuple[Any, ...]

_LISTS: Final[tuple[CatalogKind, ...]] = ("tools", "resources", "resource_templates", "prompts")
_MAX_BLOB: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Table:
    """One table of values by key; the first column is the key. `durable`: a row is flushed to the disk when it is written."""

    name: str
    columns: tuple[str, ...]
    to_row: Callable[[str, Any], Row]
    from_row: Callable[[Row], Any]
    """Raises ValueError, TypeError or KeyError for a row that is none of ours."""
    durable: bool

    @property
    def upsert(self) -> str:
        """Write a row; columns that only a newer program knows keep their values."""
        others = ", ".join(f"{column} = excluded.{column}" for column in self.columns[1:])
        marks = ", ".join("?" for _ in self.columns)
        listed = ", ".join(self.columns)
        return f"INSERT INTO {self.name} ({listed}) VALUES ({marks}) ON CONFLICT ({self.columns[0]}) DO UPDATE SET {others}"  # noqa: S608 # names of ours

    @property
    def delete(self) -> str:
        """Delete the row of a key."""
        return f"DELETE FROM {self.name} WHERE {self.columns[0]} = ?"  # noqa: S608 # names of ours

    @property
    def select(self) -> str:
        """Every row, in the order in which their keys came: an update leaves a row in its place."""
        return f"SELECT {', '.join(self.columns)} FROM {self.name} ORDER BY rowid"  # noqa: S608 # names of ours


def _object(data: object) -> dict[str, Any]:
    return json_object(data, _MAX_BLOB)


def _offer_from(data: object) -> Offer | None:
    if data is None:
        return None
    kept = _object(data)
    known: dict[str, Any] = {field.name: kept[field.name] for field in fields(Offer) if field.name in kept}
    for kind in _LISTS:
        if kind in known:
            known[kind] = _entries(kind, known[kind])
    if not all(isinstance(known.get(name, {}), dict) for name in ("capabilities", "server_info")):
        raise NotOurs("no object")
    text(known.get("instructions", ""))
    return Offer(**known)


def _entries(kind: CatalogKind, value: object) -> tuple[Any, ...]:
    if not isinstance(value, list) or not all(is_kept_entry(kind, entry) for entry in value):
        raise NotOurs("no list of entries")
    return tuple(value)


def _offer_bytes(offer: Offer) -> bytes | None:
    """An offer as JSON, None for one that is too large to be kept; entry by entry, since the event loop waits for each."""
    parts: list[bytes] = []
    size = 0
    for field in fields(Offer):
        value = getattr(offer, field.name)
        texts: list[bytes] = []
        for one in value if isinstance(value, tuple) else (value,):
            texts.append(encode(one))
            size += len(texts[-1])
            if size > MAX_OFFER:
                return None
            time.sleep(0)  # who waits for the interpreter gets it now, and not after the five milliseconds of a switch
        told = b",".join(texts)
        parts.append(b'"%b":%b' % (field.name.encode(), b"[%b]" % told if isinstance(value, tuple) else told))
    return b"{%b}" % b",".join(parts)


def _server_row(name: str, known: KnownServer) -> Row:
    what = known.what
    era = what.era.value if what.era is not None else None
    offer = _offer_bytes(what.offer) if what.offer is not None else None
    return (name, known.target, era, int(what.skip_probe), int(what.only_sse), offer, known.seen_at)


def _server_from(row: Row) -> KnownServer:
    name, target, era, skip_probe, only_sse, offer, seen_at = row
    text(name)
    what = Remembered(
        era=Era(era) if era is not None else None,
        skip_probe=flag(skip_probe),
        only_sse=flag(only_sse),
        offer=_offer_from(offer),
    )
    return KnownServer(target=text(target), what=what, seen_at=moment(seen_at))


def _order_row(server: str, known: KnownOrder) -> Row:
    order = known.order
    return (server, order.wanted.value, order.who, order.at, known.seen_at)


def _order_from(row: Row) -> KnownOrder:
    server, wanted, who, at, seen_at = row
    text(server)
    order = StandingOrder(wanted=Wanted(wanted), who=text(who), at=moment(at))
    return KnownOrder(order=order, seen_at=moment(seen_at))


def _token_row(key: str, token: KeptToken) -> Row:
    return (key, token.value.reveal(), token.expires_at)


def _token_from(row: Row) -> KeptToken:
    key, value, expires_at = row
    text(key)
    return KeptToken(value=Secret(text(value)), expires_at=None if expires_at is None else moment(expires_at))


def _session_row(_: str, session: KeptSession) -> Row:
    watched = encode({"uris": session.watched}) if session.watched else None
    return (session.id_hash, session.principal, session.view, encode(session.opened_with), session.used_at, watched)


def _uris_from(data: object) -> tuple[str, ...]:
    if data is None:
        return ()
    uris = _object(data)["uris"]
    if not isinstance(uris, list):
        raise NotOurs("no list of URIs")
    return tuple(text(uri) for uri in uris)


def _session_from(row: Row) -> KeptSession:
    id_hash, principal, view, opened_with, used_at, watched = row
    return KeptSession(
        id_hash=text(id_hash),
        principal=text(principal),
        view=None if view is None else text(view),
        opened_with=_object(opened_with),
        used_at=moment(used_at),
        watched=_uris_from(watched),
    )


def _event_row(key: str, kept: KeptEvent) -> Row:
    return (key, kept.handler, encode(kept.event), kept.accepted_at, kept.tries, kept.dead_at, kept.why)


def _event_from(row: Row) -> KeptEvent:
    key, handler, event, accepted_at, tries, dead_at, why = row
    if isinstance(tries, bool) or not isinstance(tries, int):
        raise NotOurs("no number of tries")
    kept = KeptEvent(
        handler=text(handler),
        event=_object(event),
        accepted_at=moment(accepted_at),
        tries=tries,
        dead_at=None if dead_at is None else moment(dead_at),
        why=text(why),
    )
    for field in ("id", "kind", "server"):
        text(kept.event[field])
    moment(kept.event["at"])
    if kept.key != text(key) or not isinstance(kept.event["data"], dict) or not isinstance(kept.event["coalesced"], int):
        raise NotOurs("no event of a handler")
    return kept


def _version_row(key: str, kept: KeptVersion) -> Row:
    return (key, kept.digest, kept.sealed(), kept.good_at, int(kept.ready), kept.why)


def _version_from(row: Row) -> KeptVersion:
    key, digest, sealed, good_at, ready, why = row
    text(key)
    content = text(sealed)
    return KeptVersion(digest=text(digest), sealed=lambda: content, good_at=moment(good_at), ready=flag(ready), why=text(why))


SERVERS: Final = Table(
    "servers",
    ("name", "target", "era", "skip_probe", "only_sse", "offer", "seen_at"),
    _server_row,
    _server_from,
    durable=False,
)
ORDERS: Final = Table("orders", ("server", "wanted", "who", "at", "seen_at"), _order_row, _order_from, durable=True)
TOKENS: Final = Table("tokens", ("key", "value", "expires_at"), _token_row, _token_from, durable=True)
SESSIONS: Final = Table(
    "sessions",
    ("id_hash", "principal", "view", "opened_with", "used_at", "watched"),
    _session_row,
    _session_from,
    durable=False,
)
EVENTS: Final = Table(
    "handler_events",
    ("key", "handler", "event", "accepted_at", "tries", "dead_at", "why"),
    _event_row,
    _event_from,
    durable=True,
)
VERSIONS: Final = Table(
    "versions", ("key", "digest", "sealed", "good_at", "ready", "why"), _version_row, _version_from, durable=True
)
TABLES: Final = (TOKENS, ORDERS, VERSIONS, EVENTS, SESSIONS, SERVERS)
"""In the order in which they are written: what is missed most comes first, should there be no room for all."""
