"""Owns the order of an examination: what of the daemon and its entries is looked at, from within it or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mcpvisor.daemon.config.problems import Problem
from mcpvisor.daemon.config.settings import Settings
from mcpvisor.daemon.doctor.addresses import look_at_address, look_at_trust
from mcpvisor.daemon.doctor.findings import Finding, Findings
from mcpvisor.daemon.doctor.footing import look_at_addresses, look_at_files, look_at_groups, look_at_state
from mcpvisor.daemon.doctor.programs import look_at_program
from mcpvisor.supervisor.process.delegation import Subtree
from mcpvisor.supervisor.spec import HttpTarget, ServerSpec, StdioLaunch, TlsTrust

NO_CREDENTIALS: Final = "CREDENTIALS_DIRECTORY is not set"
"""How an entry says that its credentials are the unit's alone."""
NOT_SET: Final = "is not set in the environment of the daemon"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is examined. `is_daemon` is whether this is the daemon's own process, whose environment and rights count."""

    settings: Settings | None
    specs: Mapping[str, ServerSpec]
    problems: Sequence[Problem]
    environ: Mapping[str, str]
    uid: int
    is_daemon: bool
    addresses: Sequence[str] | None = ()
    """Where the running daemon listens; None where one runs that could not be asked."""
    subtree: Subtree | None = None
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why servers are not as they are wanted, by name; only of a running daemon."""


def examine(subject: Subject, server: str | None) -> list[Finding]:
    """Look at everything, or at one server, whose host is then asked too. Blocks, for some seconds where a host is asked.

    Raises LookupError where there is no such server.
    """
    if server is not None:
        known = {*subject.specs, *(problem.server for problem in subject.problems)}
        if server not in known:
            raise LookupError(f"no server is named {server!r}; there are {', '.join(sorted(known - {''})) or 'none'}")
        return _entry(subject, server, asks_network=True)
    found = _footing(subject)
    names = sorted({*subject.specs, *(problem.server for problem in subject.problems if problem.server)})
    return [*found, *(finding for name in names for finding in _entry(subject, name, asks_network=False))]


def _footing(subject: Subject) -> list[Finding]:
    findings = Findings()
    for problem in subject.problems:
        if not problem.server:
            findings.error("configuration", str(problem), "mcpvisor check")
    settings = subject.settings
    if settings is None:
        findings.error("configuration", "there are no settings to start with", "mcpvisor check")
        return findings.found
    if not subject.problems:
        findings.ok("configuration", f"{len(subject.specs)} servers, no errors")
    look_at_state(settings.daemon.state_dir, subject.uid, findings)
    look_at_addresses(settings, subject.addresses, findings)
    if subject.is_daemon:
        look_at_files(len(subject.specs), findings)
        limited = [spec.name for spec in subject.specs.values() if _is_limited(spec)]
        look_at_groups(subject.subtree or Subtree(why_not="they were not looked for"), limited, findings)
    else:
        findings.unknown("daemon", "it does not run: its PATH, limits, credentials and control groups were not seen")
    return findings.found


def _is_limited(spec: ServerSpec) -> bool:
    limits = spec.target.limits if isinstance(spec.target, StdioLaunch) else None
    return limits is not None and (limits.memory or limits.tasks or limits.cpu) is not None


def _entry(subject: Subject, name: str, *, asks_network: bool) -> list[Finding]:
    findings = Findings(name)
    for problem in subject.problems:
        if problem.server == name:
            _tell_problem(problem, subject, findings)
    spec = subject.specs.get(name)
    if spec is None:
        return findings.found
    if not spec.enabled:
        findings.ok("enabled", "it is disabled in its entry")
    if isinstance(spec.target, StdioLaunch):
        look_at_program(spec.target, subject.environ, findings)
    else:
        _look_at_host(spec.target, findings, asks_network=asks_network)
    if reason := subject.reasons.get(name):
        findings.warning("state", reason, f"mcpvisor explain {name}")
    return findings.found


def _tell_problem(problem: Problem, subject: Subject, findings: Findings) -> None:
    """A fault of an entry; what only the daemon's own environment has is unknown from outside of it."""
    if not subject.is_daemon and (NO_CREDENTIALS in problem.message or problem.message.endswith(NOT_SET)):
        findings.unknown(
            "credentials", str(problem), "seen by a running daemon only: LoadCredential=, Environment= of its unit"
        )
    else:
        findings.error("entry", str(problem), "mcpvisor check")


def _look_at_host(target: HttpTarget, findings: Findings, *, asks_network: bool) -> None:
    if asks_network:
        look_at_address(target, findings)
        return
    if target.tls != TlsTrust():
        look_at_trust(target, findings)
    findings.unknown("network", "its host was not asked", "name the server: doctor NAME asks it")
