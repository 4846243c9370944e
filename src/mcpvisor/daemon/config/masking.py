"""Owns how what is written in the configuration is shown: references as they are, and `***` for whatever may be a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcpvisor.daemon.config.advice import secret_words
from mcpvisor.daemon.config.positions import KeyPath
from mcpvisor.supervisor.secret_looks import holds_secret

MASK: Final = "***"

_SECRET_TABLES: Final = frozenset({"env", "headers", "arguments", "content"})
_SECRET_KEYS: Final = frozenset({"token", "key", "client_secret", "private_key", "secret", "proxy"})
_PLAIN_OF_AUTH: Final = frozenset(
    {"audience", "client_auth", "client_id", "header", "issuer", "key_id", "query", "resource", "scope", "token_url", "type"}
)
"""All else in `auth` is masked, whatever key it was written under."""
_COMMAND_LINES: Final = frozenset({"args", "command", "header_command"})

_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_NAMED = re.compile(r"(?:env:|input:|cred:)?[\w.-]+|file:[^|]+")
"""A reference that holds no text of its own; of all others, such as `env:NAME | value:TEXT`, only the name is shown."""
_SCHEME = re.compile(r"(?:Bearer|Basic|Token) ")
_HARMLESS = re.compile(r"\d+(?:\.\d+)?(?:ms|s|m|h|d|[kKMGT]i?B)|true|false|")
"""Defaults of variables that can be no secret."""
_QUERY = re.compile(r"\?.*", re.DOTALL)
_PASSWORD = re.compile(r"//[^/@\s]*@")


def masked(path: KeyPath, value: Any) -> Any:
    """The value at a key path of an entry as it may be shown."""
    keys = [part for part in path if isinstance(part, str)]
    if isinstance(value, Mapping):
        return {key: masked((*path, key), one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        if keys and keys[-1] in _COMMAND_LINES:
            return _command_line(value)
        return [masked(path, one) for one in value]
    if not isinstance(value, str):
        return MASK if isinstance(value, int | float) and not isinstance(value, bool) and _is_secret(keys) else value
    if _is_secret(keys):
        return value if keys[-1] == "private_key" and _is_path(value) else _without_literals(value)
    return _plain(value)


def _is_secret(keys: Sequence[str]) -> bool:
    if not keys:
        return False
    if keys[-1] in _SECRET_KEYS or _SECRET_TABLES.intersection(keys):  # also what stands there in place of a table
        return True
    return "auth" in keys and keys[-1] not in _PLAIN_OF_AUTH


def _command_line(words: Sequence[Any]) -> list[Any]:
    hidden = {advice.at - 1 for advice in secret_words(["", *(word if isinstance(word, str) else "" for word in words)])}
    return [_hidden(word) if at in hidden else _plain(word) if isinstance(word, str) else word for at, word in enumerate(words)]


def _hidden(word: str) -> str:
    """A word with a secret in it: the option before it stays."""
    name, joint, _ = word.partition("=")
    return f"{name}={MASK}" if joint and name.startswith("-") else MASK


def _without_literals(text: str) -> str:
    """A secret as it is written: its references, and a mask for each other part."""
    pieces: list[str] = []
    at = 0
    for match in _REFERENCE.finditer(text):
        pieces += [_literal(text[at : match.start()]), _reference(match[1])]
        at = match.end()
    return "".join([*pieces, _literal(text[at:])])


def _literal(text: str) -> str:
    if not text:
        return ""
    scheme = _SCHEME.match(text)
    rest = text[scheme.end() :] if scheme else text
    return (scheme[0] if scheme else "") + (MASK if rest else "")


def _reference(body: str) -> str:
    name, has_default, default = body.partition(":-")
    if has_default and _NAMED.fullmatch(name):
        return f"${{{name}:-{default if _HARMLESS.fullmatch(default) else MASK}}}"
    if _NAMED.fullmatch(body):
        return f"${{{body}}}"
    named = re.match(r"(?:env:)?\w+", body, re.ASCII)
    return f"${{{named[0] if named else ''}{MASK}}}"


def _plain(text: str) -> str:
    """A text that is no secret by its key: what may be one within it is masked all the same."""
    shown = _REFERENCE.sub(lambda match: _reference(match[1]), text)
    if "://" in shown:
        shown = _QUERY.sub(f"?{MASK}", _PASSWORD.sub(f"//{MASK}@", shown))
    return MASK if holds_secret(shown) else shown


def _is_path(text: str) -> bool:
    return "/" in text and "-----BEGIN" not in text and "\n" not in text
