"""Owns what may cross the gateway: `_meta` keys, capabilities, error data, and the fields that only one era has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcpvisor.daemon.gateway.templates import MAX_URI
from mcpvisor.supervisor.errors import Outcome, RequestFailed

JsonObject = dict[str, Any]

LOG_LEVEL_META: Final = "io.modelcontextprotocol/logLevel"

META_TO_SERVER: Final = frozenset({"traceparent", "tracestate"})
"""The only `_meta` keys of a client that reach a server as they are.

The W3C Trace Context identifies a request and nothing else. `baggage` and vendors' keys carry data of the client to whom it
did not address them; a progress token is replaced by ours, and the log level goes to servers that have one per request.
"""

CAPABILITIES_TO_SERVER: Final = frozenset({"elicitation", "sampling", "roots"})
"""The capabilities of a client on which servers may build: their questions reach it.

Of sampling and roots the supervisor leaves what the server's entry allows. Extensions, experiments and tasks do not cross.
"""

_OF_ONE_CALL: Final = frozenset({"_meta", "task", "inputResponses", "requestState"})
"""Params that mean something between the client and us only."""

_MODERN_FIELDS: Final = frozenset({"resultType", "ttlMs", "cacheScope"})

REJECTED_CODE: Final = -32602

RESOURCE_NOT_FOUND: Final = -32002
"""What revisions before 2026-07-28 answer for a resource that nobody has."""


def params_to_server(params: Mapping[str, Any], **replaced: Any) -> JsonObject:
    """The params as a server gets them: unknown fields stay, `_meta` is cut to what may cross."""
    sent = {key: value for key, value in params.items() if key not in _OF_ONE_CALL}
    sent.update(replaced)
    meta = params.get("_meta")
    if isinstance(meta, Mapping) and (crossing := {key: meta[key] for key in META_TO_SERVER if key in meta}):
        sent["_meta"] = crossing
    return sent


def capabilities_to_server(declared: Mapping[str, Any] | None, *, has_answerer: bool = False) -> JsonObject | None:
    """The client's capabilities as far as they hold through the gateway; None where it declared none.

    Where somebody else answers what the client cannot be asked, the server may ask in every mode.
    """
    if has_answerer:
        declared = {**(declared or {}), "elicitation": {"form": {}, "url": {}}}
    if declared is None:
        return None
    held = {key: value for key, value in declared.items() if key in CAPABILITIES_TO_SERVER and value is not None}
    return {**held, "roots": {}} if "roots" in held else held  # servers of 2026-07-28 are not told that they change


def result_to_client(method: str, result: JsonObject, *, modern: bool, from_modern: bool) -> JsonObject:
    """A server's result in the client's era; everything that no era defines is left as it is.

    What the client has to answer first is no result yet: it is in the client's words already.
    """
    if result.get("resultType") == "input_required" and modern:
        return result
    if not modern:
        if from_modern:
            return {key: value for key, value in result.items() if key not in _MODERN_FIELDS}
        return result
    if not isinstance(result.get("resultType"), str):
        result = {**result, "resultType": "complete"}
    return with_cache_hints(result) if method == "resources/read" else result


def with_cache_hints(result: JsonObject) -> JsonObject:
    """The result with the cache fields that 2026-07-28 requires; where nobody said otherwise, nothing is cached."""
    return {"ttlMs": 0, "cacheScope": "private", **result}


def failure_data(server: str | None, failure: RequestFailed) -> JsonObject:
    """The `error.data` of a failed request: ours under `mcpvisor`, the server's own data beside it."""
    ours: JsonObject = {"server": server, "outcome": failure.outcome.value, "cause": failure.cause}
    if failure.retry_after_s is not None:
        ours["retry_after_s"] = failure.retry_after_s
    if isinstance(failure.data, Mapping):
        return {**failure.data, "mcpvisor": ours}
    if failure.data is not None:
        return {"data": failure.data, "mcpvisor": ours}
    return {"mcpvisor": ours}


def uri_too_long() -> RequestFailed:
    """The refusal of a URI of more than `MAX_URI` characters."""
    return rejected("uri_too_long", f"a URI of more than {MAX_URI} characters is not taken")


def unknown_resource(uri: str, *, modern: bool) -> RequestFailed:
    """The refusal of a URI that nobody owns, as the client's era says it."""
    code = REJECTED_CODE if modern else RESOURCE_NOT_FOUND
    return rejected("unknown_resource", "Resource not found", code=code, data={"uri": uri})


def rejected(cause: str, message: str, *, code: int = REJECTED_CODE, data: Any = None) -> RequestFailed:
    """A refusal of our own; nothing was sent to any server."""
    return RequestFailed(Outcome.REJECTED, cause, message, code=code, data=data)
