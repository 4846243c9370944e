"""The house is built as its plan says: imports, links, first sentences, packages, and nothing of anybody's workplace."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "mcpvisor"
PARTS = ("supervisor", "metrics", "daemon")
"""A part may import those that stand before it."""
MODULES = sorted(PACKAGE.rglob("*.py"))


def name(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@functools.cache
def imports(path: Path) -> tuple[str, ...]:
    """The full name of everything a module imports, anywhere in it."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("part", PARTS)
def test_imports_run_one_way(part):
    """daemon imports metrics and supervisor, metrics imports supervisor, supervisor imports neither."""
    allowed = {"mcpvisor.__version__", *(f"mcpvisor.{other}" for other in PARTS[: PARTS.index(part) + 1])}
    wrong = [
        f"{name(path)} imports {one}"
        for path in (PACKAGE / part).rglob("*.py")
        for one in imports(path)
        if one.split(".")[0] == "mcpvisor" and not any(one == ok or one.startswith(f"{ok}.") for ok in allowed)
    ]

    assert [] == wrong


def test_the_supervisor_runs_on_any_event_loop():
    """The supervisor knows neither asyncio nor trio, nor what builds on one of them; metrics knows no event loop at all."""
    closed = {"asyncio", "trio", "uvicorn", "starlette", "structlog", "pydantic_settings", "prometheus_client"}
    wrong = [f"{name(p)}: {i}" for p in (PACKAGE / "supervisor").rglob("*.py") for i in imports(p) if i.split(".")[0] in closed]
    loops = {"asyncio", "trio", "anyio"}
    wrong += [f"{name(p)}: {i}" for p in (PACKAGE / "metrics").rglob("*.py") for i in imports(p) if i.split(".")[0] in loops]

    assert [] == wrong


def test_metrics_knows_values_of_the_supervisor_and_nothing_that_acts():
    """metrics imports the supervisor's events, states, outcomes and observer alone."""
    known = {"events", "host_events", "states", "errors", "observer"}
    found = {
        one.split(".")[2] for path in (PACKAGE / "metrics").rglob("*.py") for one in imports(path) if ".supervisor." in one
    }

    assert set() == found - known


def test_the_links_at_the_root_are_doors_only():
    """Each part has a link at the root, and nothing is imported through it."""
    code = [*MODULES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    through = [f"{path}: {one}" for path in code for one in imports(path) if one.split(".")[0] in PARTS]

    assert {part: f"src/mcpvisor/{part}" for part in PARTS} == {part: os.readlink(ROOT / part) for part in PARTS}
    assert [] == through


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_each_module_says_what_it_owns(path):
    """A module begins with one sentence on one line."""
    first = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0]

    assert first.endswith((".", ":")), first
    assert "\n" not in first


def test_a_wheel_from_the_source_distribution_holds_the_whole_package(tmp_path):
    """The wheel made of the source distribution has every file of src and of data, and no other."""
    build = "import sys, flit_core.buildapi as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"

    def make(what: str, where: Path) -> Path:
        command = [sys.executable, "-c", build, what, str(tmp_path)]
        done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=60, check=True)
        return tmp_path / done.stdout.strip().splitlines()[-1]

    with tarfile.open(make("build_sdist", ROOT)) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    with zipfile.ZipFile(make("build_wheel", unpacked)) as wheel:
        held = {one for one in wheel.namelist() if ".dist-info/" not in one and ".data/" not in one}
        beside = {one.partition(".data/data/")[2] for one in wheel.namelist() if ".data/" in one}
        licences = [one for one in wheel.namelist() if one.endswith("licenses/LICENSE")]
    written = {str(p.relative_to(SOURCE)) for p in PACKAGE.rglob("*") if p.is_file() and "__pycache__" not in p.parts}

    installed = {str(p.relative_to(ROOT / "data")) for p in (ROOT / "data").rglob("*") if p.is_file()}

    assert written == held
    assert installed == beside
    assert "share/man/man1/mcpvisor.1" in beside
    assert "mcpvisor/metrics/assets/rules/mcpvisor.yml" in held
    assert 1 == len(licences)


@pytest.mark.parametrize(("lock", "groups"), [("runtime", ["build"]), ("dev", ["build", "tests", "lint", "types"])])
def test_the_lock_files_hold_what_the_project_asks_for(lock, groups):
    """Every requirement is locked to one version that satisfies it, with hashes, and without the name of any host."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    text = (ROOT / "requirements" / f"{lock}.lock").read_text()
    locked = {match[1]: match[2] for match in re.finditer(r"^([a-z0-9-]+)==([^ ;\\]+)", text, re.MULTILINE)}
    asked = [*project["project"]["dependencies"], *(one for group in groups for one in project["dependency-groups"][group])]
    wanted = {one.name.replace("_", "-").lower(): one.specifier for one in map(Requirement, asked)}

    assert [] == [one for one, specifier in wanted.items() if one not in locked or not specifier.contains(locked[one])]
    assert len(locked) == len(re.findall(r"^[a-z0-9-]+==.*\\\n    --hash=sha256:", text, re.MULTILINE))
    assert [] == re.findall(r".*://.*", text)


def test_the_npm_lock_names_no_registry():
    """The npm packages of the tests are pinned by checksum, wherever they are fetched from."""
    packages = json.loads((ROOT / "tests" / "node" / "package-lock.json").read_text())["packages"]

    assert [] == [path for path, package in packages.items() if "resolved" in package]
    assert [] == [path for path, package in packages.items() if path and "integrity" not in package]


def test_nothing_speaks_of_anybody_s_workplace():
    """No file names a folder outside of the repository that only its authors have."""
    folders = ("src", "tests", "docs", "configs", "systemd", "benchmarks", "requirements", ".ci")
    files = [*(path for folder in folders for path in (ROOT / folder).rglob("*")), *ROOT.iterdir()]
    private = re.compile(
        "|".join(("/work" + r"/\w", r"\.\./" + "shared", "/tmp/" + "brief", "/root" + r"/\.", "issues" + " show"))
    )
    found = []
    for path in files:
        if path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts:
            text = path.read_bytes().decode("utf-8", "replace")
            found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in private.finditer(text)]

    assert [] == found
