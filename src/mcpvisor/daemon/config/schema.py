"""Owns the JSON Schemas of our TOML and of other programs' JSON, made of what the readers of entries ask for."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mcpvisor.daemon.config import address, forms, launch, meanings, others
from mcpvisor.daemon.config.authorisation import AuthType
from mcpvisor.daemon.config.forms import Form
from mcpvisor.daemon.config.handler_entry import read_handler
from mcpvisor.daemon.config.names import MAX_LENGTH, PATTERN
from mcpvisor.daemon.config.places import Places
from mcpvisor.daemon.config.route_entry import read_route, read_routing
from mcpvisor.daemon.config.server_entry import read_entry
from mcpvisor.daemon.config.settings import Settings, default_values
from mcpvisor.daemon.config.shapes import Example, learn
from mcpvisor.daemon.config.transport_words import SYNONYMS, WORDS
from mcpvisor.daemon.handlers.policy_options import QuestionMode
from mcpvisor.daemon.handlers.routing import KINDS, LEVELS
from mcpvisor.daemon.handlers.specs import HandlerType

# What editors know: VS Code reads draft 7 best, TOML editors (taplo) know draft 4 and what draft 7 shares with it.
_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
_SYSTEM: Final = Places(True, Path("/run/mcpvisor"), Path("/var/lib/mcpvisor"), Path("/etc/mcpvisor"))

_URL: Final = "https://mcp.example.com/mcp"
SERVERS: Final[Sequence[Example]] = (
    {"command": "program"},
    {"url": _URL},
    {"url": _URL, "header_command": ["program"]},
)
CREDENTIALS: Final[Mapping[AuthType, Sequence[Example]]] = {
    AuthType.BEARER: ({"type": "bearer", "token": "t"},),
    AuthType.API_KEY: ({"type": "api_key", "key": "k", "header": "X-Key"}, {"type": "api_key", "key": "k", "query": "key"}),
    AuthType.CLIENT_CREDENTIALS: (
        {"type": "client_credentials", "client_id": "c", "client_secret": "s"},
        {"type": "client_credentials", "client_id": "c", "private_key": "key.pem"},
    ),
}
_SECRET: Final = "a-secret-that-is-long-enough-to-sign-with"  # noqa: S105 - an example
HANDLERS: Final[Mapping[HandlerType, Sequence[Example]]] = {
    HandlerType.LOG: ({"type": "log"},),
    HandlerType.EXEC: ({"type": "exec", "command": ["program"]},),
    HandlerType.WEBHOOK: (
        {"type": "webhook", "url": "https://example.com/hook", "secret": _SECRET},
        {"type": "webhook", "url": "https://example.com/hook", "secret": [_SECRET]},
    ),
    HandlerType.PYTHON: ({"type": "python", "object": "module:object"}, {"type": "python", "entry_point": "name"}),
    HandlerType.POLICY: ({"type": "policy"},),
}
ROUTES: Final[Sequence[Example]] = ({"handler": "name"},)
"""The least that each kind of entry says; the readers take all of them, and nothing of them can be left out."""


def toml_schema() -> Form:
    """The schema of `mcpvisor.toml` and of the TOML files of `servers.d`."""
    server = _server()
    tables: dict[str, Form] = {
        "$schema": {"type": "string"},
        **_settings(),
        "defaults": {key: value for key, value in server.items() if key != "dependencies"},
        "servers": _by_name({"$ref": "#/definitions/server"}),
        "handlers": _by_name({"$ref": "#/definitions/handler"}),
        "routes": {"type": "array", "items": {"$ref": "#/definitions/route"}},
        "routing": _told(learn(read_routing, ({},)), meanings.ROUTING),
    }
    return {
        "$schema": _DRAFT,
        "title": "mcpvisor.toml, and servers.d/*.toml",
        "description": "The configuration of mcpvisor. Printed by: mcpvisor config schema",
        "type": "object",
        "properties": {key: _described(form, meanings.TABLES.get(key)) for key, form in tables.items()},
        "additionalProperties": False,
        "definitions": {"server": server, "handler": _handler(), "route": _route()},
    }


def json_schema() -> Form:
    """The schema of the JSON files of `servers.d`: what other programs write, with their keys beside ours.

    Unknown keys are no error there, as they are none for the daemon.
    """
    ours: dict[str, Form] = {key: _loose(form) for key, form in _server()["properties"].items()}
    properties: dict[str, Form] = {**ours, "command": {"anyOf": [ours["command"], {"type": "array"}]}}
    properties["transport"] = {"anyOf": [ours["transport"], {"type": "object"}]}
    properties["tools"] = {"anyOf": [ours["tools"], {"type": "array"}]}
    for theirs, (name, is_same) in others.keys().items():
        if theirs in ours:
            continue  # it has another meaning in some of their files
        head, _, tail = name.partition(".")
        form = (ours[head]["properties"][tail] if tail else ours[head]) if is_same else {}
        properties[theirs] = {**form, "description": f"As {name} of mcpvisor{'' if is_same else ', in its own form'}."}
        properties[theirs].pop("default", None)
    for theirs, why in others.unused_keys().items():
        properties[theirs] = {"description": f"Not used: {why}."}
    entries: Form = {"type": "object", "additionalProperties": {"$ref": "#/definitions/server"}}
    return {
        "$schema": _DRAFT,
        "title": "servers.d/*.json",
        "description": "Servers as other programs write them. Printed by: mcpvisor config schema --of json",
        "type": "object",
        "properties": {
            **{root: {**entries, "description": f"Servers: {whose}."} for root, whose in others.roots().items()},
            "mcp": {"type": "object", "description": "Servers, or a table of them in `servers`: as OpenCode has it."},
        },
        "not": {"anyOf": [{"required": [*two]} for two in itertools.combinations(sorted(others.roots()), 2)]},
        "definitions": {"server": {"type": "object", "properties": properties}},
    }


def _loose(form: Form) -> Form:
    """The form as files of others are read: scalars may be quoted or not, unknown keys are no error, null is no value."""
    kept = {key: value for key, value in form.items() if key != "additionalProperties" or value is not False}
    kept.pop("required", None)
    if "type" in kept:
        is_text = kept["type"] == "string" and "pattern" not in kept
        kept["type"] = ["string", "number", "boolean", "null"] if is_text else [kept["type"], "null"]
    if "properties" in kept:
        kept["properties"] = {name: _loose(one) for name, one in kept["properties"].items()}
    for key in ("anyOf", "oneOf"):
        if key in kept:
            parts = [_loose(one) for one in kept.pop(key)]
            kept["anyOf"] = [*parts, {"type": "string"}] if {"type": ["boolean", "null"]} in parts else parts
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = _loose(kept[key])
    return kept


def _server() -> Form:
    form = learn(read_entry, SERVERS)
    properties: dict[str, Form] = form["properties"]
    transport: Form = {"anyOf": [{"enum": list(WORDS)}, *({"type": "string", "pattern": _any_case(word)} for word in SYNONYMS)]}
    properties |= {"type": transport, "transport": transport, "auth": _auth()}
    told = _told({"type": "object", "properties": properties, "additionalProperties": False}, meanings.SERVER)
    # Which of the two an entry is may come from [defaults], but it is never both.
    nothing: Form = {"not": {}}
    told["dependencies"] = {
        "command": {"properties": dict.fromkeys(address.KEYS, nothing)},
        "url": {"properties": dict.fromkeys(launch.KEYS, nothing)},
    }
    return told


def _auth() -> Form:
    def read(kind: AuthType) -> Form:
        whole = learn(read_entry, [{"url": _URL, "auth": example} for example in CREDENTIALS[kind]])
        return _of_type(whole["properties"]["auth"], kind, CREDENTIALS[kind], meanings.AUTH)

    return {"oneOf": [read(kind) for kind in AuthType]}


def _handler() -> Form:
    types = [_of_type(learn(read_handler, HANDLERS[kind]), kind, HANDLERS[kind], meanings.HANDLER) for kind in HandlerType]
    policy = types[-1]["properties"]["rules"]["items"]["properties"]
    policy["mode"] = _described(forms.list_of([mode.value for mode in QuestionMode]), policy["mode"]["description"])
    return {"oneOf": types}


def _route() -> Form:
    form = learn(read_route, ROUTES)
    form["properties"]["event"] = forms.list_of(KINDS)
    form["properties"]["level"] = {"enum": list(LEVELS)}
    return _told(form, meanings.ROUTE)


def _of_type(form: Form, kind: str, examples: Sequence[Example], told: Mapping[str, str]) -> Form:
    """The form of a table whose `type` is this one, with what is required of it."""
    always = sorted(set.intersection(*(set(example) for example in examples)))
    choices = sorted({tuple(sorted(set(example) - set(always))) for example in examples})
    form = {**form, "properties": {"type": {"enum": [str(kind)]}, **form["properties"]}, "required": always}
    if len(choices) > 1:
        form["oneOf"] = [{"required": list(choice)} for choice in choices]
    form.pop("anyOf", None)
    return _told(form, told)


def _settings() -> dict[str, Form]:
    """The tables of settings, from the models that read them."""
    whole = Settings.model_json_schema()
    found: dict[str, Form] = {}
    for section, field in Settings.model_fields.items():
        model: Form = whole["$defs"][getattr(field.annotation, "__name__", "")]
        values = default_values(_SYSTEM).get(section, {})
        properties = {key: _plain(form, values.get(key)) for key, form in model["properties"].items()}
        table: Form = {"type": "object", "properties": properties, "additionalProperties": False}
        told = {key.partition(".")[2]: text for key, text in meanings.SETTINGS.items() if key.startswith(f"{section}.")}
        found[section] = _described(_told(table, told), meanings.SETTINGS[section])
    return found


def _plain(form: Form, default: Any) -> Form:
    """The form of one setting without what pydantic says of its own, with the default of a system service."""
    kept = {key: value for key, value in form.items() if key not in {"title", "format", "description"}}
    if "default" in kept and isinstance(kept["default"], float):
        kept["default"] = forms.written_seconds(kept["default"])
    return forms.with_default(kept, default)


def _told(form: Form, told: Mapping[str, str], within: str = "") -> Form:
    """The form with the meaning of each of its keys, and of the keys within those."""
    properties: dict[str, Form] = {}
    for key, value in form["properties"].items():
        path = f"{within}{key}"
        inner = value
        if "properties" in value:
            inner = _told(value, told, f"{path}.")
        elif "items" in value:
            inner = {**value, "items": _told_of_element(value["items"], told, f"{path}[].")}
        properties[key] = _described(inner, told.get(path))
    return {**form, "properties": properties}


def _told_of_element(form: Form, told: Mapping[str, str], within: str) -> Form:
    if "properties" in form:
        return _told(form, told, within)
    if "anyOf" in form:
        return {"anyOf": [_told_of_element(one, told, within) for one in form["anyOf"]]}
    return form


def _described(form: Form, text: str | None) -> Form:
    return {"description": text, **form} if text else form


def _by_name(form: Form) -> Form:
    return {
        "type": "object",
        "patternProperties": {f"^{PATTERN}$": form},
        "propertyNames": {"maxLength": MAX_LENGTH},
        "additionalProperties": False,
    }


def _any_case(word: str) -> str:
    """A pattern of a word in any case and with any joints, as the reader takes it."""
    return "^" + "[-_ ]*".join(f"[{letter}{letter.upper()}]" for letter in word) + "$"
