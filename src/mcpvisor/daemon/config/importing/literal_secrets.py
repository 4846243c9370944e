"""Owns what looks like a secret that is written out in somebody's file: what is masked when it is shown, and pointed out."""

from __future__ import annotations

import re
from typing import Final

from mcpvisor.supervisor.secret import MASK
from mcpvisor.supervisor.secret_looks import PERHAPS_RANDOM, key_forms, scheme_forms
from mcpvisor.supervisor.secret_names import may_name_secret

_STEERING = re.compile(
    r"[A-Z0-9_]*(PATH|_?OPTIONS|OPTS|ASKPASS|_HOOKS|PRELOAD|COMMAND|REGISTRY|INDEX|INDEX_URL)|(LD|DYLD|NODE|NPM|YARN|BUN|DENO)_.*"
    r"|(PYTHON|PERL|RUBY|LUA|RUST|BASH).*|(GEM|BUNDLE|PHP|JAVA|DOTNET|COR|CORECLR|CARGO|GIT|SSH|UV|PIP|PIPX|CONDA|NIX)_.*"
    r"|(DOCKER|CONTAINER|XDG|ELECTRON|MALLOC|GLIBC|GCONV|OPENSSL|SSL)_.*|GO[A-Z]+|R_[A-Z_]+|KUBECONFIG|SSLKEYLOGFILE|PHPRC"
    r"|ENV|SHELL|HOME|LANG|LC_.*|TZ|IFS|PS[0-4]|TMPDIR|EDITOR|VISUAL|PAGER|BROWSER|(HTTPS?|NO|ALL)_PROXY",
    re.IGNORECASE,
)
"""Variables that decide which code runs: who is asked for consent has to see them."""

_HARMLESS = re.compile(
    r"|true|false|yes|no|on|off|\d{1,5}|debug|info|warn|warning|error|production|development|stdio", re.IGNORECASE
)
_LEAST: Final = 8
"""Characters of a key of a service: what is shown for consent may have one masked too many."""
_KEY: Final = rf"(?<![A-Za-z0-9])(?:{key_forms(_LEAST)})"
_KNOWN = re.compile(_KEY + "|" + scheme_forms(r"""[^\s"']"""))
_AUTHORITY = re.compile(r"""(?<=://)[^/@\s"']+(?=@)""")
_QUERY = re.compile(r"""(?<=[?&])([^=&#?\s]+)=([^&#\s"']+)""")
_LONG = re.compile(rf"(?<![A-Za-z0-9+=_@/.-]){PERHAPS_RANDOM}(?![A-Za-z0-9+=_@/.-])")
_CODED_KNOWN = re.compile(f"{_KEY}|{scheme_forms('[A-Za-z0-9._~+/=-]')}")
_CODED_AUTHORITY = re.compile(r"(?<=://)[A-Za-z0-9._~%!*,:+=-]+(?=@)")
_CODED_QUERY = re.compile(r"(?<=[?&])([A-Za-z0-9._~%-]+)=([A-Za-z0-9._~%!*,:@+/=-]+)")
"""The same within what a shell or an interpreter takes as code: no mask covers anything that could be a command of its own."""
_WORD: Final = re.compile(r"[\w.~+/=:@%!*^,#?-]+")
"""What is one word to a shell, however often it is read."""
_RUNS_CODE = re.compile(
    r"(?:ba|da|z|k|mk|c|tc|a|fi|y|o)?sh|busybox|toybox|env|sudo|su|doas|xargs|find|ssh|nohup|setsid|timeout|watch|script|nix-shell"
    r"|(?:python|perl|ruby|php|lua|node|nodejs|deno|bun|tclsh|wish|[gmn]?awk|osascript|make|expect)[0-9.]*|cmd|powershell|pwsh",
    re.IGNORECASE,
)
_RUNS_FLAG: Final = frozenset({"-c", "-e", "-exec", "--eval", "--exec", "--call", "--command", "--run", "/c"})
_SEGMENT = re.compile(rf"(?<=/){PERHAPS_RANDOM}(?=/|\?|#|$)")
_FLAG = re.compile(r"(--?[A-Za-z][A-Za-z0-9_-]*)(=)?(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{[^{}]*\}")


def is_variable(text: str) -> bool:
    """Whether nothing stands in a text but variables, and a word such as `Bearer` before them."""
    return _VARIABLE.search(text) is not None and re.fullmatch(r"[A-Za-z]{0,10}\s*", _VARIABLE.sub("", text)) is not None


def masked_setting(name: str, value: str) -> str:
    """The value of a variable or a header as it may be shown: all of it is masked unless it is known to be no secret."""
    if is_variable(value):
        return value
    is_shown = _STEERING.fullmatch(name) or _HARMLESS.fullmatch(value)
    return masked_text(value, is_code=True) if is_shown and not may_name_secret(name) else MASK


def runs_code(words: list[str]) -> bool:
    """Whether a command line may have a shell or an interpreter take one of its words as code, as far as it says so."""
    return any(map(_is_interpreter, words)) or not _RUNS_FLAG.isdisjoint(words)


def masked_arguments(arguments: list[str], *, is_code: bool = False) -> list[str]:
    """The arguments of a program as they may be shown, each whole but for what looks like a secret.

    With `is_code` nothing is masked that could be a command: whoever is asked for consent has to see what would run.
    """
    shown: list[str] = []
    is_next = False
    is_own = True
    for argument in arguments:
        # A shell may take `-auth` for four options of its own, and the word behind them for a script.
        is_own = is_own and (argument.startswith("-") or _is_interpreter(argument))
        flag = _FLAG.fullmatch(argument)
        is_named = flag is not None and may_name_secret(flag[1]) and not (is_code and is_own and not argument.startswith("--"))
        if is_next and not argument.startswith("-" if is_code else "--"):
            shown.append(argument if is_variable(argument) or (is_code and not _WORD.fullmatch(argument)) else MASK)
            is_next = False
        elif flag is not None and is_named and flag[2] and not (is_code and not _WORD.fullmatch(flag[3])):
            shown.append(argument if is_variable(flag[3]) or not flag[3] else f"{flag[1]}={MASK}")
            is_next = False
        else:
            shown.append(masked_text(argument, is_code=is_code))
            is_next = is_named and flag is not None and not flag[2]
    return shown


def masked_text(text: str, *, is_code: bool = False) -> str:
    """A text with what looks like a secret in it masked: known forms of keys, passwords in addresses, long random words."""
    known, authority, query = (_CODED_KNOWN, _CODED_AUTHORITY, _CODED_QUERY) if is_code else (_KNOWN, _AUTHORITY, _QUERY)
    text = known.sub(_unless_variable, text)
    text = authority.sub(_unless_variable, text)
    text = query.sub(lambda m: m[0] if is_variable(m[2]) or _HARMLESS.fullmatch(m[2]) else f"{m[1]}={MASK}", text)
    return _LONG.sub(MASK, text)


def masked_url(url: str) -> str:
    """An address, in whose path a random word may be a secret too."""
    return _SEGMENT.sub(MASK, masked_text(url))


def has_secret_setting(name: str, value: str) -> bool:
    """Whether the value of a variable or a header looks like a secret that is written out."""
    if is_variable(value) or _HARMLESS.fullmatch(value):
        return False
    return masked_text(value) != value or may_name_secret(name)


def _is_interpreter(word: str) -> bool:
    return _RUNS_CODE.fullmatch(re.split(r"[/\\]", word)[-1].removesuffix(".exe")) is not None


def _unless_variable(match: re.Match[str]) -> str:
    return match[0] if _VARIABLE.search(match[0]) else MASK
