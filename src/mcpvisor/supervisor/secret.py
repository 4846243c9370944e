"""Owns the type of everything that must never be printed."""

from __future__ import annotations

from typing import Final

MASK: Final = "***"


class Secret:
    """A text that prints as `***` everywhere; `reveal` is the one way to its value.

    Equality compares the values, so that a changed secret shows up as a changed spec.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself, for the place where it leaves the process and nowhere else."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a secret is not pickled")


def reveal(text: str | Secret) -> str:
    """The plain value of a text that may or may not be secret."""
    return text.reveal() if isinstance(text, Secret) else text
