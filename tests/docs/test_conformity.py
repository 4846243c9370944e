"""docs/conformity.md names tests that exist, and leaves no row out."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "conformity.md").read_text()

ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in re.findall(r"^\| [RF]-[A-Z]\d+ \|.*$", PAGE, re.MULTILINE)
]
RANGES = {
    "R-M": 33, "R-T": 17, "R-K": 16, "R-P": 13, "R-H": 9,
    "F-A": 11, "F-B": 21, "F-C": 11, "F-D": 12, "F-E": 12, "F-F": 10, "F-G": 7, "F-H": 7, "F-I": 10,
}  # fmt: skip


@cache
def names_in(path: str) -> set[str]:
    """The tests in a file, as pytest names them."""
    found: set[str] = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            inner = [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
            found.update(f"{node.name}::{one.name}" for one in inner)
    return {name for name in found if name.rpartition("::")[2].startswith("test_")}


def named(cell: str) -> list[str]:
    return re.findall(r"`(tests/[^`]+)`", cell)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_each_row_is_shown_by_tests_that_exist(row: list[str]) -> None:
    """A row has a subject, a behaviour, and tests that pytest would find under those names."""
    _, subject, behaviour, shown = row
    tests = named(shown)

    assert all((subject, behaviour, tests))
    assert [] == [name for name in tests if name.partition("::")[2] not in names_in(name.partition("::")[0])]
    assert "" == re.sub(r"`[^`]*`|<br>", "", shown)


def test_every_row_is_there_once_or_named_as_left_out() -> None:
    """Ids run without a gap: what is no row stands among those that are left out, with the reason."""
    ids = [row[0] for row in ROWS]
    left_out = set(re.findall(r"R-[A-Z]\d+", PAGE[PAGE.index("Left out") : PAGE.index("| row |")]))
    wanted = {f"{kind}{number}" for kind, last in RANGES.items() for number in range(1, last + 1)}

    assert len(ids) == len(set(ids))
    assert wanted - left_out == set(ids)
