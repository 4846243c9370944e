"""What the shim says in headers is what the SDK says, for every name and every schema."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared import inbound

from mcpvisor.daemon.shim.headers import VERSION_META, encoded, modern_headers, param_headers

SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "options": {
            "type": "object",
            "properties": {
                "count": {"type": "integer", "x-mcp-header": "Count"},
                "dry": {"type": "boolean", "x-mcp-header": "Dry"},
            },
        },
        "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}},
        "plain": {"type": "string", "default": {"x-mcp-header": "Not"}},
    },
    "$defs": {"b": {"type": "string", "x-mcp-header": "B"}},
}
META = {"_meta": {VERSION_META: "2026-07-28"}}


@given(st.text())
def test_values_are_encoded_as_the_sdk_encodes_them(text):
    """Plain text stays, all else is base64 between marks; the other side reads the same text."""
    if not text.isascii() and any("\ud800" <= one <= "\udfff" for one in text):
        return  # no text of a message: JSON is read strictly
    assert inbound.encode_header_value(text) == encoded(text)
    assert text == inbound.decode_header_value(encoded(text))


def test_the_same_arguments_are_shown_as_by_the_sdk():
    """Of a schema the properties that properties alone lead to are shown, and nothing else that looks like a mark."""
    assert inbound.x_mcp_header_map(SCHEMA) == param_headers(SCHEMA)
    assert {("region",): "Region", ("options", "count"): "Count", ("options", "dry"): "Dry"} == param_headers(SCHEMA)


@pytest.mark.parametrize(
    "schema", [None, [], "x", {"properties": []}, {"properties": {"a": 1}}, {"properties": {"a": {"x-mcp-header": "b c"}}}]
)
def test_a_schema_that_is_none_shows_nothing(schema):
    """What is no schema, or names no header, is passed over."""
    assert {} == param_headers(schema)


@pytest.mark.parametrize(
    "arguments",
    [
        {"region": "eu", "options": {"count": 3, "dry": True}},
        {"region": "Zürich \n", "options": {"dry": False}},
        {"region": None, "options": "none"},
        {"options": {"count": 1.5}},
        {},
        None,
    ],
)
def test_a_call_shows_its_arguments_as_the_sdk_does(arguments):
    """Method, name, revision and marked arguments are repeated, absent ones left out."""
    params: dict[str, Any] = {"name": "tool", "arguments": arguments, **META}
    shown = inbound.mcp_param_headers(inbound.x_mcp_header_map(SCHEMA), arguments or {})

    assert {
        "mcp-method": "tools/call",
        "mcp-name": "tool",
        "mcp-protocol-version": "2026-07-28",
        **{name.lower(): value for name, value in shown.items()},
    } == {name.lower(): value for name, value in modern_headers("tools/call", params, param_headers(SCHEMA)).items()}


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("prompts/get", {"name": "p"}, "p"),
        ("resources/read", {"uri": "x://ü"}, "=?base64?eDovL8O8?="),
        ("tools/list", {}, None),
    ],
)
def test_what_is_named_is_shown_by_name(method, params, name):
    """Prompts are shown by name and resources by URI, lists not at all."""
    assert name == modern_headers(method, params, {}).get("mcp-name")
