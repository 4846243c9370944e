"""Owns which command lines fetch a package or an image of any version, and how each is pinned."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from mcpvisor.daemon.config.advice import Advice, secret_words

_NPM: Final[Mapping[str, tuple[str, ...]]] = {
    "npx": ("",),
    "bunx": ("",),
    "pnpx": ("",),
    "bun": ("x",),
    "npm": ("exec", "x"),
    "pnpm": ("dlx",),
    "yarn": ("dlx",),
}
"""Programs that fetch npm packages, and the words after which they do."""
_PYTHON: Final[Mapping[str, tuple[str, ...]]] = {"uvx": ("",), "uv": ("tool run",), "pipx": ("run",)}
_CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl"})

_NPM_VALUES: Final = frozenset({"-c", "--call", "--registry", "--cache", "--prefix", "--userconfig", "-w", "--workspace"})
_PYTHON_VALUES: Final = frozenset(
    {"--with", "--with-editable", "--with-requirements", "-p", "--python", "--index-url", "-i", "--extra-index-url"}
    | {"--index", "--default-index", "--directory", "--project", "--cache-dir", "--config-file", "--env-file", "-c"}
    | {"--refresh-package", "--pip-args", "--exclude-newer", "--constraints", "--find-links", "-f", "--suffix"}
)
"""Options that take the next word, so that it is no package."""

_DOCKER_FLAGS: Final = frozenset(
    {"-i", "-t", "-it", "-ti", "-d", "--interactive", "--tty", "--rm", "--init", "--detach", "--privileged", "--read-only"}
    | {"--no-healthcheck", "--oom-kill-disable", "-P", "--publish-all", "--quiet", "-q"}
)
"""Options of `docker run` that take no word; all others do."""

_OF_PACKAGE = re.compile(r"--(?:package|from|spec)=")
_PACKAGE = re.compile(r"(@[^/@]+/)?([^/@]+)(@.+)?")
_LOOSE = re.compile(r"@(?:latest|next|canary|beta|alpha|[~^>*x].*|\d+|\d+\.\d+|\d+\.x.*)", re.IGNORECASE)
_LOCAL: Final = (".", "/", "~", "file:", "git+", "git:", "http:", "https:", "github:")


def unpinned(words: Sequence[str]) -> Advice | None:
    """The package or image of a command line that is another one tomorrow, and how to pin it; None where there is none."""
    if not words:
        return None
    program = PurePosixPath(words[0]).name
    if program in _CONTAINERS:
        return _image(words)
    if program in _NPM:
        at = _package(words, _NPM[program], _NPM_VALUES, ("--package", "-p"))
        return None if at is None else _npm(at, _named(words[at]))
    if program in _PYTHON:
        at = _package(words, _PYTHON[program], _PYTHON_VALUES, ("--from", "--spec"))
        return None if at is None else _python(at, _named(words[at]))
    return None


def _package(words: Sequence[str], verbs: Sequence[str], with_value: frozenset[str], naming: Sequence[str]) -> int | None:
    """The index of the word that names the package: of an option of `naming`, else the first that is no option."""
    after = [len(verb.split()) + 1 for verb in verbs if list(words[1 : len(verb.split()) + 1]) == verb.split()]
    if not after:
        return None
    at = after[0]
    hidden = {advice.at for advice in secret_words(words)}
    while at < len(words):
        word = words[at]
        if word in naming:
            return at + 1 if at + 1 < len(words) else None
        if _OF_PACKAGE.match(word):
            return at
        if word in with_value:
            at += 1
        elif at in hidden:
            pass  # what an option that is not known is given is no package, and no name to be told
        elif not word.startswith("-"):
            return at
        at += 1
    return None


def _named(word: str) -> str:
    """The package of an option such as `--from=PACKAGE`, or the word itself."""
    return word.partition("=")[2] if _OF_PACKAGE.match(word) else word


def _npm(at: int, package: str) -> Advice | None:
    match = _PACKAGE.fullmatch(package)
    if package.startswith(_LOCAL) or "${" in package or match is None:
        return None
    name, version = f"{match[1] or ''}{match[2]}", match[3] or ""
    if version and not _LOOSE.fullmatch(version):
        return None
    return Advice(at, f"whatever version of {name} is newest runs at the next start; pin one, as {name}@1.2.3")


def _python(at: int, package: str) -> Advice | None:
    if package.startswith(_LOCAL) or "${" in package or "==" in package or " @ " in package:
        return None
    name, _, version = package.partition("@")
    if version and version != "latest":
        return None
    name = re.split(r"[<>=!~;]", name, maxsplit=1)[0].strip()
    return Advice(at, f"whatever version of {name} is newest runs at the next start; pin one, as {name}==1.2.3")


def _image(words: Sequence[str]) -> Advice | None:
    if "run" not in words[1:3]:  # `docker run` and `docker container run`
        return None
    at = words.index("run") + 1
    while at < len(words) and words[at].startswith("-"):
        at += 1 if "=" in words[at] or words[at] in _DOCKER_FLAGS else 2
    if at >= len(words) or "${" in words[at] or "@sha256:" in words[at]:
        return None
    name, _, tag = words[at].rpartition("/")[2].partition(":")
    if tag and tag != "latest":
        return None
    pinned = f"{name}:1.2.3 or {name}@sha256:..."
    return Advice(at, f"whatever image {name} is newest runs after the next pull; name a version, as {pinned}")
