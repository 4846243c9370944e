"""Owns the verdicts of `/livez` and `/readyz`: decided from values alone, so that a probe never touches a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mcpvisor.supervisor.states import UP
from mcpvisor.supervisor.status import Outline

LIVE_SECONDS: Final = 5.0
"""How old the event loop's last tick may be while the daemon counts as alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFacts:
    """What the daemon knows of itself. `tick_age` in seconds; `config_applied`: a configuration was applied once."""

    tick_age: float
    config_applied: bool
    stopping: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a probe is told: the HTTP status, one line for a person, and the same for a program."""

    status: int
    line: str
    body: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def passed(self) -> bool:
        """Whether the probe passes."""
        return self.status == 200


def live(facts: HealthFacts, *, within: float = LIVE_SECONDS) -> Verdict:
    """Whether the event loop turns: what `/livez` and its alias `/healthz` answer.

    A drain or a broken configuration is no reason to be restarted, so neither plays a part here.
    """
    fresh = facts.tick_age <= within
    line = "ok" if fresh else f"the event loop has not turned for {facts.tick_age:.1f} s"
    checks = {"event_loop": {"ok": fresh, "tick_age_s": round(facts.tick_age, 3)}}
    return _verdict(line, passed=fresh, checks=checks)


def ready(facts: HealthFacts, statuses: Sequence[Outline]) -> Verdict:
    """Whether clients should be sent here: the configuration is applied and every required server has a session.

    Of a degraded one too, on which calls are sent. Names and states are shown, reasons are not: those may quote a server,
    and whoever reaches the gateway's port may ask.
    """
    missing = [status for status in statuses if status.required and status.state not in UP]
    checks: dict[str, Any] = {
        "config": {"ok": facts.config_applied},
        "draining": facts.stopping,
        "required": {
            "ok": not missing,
            "missing": [{"name": status.name, "state": status.state.value} for status in missing],
        },
        "servers": {
            "up": sum(status.state in UP for status in statuses),
            "total": len(statuses),
            "states": {status.name: status.state.value for status in statuses},
        },
    }
    complaint = _complaint(facts, missing)
    return _verdict(complaint or "ok", passed=not complaint, checks=checks)


def answer(path: str, facts: HealthFacts, statuses: Sequence[Outline], *, verbose: bool) -> tuple[int, str | dict[str, Any]]:
    """The HTTP status and the body for `/livez`, `/readyz` or `/healthz`: one line, or with `verbose` all checks."""
    verdict = ready(facts, statuses) if path == "/readyz" else live(facts)
    return verdict.status, verdict.body if verbose else verdict.line


def _complaint(facts: HealthFacts, missing: Sequence[Outline]) -> str:
    if facts.stopping:
        return "draining"
    if not facts.config_applied:
        return "no configuration is applied yet"
    if missing:
        return "required servers not ready: " + ", ".join(f"{s.name} ({s.state.value})" for s in missing)
    return ""


def _verdict(line: str, *, passed: bool, checks: dict[str, Any]) -> Verdict:
    return Verdict(200 if passed else 503, line, {"ok": passed, "status": line, "checks": checks})
