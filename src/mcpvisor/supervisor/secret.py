"""Owns the type of everything that must never be printed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NoReturn, Self

MASK: Final = "***"


class Secret:
    """A text that prints as `***` everywhere; `reveal` is the one way to its value.

    Equality compares the values, so that a changed secret shows up as a changed spec.
    """

    __slots__ = ("_parts", "_value")

    def __init__(self, value: str, parts: Iterable[str] = ()) -> None:
        """`parts` are what is secret in it by itself, as a password is in an address."""
        self._value = value
        self._parts = tuple(parts)

    @classmethod
    def of(cls, text: str | Secret) -> Secret:
        """The text as a secret, whatever it was."""
        return text if isinstance(text, Secret) else cls(text)

    def reveal(self) -> str:
        """The value itself, for the place where it leaves the process and nowhere else."""
        return self._value

    def reveal_parts(self) -> tuple[str, ...]:
        """What is secret in it by itself: for those who mask it, and nobody else."""
        return self._parts

    def replaced(self, value: str) -> Secret:
        """Another text that the same secrets went into."""
        return Secret(value, self._parts)

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

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")

    def __getstate__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")


def reveal(text: str | Secret) -> str:
    """The plain value of a text that may or may not be secret."""
    return text.reveal() if isinstance(text, Secret) else text


def all_in(texts: Iterable[str | Secret]) -> list[str]:
    """The plain values of every secret among these texts, each as a whole and with what is secret in it by itself."""
    return [value for text in texts if isinstance(text, Secret) for value in (text.reveal(), *text.reveal_parts())]
