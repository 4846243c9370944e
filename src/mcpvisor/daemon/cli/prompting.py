"""Owns the asking of a person at the terminal: field by field, each checked at once, and all of it shown before it is sent."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from mcpvisor.daemon.cli.exits import CliError, Exit
from mcpvisor.daemon.cli.output import clean, clean_line, set_in
from mcpvisor.daemon.questions.fields import ChoiceField, ChoicesField, Field, FlagField, NumberField
from mcpvisor.daemon.questions.form import STEPS, Form, read_form
from mcpvisor.daemon.questions.misunderstanding import NotUnderstood
from mcpvisor.daemon.questions.patterns import OutOfSteps, Steps

_HINTS: Final[Mapping[type[Field], str]] = {
    FlagField: "yes or no",
    NumberField: "a number",
    ChoiceField: "one of them, or its number",
    ChoicesField: "some of them, or their numbers, between commas",
}
_YES: Final = frozenset({"y", "yes", "true"})
_NO: Final = frozenset({"n", "no", "false"})


class _NotSo(Exception):
    """What was typed is no answer to the field; the text says why."""


def ask(question: Mapping[str, Any]) -> dict[str, Any]:
    """The answer that a person types to an open question, as the control API takes it.

    Raises CliError when the input ends before an answer was given; nothing is sent then.
    """
    _show(f"  {set_in(question['message'])}")
    if question["mode"] == "url":
        _show(f"It wants this address to be opened, which this program does not do:\n  {clean_line(question['url'])}")
        return {"action": _choice("[a]ccept once you have consented to it, [d]ecline or [c]ancel")}
    form = _form(question["schema"])
    if not form.fields:
        return {"action": _choice("[a]ccept, [d]ecline or [c]ancel")}
    content: dict[str, Any] = {}
    while True:
        content = {name: value for name, field in form.fields.items() for value in _field(name, field, content.get(name))}
        _show("\n".join(f"  {name}: {_written(value)}" for name, value in content.items()) or "  (nothing)")
        action = _choice("[a]ccept with this content, [e]dit it, [d]ecline or [c]ancel", also="edit")
        if action != "edit":
            return {"action": action, "content": content} if action == "accept" else {"action": action}


def _form(schema: Any) -> Form:
    try:
        return read_form(schema)
    except NotUnderstood as error:
        raise CliError(Exit.NO, f"the form of this question cannot be shown: {error}; use --accept JSON") from error


def _field(name: str, field: Field, former: Any) -> list[Any]:
    """The answer to one field as a list of one; empty where it may be left out and is."""
    default = field.default if former is None else former
    _show(_described(name, field))
    while True:
        text = _typed(f"  {name}{'' if default is None else f' [{_written(default)}]'}: ")
        if not text and default is not None:
            return [default]
        if not text and not field.required:
            return []
        try:
            return [_checked(_value(text, field), field)]
        except _NotSo as error:
            _show(f"  {name} {error}")


def _checked(value: Any, field: Field) -> Any:
    """The value, which fits. Raises _NotSo."""
    try:
        fault = field.fault(value, Steps(STEPS))
    except OutOfSteps:
        fault = "takes too long to be compared with its pattern"
    if fault:
        raise _NotSo(fault)
    return value


def _described(name: str, field: Field) -> str:
    lines = [f"  {set_in(text)}" for text in (field.title or name, field.description) if text]
    lines += [f"  {number}  {one.value}{_titled(one.title, one.value)}" for number, one in enumerate(field.options, 1)]
    hint = _HINTS.get(type(field), "a text")
    return "\n".join([*lines, f"  ({hint}{'' if field.required else ', or nothing'})"])


def _titled(title: str, value: str) -> str:
    return f"  {title}" if title and title != value else ""


def _value(text: str, field: Field) -> Any:
    """What a typed line means for a field. Raises _NotSo."""
    if isinstance(field, FlagField):
        if text.lower() in _YES | _NO:
            return text.lower() in _YES
        raise _NotSo("must be yes or no")
    if isinstance(field, NumberField):
        return _number(text)
    if isinstance(field, ChoiceField):
        return _option(text, field)
    if isinstance(field, ChoicesField):
        return [_option(part.strip(), field) for part in text.split(",") if part.strip()]
    return text


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise _NotSo("must be a number") from None


def _option(text: str, field: Field) -> str:
    """An option by its value, or by its number where no value is that number."""
    values = [one.value for one in field.options]
    if text not in values and text.isascii() and text.isdecimal() and 0 < int(text[:6]) <= len(values):
        return values[int(text[:6]) - 1]
    return text


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return clean_line(", ".join(value) if isinstance(value, list) else str(value))


def _choice(words: str, also: str = "") -> str:
    """One of the actions, by its first letter."""
    known = {word[0]: word for word in ("accept", "decline", "cancel", also) if word}
    while True:
        word = known.get(_typed(f"{words}: ").lower()[:1])
        if word is not None:
            return word


def _show(text: str) -> None:
    """Words for the person who is asked; stdout is for data alone."""
    sys.stderr.write(clean(text) + "\n")


def _typed(prompt: str) -> str:
    """One line of the person. Raises CliError at the end of the input."""
    sys.stderr.write(clean(prompt))
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        sys.stderr.write("\n")
        raise CliError(Exit.NO, "nothing was sent: the question stays open")
    return line.strip()
