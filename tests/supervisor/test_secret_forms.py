"""In which writings a secret is found again, and how those of all servers are masked at once."""

from __future__ import annotations

import base64
import html
import json
import time
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpvisor.supervisor.known_secrets import MAX_KNOWN, MAX_PASSING, KnownSecrets
from mcpvisor.supervisor.masking import MAX_LASTING, Mask
from mcpvisor.supervisor.secret_forms import forms

SECRET = "p/7+ä-canary_51e2"
WRITTEN_OTHERWISE = 'it\'s "a\\b" & <c> ~!*()=canary_51e2'
"""Of characters each of which somebody escapes and somebody else does not."""
KEY = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49\nzQ==\n-----END PRIVATE KEY-----\n"


@settings(deadline=None)
@given(secret=st.text(min_size=8), before=st.text(max_size=5), behind=st.text(max_size=5))
def test_base64(secret: str, before: str, behind: str):
    """Whatever stands beside it in base64, what is left of it is two characters at each end at the most."""
    data = f"{before}{secret}{behind}".encode("utf-8", "surrogatepass")
    try:
        secret.encode()
    except UnicodeEncodeError:
        return
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        written = encode(data).decode()
        masked = min((written.replace(form, "") for form in forms(secret)), key=len)
        beside = len((before + behind).encode("utf-8", "surrogatepass"))
        assert len(masked) <= beside * 4 / 3 + 8


def by_java(text: str) -> str:
    """As forms are written by Java."""
    return quote_plus(text, safe="*").replace("~", "%7E")


@pytest.mark.parametrize("secret", [SECRET, WRITTEN_OTHERWISE])
@pytest.mark.parametrize(
    "write",
    [
        *(str, json.dumps, repr, html.escape, quote, quote_plus, by_java, lambda one: quote(one, safe="").lower()),
        lambda one: quote(one, safe="!'()*"),
        lambda one: quote(one, safe=";,/?:@&=+$-_.!~*'()#"),
        lambda one: quote(quote(one), safe=""),
        lambda one: f"/login?next={quote(f'/x?key={quote_plus(one)}')}",
        lambda one: json.dumps(json.dumps({"a": one})),
        lambda one: html.escape(json.dumps(one)),
        lambda one: html.escape(one).replace("&#x27;", "&#39;"),
        lambda one: f"Basic {base64.b64encode(f'me:{quote_plus(one)}'.encode()).decode()}",
    ],
)
def test_writings(secret: str, write: Callable[[str], str]):
    """In JSON, forms, addresses and pages, also within others: each is the same secret, for a server's mask and for all."""
    known = KnownSecrets()
    known.learn([secret])
    told = f"x {write(secret)} y"

    for masked in (Mask([secret]).text(told), known.text(told)):
        assert "***" in masked
        assert not any(piece in masked.lower() for piece in ("canary", "51e2", *_pieces(base64.b64encode(b"canary"))))


def _pieces(coded: bytes) -> list[str]:
    return [coded.decode().lower()[:-2]]


def test_each_line_of_a_key():
    """A secret of several lines comes back line by line on stderr; what begins every key is no secret."""
    mask = Mask([KEY])

    assert "-----BEGIN PRIVATE KEY----- of x" == mask.text("-----BEGIN PRIVATE KEY----- of x")
    assert "key: ***" == mask.text("key: MIGHAgEAMBMGByqGSM49")
    assert b"a *** b" == mask.raw(f"a {KEY} b".encode())


def test_what_rotates_for_ever_is_bounded():
    """Old values are masked for long and not for ever; what is in force always is."""
    mask = Mask(["in-force-00"])
    for number in range(MAX_LASTING * 2):
        mask.learn(["in-force-00", f"rotated-{number:04}"])

    assert "***" == mask.text("in-force-00")
    assert "***" == mask.text(f"rotated-{MAX_LASTING + 2:04}")
    assert "rotated-0001" == mask.text("rotated-0001")


def test_known_secrets():
    """Those of all servers are masked from eight characters on, the longest first, also one that was cut with the text."""
    known = KnownSecrets()
    assert "any text" == known.text("any text")
    known.learn(["short", "long-enough", "long-enough-and-more"])

    assert "short" == known.text("short")
    assert "a *** b ***c" == known.text("a long-enough b long-enough-and-morec")
    assert "cut: ***" == known.text("cut: long-enough-and-m")
    assert "cut ***… here" == known.text("cut long-enou… here")
    assert {"k": ["***", 1, None, {"x": "a ***"}]} == known.value({"k": ["long-enough", 1, None, {"x": "a long-enough"}]})


