"""Owns by which names, and by which looks, a text is taken for a secret that nobody has declared to be one."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from mcpvisor.supervisor.secret import MASK

_WORDS: Final = "token|secret|passw(?:or)?d|passphrase|credential|apikey"
"""What the name of a secret has in it, wherever that is written."""

_NAME: Final = re.compile(
    rf"(?i)(?:^|[^a-z])(?:\w*(?:{_WORDS})s?|pwd|pat|auth|authorization|cookie|bearer|dsn"
    r"|(?:[a-z0-9]+[-_])*(?:api|access|private|signing|encryption|master|service|secret|auth)[-_]?key)$"
)
"""The name of a variable, an option or a header that says that what it names is a secret."""

_PERHAPS: Final = re.compile(
    rf"{_WORDS}|passw|api_?key|authorization|bearer|connection_?string"
    r"|(?<![a-z])(?:key|pat|pwd|pass|pw|auth|cookie|dsn)s?(?![a-z])"
)
_HARDLY: Final = re.compile(r".*(url|uri|file|path|dir|folder|id|name|endpoint|host|port|type|ttl|expiry|seconds|tokens)")
"""Names that hold such a word, by plain and small letters, and by their ends say that they name something else."""

_OPTION: Final = re.compile(r"--?[A-Za-z0-9][\w-]*", re.ASCII)
_KEY: Final = re.compile(r"--?(?:[a-z0-9]+[-_])*(?:key|pat)", re.IGNORECASE | re.ASCII)
_OF_SOMETHING_ELSE: Final = re.compile(r"-.*(?:file|path|dir|env|name|type|url|id|command)", re.IGNORECASE | re.ASCII)

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


def key_forms(least: int | None = None) -> str:
    """The pattern of them for whoever looks for one; with `least` the shorter ones too, of so many characters, ended or not."""
    forms = [
        f"{begin}{letter}{{{most},}}{end}" if least is None else f"{begin}{letter}{{{min(least, most)},}}(?:{end})?"
        for begin, letter, most, end in _KEYS
    ]
    return "|".join(forms)


_KNOWN: Final = re.compile(key_forms())
_RANDOM: Final = re.compile(r"[0-9a-f]{32,}|(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])(?=\D*\d)[A-Za-z0-9_-]{20,}", re.ASCII)
_USERINFO: Final = re.compile(r"(?<=[A-Za-z0-9+.-])://([^\s/?#@]*@)")
"""Of a scheme the last letter is enough: with all of it, a long word would be read again from each of its letters."""


def names_secret(name: str) -> bool:
    """Whether a name says that its value is a secret: `GITHUB_TOKEN`, `--api-key`, `Authorization`."""
    return _NAME.search(name.strip()) is not None


def may_name_secret(name: str) -> bool:
    """Whether a name is one as secrets have, where it is better to mask one too many: `DATABASE_PASSWD_1`, `apiKeyValue`."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_")
    return _PERHAPS.search(plain) is not None and _HARDLY.fullmatch(plain) is None


def option_names_secret(word: str) -> bool:
    """Whether a word is an option that a secret follows: `--api-key`, `-token`; not `--token-file`."""
    is_named = names_secret(word) or _KEY.fullmatch(word) is not None
    return is_named and _OPTION.fullmatch(word) is not None and _OF_SOMETHING_ELSE.fullmatch(word) is None


def looks_secret(word: str) -> bool:
    """Whether a word without any name looks like a key: by its begin, or since nobody would write such a word."""
    return len(word) >= 16 and (_KNOWN.fullmatch(word) or _RANDOM.fullmatch(word)) is not None


_ASSIGNED: Final = re.compile(
    r"([A-Za-z][\w-]{0,63})(['\"]?\s*[=:]\s*['\"]?)((?:bearer|basic)\s+)?([^\s,;'\"]+)", re.IGNORECASE
)
_SCHEME: Final = re.compile(r"\b(bearer|basic)(\s+)[\w.~+/=-]{4,}", re.IGNORECASE)


def without_named(text: str) -> str:
    """The text without what stands in it behind the name of a secret, as in `token=...`, or behind the scheme of a header."""

    def masked(found: re.Match[str]) -> str:
        name, between, scheme, _ = found.groups()
        return f"{name}{between}{scheme or ''}{MASK}" if names_secret(name) else found[0]

    return _SCHEME.sub(rf"\1\2{MASK}", _ASSIGNED.sub(masked, text))


def passwords_in(text: str) -> list[str]:
    """The passwords, or tokens in place of one, before the hosts of the addresses in a text; as written and decoded."""
    found: list[str] = []
    for match in _USERINFO.finditer(text):
        user, colon, password = match[1][:-1].partition(":")
        secret = password if colon else user
        found += [secret, unquote(secret)]
    return [one for one in dict.fromkeys(found) if one]
