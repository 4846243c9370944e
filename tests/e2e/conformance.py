"""Owns runs of the public conformance suites: which there are, and what a run says of each scenario."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests import nursery

ROOT = Path(__file__).parents[2]
CLIENT = f"{sys.executable} {Path(__file__).with_name('conformance_client.py')}"

Score = dict[str, Counter[str]]
"""For each scenario how often its checks came to which status: `SUCCESS`, `FAILURE`, `WARNING` and `SKIPPED`."""

_FOLDER = re.compile(r"(?:server-)?(.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


@dataclass(frozen=True)
class Suite:
    """One suite, as an npm package and its arguments; `upstream` is the era in which the gateway speaks to the server."""

    package: str
    arguments: tuple[str, ...]
    upstream: str


SUITES = {
    "0.1.16": Suite("conformance-0.1", ("--suite", "all"), "legacy"),
    "0.2-at-2025-11-25": Suite("conformance-0.2", ("--suite", "all", "--spec-version", "2025-11-25"), "legacy"),
    "0.2-at-2026-07-28": Suite("conformance-0.2", ("--suite", "all", "--spec-version", "2026-07-28"), "modern"),
}


@dataclass(frozen=True)
class Run:
    """What came of one run: the score, and the checks that did not succeed in words."""

    score: Score
    remarks: tuple[str, ...]


class Conformance:
    """The suites as they are installed."""

    def __init__(self, node_servers: Path) -> None:
        self._modules = node_servers / "node_modules"

    def of_server(self, suite: Suite, url: str, folder: Path) -> Run:
        """Run a suite against a server; its exit code is not looked at, since its files say more."""
        return self._run(suite.package, ("server", "--url", url, *suite.arguments), folder)

    def of_client(self, package: str, scenario: str, folder: Path) -> Run:
        """Run one scenario against our client."""
        return self._run(package, ("client", "--command", CLIENT, "--scenario", scenario), folder)

    def _run(self, package: str, arguments: tuple[str, ...], folder: Path) -> Run:
        program = self._modules / package / "dist" / "index.js"
        command = [self._modules / ".bin" / "node", program, *arguments, "-o", folder]
        environ = {**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(ROOT), nursery.NURSERY: nursery.address()}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environ)
        results = read(folder)
        assert results.score, f"{done.stdout}\n{done.stderr}"
        return results


def read(folder: Path) -> Run:
    """What a run has written."""
    score: Score = {}
    remarks: list[str] = []
    for file in sorted(folder.glob("*/checks.json")):
        named = _FOLDER.fullmatch(file.parent.name)
        assert named is not None, file
        checks = [check for check in json.loads(file.read_text()) if check["status"] != "INFO"]
        score[named[1]] = Counter(check["status"] for check in checks)
        remarks += [
            f"{named[1]}: {check['status']} {check['id']}: {check.get('errorMessage')}"
            for check in checks
            if check["status"] not in ("SUCCESS", "SKIPPED")
        ]
    return Run(score, tuple(remarks))
