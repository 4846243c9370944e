"""Owns how the keys of an HTTP server become a target: address, headers, authorisation and trust."""

from __future__ import annotations

import re
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from mcpvisor.daemon.config.advice import unprotected
from mcpvisor.daemon.config.argument_secrets import named_secret
from mcpvisor.daemon.config.authorisation import headers_of, read_auth
from mcpvisor.daemon.config.programs import check_file
from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.supervisor.secret import Secret, reveal
from mcpvisor.supervisor.secret_looks import looks_secret, parameters_in
from mcpvisor.supervisor.secret_names import header_names_secret
from mcpvisor.supervisor.spec import HttpTarget, HttpTransport, Text, TlsTrust

KEYS: Final = ("url", "headers", "auth", "header_command", "tls")
"""The keys that only a server with a URL has."""

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_OURS: Final = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "mcp-session-id", "mcp-protocol-version"}
)
_URL_EXPECTED: Final = "a URL such as https://mcp.example.com/mcp"


class CaMode(StrEnum):
    """Whether an own certificate authority stands beside the system's, or instead of them."""

    ADD = "add"
    REPLACE = "replace"


def read_address(entry: TableReader, transport: HttpTransport) -> HttpTarget | None:
    """The target of an entry that has a `url`; None after a problem with the URL itself."""
    url = _url(entry)
    auth = read_auth(entry, url_fault)
    headers = read_headers(entry, headers_of(auth))
    tls = read_tls(entry)
    if url is None:
        return None
    return HttpTarget(url=url, transport=transport, headers=headers, auth=auth, tls=tls)


def _url(entry: TableReader) -> Text | None:
    item = entry.item("url")
    url = entry.text("url")
    if item is None or url is None:
        return None
    fault = url_fault(reveal(url))
    if fault:
        entry.scope.problem(item, fault, expected=_URL_EXPECTED)
        return None
    if advice := unprotected(reveal(url)):
        entry.scope.hint(item, advice)
    return kept_address(url)


def kept_address(url: Text) -> Text:
    """An address as it is kept: keys of services stand in queries, and in paths, written out or not; parameters may say so."""
    text = reveal(url)
    keys = [part for part in re.split("[/?&=;#]", text) if looks_secret(part)] + parameters_in(text)
    if isinstance(url, Secret):
        return Secret(text, [*url.reveal_parts(), *keys])
    return Secret(text, keys) if "?" in text or keys else url


def url_fault(url: str) -> str:
    """What is wrong with the URL of a server, without a word of it, since it may hold a secret; empty when nothing is."""
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        return "holds a space or a control character"
    try:
        parts = urlsplit(url)
    except ValueError:
        return "is no URL: its host is not well formed"
    if parts.scheme not in {"http", "https"} or "://" not in url:
        known = parts.scheme in {"ws", "wss", "ftp", "file", "unix", "tcp"}
        return f'the scheme "{parts.scheme}" is not served' if known else 'does not begin with "http://" or "https://"'
    return _authority_fault(parts)


def _authority_fault(parts: SplitResult) -> str:
    if "@" in parts.netloc:
        return "holds a user or a password before the host; put them into auth or headers"
    if not parts.hostname:
        return "names no host"
    if "[" not in parts.netloc and parts.netloc.count(":") > 1:
        return "has two colons in the host; one stands before a port, and an IPv6 address stands in [ ]"
    try:
        port = parts.port
    except ValueError:
        return "has a port that is no number up to 65535"
    if port == 0:
        return "has port 0"
    return "holds a fragment (#...), which is never sent" if parts.fragment else ""


def read_headers(entry: TableReader, taken: frozenset[str], ours: frozenset[str] = _OURS) -> tuple[tuple[str, Text], ...]:
    """`headers = { NAME = "value" }`, sorted; every value is a secret. `taken` are set by auth, `ours` by the daemon itself."""
    table = entry.table("headers")
    if table is None:
        return ()
    pairs: list[tuple[str, Text]] = []
    seen: set[str] = set()
    for name, item in table.all_items().items():
        lower = name.lower()
        if not _TOKEN.fullmatch(name):
            entry.scope.problem(item, "cannot be the name of a header")
        elif lower in ours:
            entry.scope.problem(item, "is set by the daemon itself")
        elif lower in seen:
            entry.scope.problem(item, "is written twice, in different case")
        elif lower in taken:
            entry.scope.problem(item, "auth sets this header too", expected="one of the two")
        else:
            text = entry.text_of(item)
            if text is not None and not _is_header_value(reveal(text)):
                entry.scope.problem(item, "the value holds a line break or a character that no header can carry")
            elif text is not None:
                pairs.append((name, named_secret(name, text, header_names_secret)))
        seen.add(lower)
    return tuple(sorted(pairs, key=lambda pair: pair[0].lower()))


def _is_header_value(text: str) -> bool:
    return all(" " <= c <= "~" or c == "\t" or "\xa0" <= c <= "\xff" for c in text)


def read_tls(entry: TableReader) -> TlsTrust:
    """`tls = { ca, ca_mode, client_cert, client_key }`; paths are relative to the file."""
    table = entry.table("tls")
    if table is None:
        return TlsTrust()
    mode = table.choice("ca_mode", CaMode.ADD)
    trust = TlsTrust(
        ca=table.path("ca"),
        replace=mode is CaMode.REPLACE,
        client_cert=table.path("client_cert"),
        client_key=table.path("client_key"),
    )
    contents: list[str] = []
    for key in ("ca", "client_cert", "client_key"):
        if (written := table.item(key)) is not None:
            check_file(entry, written, table.path(key))
            contents.append(entry.scope.sources.contents(Path(table.path(key) or "")))
    trust = replace(trust, contents="".join(contents))
    table.finish()
    item = table.item("client_key") or table.item("ca_mode")
    if item is not None and trust.client_key and not trust.client_cert:
        entry.scope.problem(item, "a key without a certificate", expected="client_cert beside client_key")
    if item is not None and trust.replace and not trust.ca:
        entry.scope.problem(item, "nothing to put in place of the system's authorities", expected="ca beside ca_mode")
    return trust
