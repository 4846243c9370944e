"""Owns the form in which programs and receivers answer a question: one JSON object of a bounded size."""

from __future__ import annotations

from typing import Final, cast

from mcpvisor.daemon.handlers.contract import DeliveryFailed, HandlerAnswer
from mcpvisor.supervisor.transports.codec import Unreadable, decode

MAX_ANSWER: Final = 256 * 1024
"""Bytes of an answer; a form that a person could have filled in has far less."""

_ACTIONS: Final = ("accept", "decline", "cancel")


def read_answer(data: bytes, who: str) -> HandlerAnswer:
    """The answer in `{"action": "accept" | "decline" | "cancel", "content": {...}}`; `who` gave it.

    Content beside another action than `accept` is dropped: it was never meant for the server. Raises DeliveryFailed, which
    names the fault and nothing of what was answered, since that may be private.
    """
    if len(data) > MAX_ANSWER:
        raise DeliveryFailed(f"{who} gave an answer of more than {MAX_ANSWER} bytes", is_final=True)
    if not data.strip():
        raise DeliveryFailed(f"{who} gave no answer", is_final=True)
    try:
        value = decode(data, max_bytes=MAX_ANSWER)
    except Unreadable as refusal:
        raise DeliveryFailed(f"{who} gave an answer that is no JSON ({refusal.reason})", is_final=True) from None
    return answer_of(value, who)


def answer_of(value: object, who: str) -> HandlerAnswer:
    """The answer in a JSON value; see `read_answer`."""
    if not isinstance(value, dict):
        raise DeliveryFailed(f"{who} gave an answer that is no JSON object", is_final=True)
    told = cast("dict[str, object]", value)
    action, content = told.get("action"), told.get("content")
    if action not in _ACTIONS:
        raise DeliveryFailed(f'{who} gave an answer without an "action" of {", ".join(_ACTIONS)}', is_final=True)
    if content is not None and not isinstance(content, dict):
        raise DeliveryFailed(f'{who} gave an answer whose "content" is no object', is_final=True)
    if action == "accept":
        return HandlerAnswer(action="accept", content=content)
    return HandlerAnswer(action="decline" if action == "decline" else "cancel")
