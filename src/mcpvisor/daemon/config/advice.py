"""Owns what is advised against although it works: secrets in arguments, packages of any version, unprotected addresses.

Pure functions from what is written to sentences about it. No sentence holds a value that may be a secret.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit


class Advice(NamedTuple):
    """One piece of advice; `at` is the index of the word that it is about, 0 being the program."""

    at: int
    text: str


IN_ARGUMENTS: Final = "everybody who may list processes sees it there; put it into env"

_SECRET_NAME = re.compile(
    r"--?(?:[a-z0-9]+[-_])*(?:(?:api|access|secret|private|auth)[-_]?key|key|token|secret|password|passwd|pat|bearer|credentials?)",
    re.IGNORECASE | re.ASCII,
)
_NOT_SECRET_NAME = re.compile(r"-.*(?:file|path|dir|env|name|type|url|id|command)", re.IGNORECASE | re.ASCII)
_VALUE = re.compile(r"(?!-)\S{6,}", re.ASCII)
"""What may be the value of such an option; the next option, a file and a short word are none."""

_SHAPES: Final = (
    re.compile(r"\bsk-[A-Za-z0-9_-]{16,}", re.ASCII),  # OpenAI, Anthropic and those that follow them
    re.compile(r"\bgh[opusr]_[A-Za-z0-9]{20,}", re.ASCII),
    re.compile(r"\bgithub_pat_[A-Za-z0-9_]{20,}", re.ASCII),
    re.compile(r"\bglpat-[A-Za-z0-9_-]{16,}", re.ASCII),
    re.compile(r"\bxox[abposr]-[A-Za-z0-9-]{10,}", re.ASCII),
    re.compile(r"\bAKIA[0-9A-Z]{16}\b", re.ASCII),
    re.compile(r"\bAIza[A-Za-z0-9_-]{30,}", re.ASCII),
    re.compile(r"\bsk_live_[A-Za-z0-9]{16,}", re.ASCII),
    re.compile(r"\bnpm_[A-Za-z0-9]{30,}", re.ASCII),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*", re.ASCII),  # a JWT
    re.compile(r"\b[Bb]earer\s+[A-Za-z0-9._~+/-]{12,}=*", re.ASCII),
    re.compile(r"://[^/\s:@]+:[^/\s@]+@", re.ASCII),  # a password in a URL
)


def looks_secret(text: str) -> bool:
    """Whether a text has the shape of a token, or a password in a URL."""
    return any(shape.search(text) for shape in _SHAPES)


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
        if joint and _is_secret_name(name) and _is_value(value):
            found.append(Advice(at, f"{name} looks like a secret: {IN_ARGUMENTS}"))
        elif at > 1 and _is_secret_name(before) and _is_value(word):
            found.append(Advice(at, f"what follows {before} looks like a secret: {IN_ARGUMENTS}"))
        elif looks_secret(word):
            found.append(Advice(at, f"looks like a secret: {IN_ARGUMENTS}"))
    return found


def _is_secret_name(word: str) -> bool:
    return _SECRET_NAME.fullmatch(word) is not None and _NOT_SECRET_NAME.fullmatch(word) is None


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
