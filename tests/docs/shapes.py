"""Owns docs/json.md as a program reads it: which verb prints which shape, and what of a real value is not as its shape says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).parents[2] / "docs" / "json.md"

PLAIN = {
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "object": lambda value: isinstance(value, dict),
    "any": lambda _: True,
}


class Key(NamedTuple):
    type: str
    may_be_missing: bool


Shape = dict[str, Key]


class Page(NamedTuple):
    verbs: dict[str, list[str]]
    """By verb, such as `events emit`: the shapes of which it prints one."""
    shapes: dict[str, Shape]


def read(text: str) -> Page:
    """The page. What is no shape in it raises, with its line."""
    verbs: dict[str, list[str]] = {}
    shapes: dict[str, Shape] = {}
    title = ""
    for line in text.splitlines():
        if line.startswith("## "):
            title = line[3:]
        elif line.startswith("| `") and title == "Which verb prints what":
            names, prints = line.strip("| ").split(" | ")
            for name in re.findall(r"`([^`]+)`", names):
                verbs[name] = [_linked(link) for link in re.findall(r"\[[^\]]+\]\(#[^)]+\)", prints)]
        elif line.startswith("| `"):
            key, type_, _ = line.strip("| ").split(" | ")
            shapes.setdefault(title, {})[key.strip("`?")] = Key(type_, key.endswith("?"))
    return Page(verbs, shapes)


def faults(page: Page, shape: str, value: Any, at: str = "") -> Iterator[str]:
    """What of a value is not as the shape says; keys that nobody has told of are faults of the page."""
    if not isinstance(value, dict):
        yield f"{at or 'all of it'} is no {shape}: {value!r}"
        return
    keys = page.shapes[shape]
    for name, key in keys.items():
        if name == "*":
            continue
        if name in value:
            yield from _faults_of(page, key.type, value[name], f"{at}.{name}")
        elif not key.may_be_missing:
            yield f"{at}.{name} is missing"
    if "*" not in keys:
        yield from (f"{at}.{name} is not told of: add it to `{shape}` in docs/json.md" for name in value if name not in keys)


def unknown(page: Page) -> list[str]:
    """Types on the page that mean nothing."""
    wanted = {name for names in page.verbs.values() for name in names}
    found = [f"no shape is called {name}" for name in wanted if name not in page.shapes]
    for shape, keys in page.shapes.items():
        for name, key in keys.items():
            for one in key.type.split(" or "):
                plain = one.removeprefix("list of ")
                if plain not in PLAIN and _linked(plain) not in page.shapes:
                    found.append(f"{shape}.{name}: {one}")
    return found


def _faults_of(page: Page, type_: str, value: Any, at: str) -> Iterator[str]:
    tries = [list(_faults_of_one(page, one, value, at)) for one in type_.split(" or ")]
    yield from min(tries, key=len)


def _faults_of_one(page: Page, type_: str, value: Any, at: str) -> Iterator[str]:
    if type_.startswith("list of "):
        if not isinstance(value, list):
            yield f"{at} is no list: {value!r}"
            return
        for number, one in enumerate(value):
            yield from _faults_of_one(page, type_.removeprefix("list of "), one, f"{at}[{number}]")
    elif type_ in PLAIN:
        if not PLAIN[type_](value):
            yield f"{at} is no {type_}: {value!r}"
    else:
        yield from faults(page, _linked(type_), value, at)


def _linked(link: str) -> str:
    """The title to which a link within the page leads; empty where it is none, or its text is not the title."""
    found = re.fullmatch(r"\[([^\]]+)\]\(#([^)]+)\)", link)
    return found[1] if found and found[1].replace(" ", "-") == found[2] else ""
