"""Owns which clients watch which resources of which server, and that each update reaches exactly those.

What clients watch is wanted, and stays so whatever becomes of the server: it follows the catalogs, which say whose a URI is.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

import anyio

from mcpvisor.daemon.gateway.catalogs import Catalogs, View
from mcpvisor.daemon.gateway.crossing import rejected
from mcpvisor.daemon.gateway.doors import ServerDoors
from mcpvisor.daemon.gateway.observer import GatewayObserver
from mcpvisor.daemon.gateway.owners import Owners
from mcpvisor.daemon.gateway.settings import GatewayLimits
from mcpvisor.supervisor.errors import RequestFailed, UnknownServer
from mcpvisor.supervisor.events import ResourceUpdated
from mcpvisor.supervisor.subscriptions.standing import WORKING, SubscriptionState, SubscriptionStatus

WAIT_SECONDS: Final = 3.0
"""How long a client that asks for updates waits for what its server says to that; then it counts as asked for."""

SLICE: Final = 0.002
"""Seconds after which looking for the owners of URIs lets others go on."""

_NEVER: Final = float("inf")
_REFUSED_CODE: Final = -32603


class Sink(Protocol):
    """Where a client's updates go; nothing here waits."""

    def updated(self, uri: str) -> None:
        """A resource has changed, or may have."""
        ...

    def unwatched(self, uri: str) -> None:
        """The client does not watch a resource any more: what is not sent yet is not sent."""
        ...


class Watcher:
    """One client that watches resources on one endpoint: a session, or a stream of 2026-07-28."""

    def __init__(self, name: str, principal: str, view: View, sink: Sink) -> None:
        self.name = name
        """Under which the supervisor holds what it watches, and `explain` shows that."""
        self.principal = principal
        self.view = view
        self.sink = sink
        self.changed: Callable[[], None] = lambda: None
        """Called when it watches others than before."""
        self.is_gone = False
        """Whether it was closed: a request may outlive its session by a moment."""
        self.uris: dict[str, float] = {}
        """What it watches, each with when it was told so, in wall-clock seconds; infinite before."""

    @property
    def told(self) -> tuple[str, ...]:
        """What the client knows that it watches."""
        return tuple(uri for uri, told_at in self.uris.items() if told_at != _NEVER)

    def take(self, event: ResourceUpdated) -> None:
        """Tell the client; what may have changed before it was told that it watches is no news to it."""
        if event.reason != "resync" or event.at > self.uris[event.uri]:
            self.sink.updated(event.uri)


@dataclass(slots=True)
class _Watched:
    """One URI on one endpoint: its owner now, None where it has none, and who watches it."""

    server: str | None
    watchers: dict[Watcher, None] = field(default_factory=dict[Watcher, None])


