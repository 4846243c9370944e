"""Whatever is wrong with a file of the configuration: an error that names it, and a daemon that goes on as before.

Five hundred files are made from one seed, which is shown with any failure. Each is read as `mcpvisor check` reads it, and
by a daemon that runs: it may lose no server by it, and forgets it when it is mended.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.e2e.broken_places import Place, all_places, clear, unreadable_places
from tests.e2e.broken_texts import JSON, KINDS, MAIN, TOML, Text, Texts, good_texts
from tests.e2e.running import RunningDaemon, entry, serving

from mcpvisor.daemon.config.load import load
from mcpvisor.daemon.config.telling import MOST

TEXTS_OF_A_KIND = 25
PLACES_OF_A_KIND = 22
UNREADABLE = 40
ANSWERED_WITHIN = 20.0
"""Seconds for one reload, on a machine with much else to do; a file must not hold it for as long as it likes."""
MORE_MEMORY = 400 * 1024 * 1024
OTHERS = "servers.d/others.toml"
WITHOUT_PRIVILEGES = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search")


def unprivileged(command: list[str]) -> list[str]:
    """The command without the privileges over files that root has, under which nothing would be unreadable."""
    return [*WITHOUT_PRIVILEGES, *command] if os.geteuid() == 0 else command


class Besieged(RunningDaemon):
    """A daemon without privileges over files, and the good files that it starts with."""

    def start(self) -> subprocess.Popen[bytes]:
        command = unprivileged([sys.executable, "-m", "mcpvisor.daemon.cli.main", "run", "--config", str(self.config)])
        with self.log.open("ab") as log:
            environ = {**os.environ, "BOMB": "x" * 1000}
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ)
        return self.process

    @property
    def config(self) -> Path:
        return self.folder / "config"

    def keep_good(self, lite: Path) -> None:
        """Remember what is good, with two more files of servers, and come to run on it."""
        lines = {name: [sys.executable, str(lite), "--name", name] for name in ("own", "theirs")}
        self.good = good_texts(lines, (self.config / MAIN).read_text())
        self.others = (self.config / OTHERS).read_text()
        self.mend()
        assert self.reload()["ok"]
        self.until_ready()
        self.pids = self.pids_now()
        self.first_memory = self.memory()

    def mend(self) -> None:
        """Put the good files in the place of whatever is there."""
        clear(self.config)
        for name, text in {**self.good, OTHERS: self.others}.items():
            (self.config / name).write_text(text)
            (self.config / name).chmod(0o644)

    def reload(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.control.post("/v1/reload", timeout=ANSWERED_WITHIN)
        return answer

    def pids_now(self) -> dict[str, int | None]:
        return {one["name"]: one["pid"] for one in self.status()["servers"] if one["pid"] is not None}

    def memory(self) -> int:
        return psutil.Process(self.main_pid).memory_info().rss

    @property
    def main_pid(self) -> int:
        return self.process.pid

    def assert_unharmed(self) -> None:
        """It runs, and every server that was good runs on in the process it had."""
        assert self.process.poll() is None
        assert self.pids == self.pids_now()


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    """One daemon for all files, with two servers in a file of their own, and one in each of the files that get broken."""
    lite = Path(__file__).parents[1] / "servers" / "lite.py"
    folder = tmp_path_factory.mktemp("b")
    running = Besieged(folder, "")
    try:
        (running.drop_ins / "servers.toml").rename(running.config / OTHERS)
        (running.config / OTHERS).write_text(entry("one", sys.executable, lite) + entry("two", sys.executable, lite))
        running.until_serving()
        running.keep_good(lite)
        yield running
        assert "Traceback" not in running.log_text()
    finally:
        running.clear()


@pytest.fixture(scope="module")
def seed() -> int:
    """The number that all files follow from: `MCPVISOR_BROKEN_SEED`, or the same as ever; shown with any failure."""
    seed = int(os.environ.get("MCPVISOR_BROKEN_SEED") or 2026)
    print(f"MCPVISOR_BROKEN_SEED={seed}")
    return seed


def escaped(path: Path) -> str:
    """A path as an error shows it."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(path))


def lines_of(rejected: list[dict[str, Any]], file: Path) -> list[int]:
    """The lines of a file that errors name; 0 for one without a line."""
    found = [re.fullmatch(re.escape(escaped(file)) + r"(?::(\d+)(?::\d+)?)?", one["where"]) for one in rejected]
    return [int(match[1] or 0) for match in found if match is not None]


