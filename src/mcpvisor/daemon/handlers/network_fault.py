"""Owns the words for a request that found no receiver: the system's own, dug out of the layers that wrapped them. Pure."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator

from mcpvisor.supervisor.transports.address import Address


def network_fault(error: BaseException, where: Address) -> str:
    """What went wrong on the way to an address, in one clause with a remedy where there is one."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate of {where.origin} is not trusted: {cause.verify_message.rstrip('.')} (key tls.ca)"
        if isinstance(cause, ssl.SSLError):
            return f"no TLS with {where.origin}: {cause.reason or cause}"
        if isinstance(cause, socket.gaierror):
            return f"the host {where.origin.host!r} cannot be found: {cause.strerror}"
    number = next((c.errno for c in causes if isinstance(c, OSError) and isinstance(c.errno, int)), None)
    kind = type(error).__name__
    if number is not None:
        return f"cannot connect to {where.origin}: {os.strerror(number)}" if kind == "ConnectError" else _broken(where, number)
    if kind == "ConnectTimeout":
        return f"cannot connect to {where.origin}: no connection in time (key connect_timeout)"
    if kind == "ProxyError":
        return f"the proxy does not lead to {where.origin}: {error}"
    said = str(error) or kind
    return f"cannot connect to {where.origin}: {said}" if kind == "ConnectError" else f"no answer of {where.origin}: {said}"


def _broken(where: Address, number: int) -> str:
    return f"the connection to {where.origin} broke: {os.strerror(number)}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        inner = error.__cause__ or error.__context__
        if isinstance(inner, BaseExceptionGroup):
            inner = inner.exceptions[0]
        error = inner
