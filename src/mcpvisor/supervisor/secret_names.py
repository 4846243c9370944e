"""Owns by which names, and by which looks, a text is taken for a secret that nobody has declared to be one."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

_NAME: Final = re.compile(
    r"(?i)(?:^|[^a-z])(?:\w*(?:token|secret|passw(?:or)?d|passphrase|credential|apikey)s?|pwd|pat|auth|authorization|cookie|bearer|dsn"
    r"|(?:[a-z0-9]+[-_])*(?:api|access|private|signing|encryption|master|service|secret|auth)[-_]?key)$"
)
"""The name of a variable, an option or a header that says that what it names is a secret."""

_KNOWN: Final = re.compile(
    r"(?:sk|pk|rk)[-_](?:[\w]+[-_])*\w{16,}|gh[a-z]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[a-z]-[\w-]{10,}|npm_\w{20,}"
    r"|hf_\w{20,}|AKIA[0-9A-Z]{12,}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.[\w.-]+"
)
"""Keys of services that can be told by how they begin."""

_RANDOM: Final = re.compile(r"[0-9a-f]{32,}|(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])(?=\D*\d)[A-Za-z0-9_-]{20,}", re.ASCII)
_USERINFO: Final = re.compile(r"(?<=[A-Za-z0-9+.-])://([^\s/?#@]*@)")
"""Of a scheme the last letter is enough: with all of it, a long word would be read again from each of its letters."""


def names_secret(name: str) -> bool:
    """Whether a name says that its value is a secret: `GITHUB_TOKEN`, `--api-key`, `Authorization`."""
    return _NAME.search(name.strip()) is not None


def looks_secret(word: str) -> bool:
    """Whether a word without any name looks like a key: by its begin, or since nobody would write such a word."""
    return len(word) >= 16 and (_KNOWN.fullmatch(word) or _RANDOM.fullmatch(word)) is not None


def passwords_in(text: str) -> list[str]:
    """The passwords, or tokens in place of one, before the hosts of the addresses in a text; as written and decoded."""
    found: list[str] = []
    for match in _USERINFO.finditer(text):
        user, colon, password = match[1][:-1].partition(":")
        secret = password if colon else user
        found += [secret, unquote(secret)]
    return [one for one in dict.fromkeys(found) if one]