def look(besieged: Besieged, what: str, file: Path) -> list[dict[str, Any]]:
    """What a reload rejects now; nothing else may have come of it."""
    report = besieged.reload()
    config = besieged.status()["config"]

    assert not report["ok"], what
    assert (False, report["rejected"]) == (config["ok"], config["rejected"]), what
    assert [] == report["changes"], what
    assert all(one["error"].isprintable() and one["where"].isprintable() for one in report["rejected"]), what
    assert max(len(one["error"]) for one in report["rejected"]) < 1200, what
    assert len(report["rejected"]) <= 2 * MOST, what
    besieged.assert_unharmed()
    rejected: list[dict[str, Any]] = report["rejected"]
    assert lines_of(rejected, file), f"{what}: {rejected}"
    return rejected


def assert_mended(besieged: Besieged, what: str) -> None:
    """With the good files back all is as it was."""
    besieged.mend()
    report = besieged.reload()

    assert (True, [], []) == (report["ok"], report["rejected"], report["changes"]), what
    besieged.assert_unharmed()


def check_in_process(besieged: Besieged) -> dict[tuple[str, str], str]:
    """What `mcpvisor check` finds: place and fault of each error."""
    environ = {**os.environ, "BOMB": "x" * 1000}
    return {(problem.where, problem.fault): problem.where for problem in load([besieged.config], environ).problems}


def assert_same_as_check(found: Mapping[tuple[str, str], str], rejected: list[dict[str, Any]], what: str) -> None:
    """A reload says what `check` says at each place, and what runs meanwhile behind it."""
    assert found, what
    for where, fault in found:
        said = [one["error"] for one in rejected if one["where"] == where and one["error"].startswith(fault)]
        assert said, f"{what}: {where}: {fault} is not in {rejected}"


def described(text: Text) -> str:
    """A broken text as a failure shows it."""
    shown = text.content if len(text.content) < 400 else text.content[:200] + b"..." + text.content[-200:]
    return f"{text.kind} {text.target}: {shown!r}"


@pytest.mark.parametrize("kind", KINDS)
def test_broken_texts(besieged: Besieged, seed: int, kind: str) -> None:
    """A text that is wrong is named with file and line, by `check` and by a daemon, which goes on as it was."""
    besieged.mend()
    count = 0
    for text in Texts(besieged.good, seed, kind).some(TEXTS_OF_A_KIND):
        what, file = described(text), besieged.config / text.target
        file.write_bytes(text.content)
        found = check_in_process(besieged)
        rejected = look(besieged, what, file)

        assert_same_as_check(found, rejected, what)
        lines = lines_of(rejected, file)
        assert (text.line in lines) if text.line is not None else any(lines), f"{what}: {rejected}"
        assert all(one["error"].endswith(")") for one in rejected if not one["error"].startswith("and ")), what
        assert_mended(besieged, what)
        count += 1

    assert (14, TEXTS_OF_A_KIND) == (len(KINDS), count)
    assert besieged.memory() < besieged.first_memory + MORE_MEMORY


def test_what_is_no_file(besieged: Besieged, seed: int) -> None:
    """Links that lead nowhere, pipes, devices, gigabytes, files that others may write and odd names hold no daemon up."""
    besieged.mend()
    count = 0
    for place in all_places(besieged.good, seed, PLACES_OF_A_KIND):
        what, file = f"{place.kind} {place.target!r} {place.said}", besieged.config / place.target
        clear(besieged.config)
        for name, text in {**besieged.good, OTHERS: besieged.others}.items():
            if name != place.target:
                (besieged.config / name).write_text(text)
        place.put(besieged.config)
        found = check_in_process(besieged)
        rejected = look(besieged, what, file)

        assert_same_as_check(found, rejected, what)
        assert any(place.said in one["error"] for one in rejected), f"{what}: {rejected}"
        assert_mended(besieged, what)
        count += 1

    assert 5 * PLACES_OF_A_KIND == count


def test_what_may_not_be_read(besieged: Besieged, seed: int) -> None:
    """A file or a folder that the daemon's user may not read is an error that says so, and never "no servers"."""
    besieged.mend()
    for number, place in enumerate(unreadable_places(seed, UNREADABLE)):
        what, file = f"{place.kind} {place.target}", _named(place, besieged.config)
        place.put(besieged.config)
        if number < 4:  # the real command, now and then: it takes its time to start
            command = [sys.executable, "-m", "mcpvisor.daemon.cli.main", "check", "--json", str(besieged.config)]
            checked = subprocess.run(unprivileged(command), capture_output=True, text=True, timeout=60)
            assert 78 == checked.returncode, f"{what}: {checked}"
            assert any(place.said in one["error"] for one in json.loads(checked.stdout)["errors"]), what
        rejected = look(besieged, what, file)

        assert any(place.said in one["error"] for one in rejected), f"{what}: {rejected}"
        assert_mended(besieged, what)


