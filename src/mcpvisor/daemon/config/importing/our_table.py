"""Owns how the items of a foreign entry become one table in our form, as strict as our own files have to be."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from mcpvisor.daemon.config.entry_scope import Item, home_expanded, items_of
from mcpvisor.daemon.config.expansion import Sources, expand
from mcpvisor.daemon.config.file_servers import Reading
from mcpvisor.daemon.config.importing.literal_secrets import has_secret_setting, masked_arguments, masked_text, masked_url
from mcpvisor.daemon.config.launch import is_command_line
from mcpvisor.daemon.config.positions import show_path
from mcpvisor.daemon.config.problems import Problem
from mcpvisor.daemon.config.transport_words import meaning_of
from mcpvisor.supervisor.spec import HttpTransport

_FLAGS: Final = frozenset({"enabled", "required", "overlap", "trust_hints", "replay_on_session_loss"})
_FIRST: Final = ("command", "args", "env", "inherit_env", "cwd", "url", "transport", "headers", "auth")
_FILE = re.compile(r"\$\{file:([^{}]+)\}")
_READ = re.compile(r"(?<!\$)\$\{(?:(cred|file|env):)?([^{}]+)\}")
_WRITTEN_OUT: Final = "a secret seems to stand here as it is: move it to ${cred:NAME} or ${file:PATH}"


def our_table(reading: Reading, folder: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    """The values to write. Paths that start at the folder of the file, or at somebody's home, are written out."""
    items = {
        key: item
        for key, item in reading.items.items()
        if item.value is not None
        and item.path not in reading.scope.unused_paths
        and not (key == "enabled" and item.value is True)
    }
    values = {key: _plain(item, reading) for key, item in items.items()}
    words = [values.pop(key, None) for key in ("type", "transport")]
    if "url" in values:
        asked = [meaning_of(word) for word in words if isinstance(word, str)]
        transport = next((meaning[1] for meaning in asked if meaning is not None), HttpTransport.AUTO)
        if transport is not HttpTransport.AUTO:
            values["transport"] = transport.value
    for key in _FLAGS & values.keys():
        values[key] = _flag(values[key])
    _command(values, environ)
    _texts_of_tables(values)
    for key in ("args", "env", "headers", "tools"):
        if _is_empty(values.get(key)):
            del values[key]
    _paths(values, folder, environ)
    values = {key: _with_whole_files(value, folder, environ) for key, value in values.items()}
    return {key: values[key] for key in (*(k for k in _FIRST if k in values), *(k for k in values if k not in _FIRST))}


def variables_in(table: Mapping[str, Any]) -> Iterator[str]:
    """What the daemon has to have for an entry, in words; each once."""
    found: dict[str, None] = {}
    for text in _strings(table):
        for kind, name in _READ.findall(text):
            if kind == "cred":
                found[f"the credential {name}"] = None
            elif kind == "file":
                found[f"the file {name}"] = None
            elif name.isidentifier() and name not in {"HOME", "PATH"}:
                found[f"the variable {name} in the daemon's environment"] = None
    yield from found


def secrets_in(reading: Reading) -> Iterator[Problem]:
    """Where a secret seems to be written out in an entry; none of it is in what is said."""
    for key in ("env", "headers", "auth"):
        for name, one in _inner(reading.items.get(key)):
            if isinstance(one.value, str) and (key, name) != ("auth", "type") and has_secret_setting(str(name), one.value):
                yield _said(one)
    arguments = [(one, one.value if isinstance(one.value, str) else "") for _, one in _inner(reading.items.get("args"))]
    texts = [text for _, text in arguments]
    for (one, text), shown in zip(arguments, masked_arguments(texts), strict=True):
        if text != shown:
            yield _said(one)
    for key, masked in (("command", masked_text), ("url", masked_url)):
        item = reading.items.get(key)
        if item is not None and isinstance(item.value, str) and masked(item.value) != item.value:
            yield _said(item)