@settings(deadline=None)
@given(before=st.text("ab", max_size=12), behind=st.text("ab", max_size=12), value=st.text("ab", min_size=8, max_size=20))
def test_known_secrets_are_found_wherever_they_stand(before: str, behind: str, value: str):
    """At whatever place of a text a value begins, and however much around it is like it."""
    known = KnownSecrets()
    known.learn([value])

    assert value not in known.text(f"{before}{value}{behind}")


def test_known_secrets_are_bounded():
    """The newest values are remembered, and whatever is learnt again counts as new."""
    known = KnownSecrets()
    known.learn(["in-force-00"])
    for start in range(0, MAX_KNOWN + 500, 500):
        known.learn(["in-force-00", *(f"rotated-{number:05}" for number in range(start, start + 500))])

    assert "***" == known.text("in-force-00")
    assert "***" == known.text(f"rotated-{MAX_KNOWN:05}")
    assert "rotated-00001" == known.text("rotated-00001")


def test_what_is_our_own_is_known_for_good():
    """However many secrets of entries come and go, one of the daemon itself stays masked."""
    known = KnownSecrets()
    known.learn_own("our-own-token")
    known.learn(f"secret-{number:06}" for number in range(MAX_KNOWN * 2))
    known.learn([])

    assert "*** ***" == known.text(f"our-own-token secret-{MAX_KNOWN:06}")


def test_known_secrets_take_no_time_by_their_number():
    """A line of stderr takes as long with thousands of secrets as with one."""
    known = KnownSecrets()
    known.learn([f"{number:08}-of-many" for number in range(2000)])
    line = "GET /tools/list took 12 ms; " * 18
    began = time.thread_time()
    for _ in range(200):
        known.text(line)

    assert time.thread_time() - began < 0.2


def test_what_was_fetched_is_masked_whoever_tells_it():
    """A token that one server got is masked in what another one says, until many newer ones have come."""
    known = KnownSecrets()
    one, other = Mask([], known), Mask([], known)
    one.learn_fetched(["fetched-token-0"])
    known.learn(["of-an-entry"])

    assert "a *** b ***" == other.text("a fetched-token-0 b of-an-entry")
    for number in range(MAX_PASSING * 2 + 1):
        one.learn_fetched([f"newer-token-{number:05}"])
    assert "fetched-token-0 *** ***" == other.text(f"fetched-token-0 newer-token-{MAX_PASSING * 2:05} of-an-entry")


@pytest.mark.parametrize("told", ["sk-proj-", "sk-proj-0001-", f"sk-proj-0001-{'x' * 149}"])
def test_whoever_repeats_the_begin_of_a_secret_holds_nobody(told: str):
    """What a server says that knows how many secrets begin is looked through in a time that grows with its length only."""
    known = KnownSecrets()
    known.learn([f"sk-proj-{number:04}-{'x' * 150}/+=" for number in range(100)])
    text = told * (256 * 1024 // len(told))
    began = time.thread_time()
    known.text(text)

    assert time.thread_time() - began < 2


@settings(deadline=None)
@given(
    values=st.lists(st.text("ab", min_size=8, max_size=20) | st.text("ab", min_size=64, max_size=80), min_size=1, max_size=5),
    text=st.text("ab…", max_size=60),
    at=st.integers(0, 60),
    kept=st.integers(8, 80),
)
def test_those_that_begin_alike_are_told_apart(values: list[str], text: str, at: int, kept: int):
    """Of several that are alike the longest is masked that stands there, or as much of any as was left of it."""
    known = KnownSecrets()
    known.learn(values)
    cut = f"{text[:at]}{values[0][:kept]}…"

    spans = known.spans(f"{text[:at]}{values[0]}{text[at:]}")
    assert any(begin <= len(text[:at]) and end >= len(text[:at]) + len(values[0]) for begin, end in spans)
    assert any(begin <= len(text[:at]) and end >= len(cut) - 1 for begin, end in known.spans(cut))
