"""Owns what all tests share: the backend of async tests, the puppet servers, and which real programs there are to test with.

A test that needs a real program carries a marker. Where the program is missing the test is deselected, and the end of the
run says so with the remedy. With MCPVISOR_REQUIRE_ALL=1, as in CI, a missing program is an error, and so is any test that
was skipped or deselected.

Tests that measure carry the marker `alone`. `make test` runs these first, one after another (`--alone=only`), and then all
others side by side (`--alone=without -n ...`). Side by side, the tests of a module that share something (a daemon, mostly) go
to the same process, so that it is made once, and what takes longest begins first.
"""

from __future__ import annotations

import functools
import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
SERVERS = Path(__file__).parent / "servers"
REQUIRE_ALL = os.environ.get("MCPVISOR_REQUIRE_ALL") == "1"
AUTHORITIES = Path(__file__).with_name("authorities.pem")
"""The one authority that is trusted where nothing is measured: to read those of the system takes longer than most tests."""

OUTPUT = "mcpvisor-selection"
"""Where a process of several keeps what it has left out."""


class Component(NamedTuple):
    """What tests of a marker need; `lacking` says what is missing of it, or nothing."""

    lacking: Callable[[], str]
    remedy: str


def node_folder() -> Path:
    """The folder of the npm packages: `$NODE_SERVERS`, or .node in the checkout."""
    return Path(os.environ.get("NODE_SERVERS") or ROOT / ".node").absolute()


def _node_lacking() -> str:
    modules = node_folder() / "node_modules"
    if not (modules / "@modelcontextprotocol" / "server-everything").is_dir():
        return f"no MCP servers in {modules}"
    if not all((modules / f"conformance-{version}").is_dir() for version in ("0.1", "0.2")):
        return f"no conformance suites in {modules}"
    return "" if (modules / ".bin" / "node").exists() else f"no node in {modules}/.bin"


def _prometheus_lacking() -> str:
    missing = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    return f"no {' and no '.join(missing)} on the PATH" if missing else ""


_TRY_MACHINE = """
mount -t tmpfs none /mnt && mkdir /mnt/upper /mnt/work /mnt/root &&
mount -t overlay none -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
"""
"""What the machine for systemd tests is made of; many containers forbid it, to root too. Undone with its namespace."""


_TELL_VERSION = "import sys; print(*sys.version_info[:2], sep='.')"


def _systemd_lacking() -> str:
    if os.geteuid() != 0:
        return "not run as root"
    programs = ("systemctl", "systemd-sysusers", "unshare", "nsenter", "setpriv", "ip")
    missing = [name for name in programs if shutil.which(name) is None]
    missing += [name for name in ("/lib/systemd/systemd", "/usr/bin/python3") if not Path(name).exists()]
    if missing:
        return f"no {' and no '.join(missing)}"
    if cgroup_mount() is None:
        return "no control groups of version 2 are mounted"
    version = ".".join(map(str, sys.version_info[:2]))
    systems = subprocess.run(["/usr/bin/python3", "-c", _TELL_VERSION], capture_output=True, text=True).stdout.strip()
    if systems != version:  # the program's dependencies are taken from where the tests run
        return f"/usr/bin/python3 is {systems or 'broken'} and the tests run under {version}"
    tried = subprocess.run(["unshare", "--mount", "--pid", "--fork", "sh", "-c", _TRY_MACHINE], capture_output=True, text=True)
    return f"no namespaces and overlays may be made here ({tried.stderr.strip()})" if tried.returncode else ""


def _shells_lacking() -> str:
    missing = [name for name in ("zsh", "fish", "mandoc") if shutil.which(name) is None]
    return f"no {' and no '.join(missing)} on the PATH" if missing else ""


def cgroup_mount() -> Path | None:
    """Where control groups of version 2 are mounted, None where they are not."""
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)


def _cgroup_lacking() -> str:
    mount = cgroup_mount()
    if mount is None:
        return "no cgroup2 file system is mounted"
    return "" if os.geteuid() == 0 and os.access(mount, os.W_OK) else f"{mount} cannot be written by this user"