class Watching:
    """All that clients watch."""

    def __init__(self, doors: ServerDoors, catalogs: Catalogs, limits: GatewayLimits, observer: GatewayObserver) -> None:
        self._doors = doors
        self._catalogs = catalogs
        self.finding = Owners(catalogs)
        """Looks for the owners of what clients ask for."""
        self._limits = limits
        self._observer = observer
        self._views: dict[View, dict[str, _Watched]] = {}
        self._shares: Counter[str] = Counter()
        """How many URIs each principal watches."""
        self._numbers = itertools.count(1)

    # What clients ask for

    def open(self, kind: Literal["session", "stream"], principal: str, view: View, sink: Sink) -> Watcher:
        """A client that watches nothing yet; whoever opens it closes it."""
        return Watcher(f"{kind} {next(self._numbers)} of {principal}", principal, view, sink)

    def close(self, watcher: Watcher) -> None:
        """The client is gone."""
        watcher.is_gone = True
        for uri in list(watcher.uris):
            self._remove(watcher, uri)

    async def watch(self, watcher: Watcher, owners: Mapping[str, str]) -> dict[str, RequestFailed]:
        """Watch resources, each of the server that owns it, from now on. Raises RequestFailed, for none of them, at a limit.

        Returns those whose server says within a while that it will not tell of them, and why: they are not watched.
        """
        if watcher.is_gone:
            raise rejected("session_ended", "the session was ended", code=_REFUSED_CODE)
        new = {uri: server for uri, server in owners.items() if uri not in watcher.uris}
        self._make_room(watcher, len(new))
        for uri, server in new.items():
            self._add(watcher, uri, server, told_at=_NEVER)
        asked = [uri for uri in owners if watcher.uris[uri] == _NEVER]
        failures: dict[str, RequestFailed] = {}
        try:
            until = anyio.current_time() + WAIT_SECONDS
            while asked:
                status = await self._outcome(watcher, asked[0], until - anyio.current_time())
                uri = asked.pop(0)
                if status is not None and status.state is SubscriptionState.FAILED:
                    failures[uri] = _not_watched(owners[uri], status)
                    self._remove(watcher, uri)
                elif uri in watcher.uris:
                    watcher.uris[uri] = time.time()
        finally:
            for uri in asked:  # who withdrew the request was told nothing, and wants nothing
                self._remove(watcher, uri)
            if new:
                watcher.changed()
        return failures

    def unwatch(self, watcher: Watcher, uri: str) -> None:
        """Watch a resource no more; one that is not watched is no error."""
        if uri in watcher.uris:
            self._remove(watcher, uri)
            watcher.changed()

    def restore(self, watcher: Watcher, uris: Iterable[str]) -> None:
        """Watch again what an earlier run knows of, whoever owns it; what is over a limit by now is left out."""
        for uri in uris:
            try:
                self._make_room(watcher, 1)
            except RequestFailed:
                return
            self._add(watcher, uri, self._catalogs.current(watcher.view).owner_of(uri), told_at=time.time())

    async def _outcome(self, watcher: Watcher, uri: str, seconds: float) -> SubscriptionStatus | None:
        watched = self._views.get(watcher.view, {}).get(uri)
        if watched is None or watched.server is None:
            return None
        try:
            return await self._doors.subscriptions(watched.server).outcome(uri, max(0.0, seconds))
        except UnknownServer:
            return None

    def admit(self, asked: int) -> None:
        """Whether one client may ask for so many resources, whoever owns them. Raises RequestFailed."""
        self._hold_to("one session or stream", asked, self._limits.subscriptions_per_client)

    def _make_room(self, watcher: Watcher, more: int) -> None:
        limits = self._limits
        for used, most, whose in (
            (len(watcher.uris), limits.subscriptions_per_client, "one session or stream"),
            (self._shares[watcher.principal], limits.subscriptions_per_principal, "all clients of one principal"),
            (self._shares.total(), limits.subscriptions, "all clients together"),
        ):
            if more:
                self._hold_to(whose, used + more, most)

    def _hold_to(self, whose: str, count: int, most: int) -> None:
        if count > most:
            self._observer.refused("client", "rate")
            raise rejected("too_many_subscriptions", f"no more than {most} resources are watched for {whose}")

    def _add(self, watcher: Watcher, uri: str, server: str | None, *, told_at: float) -> None:
        watched = self._views.setdefault(watcher.view, {}).setdefault(uri, _Watched(server))
        watched.watchers[watcher] = None
        watcher.uris[uri] = told_at
        self._shares[watcher.principal] += 1
        if watched.server is None:
            self._assign(uri, watched, server)
        self._want(watched.server, uri, watcher)

    def _remove(self, watcher: Watcher, uri: str) -> None:
        if watcher.uris.pop(uri, None) is None:
            return  # its client went while it was asked for
        watched = self._views[watcher.view][uri]
        del watched.watchers[watcher]
        if not watched.watchers:
            del self._views[watcher.view][uri]
        if not self._views[watcher.view]:
            del self._views[watcher.view]
        self._shares[watcher.principal] -= 1
        if not self._shares[watcher.principal]:
            del self._shares[watcher.principal]
        watcher.sink.unwatched(uri)
        self._drop(watched.server, uri, watcher)

    # What servers are told

    def _want(self, server: str | None, uri: str, watcher: Watcher) -> bool:
        """Whether changes of it reached us already, so that no word of the server's own follows that it may have changed."""
        if server is None:
            return False
        try:
            wanted = self._doors.subscriptions(server)
        except UnknownServer:
            return False  # it has left; whoever owns the URI next is told when the catalog is another one
        wanted.want(uri, watcher.name)
        return wanted.state(uri) in WORKING

    def _drop(self, server: str | None, uri: str, watcher: Watcher) -> None:
        if server is not None:
            try:
                self._doors.subscriptions(server).drop(uri, watcher.name)
            except UnknownServer:
                return  # nothing is held of a server that has left

    async def follow(self, added: frozenset[str] = frozenset()) -> None:
        """Let each URI be watched at the server that owns it now; servers in `added` are new ones, whatever their names."""
        turn = time.perf_counter()
        for view in list(self._views):
            for uri in list(self._views.get(view, ())):
                watched = self._views.get(view, {}).get(uri)
                if watched is None:
                    continue
                owner = self._catalogs.current(view).owner_of(uri)
                if owner != watched.server:
                    self._assign(uri, watched, owner)
                elif owner in added:
                    for watcher in watched.watchers:
                        self._want(owner, uri, watcher)
                if time.perf_counter() - turn > SLICE:
                    await anyio.sleep(SLICE)
                    turn = time.perf_counter()

    def _assign(self, uri: str, watched: _Watched, server: str | None) -> None:
        """Another server owns a URI: what it says of it may be something else."""
        for watcher in watched.watchers:
            self._drop(watched.server, uri, watcher)
            if self._want(server, uri, watcher):
                watcher.sink.updated(uri)
        watched.server = server

    # What servers tell

    def updated(self, event: ResourceUpdated) -> None:
        """A server tells of a resource; on an endpoint where the URI is another's that is nobody's business."""
        for view in (None, event.server):
            watched = self._views.get(view, {}).get(event.uri)
            if watched is not None and watched.server == event.server:
                for watcher in watched.watchers:
                    watcher.take(event)

    def missed(self) -> None:
        """Updates were lost on their way: each resource may have changed."""
        for watched in self._views.values():
            for uri, one in watched.items():
                for watcher in one.watchers:
                    watcher.sink.updated(uri)


def _not_watched(server: str, status: SubscriptionStatus) -> RequestFailed:
    failure = rejected("not_subscribed", f"{server} does not tell of this resource: {status.reason}", code=_REFUSED_CODE)
    if status.next_retry is not None:
        failure.retry_after_s = max(0.0, status.next_retry - time.time())
    return failure
