"""Owns the checks of an entry with a URL: its name, its port, and its certificate. No request is sent, and no secret."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

from mcpvisor.daemon.doctor.findings import Findings
from mcpvisor.supervisor.errors import SpecError
from mcpvisor.supervisor.spec import HttpTarget
from mcpvisor.supervisor.transports.address import Origin, parse_address
from mcpvisor.supervisor.transports.dial import DialFailed, client_context

SECONDS: Final = 5.0
"""How long each step may take: the name, the connection, the handshake."""
SOON_DAYS: Final = 14
"""A certificate that ends within so many days is told of."""

Resolve = Callable[[str, int], list[Any]]


def look_at_trust(target: HttpTarget, findings: Findings) -> ssl.SSLContext | None:
    """The files of `tls`; the settings for a handshake in which the client's own certificate is not shown."""
    try:
        client_context(target.tls)
        return client_context(replace(target.tls, client_cert=None, client_key=None))
    except DialFailed as error:
        findings.error("tls files", str(error), "mend the file, or edit tls")
        return None


def look_at_address(target: HttpTarget, findings: Findings, resolve: Resolve = socket.getaddrinfo) -> None:
    """The host is looked up and connected to, and with https a handshake is made; each within 5 s."""
    try:
        origin = parse_address(target.url).origin
    except SpecError as error:
        findings.error("url", str(error), "edit url")
        return
    context = look_at_trust(target, findings) if origin.scheme == "https" else None
    if origin.scheme == "https" and context is None:
        return
    found = _looked_up(origin, findings, resolve)
    stream = _connected(found, origin, findings) if found else None
    if stream is None:
        return
    with closing(stream):
        if context is not None:
            _shake_hands(stream, origin, context, findings)


def _looked_up(origin: Origin, findings: Findings, resolve: Resolve) -> list[Any]:
    """The addresses of the host. The system's resolver cannot be told to hurry: it is left behind when it does not."""
    pool = ThreadPoolExecutor(1)
    try:
        found = pool.submit(resolve, origin.host, origin.port).result(SECONDS)
    except Late:
        findings.error("dns", f"nothing has answered for {origin.host} within {SECONDS:g} s", "look at the name servers")
        return []
    except OSError as error:
        findings.error("dns", f"{origin.host} is not known: {error.strerror or error}", "look at url, and at the name servers")
        return []
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    hosts = list(dict.fromkeys(str(one[4][0]) for one in found))
    findings.ok("dns", f"{origin.host} is {', '.join(hosts[:4])}")
    return [one for one in found if one[1] in {0, socket.SOCK_STREAM}]


def _connected(found: list[Any], origin: Origin, findings: Findings) -> socket.socket | None:
    tried: list[str] = []
    for family, _, protocol, _, where in found[:4]:
        stream = socket.socket(family, socket.SOCK_STREAM, protocol)
        stream.settimeout(SECONDS)
        try:
            stream.connect(where)
        except OSError as error:
            stream.close()
            tried.append(f"{where[0]}: {error.strerror or 'no answer in time'}")
        else:
            findings.ok("connection", f"{origin.host}:{origin.port} accepts connections")
            return stream
    findings.error("connection", f"{origin} is not reached ({', '.join(tried)})", "look at the server, and at firewalls")
    return None


def _shake_hands(stream: socket.socket, origin: Origin, context: ssl.SSLContext, findings: Findings) -> None:
    try:
        with context.wrap_socket(stream, server_hostname=origin.host) as secured:
            certificate = secured.getpeercert() or {}
            version = secured.version()
    except ssl.SSLCertVerificationError as error:
        remedy = "renew it at the server" if error.verify_code in {9, 10} else "name its CA in tls.ca, or mend url"
        findings.error("tls", f"the certificate of {origin} is not trusted: {error.verify_message}", remedy)
        return
    except OSError as error:  # ssl.SSLError is one
        findings.error("tls", f"no TLS with {origin}: {getattr(error, 'reason', None) or error.strerror or error}")
        return
    ends = str(certificate.get("notAfter", ""))
    days = (ssl.cert_time_to_seconds(ends) - time.time()) / 86400 if ends else None
    if days is not None and days < SOON_DAYS:
        findings.warning("tls", f"the certificate of {origin} ends in {days:.0f} days, at {ends}", "renew it at the server")
    else:
        left = f", the certificate is good for {days:.0f} days" if days is not None else ""
        findings.ok("tls", f"{version} with {origin}{left}")
