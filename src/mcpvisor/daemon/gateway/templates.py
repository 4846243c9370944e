"""Owns which URIs a resource template answers for, and how much work a client's URI may make of finding that out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mcp.shared.uri_template import UriTemplate

MAX_URI: Final = 4096
"""Characters of a URI that is read or listed."""

MAX_TEMPLATES: Final = 500
"""Templates that one server may show, and that are tried for one URI."""

MAX_TEMPLATE: Final = 512
"""Characters of a template."""

MAX_VARIABLES: Final = 16
"""Variables of a template."""

WORK_OF_ONE: Final = 80_000
WORK_OF_ALL: Final = 400_000
"""What one server's templates, and all of them, may cost for one URI: variables times characters, about 60 ns each."""

_WORK_OF_A_TRY: Final = 100
"""What a try costs beyond the length of the URI, in the same unit."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """One readable template; `prefix` is what stands before its first variable, which most URIs already fail."""

    server: str
    prefix: str
    template: UriTemplate
    variables: int


def matcher(server: str, text: str) -> Matcher:
    """Read a template. Raises InvalidUriTemplate, a ValueError, also for one of too many variables."""
    if len(text) > MAX_TEMPLATE:
        raise ValueError(f"it is longer than {MAX_TEMPLATE} characters")
    template = UriTemplate.parse(text)
    variables = len(template.variable_names)
    if variables > MAX_VARIABLES:
        raise ValueError(f"it has more than {MAX_VARIABLES} variables")
    return Matcher(server, text.partition("{")[0], template, variables)


def first_match(matchers: Iterable[Matcher], uri: str) -> str | None:
    """The server of the first template that answers for the URI; one whose server has used up its work is passed over."""
    spent: Counter[str] = Counter()
    left, tries = WORK_OF_ALL, MAX_TEMPLATES
    for one in matchers:
        if not uri.startswith(one.prefix):
            continue
        work = (one.variables + 1) * (len(uri) + _WORK_OF_A_TRY)
        if spent[one.server] + work > WORK_OF_ONE:
            continue
        if work > left or not tries:
            return None
        spent[one.server] += work
        left -= work
        tries -= 1
        if one.template.match(uri) is not None:
            return one.server
    return None
