"""The reference, the registry and the alerts name the same metrics."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import mcpvisor.metrics

ROOT = Path(__file__).parents[2]
ASSETS = Path(mcpvisor.metrics.__file__).parent / "assets"


def test_the_committed_reference_is_what_the_program_prints():
    """docs/metrics.md is generated and current."""
    printed = subprocess.run([sys.executable, "-m", "mcpvisor.metrics.reference"], capture_output=True, text=True, check=True)

    assert (ROOT / "docs" / "metrics.md").read_text() == printed.stdout


def test_every_exposed_family_is_in_the_reference(scene):
    """Nothing is exposed that is not described."""
    scene.fill(1)
    scene.recorder.loop_ticked()
    scene.recorder.state_store(up=True)
    described = {declared.name for declared in scene.recorder.families.book.declared}
    suffix = {"counter": "_total", "info": "_info"}

    assert described == {family.name + suffix.get(family.type, "") for family in scene.registry.collect()}


def test_alerts_ask_only_for_metrics_that_exist(scene):
    """Every metric an alert names is in the registry."""
    described = {declared.name for declared in scene.recorder.families.book.declared}
    expressions = re.findall(
        r"expr: (?:>-\n)?((?:.|\n)*?)(?=\n +(?:for|labels):)", (ASSETS / "rules" / "mcpvisor.yml").read_text()
    )
    asked = {name for expression in expressions for name in re.findall(r"\bmcp\w+", expression)}

    assert len(expressions) == 12
    assert asked <= described, asked - described


def test_every_alert_has_its_runbook_and_every_runbook_its_alert():
    """The runbook an alert names is there, and is headed by the alert's name."""
    rules = (ASSETS / "rules" / "mcpvisor.yml").read_text()
    alerts = re.findall(r"alert: (\w+)", rules)
    runbooks = ROOT / "docs" / "runbooks"

    assert [f"docs/runbooks/{alert}.md" for alert in alerts] == re.findall(r"runbook_url: (\S+)", rules)
    assert sorted(alerts) == sorted(path.stem for path in runbooks.glob("*.md"))
    assert [f"# {alert}" for alert in alerts] == [(runbooks / f"{a}.md").read_text().splitlines()[0] for a in alerts]
