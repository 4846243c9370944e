"""Text of servers, made fit to be shown."""

from __future__ import annotations

import json
import sys
import time
import unicodedata

import pytest

from mcpvisor.supervisor.cleaning import clean_text, escape_json, marked


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        (b"plain", "plain"),
        ("größe 🦑".encode(), "größe 🦑"),
        (b"caf\xe9", "caf\ufffd"),
        (b"\x1b[31mred\x1b[0m \x1b[2J\x1b[H", "red "),
        (b"\x1b]0;title\x07text \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "text link"),
        (b"\x1bP1;2|dcs\x1b\\after \x1b(B", "after "),
        ("\x9b31mc1\x9d0;t\x9c".encode(), "c1"),
        (b"a\tb\r\nc\x00\x07\x7f", "a b c"),
        ("abc\u202edcb\u2066x\u200b\ufeff", "abcdcbx"),
        ("tag\U000e0041\U000e007f end\u2028next", "tag end next"),
        ("lone \ud800 surrogate", "lone \ufffd surrogate"),
        (b"\x1b", ""),
        ("pass\xadword \u2061a\u200db\u180e", "password ab"),
        (b"", ""),
    ],
)
def test_nothing_that_steers_is_left(raw, clean):
    """Escapes, controls and direction marks go; spaces of all kinds become one; what is no text becomes U+FFFD."""
    assert clean == clean_text(raw, 100)


def test_no_format_character_is_left():
    """Whatever Unicode calls a control or a format character is neither shown nor passed on in JSON; all else is."""
    every = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) in ("Cc", "Cf")]
    text = "".join(every)

    assert "" == clean_text(text, len(text) + 1).replace("\ufffd", "").strip()
    assert [] == [one for one in every if one in escape_json(json.dumps(text, ensure_ascii=False))]
    assert {"\ufffd", "\t"} == set(marked(text))
    assert "größe 🦑 日本" == marked("größe 🦑 日本")


def test_text_is_cut_with_a_sign():
    """A text over the limit is cut to it, and ends in an ellipsis."""
    assert ["abc", "ab…", "…"] == [clean_text("abc", 3), clean_text("abcd", 3), clean_text("abcd", 1)]


@pytest.mark.alone
@pytest.mark.parametrize("piece", [b"x", b"\x1b]", b"\x1b[", b"\x1b[1;1;1", b"\xff", b" \n"])
def test_work_is_bounded_whatever_the_length(piece):
    """Sixteen megabytes of anything are cleaned in less than 50 ms."""
    raw = piece * (16_000_000 // len(piece))
    began = time.perf_counter()
    text = clean_text(raw, 500)
    seconds = time.perf_counter() - began

    assert len(text) <= 500
    assert seconds < 0.05


@pytest.mark.parametrize(
    "character", ["\x7f", "\x85", "\x9b", "\u2028", "\u200b", "\u202e", "\u2066", "\ufeff", "\U000e0041", "\xad"]
)
def test_json_says_the_same_without_what_steers(character):
    """Controls, direction marks and line ends of all kinds become escapes, other text stays readable, the value is the same."""
    value = {f"größe{character}": [f"🦑{character}\n"]}
    text = escape_json(json.dumps(value, ensure_ascii=False))

    assert value == json.loads(text)
    assert character not in text
    assert "größe" in text
    assert "🦑" in text
