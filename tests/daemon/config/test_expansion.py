"""Variables in texts: the stated forms, and no others."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvisor.daemon.config.expansion import Expanded, Sources, expand

ENVIRON = {"A": "alpha", "EMPTY": "", "TRICK": "${A}"}


def _read(name: str) -> str:
    if name == "gone":
        raise LookupError("gone is not there")
    return f"<{name}>"


SOURCES = Sources(ENVIRON, _read, _read)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("${A}", "alpha"),
        ("x${A}y${A}", "xalphayalpha"),
        ("${env:A}", "alpha"),
        ("${NONE:-other}", "other"),
        ("${NONE:-}", ""),
        ("${EMPTY}", ""),
        ("${EMPTY:-other}", "other"),
        ("${A:-other}", "alpha"),
        ("${NONE:-http://h:1/$x}", "http://h:1/$x"),
        ("${env:NONE | value:other}", "other"),
        ("${env:A|value:other}", "alpha"),
        ("${env:NONE | value:}", ""),
        ("${TRICK}", "${A}"),
        ("${file:/run/key}", "</run/key>"),
        ("${cred:my.key-1}", "<my.key-1>"),
    ],
)
def test_forms(written: str, expected: str) -> None:
    """Each form is replaced by its value, once; what was put in is not looked at again."""
    assert Expanded(expected, touched=True) == expand(written, SOURCES)


@pytest.mark.parametrize(
    ("written", "expected"),
    [("$A", "$A"), ("$$A", "$$A"), ("$${A}", "${A}"), ("{A}", "{A}"), ("100$", "100$"), ("$(A)", "$(A)"), ("%A%", "%A%")],
)
def test_text(written: str, expected: str) -> None:
    """What only looks like a variable is text, and a doubled dollar makes text of a form."""
    assert Expanded(expected, touched=False) == expand(written, SOURCES)


@pytest.mark.parametrize("written", ["${NONE}", "${env:NONE}", "${file:gone}", "${cred:gone}"])
def test_missing_values(written: str) -> None:
    """A value that is not there is an error that names it, and never an empty text."""
    with pytest.raises(LookupError, match=r"NONE is not set|gone is not there"):
        expand(written, SOURCES)


@pytest.mark.parametrize(
    "written",
    [
        "${",
        "${A",
        "${}",
        "${a b}",
        "${1}",
        "${env:}",
        "${env:a-b}",
        "${file:}",
        "${cred:}",
        "${cred:../x}",
        "${cred:..}",
        "${input:x}",
        "${A:-${B}}",
        "${A:+x}",
        "${env:A | other:x}",
        "${env: | value:x}",
        "${secret:x}",
    ],
)
def test_unknown_forms(written: str) -> None:
    """A form that does not exist is an error, not a text that reaches the server."""
    with pytest.raises(ValueError, match=r"\$\{|variable within"):
        expand(written, SOURCES)


def test_what_is_secret_by_itself() -> None:
    """What came out of a variable, a file or a credential; not a default, nor what every server inherits anyway."""
    sources = Sources({**ENVIRON, "HOME": "/home/me", "LC_ALL": "C"}, _read, _read)

    expanded = expand("${HOME}/${LC_ALL}/${A}/${NONE:-x}/${env:A | value:y}/${env:HOME}/${file:f}/${cred:c}${EMPTY}", sources)

    assert "/home/me/C/alpha/x/alpha//home/me/<f>/<c>" == expanded.text
    assert ("alpha", "alpha", "<f>", "<c>") == expanded.values


@given(st.text().filter(lambda text: "${" not in text))
def test_other_texts_stay(text: str) -> None:
    """A text without a form is the same afterwards, and no secret."""
    assert Expanded(text, touched=False) == expand(text, SOURCES)


@given(st.text())
def test_values_come_out_as_they_are(value: str) -> None:
    """Whatever a variable holds is put in letter by letter."""
    result = expand("<${V}>", Sources({"V": value}, _read, _read))

    assert Expanded(f"<{value}>", touched=True) == result


@given(st.text(alphabet="${}:-AB/x\n"))
def test_nothing_else_is_raised(text: str) -> None:
    """Any text gives a text, a ValueError or a LookupError."""
    with contextlib.suppress(ValueError, LookupError):
        assert isinstance(expand(text, SOURCES).text, str)
