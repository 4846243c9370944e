"""Owns what a scrape request is answered: one head of HTTP in, one whole response out, nothing of sockets or threads."""

from __future__ import annotations

import gzip
import ipaddress
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from prometheus_client import CollectorRegistry

from mcpvisor.metrics.rendering import OPENMETRICS_TYPE, TEXT_TYPE, as_openmetrics, as_text

_OPENMETRICS: Final = "application/openmetrics-text"
_PLAIN: Final = "text/plain; charset=utf-8"
_LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  # names of the wildcard, to be recognised, not bound


@dataclass(frozen=True, slots=True)
class Head:
    """The request line and the headers of a request, header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]


def parse_head(raw: bytes) -> Head | None:
    """The head of a request as far as it matters here; None when it is no HTTP/1 request."""
    lines = raw.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return None
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not line:
            continue
        if not colon or name.strip() != name or (name.lower() == "host" and "host" in headers):
            return None
        headers[name.lower()] = value.strip()
    return Head(words[0], words[1].partition("?")[0], headers)


def host_of(header: str) -> str:
    """The host of a Host header without its port and without brackets, in lower case."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.rpartition(":")[0].lower() if ":" in header else header.lower()


def prefers_openmetrics(accept: str) -> bool:
    """Whether an Accept header asks for OpenMetrics rather than the older text format."""
    weights = {_OPENMETRICS: 0.0, "text/plain": 0.0}
    for entry in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in entry.split(";"))
        if kind in weights:
            weights[kind] = max(weights[kind], _weight(parameters))
    return weights[_OPENMETRICS] > 0 and weights[_OPENMETRICS] >= weights["text/plain"]


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0


class Exposition:
    """Answers `GET /metrics` from a registry, as Prometheus text or OpenMetrics, gzipped where the reader takes it.

    Only names that we are known by are answered, so that a web page which rebinds its own name to this address reads
    nothing. `hosts` are names beyond the local ones. With a wildcard among them (`0.0.0.0`, `::`) every literal address
    passes too: a rebound name is never one. `on_refused` is told `host` on each such refusal, on the thread of the scrape.
    """

    def __init__(
        self, registry: CollectorRegistry, hosts: Iterable[str] = (), on_refused: Callable[[str], None] | None = None
    ) -> None:
        named = {host.strip("[]").lower() for host in hosts}
        self._registry = registry
        self._any_address = not named.isdisjoint(_WILDCARDS)
        self._hosts = _LOCAL | (named - _WILDCARDS)
        self._on_refused = on_refused
        self._rendering = threading.Lock()  # many scrapers at once must not take many shares of the interpreter's lock

    def respond(self, raw: bytes) -> bytes:
        """The whole response to the head of a request; the connection ends with it."""
        head = parse_head(raw)
        if head is None:
            return refusal(HTTPStatus.BAD_REQUEST, "this is no HTTP/1 request")
        if not self._is_known(head.headers.get("host", "")):
            if self._on_refused is not None:
                self._on_refused("host")
            return refusal(HTTPStatus.MISDIRECTED_REQUEST, "the Host header names no address of this listener")
        if head.path != "/metrics":
            return refusal(HTTPStatus.NOT_FOUND, "the metrics are at /metrics")
        if head.method not in ("GET", "HEAD"):
            return refusal(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD", ("Allow: GET, HEAD",))
        return self._metrics(head)

    def _is_known(self, header: str) -> bool:
        host = host_of(header)
        return host in self._hosts or (self._any_address and _is_address(host))

    def _metrics(self, head: Head) -> bytes:
        modern = prefers_openmetrics(head.headers.get("accept", ""))
        with self._rendering:
            body = as_openmetrics(self._registry) if modern else as_text(self._registry)
        extra: tuple[str, ...] = ("Vary: Accept, Accept-Encoding",)
        if "gzip" in head.headers.get("accept-encoding", "").lower():
            body = gzip.compress(body, compresslevel=1)
            extra += ("Content-Encoding: gzip",)
        kind = OPENMETRICS_TYPE if modern else TEXT_TYPE
        return _response(HTTPStatus.OK, kind, body, extra, with_body=head.method == "GET")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def refusal(status: HTTPStatus, why: str, extra: tuple[str, ...] = ()) -> bytes:
    """A response that says in one line why there are no metrics in it."""
    return _response(status, _PLAIN, f"{why}\n".encode(), extra)


def _response(status: HTTPStatus, kind: str, body: bytes, extra: tuple[str, ...], *, with_body: bool = True) -> bytes:
    lines = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Content-Security-Policy: default-src 'none'",
        *extra,
    )
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body if with_body else b"")
