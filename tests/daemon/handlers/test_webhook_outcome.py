"""What responses to webhooks mean, row by row."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from mcpvisor.daemon.handlers.webhook_outcome import MAX_RETRY_AFTER, Response, failure
from mcpvisor.supervisor.transports.address import parse_address

NOW = 1_700_000_000.0
REMEDY = ", and redirects are not followed: edit the key `url`"
WHERE = parse_address("https://hooks.example.com/in?key=1")


def judged(status, *, location="", retry_after="", body=b""):
    failed = failure(WHERE, Response(status, location, retry_after, body, NOW))
    return None if failed is None else (failed.is_final, failed.retry_after, str(failed))


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_handled(status):
    """Every status of the 2xx kind means that the event is handled."""
    assert None is judged(status)


@pytest.mark.parametrize("status", [400, 402, 405, 406, 409, 410, 411, 413, 414, 415, 422, 451])
def test_final(status):
    """A refusal of this very request is final, and so is 410, whatever Retry-After says."""
    assert (True, None) == judged(status, retry_after="5")[:2]


@pytest.mark.parametrize("status", [401, 403, 404, 407, 408, 425, 429, 500, 501, 502, 503, 504, 599])
def test_tried_again(status):
    """What load, a fault or a wrong key at the receiver may be is tried again, when the receiver says."""
    assert [(False, None), (False, 5.0)] == [judged(status)[:2], judged(status, retry_after="5")[:2]]


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        ("999999", MAX_RETRY_AFTER),
        (formatdate(NOW + 90, usegmt=True), 90.0),
        (formatdate(NOW - 90, usegmt=True), 0.0),
        (formatdate(NOW + 1e6, usegmt=True), MAX_RETRY_AFTER),
        ("soon", None),
        ("-5", None),
        ("", None),
    ],
)
def test_retry_after(written, seconds):
    """Retry-After is read as seconds or as a date, is an hour at most, and is nothing where it is garbage."""
    assert (False, seconds) == judged(503, retry_after=written)[:2]


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("https://other.example:8443/path?token=x", f" to https://other.example:8443{REMEDY}"),
        ("/elsewhere", f" to https://hooks.example.com{REMEDY}"),
        ("ftp://x/", f" to an address that cannot be read{REMEDY}"),
        ("", ", and redirects are not followed"),
    ],
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects(status, location, told):
    """A redirect is tried again, and told with the origin that it leads to and nothing more of it."""
    is_final, retry_after, text = judged(status, location=location)

    assert (False, None) == (is_final, retry_after)
    assert text.endswith(told)
    assert text.startswith(f"https://hooks.example.com/in answered {status} ")


def test_what_it_says_is_told_in_one_clean_line():
    """The begin of the body is in the text, without what could steer a terminal, and without the query of the address."""
    told = judged(500, body=b"\x1b[31mno\nroom " + b"x" * 5000)[2]

    assert told.startswith("https://hooks.example.com/in answered 500 Internal Server Error: no room xxx")
    assert (True, True) == (told.isprintable(), len(told) < 300)
