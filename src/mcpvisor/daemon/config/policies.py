"""Owns the tables within an entry: restart, probe, stop, limits and tools, and their bounds."""

from __future__ import annotations

from typing import Any, Final

from mcpvisor.daemon.config.durations import INTENSITY_EXPECTED, SIZE_EXPECTED, intensity, size
from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.supervisor.spec import ProbePolicy, ResourceLimits, RestartPolicy, StopGraces, ToolView

CODES_EXPECTED: Final = "a list of exit codes, each from 0 to 255"
CORES_EXPECTED: Final = "a number of cores such as 0.5 or 2"
CEILING_EXPECTED: Final = f'{SIZE_EXPECTED}, of at least 1MiB, or "off"'


def read_restart(entry: TableReader) -> RestartPolicy:
    """`restart = { policy, delay, max_delay, intensity, stable_after, crash_loop_retry, ... }`."""
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
        success_codes=table.converted("success_codes", default.success_codes, _exit_codes, CODES_EXPECTED),
        prevent_codes=table.converted("prevent_codes", default.prevent_codes, _exit_codes, CODES_EXPECTED),
        max_memory=table.converted("max_memory", default.max_memory, _ceiling, CEILING_EXPECTED),
    )
    table.finish()
    item = table.item("max_delay") or table.item("delay")
    if item is not None and policy.max_delay < policy.delay:
        entry.scope.problem(item, "max_delay is shorter than delay", expected="delay <= max_delay")
    return policy


def _ceiling(value: Any) -> int | None:
    if value == "off":
        return None
    if (found := size(value)) < 1024 * 1024:
        raise ValueError("less than any server needs")
    return found


def _exit_codes(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise ValueError("no list")  # noqa: TRY004 - the promise is one error for any bad value
    codes: list[int] = []
    for code in value:
        if isinstance(code, bool) or not isinstance(code, int) or not 0 <= code <= 255:
            raise ValueError("not an exit code in it")
        codes.append(code)
    return tuple(codes)


def read_probe(entry: TableReader) -> ProbePolicy:
    """`probe = { interval, timeout, failures, slow }`."""
    default = ProbePolicy()
    table = entry.table("probe")
    if table is None:
        return default
    policy = ProbePolicy(
        interval=table.seconds("interval", default.interval, positive=True),
        timeout=table.seconds("timeout", default.timeout, positive=True),
        failures=table.integer("failures", default.failures, least=1),
        slow=table.seconds("slow", default.slow, positive=True),
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
        cpu=table.converted("cpu", None, _cores, CORES_EXPECTED),
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
