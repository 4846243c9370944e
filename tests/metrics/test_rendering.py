"""Our rendering of both formats is the library's."""

from __future__ import annotations

import pytest
from prometheus_client import exposition
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics

from mcpvisor.metrics import rendering
from mcpvisor.supervisor.states import State


class Frozen:
    """A registry whose values stand still between two readings."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (rendering.as_text, exposition.generate_latest),
        (rendering.as_openmetrics, openmetrics.generate_latest),
    ],
)
def test_it_is_what_the_library_renders(scene, ours, theirs):
    """The output equals the library's byte by byte, with hostile words of servers and odd values in it."""
    scene.fill(3)
    scene.add("odd", transport="http")
    scene.open("odd", implementation='a\\b"c\nd\N{SNOWMAN}')
    scene.move("odd", State.STARTING, State.BACKOFF, next_attempt=1.7e18)
    scene.recorder.loop_ticked()
    scene.recorder.request_ended("tools/call", "ok", float("inf"))
    scene.recorder.request_ended("tools/list", "ok", float("nan"))
    frozen = Frozen(list(scene.registry.collect()))

    assert theirs(frozen) == ours(frozen)


def test_the_content_types_are_the_librarys():
    """What is rendered is announced as what it is."""
    assert exposition.CONTENT_TYPE_PLAIN_0_0_4 == rendering.TEXT_TYPE
    assert openmetrics.CONTENT_TYPE_LATEST == rendering.OPENMETRICS_TYPE
