"""Owns what looks like a secret that is written out in somebody's file: what is masked when it is shown, and pointed out."""

from __future__ import annotations

import re
from typing import Final

from mcpvisor.supervisor.secret import MASK

_SECRET_NAME = re.compile(
    r"token|secret|passw|passphrase|api_?key|credential|authorization|bearer|connection_?string"
    r"|(?<![a-z])(key|pat|pwd|pass|pw|auth|cookie|dsn)s?(?![a-z])"
)
_PLAIN_NAME = re.compile(r".*(url|uri|file|path|dir|folder|id|name|endpoint|host|port|type|ttl|expiry|seconds|tokens)")
_STEERING = re.compile(
    r"[A-Z0-9_]*PATH|LD_.*|DYLD_.*|NODE_.*|(?i:npm_config_)registry|NPM_CONFIG_REGISTRY|PYTHON.*|PERL5.*|RUBY.*|BASH_ENV|ENV|SHELL"
    r"|HOME|LANG|LC_.*|TZ|JAVA_TOOL_OPTIONS|GIT_.*|UV_.*|PIP_.*|DOCKER_HOST|(?i:https?|no|all)_PROXY|(?i:https?|no|all)_proxy"
)
"""Variables that decide which code runs: who is asked for consent has to see them."""

_HARMLESS = re.compile(
    r"|true|false|yes|no|on|off|\d{1,5}|debug|info|warn|warning|error|production|development|stdio", re.IGNORECASE
)
_KNOWN = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-[A-Za-z0-9_-]{8,}|gh[pousr]_[A-Za-z0-9]{8,}|github_pat_[A-Za-z0-9_]{8,}|glpat-[A-Za-z0-9_-]{8,}"
    r"|xox[abeprs]-[A-Za-z0-9-]{8,}|AKIA[A-Z0-9]{12,}|AIza[A-Za-z0-9_-]{20,}|eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+)*)"
    r"""|(?<=Bearer )[^\s"']+|(?<=Basic )[^\s"']+"""
)
_AUTHORITY = re.compile(r"""(?<=://)[^/@\s"']+(?=@)""")
_QUERY = re.compile(r"""(?<=[?&])([^=&#?\s]+)=([^&#\s"']+)""")
_RANDOM: Final = r"(?=[A-Za-z0-9+=]*[0-9])(?=[A-Za-z0-9+=]*[A-Za-z])[A-Za-z0-9+=]{20,}"
_LONG = re.compile(rf"(?<![A-Za-z0-9+=_@/.-]){_RANDOM}(?![A-Za-z0-9+=_@/.-])")
_SEGMENT = re.compile(rf"(?<=/){_RANDOM}(?=/|\?|#|$)")
_FLAG = re.compile(r"(--?[A-Za-z][A-Za-z0-9_-]*)(=)?(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{[^{}]*\}")


def is_variable(text: str) -> bool:
    """Whether nothing stands in a text but variables, and a word such as `Bearer` before them."""
    return _VARIABLE.search(text) is not None and re.fullmatch(r"[A-Za-z]{0,10}\s*", _VARIABLE.sub("", text)) is not None


def names_secret(name: str) -> bool:
    """Whether a variable, a header or an option is called as secrets are."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_")
    return _SECRET_NAME.search(plain) is not None and _PLAIN_NAME.fullmatch(plain) is None


def masked_setting(name: str, value: str) -> str:
    """The value of a variable or a header as it may be shown: all of it is masked unless it is known to be no secret."""
    if is_variable(value):
        return value
    is_shown = _STEERING.fullmatch(name) or _HARMLESS.fullmatch(value)
    return masked_text(value) if is_shown and not names_secret(name) else MASK


def masked_arguments(arguments: list[str]) -> list[str]:
    """The arguments of a program as they may be shown, each whole but for what looks like a secret."""
    shown: list[str] = []
    is_next = False
    for argument in arguments:
        flag = _FLAG.fullmatch(argument)
        is_named = flag is not None and names_secret(flag[1])
        if is_next and not argument.startswith("--"):
            shown.append(argument if is_variable(argument) else MASK)
            is_next = False
        elif flag is not None and is_named and flag[2]:
            shown.append(argument if is_variable(flag[3]) or not flag[3] else f"{flag[1]}={MASK}")
            is_next = False
        else:
            shown.append(masked_text(argument))
            is_next = is_named
    return shown


def masked_text(text: str) -> str:
    """A text with what looks like a secret in it masked: known forms of keys, passwords in addresses, long random words."""
    text = _KNOWN.sub(_unless_variable, text)
    text = _AUTHORITY.sub(_unless_variable, text)
    text = _QUERY.sub(lambda m: m[0] if is_variable(m[2]) or _HARMLESS.fullmatch(m[2]) else f"{m[1]}={MASK}", text)
    return _LONG.sub(MASK, text)


def masked_url(url: str) -> str:
    """An address, in whose path a random word may be a secret too."""
    return _SEGMENT.sub(MASK, masked_text(url))


def has_secret_setting(name: str, value: str) -> bool:
    """Whether the value of a variable or a header looks like a secret that is written out."""
    if is_variable(value) or _HARMLESS.fullmatch(value):
        return False
    return masked_text(value) != value or names_secret(name)


def _unless_variable(match: re.Match[str]) -> str:
    return match[0] if _VARIABLE.search(match[0]) else MASK
