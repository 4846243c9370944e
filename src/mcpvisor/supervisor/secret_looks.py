"""Owns by which looks a secret is told in a text that nobody has declared to hold one, and the text without it.

The table of all of them: keys of services by how they begin, long random words, what stands behind the scheme of a header,
behind the name of a secret and before the host of an address. What is done with one that was found is up to who looks for it:
what is only shown may have one masked too many, and what is refused or masked for good must be a secret for sure.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, unquote_plus

from mcpvisor.supervisor.secret import MASK
from mcpvisor.supervisor.secret_names import HEADERS, PARAMETERS, names_secret

_KEYS: Final = (
    (r"(?:sk|pk|rk)[-_](?:[A-Za-z0-9]+[-_])*", r"[A-Za-z0-9_]", 16, ""),
    (r"gh[a-z]_", r"[A-Za-z0-9]", 20, ""),
    (r"github_pat_", r"[A-Za-z0-9_]", 20, ""),
    (r"glpat-", r"[A-Za-z0-9_-]", 16, ""),
    (r"xox[a-z]-", r"[A-Za-z0-9-]", 10, ""),
    (r"npm_", r"[A-Za-z0-9]", 20, ""),
    (r"hf_", r"[A-Za-z0-9]", 20, ""),
    (r"AKIA", r"[0-9A-Z]", 12, ""),
    (r"AIza", r"[A-Za-z0-9_-]", 30, ""),
    (r"eyJ", r"[A-Za-z0-9_-]", 8, r"\.[A-Za-z0-9_.-]+"),
)
"""Keys of services that can be told by how they begin: the begin, the characters behind it, how many at least, and the end."""

_SCHEMES: Final = ("Bearer", "Basic")
"""Of headers that hold credentials: what follows one is secret."""

_CREDENTIAL: Final = r"[\w.~+/=-]{4,}"
"""What follows a scheme, unless it is an ordinary word."""


def key_forms(least: int | None = None) -> str:
    """The pattern of them for whoever looks for one; with `least` the shorter ones too, of so many characters, ended or not."""
    forms = [
        f"{begin}{letter}{{{most},}}{end}" if least is None else f"{begin}{letter}{{{min(least, most)},}}(?:{end})?"
        for begin, letter, most, end in _KEYS
    ]
    return "|".join(forms)


def scheme_forms(letter: str) -> str:
    """The pattern of whatever stands behind a scheme as it is written in headers, of such letters."""
    return "|".join(f"(?<={scheme} ){letter}+" for scheme in _SCHEMES)


PERHAPS_RANDOM: Final = r"(?=[A-Za-z0-9+=]*[0-9])(?=[A-Za-z0-9+=]*[A-Za-z])[A-Za-z0-9+=]{20,}"
"""The pattern of a long word that may be random."""

_RANDOM: Final = re.compile(r"[0-9a-f]{32,}|(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])(?=\D*\d)[A-Za-z0-9_-]{20,}", re.ASCII)
"""A long word that nobody would think of."""
_KNOWN: Final = re.compile(key_forms())
_SHAPE: Final = re.compile(
    rf"(?<![A-Za-z0-9])(?:{key_forms()})"
    r"|\b[Bb]earer\s+[A-Za-z0-9._~+/-]{12,}=*"
    r"|://[^/\s:@]+:[^/\s@]+@",  # a password in an address
    re.ASCII,
)

_NAMED: Final = re.compile(
    rf"([A-Za-z][\w-]{{0,63}})(['\"]?\s*[=:]\s*['\"]?)((?:{'|'.join(_SCHEMES)})\s+)?([^\s,;'\"]+)", re.IGNORECASE
)
_OF_SCHEME: Final = re.compile(rf"\b({'|'.join(_SCHEMES)})(\s+){_CREDENTIAL}", re.IGNORECASE)
_HEADER: Final = re.compile(
    rf"\b({'|'.join(name.replace('-', '[-_]') for name in HEADERS)})(['\"]?\s*[:=,]\s*)(?!\s)[^\r\n]+", re.IGNORECASE
)
_PARAMETER: Final = re.compile(rf"([?&](?:{PARAMETERS})=)[^\s&#\"']+", re.IGNORECASE)
_VALUE: Final = re.compile(rf"[?&](?:{PARAMETERS})=([^\s&#]+)", re.IGNORECASE)
_USERINFO: Final = re.compile(r"(?<=[a-z0-9+.-]://)[^\s/?#]*@", re.IGNORECASE)
"""Of an address all that may be its user part, whatever else is one."""
_OF_USER: Final = re.compile(r"(?<=[A-Za-z0-9+.-])://([^\s/?#@]*@)")
"""Of both the last letter of the scheme is enough: with all of it, a long word would be read again from each of its letters."""


def looks_secret(word: str) -> bool:
    """Whether a word without any name looks like a key: by its begin, or since nobody would write such a word."""
    return len(word) >= 16 and (_KNOWN.fullmatch(word) or _RANDOM.fullmatch(word)) is not None


def holds_secret(text: str) -> bool:
    """Whether anything in a text has the shape of a key, of what is sent as `Bearer`, or of a password in an address."""
    return _SHAPE.search(text) is not None


def without_named(text: str) -> str:
    """The text without what stands in it behind the name of a secret, as in `token=...`, or behind the scheme of a header."""

    def masked(found: re.Match[str]) -> str:
        name, between, scheme, _ = found.groups()
        return f"{name}{between}{scheme or ''}{MASK}" if names_secret(name) else found[0]

    return _OF_SCHEME.sub(rf"\1\2{MASK}", _NAMED.sub(masked, text))


def without_credentials(text: str) -> str:
    """The text without values of headers, what follows a scheme, and the user part and secret parameters of addresses."""
    if "@" in text and "://" in text:
        text = _USERINFO.sub(f"{MASK}@", text)
    if "=" in text:
        text = _PARAMETER.sub(rf"\1{MASK}", text)
    if ":" in text or "=" in text or "," in text:
        text = _HEADER.sub(rf"\1\2{MASK}", text)
    return _OF_SCHEME.sub(rf"\1 {MASK}", text)


def parameters_in(address: str) -> list[str]:
    """The values of those parameters of an address whose names say that they give access; as written and decoded."""
    values = _VALUE.findall(address)
    return list(dict.fromkeys([*values, *map(unquote_plus, values)]))


def passwords_in(text: str) -> list[str]:
    """The passwords, or tokens in place of one, before the hosts of the addresses in a text; as written and decoded."""
    found: list[str] = []
    for match in _OF_USER.finditer(text):
        user, colon, password = match[1][:-1].partition(":")
        secret = password if colon else user
        found += [secret, unquote(secret)]
    return [one for one in dict.fromkeys(found) if one]
