"""docs/configuration.md holds every key with the default of the code."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from mcpvisor.daemon.config import address, launch
from mcpvisor.daemon.config.authorisation import AuthType
from mcpvisor.daemon.config.check import CheckResult
from mcpvisor.daemon.config.config_file import MAX_BYTES
from mcpvisor.daemon.config.durations import intensity, seconds, size
from mcpvisor.daemon.config.expansion import MAX_TEXT
from mcpvisor.daemon.config.load import Loaded, load
from mcpvisor.daemon.config.places import places
from mcpvisor.daemon.config.positions import MAX_DEPTH, MAX_GROWN, MAX_NUMBER, MAX_VALUES
from mcpvisor.daemon.config.settings import SECTIONS, Settings, default_values
from mcpvisor.daemon.config.telling import MOST
from mcpvisor.supervisor.auth.assertion import ASSERTION_SECONDS
from mcpvisor.supervisor.auth.command_source import AGAIN, COMMAND_SECONDS, MAX_OUTPUT
from mcpvisor.supervisor.auth.kinds import CREDENTIAL_HEADERS, ApiKey, Bearer, ClientCredentials
from mcpvisor.supervisor.auth.printed import DEFAULT_LIFE
from mcpvisor.supervisor.auth.token import FIRST_DELAY, JITTER, MARGIN, MAX_DELAY
from mcpvisor.supervisor.spec import RESTARTING, HttpTarget, ResourceLimits, ServerSpec, StdioLaunch, TlsTrust

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "configuration.md").read_text()
PLAIN = ServerSpec(name="plain", target=StdioLaunch(command="true"))


def table(title: str, number: int = 0) -> dict[str, list[str]]:
    """The rows of a table by their first cell."""
    text = PAGE[PAGE.index(title) :]
    found = re.findall(r"^\|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)[number]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found.splitlines()]
    return {key: row[1:] for row in rows for key in re.findall(r"`([^`]+)`", row[0])}


def value(cell: str) -> Any:
    return tomllib.loads(f"value = {cell.strip('`')}")["value"]


@pytest.fixture
def loaded(tmp_path: Path):
    """What is loaded of a text as the main file of a folder of our own."""

    def loaded(text: str) -> Loaded:
        tmp_path.chmod(0o755)
        (tmp_path / "mcpvisor.toml").write_text(text)
        (tmp_path / "mcpvisor.toml").chmod(0o644)
        return load([tmp_path], {"HOME": "/root", "PATH": "/usr/bin:/bin"})

    return loaded


def test_every_setting_is_there_with_its_default():
    """The settings on the page, with their defaults, are those of a system service."""
    written: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for key, (default, _) in table("## Settings").items():
        section, name = key.split(".")
        written[section][name] = value(default)
    defaults = Settings.model_validate(default_values(places({}, 0)))

    assert {section: set(keys) for section, keys in defaults.model_dump().items()} == {s: set(k) for s, k in written.items()}
    assert defaults == Settings.model_validate(written)


def test_every_key_of_a_server_is_there_with_its_default():
    """The keys of any server, with their defaults, are the fields of a spec."""
    written = {key: row[0] for key, row in table("## Keys of a server").items()}
    of_kind = {"name", "target", "origin", "shown_name"}
    expected: dict[str, Any] = {}
    for field in fields(ServerSpec):
        default = getattr(PLAIN, field.name)
        if field.name in {"stop", "restart", "probe", "tools"}:
            expected |= {f"{field.name}.{inner.name}": getattr(default, inner.name) for inner in fields(default)}
        elif field.name not in of_kind:
            expected[field.name] = default

    assert set(expected) == set(written)
    assert expected == {key: _read(value(cell), expected[key]) for key, cell in written.items()}


def _read(written: Any, like: Any) -> Any:
    """The written default in the form of the code's own."""
    if written == "off":
        return None
    if isinstance(written, list):
        return tuple(written)
    if isinstance(written, str) and isinstance(like, float):
        return seconds(written)
    if isinstance(written, str) and "/" in written:
        return intensity(written)
    return size(written) if isinstance(written, str) and isinstance(like, int) else written


def test_what_an_edit_does_is_there_as_the_code_says():
    """A key whose edit restarts its server is one of the fields that the code names so."""
    for key, (_, edit, _) in table("## Keys of a server").items():
        field = key.split(".")[0]
        expected = "starts, stops" if field == "enabled" else "restarts" if field in RESTARTING else "in place"
        assert (key, expected) == (key, "in place" if edit == "next start" else edit)


