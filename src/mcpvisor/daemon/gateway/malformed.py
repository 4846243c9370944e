"""Owns how a client is told what it has written wrong: the place in its message, and what belongs there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from mcpvisor.daemon.gateway.crossing import REJECTED_CODE, rejected
from mcpvisor.supervisor.cleaning import clean_text
from mcpvisor.supervisor.errors import RequestFailed

METHOD_NOT_FOUND: Final = -32601

_SHOWN: Final = 200
"""Characters that are shown of what the client itself has written."""

_WORDS: Final[Mapping[str, str]] = {
    "missing": "is missing",
    "string_type": "has to be a text",
    "int_type": "has to be a whole number",
    "float_type": "has to be a number",
    "bool_type": "has to be true or false",
    "dict_type": "has to be an object",
    "model_type": "has to be an object",
    "list_type": "has to be a list",
}


def message_fault(raw: Any) -> str:
    """Why a decoded body is no message of JSON-RPC, empty where it is one; what its params must be is not looked at."""
    if isinstance(raw, list):
        return "batches are not taken: send each message by itself"
    if not isinstance(raw, dict):
        return "a message has to be an object"
    if raw.get("jsonrpc") != "2.0":
        return 'jsonrpc has to be "2.0"'
    if "method" in raw:
        return _fault_of_request(raw)
    if "id" not in raw and not {"result", "error"} & raw.keys():
        return "method is missing"
    return _fault_of_answer(raw)


def _fault_of_request(raw: Mapping[str, Any]) -> str:
    # With an id that is none it would be taken for a notification, and its client would wait for ever.
    if "id" in raw and (not isinstance(raw["id"], str | int) or isinstance(raw["id"], bool)):
        return "the id of a request has to be a string or a whole number"
    if not isinstance(raw["method"], str):
        return "method has to be a text"
    return "" if isinstance(raw.get("params"), dict | None) else "params has to be an object"


def _fault_of_answer(raw: Mapping[str, Any]) -> str:
    if "result" in raw:
        return "" if isinstance(raw["result"], dict) else "result has to be an object"
    if "error" not in raw:
        return "there has to be a method, a result or an error"
    error = raw["error"]
    if not isinstance(error, dict):
        return "error has to be an object"
    if not isinstance(error.get("code"), int) or isinstance(error["code"], bool):
        return "error.code has to be a whole number"
    return "" if isinstance(error.get("message"), str) else "error.message has to be a text"


def invalid_params(params: Any, error: ValidationError) -> RequestFailed:
    """The refusal of params that do not fit their method."""
    found = error.errors(include_input=False, include_url=False)
    places = [_place({"params": params}, one["loc"], is_missing=one["type"] == "missing") for one in found]
    # One for each form that a value may have: all that could be there are named.
    words = dict.fromkeys(_words(one) for one, place in zip(found, places, strict=True) if place == places[0])
    told = f"{clean_text(places[0], _SHOWN)} {' or '.join(words)}" if found else str(error.title)
    return rejected("invalid_params", f"Invalid request parameters: {told}")


def refused_by_sdk(error: MCPError, method: str) -> RequestFailed | None:
    """The refusal that the SDK has made of a request, in our form; None for any other error."""
    if error.code == METHOD_NOT_FOUND and error.data == method:
        return unknown_method(method)
    if error.code == REJECTED_CODE and error.data == "":
        return rejected("not_initialized", "the session was not initialized: initialize has to come first")
    return None


def unknown_method(method: str) -> RequestFailed:
    """The refusal of a method that the revision of the client does not have, or nobody answers here."""
    return rejected("unknown_method", f"Method not found: {clean_text(method, _SHOWN)}", code=METHOD_NOT_FOUND)


def _place(value: Any, steps: Sequence[int | str], *, is_missing: bool) -> str:
    """The keys on the way; a step that is neither there nor the one that is missing is a form's own name."""
    keys: list[str] = []
    for number, step in enumerate(steps, 1):
        within: Any = dict(enumerate(value)) if isinstance(value, list) else value
        has_it = isinstance(within, Mapping) and step in within
        if has_it or (is_missing and number == len(steps)):
            keys.append(str(step))
        value = within[step] if has_it else value
    return ".".join(keys)


def _words(found: Mapping[str, Any]) -> str:
    if found["type"] == "literal_error":
        return f"has to be {found['ctx']['expected']}"
    return _WORDS.get(found["type"]) or f"is not valid: {found['msg']}"
