"""Owns what is advised against although it works: secrets in arguments, packages of any version, unprotected addresses.

Pure functions from what is written to sentences about it. No sentence holds a value that may be a secret.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from mcpvisor.supervisor.secret_looks import holds_secret
from mcpvisor.supervisor.secret_names import option_names_secret


class Advice(NamedTuple):
    """One piece of advice; `at` is the index of the word that it is about, 0 being the program."""

    at: int
    text: str


IN_ARGUMENTS: Final = "everybody who may list processes sees it there; put it into env"

_VALUE = re.compile(r"(?!-)\S{6,}", re.ASCII)
"""What may be the value of such an option; the next option, a file and a short word are none."""


def secret_words(words: Sequence[str]) -> list[Advice]:
    """Secrets that are written out in a command line, found by the name of their option or by their shape.

    Variables are not looked at: a command line with one is advised against as a whole.
    """
    found: list[Advice] = []
    for at, word in enumerate(words):
        name, joint, value = word.partition("=")
        before = words[at - 1] if at > 0 else ""
        if "${" in word:
            continue
        if joint and option_names_secret(name) and _is_value(value):
            found.append(Advice(at, f"{name} looks like a secret: {IN_ARGUMENTS}"))
        elif at > 1 and option_names_secret(before) and _is_value(word):
            found.append(Advice(at, f"what follows {before} looks like a secret: {IN_ARGUMENTS}"))
        elif holds_secret(word):
            found.append(Advice(at, f"looks like a secret: {IN_ARGUMENTS}"))
    return found


def _is_value(text: str) -> bool:
    return _VALUE.fullmatch(text) is not None and not text.startswith(("/", "./", "~/", "@"))


# Addresses


def unprotected(url: str) -> str:
    """What is said of an address that is plain HTTP and leads off this machine; empty for any other."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return ""
    if parts.scheme != "http" or is_loopback(host):
        return ""
    return "is plain http to another machine: whoever is on the way reads and changes what is sent, credentials too; use https"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its name or its address."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def open_to_others(listen: Sequence[str], auth: str) -> list[str]:
    """The addresses at which everybody who reaches this machine may use the gateway."""
    return [one for one in listen if auth == "open" and not one.startswith("unix:") and not is_loopback(_host_of(one))]


def _host_of(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")
