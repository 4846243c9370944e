"""Owns the tables within an entry: restart, probe, stop, limits and tools, and their bounds."""

from __future__ import annotations

from typing import Any

from mcpvisor.daemon.config.durations import INTENSITY_EXPECTED, intensity
from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.supervisor.spec import ProbePolicy, ResourceLimits, RestartPolicy, StopGraces, ToolView


def read_restart(entry: TableReader) -> RestartPolicy:
    """`restart = { policy, delay, max_delay, intensity, stable_after, crash_loop_retry }`."""
    default = RestartPolicy()
    table = entry.table("restart")
    if table is None:
        return default
    policy = RestartPolicy(
        policy=table.choice("policy", default.policy),
        delay=table.seconds("delay", default.delay, positive=True),
        max_delay=table.seconds("max_delay", default.max_delay, positive=True),
        intensity=table.converted("intensity", default.intensity, intensity, INTENSITY_EXPECTED),
        stable_after=table.seconds("stable_after", default.stable_after),
        crash_loop_retry=table.seconds("crash_loop_retry", default.crash_loop_retry, positive=True),
    )
    table.finish()
    item = table.item("max_delay") or table.item("delay")
    if item is not None and policy.max_delay < policy.delay:
        entry.scope.problem(item, "max_delay is shorter than delay", expected="delay <= max_delay")
    return policy


def read_probe(entry: TableReader) -> ProbePolicy:
    """`probe = { interval, timeout, failures }`."""
    default = ProbePolicy()
    table = entry.table("probe")
    if table is None:
        return default
    policy = ProbePolicy(
        interval=table.seconds("interval", default.interval, positive=True),
        timeout=table.seconds("timeout", default.timeout, positive=True),
        failures=table.integer("failures", default.failures, least=1),
    )
    table.finish()
    return policy


def read_stop(entry: TableReader) -> StopGraces:
    """`stop = { stdin, term }`."""
    default = StopGraces()
    table = entry.table("stop")
    if table is None:
        return default
    graces = StopGraces(stdin=table.seconds("stdin", default.stdin), term=table.seconds("term", default.term))
    table.finish()
    return graces


def read_limits(entry: TableReader) -> ResourceLimits:
    """`limits = { memory, tasks, cpu, files }`; each one that is absent is no limit."""
    table = entry.table("limits")
    if table is None:
        return ResourceLimits()
    limits = ResourceLimits(
        memory=table.size("memory", 0, least=1024 * 1024) or None,
        tasks=table.integer("tasks", 0, least=1) or None,
        cpu=table.converted("cpu", None, _cores, "a number of cores such as 0.5 or 2"),
        files=table.integer("files", 0, least=16) or None,
    )
    table.finish()
    return limits


def _cores(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 100_000:
        raise ValueError("not a number of cores")
    return float(value)


def read_tools(entry: TableReader, unsupported: tuple[str, ...]) -> ToolView:
    """`tools = { allow, deny }`; the keys in `unsupported` are refused in so many words."""
    table = entry.table("tools")
    if table is None:
        return ToolView()
    for key in unsupported:
        item = table.item(key)
        if item is not None:
            entry.scope.problem(item, "not supported in this version")
    view = ToolView(allow=table.texts("allow"), deny=table.texts("deny"))
    table.finish()
    return view
