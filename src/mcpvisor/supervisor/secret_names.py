"""Owns by which names a value is taken for a secret that nobody has declared to be one."""

from __future__ import annotations

import re
from typing import Final

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

HEADERS: Final = (
    *("authorization", "proxy-authorization", "cookie", "set-cookie"),
    *("x-api-key", "api-key", "mcp-session-id"),
)
"""Headers whose whole value is a secret, in lower case with `-` for `_`."""

FIELDS: Final = frozenset(
    {*HEADERS, "access-token", "refresh-token", "id-token", "client-secret", "password", "secret", "token"}
)
"""Those, and names of fields, whose values are never shown in a log; others may name how somebody is known, or how many."""

PARAMETERS: Final = r"[\w-]*token|[\w-]*secret|password|api[-_]?key|key|sig|signature|code"
"""The pattern of the parameters of an address that are never shown; case does not count."""


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


def header_names_secret(name: str) -> bool:
    """Whether a name of a header says so: of these every last word `key` is one, as in `Ocp-Apim-Subscription-Key`."""
    return names_secret(name) or name.lower().endswith("key")


def field_names_secret(name: object) -> bool:
    """Whether the value of a field, or of a header, of that name is never shown in a log."""
    return isinstance(name, str) and name.lower().replace("_", "-") in FIELDS
