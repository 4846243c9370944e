"""The contract with the SDK: what we use of it that its authors call provisional must be as it was when we built on it."""

from __future__ import annotations

import inspect
from importlib.metadata import version

from mcp.client.session import ClientSession
from mcp.shared import dispatcher, inbound
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from mcpvisor.supervisor.sdk import Handshake, argument_headers, stamp
from mcpvisor.supervisor.transports.wire import Wire

MODERN = Handshake(modern=True, protocol_version="2026-07-28")
LEGACY = Handshake(modern=False, protocol_version="2025-11-25")


def test_the_sdk_is_one_of_those_that_were_tried() -> None:
    """Another minor release is let in by hand, after these tests were read again."""
    assert version("mcp").split(".")[:2] == ["2", "3"]


def test_the_dispatcher_protocol_is_the_one_our_wires_implement() -> None:
    """The SDK calls `run`, `send_raw_request` and `notify` with these arguments."""
    for name in ("run", "send_raw_request", "notify"):
        theirs = list(inspect.signature(getattr(dispatcher.Dispatcher, name)).parameters)
        ours = list(inspect.signature(getattr(Wire, name)).parameters)

        assert ours == theirs

    assert set(dispatcher.CallOptions.__annotations__) == {
        *("request_id", "timeout", "cancel_on_abandon", "on_progress", "headers"),
        *("resumption_token", "on_resumption_token"),
    }


def test_the_session_takes_a_dispatcher_and_makes_the_handshake() -> None:
    """These are the parts of the session that we use."""
    assert "dispatcher" in inspect.signature(ClientSession.__init__).parameters
    for name in ("initialize", "send_discover", "adopt"):
        assert inspect.isfunction(getattr(ClientSession, name))


def test_the_protocol_revisions_are_the_ones_we_know() -> None:
    """A new revision needs a look at everything that depends on the era."""
    assert HANDSHAKE_PROTOCOL_VERSIONS == ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
    assert MODERN_PROTOCOL_VERSIONS == ("2026-07-28",)


def test_requests_of_the_older_era_are_sent_as_they_are() -> None:
    """The session carries what the newer era says with every request."""
    params = {"name": "echo", "arguments": {}}

    assert stamp("tools/call", params, handshake=LEGACY, client_capabilities={}) == (params, {})


def test_requests_of_the_newer_era_carry_version_client_and_capabilities() -> None:
    """In `_meta` beside what is there, and mirrored in the headers; the caller's own params stay as they are."""
    params = {"name": "käse", "_meta": {"traceparent": "00-1"}}
    stamped, headers = stamp("tools/call", params, handshake=MODERN, client_capabilities={"sampling": {}})
    assert stamped is not None

    assert params == {"name": "käse", "_meta": {"traceparent": "00-1"}}
    assert stamped["_meta"]["traceparent"] == "00-1"
    assert stamped["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert stamped["_meta"]["io.modelcontextprotocol/clientCapabilities"] == {"sampling": {}}
    assert headers["mcp-method"] == "tools/call"
    assert inbound.decode_header_value(headers["mcp-name"]) == "käse"


def test_requests_of_the_newer_era_carry_their_log_level() -> None:
    """Where one is wanted; a server of the newer era logs to nobody else."""
    key = "io.modelcontextprotocol/logLevel"
    asked, _ = stamp("tools/call", {}, handshake=MODERN, client_capabilities={}, log_level="debug")
    unasked, _ = stamp("tools/call", {}, handshake=MODERN, client_capabilities={})

    assert asked is not None
    assert unasked is not None
    assert (asked["_meta"][key], key in unasked["_meta"]) == ("debug", False)


def test_arguments_are_mirrored_where_the_schema_says_so() -> None:
    """Headers for intermediaries, as the tool declares them."""
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}

    assert argument_headers(schema, {"region": "eu", "other": 1}) == {"Mcp-Param-Region": "eu"}
    assert argument_headers(None, {"region": "eu"}) == {}