def _inner(item: Item | None) -> list[tuple[str | int, Item]]:
    """What stands in a table or a list, each with its place."""
    if item is not None and isinstance(item.value, dict):
        return list(items_of(item.value, item.path, item.document).items())
    if item is not None and isinstance(item.value, list):
        return [(n, Item(one, (*item.path, n), item.document)) for n, one in enumerate(item.value)]
    return []


def paths_without_value(items: Iterable[Item], sources: Sources) -> frozenset[str]:
    """The key paths, as problems have them, of texts whose variables are not there now, and need not be until they are read."""
    missing: set[str] = set()
    for item in items:
        if isinstance(item.value, str):
            # A form that does not exist is a fault, which the reader finds.
            with suppress(ValueError):
                try:
                    expand(item.value, sources)
                except LookupError:
                    missing.add(show_path(item.path))
        missing |= paths_without_value((one for _, one in _inner(item)), sources)
    return frozenset(missing)


def _said(item: Item) -> Problem:
    return item.document.problem(item.path, _WRITTEN_OUT)


def _plain(item: Item, reading: Reading) -> Any:
    """The value without places, and without what has no use here."""
    value = item.value
    if isinstance(value, dict):
        inner = items_of(value, item.path, item.document)
        kept = {k: one for k, one in inner.items() if one.value is not None and one.path not in reading.scope.unused_paths}
        return {key: _plain(one, reading) for key, one in kept.items()}
    if isinstance(value, list):
        return [_plain(Item(one, (*item.path, n), item.document), reading) for n, one in enumerate(value)]
    return value


def _is_empty(value: Any) -> bool:
    """Whether a table or list says nothing at all; an empty text says something."""
    return value == [] or (isinstance(value, dict) and all(_is_empty(one) for one in value.values()))


def _flag(value: Any) -> Any:
    word = value.strip().lower() if isinstance(value, str) else None
    return word == "true" if word in {"true", "false"} else value


def _command(values: dict[str, Any], environ: Mapping[str, str]) -> None:
    """A whole command line is split as the reader splits it; numbers become texts; the home folder is the reader's own."""
    args = values.get("args", [])
    if isinstance(args, list):
        args = [_scalar(one) for one in args]
    command = values.get("command")
    if isinstance(command, str) and command.strip():
        if is_command_line(command, command, environ):
            try:
                command, *first = shlex.split(command)
            except ValueError:
                return  # the reader says what is wrong
            args = [*first, *args] if isinstance(args, list) else args
        values["command"] = home_expanded(command, environ)
    if "args" in values or args:
        values["args"] = args


def _texts_of_tables(values: dict[str, Any]) -> None:
    for key in ("env", "headers"):
        if isinstance(values.get(key), dict):
            values[key] = {name: _scalar(value) for name, value in values[key].items()}


def _scalar(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _paths(values: dict[str, Any], folder: Path, environ: Mapping[str, str]) -> None:
    """Paths that are relative to the file, which another folder is going to hold."""
    tables = [values, *(values[key] for key in ("tls", "auth") if isinstance(values.get(key), dict))]
    for table in tables:
        for key in ("cwd", "ca", "client_cert", "client_key", "private_key"):
            text = table.get(key)
            if isinstance(text, str) and not text.startswith("${") and "-----BEGIN" not in text:
                table[key] = os.path.normpath(folder / home_expanded(text, environ))


def _with_whole_files(value: Any, folder: Path, environ: Mapping[str, str]) -> Any:
    """The paths of `${file:PATH}` written out."""
    if isinstance(value, str):
        return _FILE.sub(lambda m: f"${{file:{os.path.normpath(folder / home_expanded(m[1], environ))}}}", value)
    if isinstance(value, list):
        return [_with_whole_files(one, folder, environ) for one in value]
    if isinstance(value, dict):
        return {key: _with_whole_files(one, folder, environ) for key, one in value.items()}
    return value


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(one)
