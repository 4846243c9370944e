"""The judgement of single entries: what is kept, what is repaired, what is left out and why."""

from __future__ import annotations

from typing import Any

import pytest

from mcpvisor.supervisor.entries import UNCOMMON_NAME, Dropped, Judge

OBJECT = {"type": "object"}


def judge(kind: Any, entries: list[Any]) -> tuple[list[dict[str, Any]], list[Dropped]]:
    judge = Judge(kind)
    for entry in entries:
        judge.take(entry)
    return list(judge.kept), judge.dropped


def tool(**more: Any) -> dict[str, Any]:
    return {"name": "t", "inputSchema": OBJECT, **more}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {"child": {"$ref": "#"}}},
        {"type": "object", "properties": {"a": True, "b": {"type": ["string", "null"]}}, "required": ["a"]},
        {"type": "object", "$defs": {"x": {"type": "integer"}}, "properties": {"y": {"$ref": "#/$defs/x"}}},
        {"type": "object", "additionalProperties": False, "patternProperties": {"^a": {"enum": [1, "x", None]}}},
    ],
)
def test_schemas_that_servers_write_are_kept(schema: dict[str, Any]) -> None:
    """What is valid stays as the server wrote it."""
    assert judge("tools", [tool(inputSchema=schema)]) == ([tool(inputSchema=schema)], [])


@pytest.mark.parametrize("schema", [{}, {"anyOf": [{"type": "object", "required": ["a"]}, {"type": "object"}]}])
def test_a_schema_without_a_type_is_one_for_an_object(schema: dict[str, Any]) -> None:
    """Arguments are always an object, so saying so changes nothing and helps clients that insist on it."""
    assert judge("tools", [tool(inputSchema=schema)]) == ([tool(inputSchema={"type": "object", **schema})], [])


@pytest.mark.parametrize(
    ("entry", "name", "why"),
    [
        ("text", "entry 0", "the entry is no object"),
        (None, "entry 0", "the entry is no object"),
        ({"inputSchema": OBJECT}, "entry 0", "name is no text, or empty"),
        (tool(name=17), "entry 0", "name is no text, or empty"),
        (tool(name=""), "entry 0", "name is no text, or empty"),
        (tool(name="n" * 513), "n" * 512, "name has more than 512 characters"),
        ({"name": "t"}, "t", "inputSchema is missing or no object"),
        (tool(inputSchema=None), "t", "inputSchema is missing or no object"),
        (tool(inputSchema={"type": "string"}), "t", "inputSchema is not for an object"),
        (tool(inputSchema={"type": 3}), "t", "inputSchema: type is neither a text nor a list of texts"),
        (tool(inputSchema={"properties": []}), "t", "inputSchema: properties is not an object"),
        (tool(inputSchema={"required": "q"}), "t", "inputSchema: required is no list of names"),
        (
            tool(inputSchema={"properties": {"q": {"type": "string"}, "required": ["q"]}}),
            "t",
            "inputSchema: a schema is neither an object nor a boolean",
        ),
        (
            tool(inputSchema={"properties": {"x": {"$ref": "http://127.0.0.1:9/schema.json"}}}),
            "t",
            "inputSchema: $ref leads to another document, which is never fetched",
        ),
    ],
)
def test_one_bad_tool_is_left_out_and_named(entry: Any, name: str, why: str) -> None:
    """The others stay, whatever the one is like."""
    good = tool(name="good")

    assert judge("tools", [entry, good]) == ([good], [Dropped(name, why)])


@pytest.mark.parametrize("name", ["has space/and:signs", "工具", "n" * 200])
def test_a_name_that_clients_refuse_is_kept_and_named(name: str) -> None:
    """The server is called by it; the gateway shows it cleaned, and the operator can know why."""
    entry = tool(name=name)

    assert judge("tools", [entry]) == ([entry], [Dropped(name, UNCOMMON_NAME)])


def test_a_bad_output_schema_costs_only_itself() -> None:
    """The tool stays usable, without it."""
    entry = tool(outputSchema={"type": "object", "properties": {"x": {"type": 3}}}, title="T")

    assert judge("tools", [entry]) == (
        [tool(title="T")],
        [Dropped("t", "outputSchema is not valid; the tool is kept without it")],
    )


@pytest.mark.parametrize(
    ("kind", "key"), [("tools", "name"), ("prompts", "name"), ("resources", "uri"), ("resource_templates", "uriTemplate")]
)
def test_of_two_equal_keys_the_first_is_kept(kind: Any, key: str) -> None:
    """A later entry cannot take the place of an earlier one."""
    first, second = ({key: "same", "inputSchema": OBJECT, "description": text} for text in ("first", "second"))
    kept, dropped = judge(kind, [first, second])

    assert kept == [first]
    assert dropped == [Dropped("same", f"{key} stands in the list already; the first one is kept")]


def test_deep_and_wide_schemas_end() -> None:
    """The judgement of one entry is bounded."""
    wide = tool(inputSchema={"type": "object", "properties": {f"p{number}": {} for number in range(20_000)}})

    assert judge("tools", [wide])[1] == [Dropped("t", "inputSchema: more than 10000 schemas in one")]


def test_a_tool_of_many_schemas_is_judged_in_steps():
    """So that whoever judges can let others have their turns in between."""
    properties = {f"p{number}": {"type": "string"} for number in range(2000)}
    judge = Judge("tools")
    steps = sum(1 for _ in judge.judging({"name": "t", "inputSchema": {"type": "object", "properties": properties}}))

    assert (["t"], []) == ([tool["name"] for tool in judge.kept], judge.dropped)
    assert steps > 30


@pytest.mark.parametrize(("objects", "is_kept"), [(900, True), (1100, False)])
def test_headers_are_looked_for_in_schemas_of_some_size_only(objects, is_kept):
    """A schema with header declarations is searched in one go, which must not take long."""
    properties: dict[str, object] = {f"p{number}": {} for number in range(objects)}
    properties["region"] = {"type": "string", "x-mcp-header": "Region"}
    judge = Judge("tools")
    judge.take({"name": "t", "inputSchema": {"type": "object", "properties": properties}})

    assert is_kept == bool(judge.kept)
    assert is_kept or "x-mcp-header in a schema of more than 1000 objects" in judge.dropped[0].why
