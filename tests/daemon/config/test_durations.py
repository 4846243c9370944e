"""The written forms of durations, sizes and restart windows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvisor.daemon.config.durations import intensity, seconds, size
from mcpvisor.supervisor.spec import Intensity


@pytest.mark.parametrize(
    ("written", "expected"),
    [("500ms", 0.5), ("30s", 30.0), ("1.5m", 90.0), ("2h", 7200.0), ("1d", 86400.0), (5, 5.0), (0.25, 0.25), ("0s", 0.0)],
)
def test_durations(written: Any, expected: float) -> None:
    """A duration is a number of seconds, or a number with one of five units."""
    assert expected == seconds(written)


@pytest.mark.parametrize(
    "written", ["", "5", "s", "-1s", "1 s", "1S", "1.s", "1e3s", "٣s", -1, True, None, [], float("nan"), float("inf")]
)
def test_no_durations(written: Any) -> None:
    """Everything else is refused, true and infinity included."""
    with pytest.raises(ValueError, match=r"duration"):
        seconds(written)


@pytest.mark.parametrize(
    ("written", "expected"),
    [("64MiB", 64 * 1024**2), ("1GB", 10**9), ("1.5KiB", 1536), ("0B", 0), (4096, 4096), ("10 MB", 10**7)],
)
def test_sizes(written: Any, expected: int) -> None:
    """A size is a number of bytes, or a number with a decimal or binary unit."""
    assert expected == size(written)


@pytest.mark.parametrize("written", ["", "64", "64Mi", "64 megs", "-1MB", -1, 1.5, True, None])
def test_no_sizes(written: Any) -> None:
    """Everything else is refused."""
    with pytest.raises(ValueError, match=r"size"):
        size(written)


def test_restart_windows() -> None:
    """A restart window is ends within a duration, and "off" is none."""
    assert (Intensity(ends=5, within=60.0), Intensity(ends=1, within=90.0), None) == (
        intensity("5/60s"),
        intensity("1 / 1.5m"),
        intensity("off"),
    )


@pytest.mark.parametrize("written", ["0/60s", "5/0s", "5", "/60s", "5/x", 5, None, False])
def test_no_restart_windows(written: Any) -> None:
    """A window without an end or without a time is refused."""
    with pytest.raises(ValueError, match=r"restart window|duration"):
        intensity(written)


@given(st.one_of(st.text(), st.floats(), st.integers(), st.none(), st.booleans()))
def test_nothing_else_is_raised(written: Any) -> None:
    """Whatever is written, the outcome is a value or a ValueError."""
    for read in (seconds, size, intensity):
        try:
            read(written)
        except ValueError:
            continue
