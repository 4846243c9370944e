"""Owns the catalogs that are on show now, one for each endpoint, and which differences clients have not been told of."""

from __future__ import annotations

import secrets
from collections import defaultdict
from dataclasses import dataclass

from mcpvisor.daemon.gateway.catalog import Catalog, join, shelve
from mcpvisor.daemon.gateway.doors import ServerDoors
from mcpvisor.supervisor.events import CatalogKind
from mcpvisor.supervisor.offer import Offer
from mcpvisor.supervisor.spec import ToolView

View = str | None
"""An endpoint's view: the name of the one server it shows, or None for all of them."""


@dataclass(frozen=True, slots=True)
class _Source:
    """What a server's shelves were made from; both parts are frozen, so that the same ones mean no change."""

    offer: Offer
    tools: ToolView


class Catalogs:
    """The current catalogs; `refresh` brings them up to date, and costs next to nothing where nothing changed."""

    def __init__(self, doors: ServerDoors) -> None:
        self._doors = doors
        self._sources: dict[str, _Source] = {}
        self._shelves: dict[str, Catalog] = {}
        self._views: dict[View, Catalog] = {None: Catalog()}
        self._generations: defaultdict[tuple[View, CatalogKind], int] = defaultdict(int)
        self._untold: defaultdict[View, set[CatalogKind]] = defaultdict(set)
        self._epoch = secrets.token_hex(4)
        self.settle()

    def settle(self) -> None:
        """Take in what the servers offer now, of which nobody is told: there is no client yet who has seen anything else."""
        self.refresh()
        self._untold.clear()

    def refresh(self) -> None:
        """Take in what the servers offer now."""
        names = self._doors.names()
        changed = self._sources.keys() - set(names)
        for name in changed:
            del self._sources[name], self._shelves[name]
        for name in names:
            door = self._doors.connection(name)
            offer, tools = door.offer, door.spec.tools
            former = self._sources.get(name)
            if former is not None and former.offer is offer and former.tools == tools:
                continue
            self._sources[name] = now = _Source(offer, tools)
            if now != former:  # a server that came back with what it offered before costs no new shelf
                self._shelves[name] = shelve(name, offer, tools, alone=False)
                changed.add(name)
        if changed:
            self._replace(None, join(self._shelves[name] for name in names))
            for view in changed & self._views.keys():
                self._replace(view, self._alone(view))

    def current(self, view: View) -> Catalog:
        """The catalog of an endpoint, as of the last refresh."""
        if view not in self._views:
            self._views[view] = self._alone(view)
        return self._views[view]

    def owner_of(self, view: View, uri: str) -> str | None:
        """The server that answers for a URI; it is looked for again only where the catalog is another one meanwhile."""
        seen = self.current(view)
        owner = seen.owner_of(uri)
        if owner is None:
            self.refresh()
            fresh = self.current(view)
            owner = fresh.owner_of(uri) if fresh is not seen else None
        return owner

    def stamp(self, view: View, kind: CatalogKind) -> str:
        """A text that names this very list: it differs whenever the list does, also after a restart of the daemon."""
        return f"{self._epoch}.{self._generations[view, kind]}"

    def take_untold(self) -> dict[View, frozenset[CatalogKind]]:
        """The differences since the last call, by view; whoever takes them tells the clients."""
        untold = {view: frozenset(kinds) for view, kinds in self._untold.items() if kinds}
        self._untold.clear()
        return untold

    def drop(self, view: str) -> None:
        """Forget an endpoint that nobody uses any more."""
        self._views.pop(view, None)
        self._untold.pop(view, None)

    def _alone(self, view: View) -> Catalog:
        source = self._sources.get(view) if view is not None else None
        return shelve(view or "", source.offer, source.tools, alone=True) if source is not None else Catalog()

    def _replace(self, view: View, catalog: Catalog) -> None:
        kinds = catalog.changed_from(self._views[view])
        self._views[view] = catalog
        self._untold[view] |= kinds
        for kind in kinds:
            self._generations[view, kind] += 1
