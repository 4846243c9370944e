"""Where keys are: the scanners agree with the parsers, whatever form a file has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvisor.daemon.config.json_source import blank, parse_json
from mcpvisor.daemon.config.positions import KeyPath
from mcpvisor.daemon.config.problems import ConfigError
from mcpvisor.daemon.config.toml_source import parse_toml, scan_toml

FILE = Path("/x")

TOML = '''# comment with [brackets] and "quotes"
top = "a # b"
[servers.one]
command = "x"   # = not a key
env = { A = "1", "b c" = '2', n.d = """3
[not.a.header]""" }
args = [
  "a", # ]
  [ "b", { k = 1 } ],
]
[servers."two three"]
  dotted.key.deep = 1979-05-27T07:32:00Z
  text = \'\'\'
key = no
\'\'\'
[[list]]
a = 1
[list.sub]
b = 2
[[list]]
a = 3
[[list.inner]]
c = 4
'''


def _paths(value: Any, path: KeyPath = ()) -> set[KeyPath]:
    items = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    return {(*path, key) for key, _ in items} | {p for key, inner in items for p in _paths(inner, (*path, key))}


def test_every_toml_key_has_its_line() -> None:
    """Tables, lists of tables, dotted and quoted keys, inline tables and strings of many lines are placed right."""
    document = parse_toml(TOML, FILE)

    assert _paths(document.data) == set(document.places)
    expected = {
        ("top",): 2,
        ("servers", "one"): 3,
        ("servers", "one", "command"): 4,
        ("servers", "one", "env", "b c"): 5,
        ("servers", "one", "env", "n", "d"): 5,
        ("servers", "one", "args", 1): 9,
        ("servers", "one", "args", 1, 1, "k"): 9,
        ("servers", "two three", "dotted", "key", "deep"): 12,
        ("servers", "two three", "text"): 13,
        ("list", 0): 16,
        ("list", 0, "sub"): 18,
        ("list", 1): 20,
        ("list", 1, "inner", 0): 22,
        ("list", 1, "inner", 0, "c"): 23,
    }
    assert expected == {path: document.places[path].line for path in expected}


def test_toml_lines_with_carriage_returns() -> None:
    """Line ends of Windows count as one."""
    document = parse_toml(TOML.replace("\n", "\r\n"), FILE)

    assert {path: p.line for path, p in parse_toml(TOML, FILE).places.items()} == {
        path: p.line for path, p in document.places.items()
    }


@given(st.text(alphabet="[]{}=\"'.,#\n ab1\\"))
def test_the_toml_scanner_survives_anything(text: str) -> None:
    """Of a text that is no TOML the scanner gives some places, and never an error."""
    scan_toml(text)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), JSON_VALUES), st.sampled_from([None, 0, 2]))
def test_every_json_key_has_a_place(data: dict[str, Any], indent: int | None) -> None:
    """Whatever a JSON file holds, its values come out as they are and each key and element has a place."""
    document = parse_json(json.dumps(data, indent=indent), FILE)

    assert data == document.data
    assert _paths(data) == set(document.places)


@given(st.dictionaries(st.text(), JSON_VALUES))
def test_comments_and_trailing_commas_change_nothing(data: dict[str, Any]) -> None:
    """Comments before and after each line and trailing commas leave the values as they are."""
    lines = json.dumps(data, indent=1).split("\n")
    text = "\n".join(f'/* , "x" */ {line} // "y" */' for line in lines)

    assert data == parse_json(text + "\n// end", FILE).data


@pytest.mark.parametrize("text", ['{"a": "// no, /* no */ ,]"}', '{"a": "\\\\", "b": "\\"//"}', '{"a,}": [",]"]}'])
def test_strings_are_no_comments(text: str) -> None:
    """What looks like a comment or a trailing comma within a string is text."""
    assert text == blank(text, FILE)


@pytest.mark.parametrize(
    "text", ['{"a": 1 /*', "{" + '"a":{' * 100_000, '{"a": Infinity}', "", "[1]", '{"a" 1}', '{"a": ' + "9" * 10_000 + "}"]
)
def test_bad_json_is_one_error(text: str) -> None:
    """Whatever is wrong, deep nesting included, is one error of the configuration."""
    with pytest.raises(ConfigError, match=r"/x"):
        parse_json(text, FILE)


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "[" * 50 + "]" * 50, "a = 1\na = 2", "[a]\n[a]", "a ="])
def test_bad_toml_is_one_error(text: str) -> None:
    """Whatever is wrong, deep nesting included, is one error of the configuration."""
    with pytest.raises(ConfigError, match=r"/x"):
        parse_toml(text, FILE)