COMPONENTS = {
    "cgroup": Component(_cgroup_lacking, "run as root on a machine, or in a container, with control groups of version 2"),
    "node": Component(_node_lacking, "cp -r tests/node/. .node && npm install --prefix .node --no-save"),
    "prometheus": Component(_prometheus_lacking, "apt-get install prometheus"),
    "shells": Component(_shells_lacking, "apt-get install zsh fish mandoc"),
    "systemd": Component(_systemd_lacking, "as root, not in a container: apt-get install systemd iproute2"),
}


class Selection:
    """What is left out of a run, told at its end; in a run on several processes by the one that gathers their results."""

    def __init__(self, phase: str | None) -> None:
        self.phase = phase
        """Of the two phases of a whole run the one that this is; None where all tests run in one."""
        self.lacking: dict[str, tuple[int, str]] = {}
        self.left_out: list[str] = []

    @pytest.hookimpl(trylast=True)  # after -k and -m
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if self.phase is not None:  # what belongs to the other phase is not left out
            items[:] = [item for item in items if bool(item.get_closest_marker("alone")) == (self.phase == "only")]
        for marker, component in COMPONENTS.items():
            marked = [item for item in items if item.get_closest_marker(marker)]
            lacking = component.lacking() if marked else ""
            if not lacking:
                continue
            if REQUIRE_ALL and not hasattr(config, "workerinput"):  # a process of several cannot end the run; its end fails
                raise pytest.UsageError(f"{len(marked)} tests need {marker}: {lacking}. Remedy: {component.remedy}")
            self.lacking[marker] = (len(marked), lacking)
            config.hook.pytest_deselected(items=marked)
            items[:] = [item for item in items if item not in marked]

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self.left_out += [f"{item.nodeid} (deselected)" for item in items]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._take(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._take(report)

    def _take(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.left_out.append(f"{report.nodeid} (skipped)")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A process of several has ended: each has collected all tests, so that each tells the same."""
        told = getattr(node, "workeroutput", {}).get(OUTPUT)
        if told is not None:
            self.lacking |= {marker: tuple(what) for marker, what in told["lacking"].items()}
            self.left_out += [one for one in told["left_out"] if one not in self.left_out]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[OUTPUT] = {"lacking": self.lacking, "left_out": self.left_out}
        if self.phase is not None and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK  # all that were asked for belong to the other phase
        if REQUIRE_ALL and self.left_out and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for marker, (count, lacking) in self.lacking.items():
            tests = "1 test" if count == 1 else f"{count} tests"
            remedy = COMPONENTS[marker].remedy
            terminalreporter.write_line(f"NOT RUN: {tests} with real {marker}: {lacking}. Remedy: {remedy}", yellow=True)
        if REQUIRE_ALL and self.left_out:
            terminalreporter.write_line(
                "FAILED: with MCPVISOR_REQUIRE_ALL=1 no test may be left out, and these were:", red=True
            )
            for one in self.left_out:
                terminalreporter.write_line(f"  {one}", red=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--alone", choices=("without", "only"), help="run without the tests marked `alone`, or only those")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests are a great many objects and no garbage: nobody looks through them, neither now nor while tests run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    if "hypothesis" not in sys.modules:  # it asks the collector who holds what, and is imported after the last test then
        gc.unfreeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.get_closest_marker("slow"))  # a long one that begins last is waited for by all


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give out tests one by one, but those of a module that share something in one piece, and these first.

    `--dist loadgroup` would do the same, were it not for pytest 9.2, which has no room for its marks.
    """
    from xdist.scheduler import LoadScopeScheduling

    @functools.cache
    def shares(module: str) -> bool:
        return 'scope="module"' in (config.rootpath / module).read_text()

    class Pieces(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.partition("::")[0]
            return module if shares(module) else nodeid

    return Pieces(config, log)


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("NODE_SERVERS", str(node_folder()))
    if config.getoption("alone") == "without":
        os.environ.setdefault("SSL_CERT_FILE", str(AUTHORITIES))
    config.pluginmanager.register(Selection(config.getoption("alone")), "mcpvisor-selection")


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Async tests run on asyncio unless their module widens the choice."""
    return request.param


@pytest.fixture
def servers() -> Path:
    """The folder of the puppet servers."""
    return SERVERS


@pytest.fixture
def node_servers() -> Path:
    """The folder whose node_modules holds the real MCP servers and their node; for tests marked `node`."""
    return node_folder()
