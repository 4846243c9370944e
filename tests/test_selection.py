"""The tests with real programs are never left out in silence."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

@pytest.mark.prometheus
def test_with_prometheus(): pass

@pytest.mark.node
def test_with_node(): pass

def test_plain(): pass
"""
SKIPPED = """
import pytest

@pytest.mark.skip(reason="not today")
def test_skipped(): pass

def test_plain(): pass
"""


MEASURING = """
import pytest

@pytest.mark.alone
def test_measuring(): pass

def test_plain(): pass
"""


@pytest.fixture
def run(tmp_path: Path):
    """Run pytest on a text of tests beside this project's conftest, on a machine that has no real program."""
    shutil.copyfile(Path(__file__).parent / "conftest.py", tmp_path / "conftest.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  alone: a\n  node: n\n  prometheus: p\n")
    (tmp_path / "bin").mkdir()

    def run(tests: str, *options: str, **environ: str) -> tuple[int, str]:
        (tmp_path / "test_these.py").write_text(tests)
        kept = {name: value for name, value in os.environ.items() if name not in ("MCPVISOR_REQUIRE_ALL", "PYTEST_ADDOPTS")}
        alone = {"PATH": str(tmp_path / "bin"), "NODE_SERVERS": str(tmp_path / "none"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "xdist", *options, str(tmp_path)]
        done = subprocess.run(
            command, env={**kept, **alone, **environ}, cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_tests_without_their_program_are_deselected_aloud(run, options):
    """Where a real program is missing its tests are deselected, and the end of the run says which, why, and the remedy."""
    code, told = run(TESTS, *options)

    assert 0 == code, told
    assert "NOT RUN: 1 test with real prometheus: no prometheus and no promtool on the PATH. Remedy: apt-get install" in told
    assert "NOT RUN: 1 test with real node: no MCP servers in " in told
    assert "1 passed" in told.splitlines()[-1]


def test_a_required_program_that_is_missing_is_an_error(run):
    """With MCPVISOR_REQUIRE_ALL=1 a missing program ends the run before any test."""
    code, told = run(TESTS, MCPVISOR_REQUIRE_ALL="1")

    assert pytest.ExitCode.USAGE_ERROR == code
    assert "1 tests need node: no MCP servers in " in told


def test_a_required_program_that_is_missing_fails_a_run_on_several_processes(run):
    """There the tests without it are left out, which with MCPVISOR_REQUIRE_ALL=1 is a failure that names them."""
    code, told = run(TESTS, "-n", "2", MCPVISOR_REQUIRE_ALL="1")

    assert pytest.ExitCode.TESTS_FAILED == code
    assert "test_these.py::test_with_node (deselected)" in told


@pytest.mark.parametrize(("required", "expected"), [("0", 0), ("1", 1)])
def test_a_required_test_that_is_skipped_is_a_failure(run, required, expected):
    """With MCPVISOR_REQUIRE_ALL=1, and only with it, a skipped test fails the run and is named."""
    code, told = run(SKIPPED, MCPVISOR_REQUIRE_ALL=required)

    assert expected == code, told
    assert bool(expected) == ("test_these.py::test_skipped (skipped)" in told)


@pytest.mark.parametrize("options", [(), ("-n", "2")])
@pytest.mark.parametrize(("phase", "expected"), [("without", "test_plain"), ("only", "test_measuring")])
def test_a_run_in_two_phases_leaves_nothing_out(run, options, phase, expected):
    """Tests that measure run in a phase of their own; what belongs to the other phase does not count as left out."""
    code, told = run(MEASURING, f"--alone={phase}", "-vv", *options)

    assert 0 == code, told
    assert "1 passed" in told.splitlines()[-1]
    assert f"test_these.py::{expected}" in told
    assert "left out" not in told


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_a_phase_to_which_no_test_belongs_is_no_failure(run, options):
    """`make test` with a choice of tests may leave nothing for one of its phases."""
    assert 0 == run(MEASURING, "--alone=only", "-k", "plain", *options)[0]