def test_the_keys_of_each_kind_are_there():
    """The keys of servers with a command, and of those with a url, are those that the readers of entries know."""
    of_command = {key.split(".")[0] for key in table("## Keys of a server", 1)}
    of_url = {key.split(".")[0] for key in table("## Keys of a server", 2)}
    limits = {key.split(".")[1] for key in table("## Keys of a server", 1) if key.startswith("limits.")}
    tls = {key.split(".")[1] for key in table("## Keys of a server", 2) if key.startswith("tls.")}

    assert set(launch.KEYS) == of_command
    assert {*address.KEYS, "type", "transport"} == of_url
    assert {field.name for field in fields(ResourceLimits)} == limits
    assert {field.name for field in fields(TlsTrust)} - {"replace", "contents"} | {"ca_mode"} == tls


def test_the_example_is_right(loaded):
    """The example loads without an error or a hint, and says what it seems to say."""
    example = re.search(r"## An example\n\n```toml\n(.*?)```", PAGE, re.DOTALL)
    assert example
    found = loaded(example[1])

    assert ((), ()) == (found.problems, found.hints)
    assert ["files", "docs"] == list(found.specs)
    assert {120.0} == {spec.call_timeout for spec in found.specs.values()}
    assert isinstance(found.specs["docs"].target, HttpTarget)
    assert ("read_*", "list_*") == found.specs["files"].tools.allow


@pytest.mark.parametrize("form", ["${PATH}", "${NO:-default}", "${env:PATH}", "$VAR", "$${"])
def test_each_form_of_a_variable_is_read(loaded, form):
    """The forms on the page are those that are read."""
    assert f"`{form}`" in PAGE.replace("${VAR", "${PATH").replace("${PATH:-", "${NO:-").replace("env:VAR", "env:PATH")
    assert () == loaded(f'[servers.a]\ncommand = "true"\nargs = ["{form}"]\n').problems


def test_credentials_are_there_as_the_code_has_them():
    """Every type of credentials with its keys, the headers that rotate, and the times and sizes, are those of the code."""
    text = " ".join(PAGE[PAGE.index("## Credentials") : PAGE.index("## Reload")].split())
    kinds = {"bearer": Bearer, "api_key": ApiKey, "client_credentials": ClientCredentials}
    rows = re.findall(r'\| `"(\w+)"` \|[^|]*\|([^|]*)\|', text)
    in_place = text[text.index("In place are edits of") :]

    assert {kind.value for kind in AuthType} == set(kinds) == {name for name, _ in rows}
    assert {name: {field.name for field in fields(kind)} for name, kind in kinds.items()} == {
        name: set(re.findall(r"`(\w+)(?: =[^`]*)?`", keys)) for name, keys in rows
    }
    assert CREDENTIAL_HEADERS == {name.lower() for name in re.findall(r"`([A-Z][A-Za-z-]+)`", in_place)}
    assert f"renewed within {MARGIN:g} s before" in text
    assert f"after {FIRST_DELAY:g} s, doubled up to {MAX_DELAY:g} s" in text
    assert f"good for {ASSERTION_SECONDS:g} s" in text
    assert f"for at most {COMMAND_SECONDS:g} s and {MAX_OUTPUT // 1024} KiB" in text
    assert f"they are used for {DEFAULT_LIFE:g} s" in text
    assert f"one that fails is run again after {AGAIN:g} s" in text
    assert JITTER == 0.5


def test_errors_read_as_on_the_page(loaded):
    """What `check` says of the example is what stands below it."""
    section = PAGE[PAGE.index("## Errors") : PAGE.index("## Reload")]
    text, said = re.findall(r"```(?:toml|text)\n(.*?)```", section, re.DOTALL)
    found = loaded(text)
    told = CheckResult(found).lines()

    assert said.splitlines() == [line.replace(str(found.files[0].parent), "/etc/mcpvisor") for line in told]


def test_the_bounds_of_a_file_are_those_of_the_code():
    """The page names them all."""
    section = " ".join(PAGE[PAGE.index("## Errors") : PAGE.index("## Reload")].split())

    assert f"Of one file the first {MOST} errors are told" in section
    assert f"A file may hold {MAX_BYTES // 1024**2} MiB, {MAX_VALUES} keys and values, {MAX_DEPTH} levels" in section
    assert f"numbers of {MAX_NUMBER} characters" in section
    assert (
        f"may become {MAX_TEXT // 1024**2} MiB with its variables replaced, and all of a file {MAX_GROWN // 1024**2} MiB"
        in section
    )
