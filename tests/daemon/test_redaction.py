"""What never reaches the log: secrets, header values, credentials in URLs."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvisor.daemon.redaction import TEXT_CHARACTERS, clean, clean_text, redact
from mcpvisor.supervisor.secret import Secret

CANARY = "C4n4ry.T0ken-value_1"


@pytest.mark.parametrize(
    "value",
    [
        Secret(CANARY),
        {"token": CANARY},
        {"Authorization": f"Bearer {CANARY}"},
        {"headers": {"X-API-Key": CANARY}},
        {"headers": [("cookie", f"a={CANARY}")]},
        [{"env": {"A": Secret(CANARY)}}],
        (Secret(CANARY), {Secret(CANARY)}),
        {"mcp_session_id": CANARY},
        f"Authorization: Bearer {CANARY}",
        f'"authorization": "Basic {CANARY}"',
        f"sent with bearer {CANARY} twice",
        f"set-cookie: sid={CANARY}; Path=/",
        f"https://user:{CANARY}@example.com/mcp",
        f"connect to https://{CANARY}@example.com failed",
        f"GET https://example.com/mcp?a=1&api_key={CANARY}&b=2",
        f"https://example.com/cb?access_token={CANARY}#x",
        ValueError(f"401 for postgres://me:{CANARY}@db/x"),
    ],
)
def test_a_credential_is_masked_wherever_it_stands(value):
    """Secrets, sensitive names and the credentials of texts and URLs are masked at any depth."""
    shown = repr(redact(None, "info", {"event": "x", "detail": value}))

    assert CANARY not in shown
    assert "***" in shown


@pytest.mark.parametrize(
    "text",
    [
        "docs: ready -> backoff: process exited (code 1)",
        "https://example.com/mcp?page=2",
        "mail me@example.com",
        "tools/call took 1.2 s",
        "no such file: /etc/mcpvisor/servers.d/a.toml",
    ],
)
def test_a_plain_text_stays_as_it_is(text):
    """What holds no credential is not touched."""
    assert text == clean_text(text)


@pytest.mark.parametrize("text", ["a." * (TEXT_CHARACTERS // 2 - 4) + "@://", "a://" * (TEXT_CHARACTERS // 4 - 1) + "@"])
def test_a_long_text_takes_no_longer_than_its_length(text):
    """Nothing that a server writes makes the cleaning slow."""
    began = time.process_time()
    clean_text(text)

    assert time.process_time() - began < 0.5


def test_plain_values_keep_their_kind():
    """Numbers, booleans and nothing stay what they are; other objects become their text."""
    assert {"a": 1, "b": True, "c": None, "d": [1.5], "e": "/x"} == clean(
        {"a": 1, "b": True, "c": None, "d": (1.5,), "e": "/x"}
    )


def test_what_is_huge_or_deep_is_cut():
    """No single record can fill the queue, and no nesting can exhaust the stack."""
    deep: list = []
    for _ in range(5000):
        deep = [deep]

    assert len(clean_text("x" * 10_000_000)) < TEXT_CHARACTERS + 100
    assert [[[[[["..."]]]]]] == clean(deep)
    assert 200 == len(clean(list(range(10_000))))


UNRESERVED = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$&'()*+,;=:%", min_size=8)


@given(password=UNRESERVED, prefix=st.text(max_size=20), suffix=st.sampled_from(["", "/mcp", ":80/x?y=1", " failed"]))
def test_no_userinfo_of_a_url_survives(password, prefix, suffix):
    """Whatever a URL's user part is made of, and whatever stands around it, it is not shown."""
    text = f"{prefix} https://QZ{password}QZ@example.com{suffix}"

    assert f"QZ{password}QZ" not in clean_text(text)


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_cleaning_never_fails(value):
    """Any plain value can be logged."""
    clean(value)
