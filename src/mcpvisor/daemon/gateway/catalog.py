"""Owns what is on show: how the offers of many servers become one catalog, and who answers for each name and URI.

Everything here is pure: offers in, catalogs out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from mcp.shared.uri_template import InvalidUriTemplate

from mcpvisor.daemon.gateway.names import own_name, public_name
from mcpvisor.daemon.gateway.templates import MAX_TEMPLATES, MAX_URI, Matcher, first_match, matcher
from mcpvisor.supervisor.events import CatalogKind
from mcpvisor.supervisor.offer import Offer
from mcpvisor.supervisor.spec import ToolView
from mcpvisor.supervisor.transports.codec import encode

JsonObject = dict[str, Any]

KINDS: Final[tuple[CatalogKind, ...]] = ("tools", "resources", "resource_templates", "prompts")

MAX_ENTRIES: Final = 5_000
"""Entries of one kind that one server may show."""

MAX_BYTES: Final = 8 * 1024 * 1024
"""Bytes of JSON that one server may show in one kind."""

NAMED_LEFT_OUT: Final = 20
"""How many of the entries that are not shown are named; all are counted."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One entry on show: whose it is, its original name or URI, and the entry as clients see it."""

    server: str
    original: str
    entry: JsonObject


@dataclass(frozen=True, slots=True)
class Template:
    """A resource template on show; `matcher` is None where its syntax is not understood."""

    listed: Listed
    matcher: Matcher | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """What one endpoint shows, each kind by its public key, in a stable order."""

    tools: Mapping[str, Listed] = field(default_factory=dict[str, Listed])
    prompts: Mapping[str, Listed] = field(default_factory=dict[str, Listed])
    resources: Mapping[str, Listed] = field(default_factory=dict[str, Listed])
    templates: Mapping[str, Template] = field(default_factory=dict[str, Template])
    left_out: tuple[str, ...] = ()
    """What is not shown and why, one sentence each, for `explain`."""

    def entries(self, kind: CatalogKind) -> list[Listed]:
        """The entries of one kind, in the order in which they are listed."""
        if kind == "tools":
            return list(self.tools.values())
        if kind == "prompts":
            return list(self.prompts.values())
        if kind == "resources":
            return list(self.resources.values())
        return [template.listed for template in self.templates.values()]

    def owner_of(self, uri: str) -> str | None:
        """The server that answers for a URI: a listed URI before any template; None where nobody does."""
        listed = self.resources.get(uri)
        if listed is not None:
            return listed.server
        return first_match((one.matcher for one in self.templates.values() if one.matcher is not None), uri)

    def changed_from(self, old: Catalog) -> frozenset[CatalogKind]:
        """The kinds in which a client would see a difference."""
        return frozenset(kind for kind in KINDS if self.entries(kind) != old.entries(kind))


def shelve(server: str, offer: Offer, view: ToolView, *, alone: bool) -> Catalog:
    """What one server shows; `alone` keeps its own names, else they carry its prefix."""
    rename = own_name if alone else public_name
    notes: list[str] = []
    tools = _named(server, "tool", [tool for tool in offer.tools if shows(view, tool.get("name"))], rename, notes)
    prompts = _named(server, "prompt", offer.prompts, rename, notes)
    resources = _by_uri(server, "resource", "uri", offer.resources, notes)
    patterns = _by_uri(server, "resource template", "uriTemplate", offer.resource_templates, notes)
    return Catalog(
        tools=tools,
        prompts=prompts,
        resources=resources,
        templates=_templates(server, patterns, notes),
        left_out=tuple(notes),
    )


def join(shelves: Iterable[Catalog]) -> Catalog:
    """All shelves as one catalog. The first claim on a URI stands, so `shelves` come in name order, not as they connect."""
    tools: dict[str, Listed] = {}
    prompts: dict[str, Listed] = {}
    resources: dict[str, Listed] = {}
    templates: dict[str, Template] = {}
    notes: list[str] = []
    for shelf in shelves:
        tools.update(shelf.tools)
        prompts.update(shelf.prompts)
        notes.extend(shelf.left_out)
        for uri, listed in shelf.resources.items():
            if resources.setdefault(uri, listed) is not listed:
                notes.append(_second_claim(uri, resources[uri], listed))
        for uri, template in shelf.templates.items():
            if templates.setdefault(uri, template) is not template:
                notes.append(_second_claim(uri, templates[uri].listed, template.listed))
    return Catalog(tools=tools, prompts=prompts, resources=resources, templates=templates, left_out=tuple(notes))


