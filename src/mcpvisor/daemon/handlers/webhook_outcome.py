"""Owns the one table that says what the response to a webhook means: handled, to be tried again, or given up. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mcpvisor.daemon.handlers.contract import DeliveryFailed
from mcpvisor.supervisor.transports.address import Address, join_address
from mcpvisor.supervisor.transports.http_outcome import excerpt, parse_retry_after, status_line

MAX_RETRY_AFTER: Final = 3600.0
"""Seconds at most that a receiver may put us off."""

_GONE: Final = 410
_MENDABLE: Final = frozenset({401, 403, 404, 407, 408, 425, 429})
"""Refusals that end without any change of ours: keys and addresses are mended at the receiver, and load passes."""


@dataclass(frozen=True, slots=True)
class Response:
    """What is looked at of a response. `body` may be cut; `now` is wall-clock seconds, for a `Retry-After` that is a date."""

    status: int
    location: str
    retry_after: str
    body: bytes
    now: float


def failure(where: Address, response: Response) -> DeliveryFailed | None:
    """What a response means for the one delivery: None where it is handled. The text still holds what the receiver said.

    A redirect is not followed, since what is signed for one address is not for another; it is tried again, as somebody has
    moved the receiver and the entry is to follow. 410 says that nobody wants it any more. Other refusals of the 4xx kind are
    about this very request, which would be the same again.
    """
    status = response.status
    if 200 <= status < 300:
        return None
    told = f"{where} answered {status_line(status)}"
    if 300 <= status < 400:
        return DeliveryFailed(f"{told}{_leads_to(where, response.location)}")
    said = excerpt(response.body)
    told += f": {said}" if said else ""
    if status == _GONE or (400 <= status < 500 and status not in _MENDABLE):
        return DeliveryFailed(told, is_final=True)
    return DeliveryFailed(told, retry_after=_retry_after(response))


def _retry_after(response: Response) -> float | None:
    seconds = parse_retry_after(response.retry_after, response.now)
    return None if seconds is None else min(seconds, MAX_RETRY_AFTER)


def _leads_to(where: Address, location: str) -> str:
    if not location:
        return ", and redirects are not followed"
    target = join_address(where, location)
    named = "to an address that cannot be read" if target is None else f"to {target.origin}"
    return f" {named}, and redirects are not followed: edit the key `url`"
