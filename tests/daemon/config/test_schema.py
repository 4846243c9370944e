"""The JSON Schemas of the configuration: they are what the readers of entries take, and what editors are given."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft4Validator, Draft7Validator

from mcpvisor.daemon.config import forms, meanings
from mcpvisor.daemon.config.config_file import decode
from mcpvisor.daemon.config.durations import INTENSITY_EXPECTED, intensity, seconds, size
from mcpvisor.daemon.config.json_source import parse_json
from mcpvisor.daemon.config.load import Loaded, load
from mcpvisor.daemon.config.names import carried_over
from mcpvisor.daemon.config.problems import ConfigError
from mcpvisor.daemon.config.schema import CREDENTIALS, HANDLERS, ROUTES, SERVERS, json_schema, toml_schema
from mcpvisor.daemon.config.server_entry import LATER, LATER_OF_TOOLS

ROOT = Path(__file__).parents[3]
INVALID = Path(__file__).parent / "testdata/invalid"
SHAPES = Path(__file__).parent / "testdata/real_shapes"
TOML = Draft7Validator(toml_schema())
JSON = Draft7Validator(json_schema())

NOT_SEEN = {
    "api-key-ours.toml": "which headers are the daemon's own",
    "api-key-twice.toml": "what two keys say together",
    "auth-both.toml": "what two keys say together",
    "backoff-bounds.toml": "what two keys say together",
    "both.toml": "",
    "client-key-file.toml": "what is in other files",
    "client-key.toml": "what a key in PEM form is",
    "client-plain.toml": "which addresses are safe",
    "env-inherit.toml": "which variables are the daemon's own",
    "header-and-auth.toml": "what two keys say together",
    "header-command-empty.toml": "what is in a list",
    "header-ours.toml": "which headers are the daemon's own",
    "header-value.toml": "what a header can carry",
    "nothing-to-run.toml": "",
    "tls-half.toml": "what two keys say together",
    "type-contradicts.toml": "what two keys say together",
    "url-colons.toml": "what a URL is",
    "url-scheme.toml": "what a URL is",
    "url-user.toml": "what a URL is",
    "variable-form.toml": "which forms of variables there are",
    "variable-open.toml": "which forms of variables there are",
    "variable-unset.toml": "which variables are set",
}
"""Mistakes that a schema cannot see, and what it would have to know."""


def parsed(file: Path) -> dict[str, Any] | None:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return None


@pytest.mark.parametrize(("name", "schema"), [("mcpvisor", toml_schema()), ("servers", json_schema())])
def test_the_file_that_ships_is_what_is_printed(name: str, schema: dict[str, Any]) -> None:
    """The committed schema equals the output of `mcpvisor config schema`, and is one in both drafts that editors know."""
    assert schema == json.loads((ROOT / f"configs/{name}.schema.json").read_text())
    Draft7Validator.check_schema(schema)
    Draft4Validator.check_schema(schema)


def _examples() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in [ROOT / "configs/mcpvisor.toml", *sorted((ROOT / "configs/servers.d").glob("*.toml"))]:
        yield file.name, tomllib.loads(file.read_text())
    for page in [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]:
        for number, text in enumerate(re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)):
            yield f"{page.name} {number}", tomllib.loads(text)


EXAMPLES = dict(_examples())
FAULTY = "configuration.md 2"
"""The example of what errors look like."""


@pytest.mark.parametrize(
    "name", sorted(name for name, data in EXAMPLES.items() if not set(data) <= {"subscriptions"} and name != FAULTY)
)
def test_every_example_fits(name: str) -> None:
    """The reference configuration, and every example of the documents, fit the schema, in both drafts."""
    assert [] == [error.message for error in TOML.iter_errors(EXAMPLES[name])]
    assert [] == [error.message for error in Draft4Validator(toml_schema()).iter_errors(EXAMPLES[name])]


def test_the_example_of_errors_does_not_fit() -> None:
    """An editor shows the mistakes of which the page says that `check` names them."""
    found = " ".join(error.message for error in TOML.iter_errors(EXAMPLES[FAULTY]))

    assert all(word in found for word in ("call_timeuot", "nevr", "soon"))


def test_the_examples_are_seen() -> None:
    """There are examples in files and on pages, so that the test above has something to look at."""
    assert {"mcpvisor.toml", "20-memory.toml", "README.md 0", "configuration.md 1", "handlers.md 0"} <= set(EXAMPLES)


@pytest.mark.parametrize("file", sorted(INVALID.glob("*.toml")), ids=lambda file: file.name)
def test_what_is_wrong_does_not_fit(file: Path) -> None:
    """A file with a mistake does not fit the schema, unless the mistake is one that no schema can see."""
    data = parsed(file)
    if data is None:
        return  # what is no TOML is seen by every editor
    fits = not list(TOML.iter_errors(data))

    assert fits == bool(NOT_SEEN.get(file.name)) if data else fits


OTHERS = [file for file in sorted(SHAPES.glob("*.json")) if file.name != "EXPECT.json"]


@pytest.mark.parametrize("file", OTHERS, ids=lambda file: file.name)
def test_files_of_other_programs_fit(
    file: Path, etc: Path, environ: dict[str, str], write: Callable[[Path, str | bytes], Path]
) -> None:
    """What other programs write fits the schema of JSON files, wherever its entries can be used."""
    try:
        data = parse_json(decode(file.read_bytes(), file), file).data
    except ConfigError:
        return  # what is no JSON is seen by every editor
    loaded = load([write(etc / file.name, file.read_bytes())], environ)
    wrong = {str(error.path[1]): error.message for error in JSON.iter_errors(data) if len(error.path) > 1}

    assert {} == {name: text for name, text in wrong.items() if carried_over(name) in loaded.specs}


def _all_keys(form: dict[str, Any], within: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for key, value in form.get("properties", {}).items():
        yield f"{within}{key}", value
        yield from _all_keys(value, f"{within}{key}.")
        for one in (value.get("items", {}), *value.get("items", {}).get("anyOf", [])):
            yield from _all_keys(one, f"{within}{key}[].")


def test_every_key_has_its_sentence() -> None:
    """Each key of the schema has a description, and no sentence is about a key that is not there."""
    whole = toml_schema()
    server = dict(_all_keys(whole["definitions"]["server"]))
    auth = [key for one in whole["definitions"]["server"]["properties"]["auth"]["oneOf"] for key in _all_keys(one)]
    handler = [key for one in whole["definitions"]["handler"]["oneOf"] for key in _all_keys(one)]
    settings = {
        k: v for k, v in _all_keys(whole) if k.partition(".")[0] in {key.partition(".")[0] for key in meanings.SETTINGS}
    }

    assert set(meanings.SERVER) == set(server)
    assert set(meanings.AUTH) == {key for key, _ in auth}
    assert set(meanings.HANDLER) == {key for key, _ in handler}
    assert set(meanings.ROUTE) == set(whole["definitions"]["route"]["properties"])
    assert set(meanings.ROUTING) == set(whole["properties"]["routing"]["properties"])
    assert set(meanings.SETTINGS) == set(settings)
    keys = [*server.items(), *auth, *handler, *settings.items()]
    assert [] == [key for key, form in keys if not form.get("description") or len(form) < 2]


def test_no_key_that_is_refused_is_offered() -> None:
    """Keys that are promised, and refused until they do something, are not in the schema."""
    server = toml_schema()["definitions"]["server"]["properties"]

    assert set() == set(LATER) & set(server)
    assert set() == set(LATER_OF_TOOLS) & set(server["tools"]["properties"])


def _entries() -> Iterator[tuple[str, dict[str, Any]]]:
    for example in SERVERS:
        yield "servers", dict(example)
    for examples in HANDLERS.values():
        yield from (("handlers", dict(example)) for example in examples)


@pytest.mark.parametrize(("table", "example"), list(_entries()))
def test_an_example_is_the_least_that_an_entry_says(
    table: str, example: dict[str, Any], load_text: Callable[..., Loaded]
) -> None:
    """The readers take each example from which the schema is learnt, and nothing of those that require more without a key."""

    def loaded(entry: dict[str, Any]) -> Loaded:
        return load_text(f"[{table}.a]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in entry.items()))

    assert () == loaded(example).problems
    for key in set(example) - {"header_command"}:
        assert loaded({k: v for k, v in example.items() if k != key}).problems, key


@pytest.mark.parametrize("example", [example for examples in CREDENTIALS.values() for example in examples])
def test_an_example_of_credentials_is_the_least_too(example: dict[str, Any], load_text: Callable[..., Loaded]) -> None:
    """Credentials with all keys of an example fit the schema, and without any of them neither the schema nor the reader."""
    for key in (None, *example):
        auth = {k: v for k, v in example.items() if k != key}
        data = {"servers": {"a": {"url": "https://example.com/mcp", "auth": auth}}}
        text = ", ".join(f"{k} = {json.dumps(v)}" for k, v in auth.items())
        problems = load_text(f'[servers.a]\nurl = "https://example.com/mcp"\nauth = {{ {text} }}\n').problems

        assert (key is None) == (not list(TOML.iter_errors(data)))
        assert key is None or problems


def test_a_route_needs_its_handler() -> None:
    """A route without a handler does not fit."""
    assert ["handler"] == list(ROUTES[0])
    assert not list(TOML.iter_errors({"routes": [{"handler": "a"}]}))
    assert list(TOML.iter_errors({"routes": [{"event": "state_changed"}]}))


DURATION = Draft7Validator(forms.duration(None, variable=False))
SIZE = Draft7Validator(forms.size(None))
INTENSITY = Draft7Validator(forms.expected(INTENSITY_EXPECTED, None))
WORDS = st.one_of(
    st.from_regex(r"\A[0-9]{1,3}(\.[0-9]{1,2})? ?(ms|s|m|h|d|kB|KiB|MB|x|)\Z"),
    st.from_regex(r"\A[0-9]{1,2} ?/ ?[0-9]{1,2}(ms|s|m|)\Z"),
    st.integers(-5, 5),
    st.booleans(),
    st.sampled_from(["", "off", "1e3s", "s", "-1s"]),
)


@given(value=WORDS)
def test_forms_take_what_their_readers_take(value: Any) -> None:
    """A value fits the form of durations, sizes and windows exactly where the reader of such a value takes it."""
    for validator, read in ((DURATION, seconds), (SIZE, size), (INTENSITY, intensity)):
        try:
            read(value)
            taken = True
        except ValueError:
            taken = False
        assert taken == validator.is_valid(value), (read.__name__, value)


def test_the_key_for_editors_means_nothing(load_text: Callable[..., Loaded]) -> None:
    """`$schema` in TOML and in JSON, and a `#:schema` line, are taken without a hint."""
    toml = load_text('#:schema ./mcpvisor.schema.json\n"$schema" = "x"\n[servers.a]\ncommand = "true"\n')
    other = load_text('{"$schema": "x", "mcpServers": {"b": {"command": "true"}}}', "b.json")

    assert ((), (), ["a"]) == (toml.problems, toml.hints, list(toml.specs))
    assert ((), (), ["a", "b"]) == (other.problems, other.hints, list(other.specs))