def _second_claim(uri: str, owner: Listed, claimant: Listed) -> str:
    return (
        f"{claimant.server}: {uri[:200]!r} is shown as {owner.server}'s, which comes first by name; "
        f"it is reached at /mcp/{claimant.server}"
    )


def shows(view: ToolView, name: Any) -> bool:
    """Whether the operator's filter lets a tool of this original name be shown and called."""
    if not isinstance(name, str) or any(fnmatchcase(name, pattern) for pattern in view.deny):
        return False
    return not view.allow or any(fnmatchcase(name, pattern) for pattern in view.allow)


def _named(
    server: str,
    noun: str,
    entries: Iterable[JsonObject],
    rename: Callable[[str, str], str],
    notes: list[str],
) -> dict[str, Listed]:
    shelf: dict[str, Listed] = {}
    for entry in _within_caps(server, noun, entries, notes):
        original = entry.get("name")
        if not isinstance(original, str):
            continue
        public = rename(server, original)
        if public in shelf:
            notes.append(f"{server}: a second {noun} {original[:200]!r} is not shown")
        else:
            shelf[public] = Listed(server, original, {**entry, "name": public})
    return shelf


def _by_uri(server: str, noun: str, key: str, entries: Iterable[JsonObject], notes: list[str]) -> dict[str, Listed]:
    shelf: dict[str, Listed] = {}
    for entry in _within_caps(server, noun, entries, notes):
        uri = entry.get(key)
        if not isinstance(uri, str):
            continue
        if key == "uri" and len(uri) > MAX_URI:
            notes.append(f"{server}: the {noun} {uri[:200]!r} is not shown: its URI is longer than {MAX_URI} characters")
        elif uri in shelf:
            notes.append(f"{server}: a second {noun} {uri[:200]!r} is not shown")
        else:
            shelf[uri] = Listed(server, uri, entry)
    return shelf


def _within_caps(server: str, noun: str, entries: Iterable[JsonObject], notes: list[str]) -> Iterator[JsonObject]:
    """The entries up to the limits; what is over them is counted, and the first few are named."""
    count = size = over = 0
    for entry in entries:
        if count < MAX_ENTRIES and size < MAX_BYTES:
            size += len(encode(entry))
        if count < MAX_ENTRIES and size <= MAX_BYTES:
            count += 1
            yield entry
            continue
        over += 1
        if over <= NAMED_LEFT_OUT:
            label = str(entry.get("name") or entry.get("uri") or entry.get("uriTemplate"))
            notes.append(f"{server}: the {noun} {label[:200]!r} is over the limits of the catalog and not shown")
    if over > NAMED_LEFT_OUT:
        notes.append(f"{server}: {over - NAMED_LEFT_OUT} more of kind {noun} are over the limits of the catalog and not shown")


def _templates(server: str, patterns: Mapping[str, Listed], notes: list[str]) -> dict[str, Template]:
    """The templates up to their limits, which keep one URI from costing everybody's time."""
    shelf: dict[str, Template] = {}
    over: list[str] = []
    for text, listed in patterns.items():
        if len(shelf) >= MAX_TEMPLATES:
            over.append(f"{server}: the resource template {text[:200]!r} is over the limit of {MAX_TEMPLATES} and not shown")
            continue
        try:
            shelf[text] = Template(listed, matcher(server, text))
        except InvalidUriTemplate as error:
            shelf[text] = Template(listed, None)
            notes.append(f"{server}: the resource template {text[:200]!r} is shown, but answers for nothing: {error}")
        except ValueError as error:
            over.append(f"{server}: the resource template {text[:200]!r} is not shown: {error}")
    notes.extend(over[:NAMED_LEFT_OUT])
    if len(over) > NAMED_LEFT_OUT:
        notes.append(f"{server}: {len(over) - NAMED_LEFT_OUT} more resource templates are over their limits and not shown")
    return shelf
