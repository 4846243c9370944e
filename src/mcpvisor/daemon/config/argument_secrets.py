"""Owns which texts of an entry are secrets although they are written out: those that say so, or look like it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.secret_looks import looks_secret, passwords_in
from mcpvisor.supervisor.secret_names import names_secret
from mcpvisor.supervisor.spec import Text

_NAMED = re.compile(r"([\w.-]+)(?:=|:\s+)(.+)", re.DOTALL)
_OPTION = re.compile(r"--?(?!no-|without-|disable-)[A-Za-z][\w-]*")
_BETWEEN = re.compile(r"[\s=:,;/?&\"'@]+")


def with_secrets(words: Sequence[Text]) -> list[Text]:
    """The words of a command line; a secret in place of each that is one."""
    found: list[Text] = []
    before = ""
    for word in words:
        parts = [] if isinstance(word, Secret) else _parts(word, before)
        found.append(Secret(str(word), parts) if parts else word)
        before = "" if isinstance(word, Secret) else word
    return found


def named_secret(name: str, text: Text, is_telling: Callable[[str], bool] = names_secret) -> Secret:
    """The value of a variable or a header, with what is secret in it whoever tells it: an ordinary word is not.

    `is_telling` knows which names say that their values are.
    """
    secret = Secret.of(text)
    value = secret.reveal()
    sure = [*secret.reveal_parts(), *passwords_in(value)]
    if is_telling(name):
        sure += [value, value.rpartition(" ")[2]]
    elif looks_secret(value):
        sure.append(value)
    return Secret(value, dict.fromkeys(sure))


def _parts(word: str, before: str) -> list[str]:
    """What is secret in a word that stands behind another one."""
    found = passwords_in(word)
    if _OPTION.fullmatch(before) and names_secret(before) and not word.startswith("-"):
        found.append(word)
    named = _NAMED.fullmatch(word)
    if named is not None and names_secret(named[1]):
        found += [named[2], named[2].rpartition(" ")[2]]
    found += [one for one in _BETWEEN.split(word) if looks_secret(one)]
    return list(dict.fromkeys(found))