def _named(place: Place, config: Path) -> Path:
    return config if place.target == "." else config / place.target


@pytest.mark.parametrize("verb", ["check", "plan", "reload", "status"])
def test_every_verb_tells_the_same(besieged: Besieged, verb: str) -> None:
    """`check`, `plan`, `reload` and `status` name the same places with the same words; a daemon adds what runs meanwhile."""
    besieged.mend()
    (besieged.config / TOML).write_text('[servers.own]\ncommand = "true"\nqueue = "many"\ndrian = 1\n')
    (besieged.config / JSON).write_text('{"mcpServers": {\n  "theirs": {]}}\n')
    arguments = {"check": [str(besieged.config)], "status": ["--socket", str(besieged.socket)]}
    command = [sys.executable, "-m", "mcpvisor.daemon.cli.main", verb, *arguments.get(verb, ["--socket", str(besieged.socket)])]
    besieged.reload()
    told = subprocess.run(command, capture_output=True, text=True, timeout=60)
    own, theirs = besieged.config / TOML, besieged.config / JSON
    meanwhile = (
        {} if verb == "check" else {own: " (the last good version keeps running)", theirs: " (its 1 server stays as it was)"}
    )

    expected = [
        f'{own}:3:1: servers.own.queue: "many": not allowed here; expected a whole number, at least 0{meanwhile.get(own, "")}',
        f'{own}:4:1: servers.own.drian: unknown key; did you mean "drain"?{meanwhile.get(own, "")}',
        f"{theirs}:2:14: not valid JSON: Expecting property name enclosed in double quotes{meanwhile.get(theirs, '')}",
    ]
    said = (told.stdout + told.stderr).splitlines()
    assert [[one for one in said if line in one][:1] != [] for line in expected] == [True] * 3, told
    assert_mended(besieged, verb)


def test_a_first_start_tells_everything(tmp_path: Path) -> None:
    """Without anything to run on the daemon ends with 78, and names each fault of its settings, wherever it comes from."""
    main = tmp_path / MAIN
    main.write_text('[daemon]\nparallel_starts = "many"\n[log]\nlevel = "wraning"\n[gatway]\n')
    environ = {**os.environ, "MCPVISOR_GATEWAY__AUTH": "nobody"}
    command = [sys.executable, "-m", "mcpvisor.daemon.cli.main", "run", "--config", str(main)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ)

    levels = 'not a word that is known here; expected one of "debug", "info", "warning", "error"'
    expected = [
        'mcpvisor: environment: MCPVISOR_GATEWAY__AUTH: not a word that is known here; expected one of "auto", "open"',
        f"mcpvisor: {main}:2:1: daemon.parallel_starts: is a text; expected a whole number",
        f'mcpvisor: {main}:4:1: log.level: "wraning": {levels}; did you mean "warning"?',
        f'mcpvisor: {main}:5:1: gatway: unknown table; did you mean "gateway"?',
    ]
    assert (78, expected) == (ended.returncode, ended.stderr.splitlines())


@pytest.mark.alone
def test_what_is_mended_is_told_of_no_more(tmp_path: Path, servers: Path) -> None:
    """Within two seconds of the edit that mends a file nothing is said of it any more, though nobody asks for a reload."""
    good = entry("own", sys.executable, servers / "lite.py")
    running = RunningDaemon(tmp_path, good)
    with serving(running):
        running.until_ready()
        running.write("servers.toml", good + "[")
        running.until(lambda: not running.status()["config"]["ok"], "the fault")
        began = time.monotonic()
        running.write("servers.toml", good)
        running.until(lambda: running.status()["config"]["ok"], "the end of the fault", 2.0)
        took = time.monotonic() - began
        address = running.addresses("metrics")[0].removeprefix("http://")
        with urllib.request.urlopen(f"http://{address}/metrics") as page:
            metrics = page.read().decode()

        assert took < 2.0
        assert "mcpvisor_config_rejected_entries 0.0" in metrics
        assert "mcpvisor_config_last_reload_successful 1.0" in metrics
        assert [] == running.status()["config"]["rejected"]
