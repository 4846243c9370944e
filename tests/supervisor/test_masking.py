"""How secrets are taken out of what is told of a server."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mcpvisor.supervisor.cleaning import clean_text
from mcpvisor.supervisor.known_secrets import KnownSecrets
from mcpvisor.supervisor.masking import MAX_CUTS, MAX_DEPTH, MAX_PASSING, Mask

MASK = Mask(["s3cr3t-one", "s3cr3t-one-and-more", "tiny"])


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("nothing of it", "nothing of it"),
        ("a s3cr3t-one b s3cr3t-one", "a *** b ***"),
        ("s3cr3t-one-and-more", "***"),
        ("tiny", "tiny"),
        ("cut at the end: s3cr3t-o", "cut at the end: ***"),
        ("cut s3cr3t-on… here, and more", "cut ***… here, and more"),
        ("s3cr3t-o in the middle", "s3cr3t-o in the middle"),
        ("too little of it: s3cr3", "too little of it: s3cr3"),
    ],
)
def test_texts(text: str, masked: str):
    """Secrets become `***`, the longest first; a begin of one counts where the text was cut; short ones are ordinary words."""
    assert masked == MASK.text(text)


def shown(mask: Mask, raw: bytes) -> str:
    """What is shown of bytes that somebody has written."""
    return mask.text(clean_text(mask.raw(raw), 1000))


@pytest.mark.parametrize(
    ("secret", "raw", "told"),
    [
        ("s3cr3t-one", b"\xff s3cr3t-one \xff", "\ufffd *** \ufffd"),
        ("s3cr3t-one", b"a s3cr\x1b[31m3t-one\x1b[0m b", "a *** b"),
        ("s3cr3t\x1b[31m-one", b"a s3cr3t\x1b[31m-one b", "a *** b"),
        ("two  \t spaces", b"a two  \t spaces b", "a *** b"),
    ],
)
def test_bytes(secret: str, raw: bytes, told: str):
    """A secret is masked whether escapes are in it, or in what was written, or bytes that are no text stand beside it."""
    assert told == shown(Mask([secret]), raw)


def test_a_part_never_hides_the_whole():
    """Of a secret in which another one stands, or that overlaps it, nothing is left, whoever they belong to."""
    known = KnownSecrets()
    known.learn(["another-s3cr3t-one-of-all", "s3cr3t-one-and-half"])
    mask = Mask(["s3cr3t-one", "begin-another-s3c"], known)

    assert "a *** b" == mask.text("a another-s3cr3t-one-of-all b")
    assert "a *** b" == mask.text("a begin-another-s3cr3t-one-of-all b")
    assert {"a": "***"} == mask.told({"a": "another-s3cr3t-one-of-all"})
    assert "*** b" == shown(mask, b"another-s3cr3t-one\x1b[0m-of-all b")
    assert "******" == mask.text("s3cr3t-ones3cr3t-one")


def test_many_of_one_kind_leave_the_others():
    """However many ids of sessions there were, the token in force is masked."""
    mask = Mask()
    mask.learn_passing(["the-token"])
    mask.learn_passing([f"session-{number}" for number in range(MAX_PASSING + 1)], "session")

    assert "session-0 *** ***" == mask.text("session-0 session-1 the-token")


def test_values():
    """A JSON value is masked in its texts and keys, however the secret is escaped, and is the same one where there is none."""
    mask = Mask(['quo"ted\n'])
    clean = {"a": [1, "b"]}

    assert clean is mask.value(clean)
    assert {"a": ["x *** y"], "***": 1.5} == mask.value({"a": ['x quo"ted\n y'], 'quo"ted\n': 1.5})
    assert mask.value(None) is None


def test_learning():
    """A server that was given another secret may still tell the one before."""
    mask = Mask(["the-first"])
    mask.learn(["the-second"])

    assert "*** ***" == mask.text("the-first the-second")


@pytest.mark.parametrize("piece", ["…", "s3cr3t", "s3cr3t-o…", "s3cr3t-one", "x"])
def test_the_cost_grows_with_the_length_only(piece: str):
    """A server may fill a text with cuts and with begins of secrets; four million characters take less than a second."""
    text = piece * (4_000_000 // len(piece))
    began = time.thread_time()
    MASK.text(text)

    assert time.thread_time() - began < 1


def test_the_cuts_near_the_end_are_looked_at():
    """Reasons that were cut are put together; the begin of a secret before each of the last cuts is masked."""
    assert "x ***… " * MAX_CUTS + "***" == MASK.text("x s3cr3t-o… " * MAX_CUTS + "s3cr3t-o")


@pytest.mark.parametrize("levels", [MAX_DEPTH, 250, 900, 5000, 100_000])
def test_no_value_is_too_deep_for_the_secrets_of_others(levels: int):
    """The secrets of all servers are masked in whatever can be masked at all."""
    known = KnownSecrets()
    known.learn(["s3cr3t-of-another"])
    value: Any = "s3cr3t-of-another"
    for _ in range(levels):
        value = [value]
    masked: Any = Mask([], known).told({"deep": value, "s3cr3t-of-another": 1})

    inner = masked["deep"]
    while isinstance(inner, list) and inner:
        inner = inner[0]
    assert (1, True) == (masked["***"], inner in ("***", []))


@pytest.mark.parametrize("levels", [MAX_DEPTH, 250, 5000, 100_000])
def test_no_value_is_too_deep(levels: int):
    """A value that cannot be written or read for its depth keeps its upper levels; masking never raises."""
    value: Any = ["s3cr3t-one"]
    for _ in range(levels - 1):
        value = [value]
    masked: Any = MASK.value({"deep": value, "told": "s3cr3t-one"})

    depth, inner = 0, masked["deep"]
    while isinstance(inner, list):
        depth, inner = depth + 1, inner[0]
    assert ("***", "***") == (masked["told"], inner)
    assert depth == (levels if levels <= MAX_DEPTH else MAX_DEPTH - 1)


def test_what_cannot_be_written_is_left_out():
    """Of a value that is no JSON nothing is kept; an object stays one."""
    assert ({}, [], "***") == (MASK.value({"a": "\ud800"}), MASK.value(["\ud800"]), MASK.value("\ud800"))


@pytest.mark.parametrize(
    ("secret", "value", "masked"),
    [
        ("100000", {"maximum": 100000, "text": "100000"}, {"maximum": 100000, "text": "***"}),
        ("npm_abc1", [{"description": "a\npm_abc1"}], [{"description": "a\npm_abc1"}]),
        ('":["a","', {"x": ["a", "b"], "y": '":["a","'}, {"x": ["a", "b"], "y": "***"}),
        ("string", [{"type": "string"}], [{"type": "***"}]),
    ],
)
def test_a_secret_that_reads_like_json_changes_texts_only(secret: str, value: Any, masked: Any):
    """Numbers, escapes and the outline of a value stay what they are, whatever a secret looks like."""
    assert masked == Mask([secret]).value(value)


@pytest.mark.parametrize(
    "told",
    [
        "ab/c+d=\u00e9!",
        "ab\\/c+d=\u00e9!",
        "ab/c+d=\\u00e9!",
        "ab%2Fc%2Bd%3D%C3%A9%21",
        "ab%2fc%2bd%3d%c3%a9%21",
        "ab/c%2Bd%3D%C3%A9%21",
    ],
)
def test_a_secret_in_another_writing_is_masked(told: str):
    """A secret in a JSON text, a form or an address within a text is one, too; in texts, bytes and values."""
    mask = Mask(["ab/c+d=\u00e9!"])

    assert "x *** y" == mask.text(f"x {told} y")
    assert "x *** y" == shown(mask, f"x {told} y".encode())
    assert {"a": "x *** y"} == mask.value({"a": f"x {told} y"})
