"""Owns the daemon's own settings, `[daemon] [log] [gateway] [questions] [control] [metrics]`: their defaults, forms and bounds.

Models only; where values come from, and which source wins, is the subject of `layers.py`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from mcpvisor.daemon.config import forms
from mcpvisor.daemon.config.durations import DURATION_EXPECTED, seconds
from mcpvisor.daemon.config.entry_scope import text_fault
from mcpvisor.daemon.config.places import Places

SECTIONS: Final = ("daemon", "log", "gateway", "questions", "control", "metrics")

_AT_PORT: Final = r"(\[[0-9A-Fa-f:.%a-z]+\]|[A-Za-z0-9._-]+):(\d{1,5})"
_HOST_PORT = re.compile(_AT_PORT, re.ASCII)
_LISTEN: Final[forms.Form] = {"type": "string", "pattern": f"^(unix:/.*|{_AT_PORT})$"}
_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_WORDS: Final = {
    **dict.fromkeys(("true", "yes", "on", "1", "t", "y"), True),
    **dict.fromkeys(("false", "no", "off", "0", "f", "n"), False),
}
_LISTEN_EXPECTED: Final = '"HOST:PORT", "[IPV6]:PORT" or "unix:/PATH"'


def _seconds(value: Any) -> float:
    try:
        # An environment variable has no numbers, only texts.
        return seconds(int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else value)
    except ValueError as error:
        raise ValueError(f"{error}; expected {DURATION_EXPECTED}") from None


def _texts(value: Any) -> Any:
    """A list; one text is a list of one, and in an environment variable commas or JSON make several."""
    if isinstance(value, str):
        if text_fault(value):
            raise ValueError(text_fault(value))
        if re.fullmatch(r"\s*\[.*\]\s*", value, re.DOTALL):
            try:
                return tuple(json.loads(value))
            except ValueError:
                raise ValueError('not a list; expected texts between commas, or ["...", "..."]') from None
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if not isinstance(value, list):
        return value
    if fault := next((fault for one in value if isinstance(one, str) and (fault := text_fault(one))), ""):
        raise ValueError(fault)
    return tuple(value)


def _folder(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value or text_fault(value):
        raise ValueError("is empty" if not value else text_fault(value))
    return Path(value)


def _listens(value: Any) -> Any:
    addresses = _texts(value)
    if isinstance(addresses, tuple):
        for address in addresses:
            fault = listen_fault(address)
            if fault:
                raise ValueError(f"{fault}; expected {_LISTEN_EXPECTED}")
    return addresses


def listen_fault(address: Any) -> str:
    """What is wrong with an address to listen on; empty when nothing is."""
    if not isinstance(address, str):
        return "not an address"
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if not path.startswith("/"):
            return "the path of a unix socket is absolute"
        # The kernel's limit of sun_path, with its closing NUL.
        return "the path of a unix socket has at most 107 bytes" if len(path.encode()) > 107 else ""
    match = _HOST_PORT.fullmatch(address)
    if match is None:
        return "not an address with a port"
    return "a port is at most 65535" if int(match[2]) > 65535 else ""


Folder = Annotated[Path, BeforeValidator(_folder)]
Seconds = Annotated[float, BeforeValidator(_seconds), WithJsonSchema(forms.duration(None, variable=False))]
PositiveSeconds = Annotated[
    float, BeforeValidator(_seconds), Field(gt=0), WithJsonSchema(forms.duration(None, positive=True, variable=False))
]
Texts = Annotated[tuple[str, ...], BeforeValidator(_texts), WithJsonSchema(forms.WORDS)]
Listens = Annotated[tuple[str, ...], BeforeValidator(_listens), WithJsonSchema(forms.words(_LISTEN))]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, strict=True)


class DaemonSettings(_Section):
    """`[daemon]`."""

    state_dir: Folder
    """The state store's folder; known only at its place, so it has no fixed default."""
    parallel_starts: int = Field(default=32, ge=1, le=10_000)
    """How many processes may be in their first seconds at once."""
    strict: bool = False
    """Whether one bad entry rejects a whole reload."""


class LogSettings(_Section):
    """`[log]`."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "journal", "console", "json"] = "auto"


class GatewaySettings(_Section):
    """`[gateway]`."""

    listen: Listens
    auth: Literal["auto", "open"] = "auto"
    """`oidc` is promised, and refused until it is there."""
    hosts: Texts = ()
    origins: Texts = ()
    first_list_wait: Seconds = 5.0
    drain_notice: Seconds = 5.0
    """How long a stop still serves all that comes, where somebody asks `/readyz`."""


class QuestionsSettings(_Section):
    """`[questions]`: what servers ask people."""

    deadline: PositiveSeconds = 300.0
    """How long whoever is asked may think."""
    per_server: int = Field(default=16, ge=1, le=1000)
    """How many questions of one server may be open."""
    per_client: int = Field(default=16, ge=1, le=1000)
    """How many questions may be open with one client."""


class ControlSettings(_Section):
    """`[control]`."""

    listen: Listens


class MetricsSettings(_Section):
    """`[metrics]`. An empty list turns the page off."""

    listen: Listens = ("127.0.0.1:9433",)


class Settings(_Section):
    """All settings of the daemon; `Settings.model_validate` raises pydantic's ValidationError without the input."""

    daemon: DaemonSettings
    log: LogSettings = LogSettings()
    gateway: GatewaySettings
    questions: QuestionsSettings = QuestionsSettings()
    control: ControlSettings
    metrics: MetricsSettings = MetricsSettings()


def from_text(section: str, key: str, text: str) -> Any:
    """The value that a text of an environment variable or a credential means; the text itself where it means none."""
    model = Settings.model_fields[section].annotation
    field = getattr(model, "model_fields", {}).get(key)
    if field is not None and field.annotation is bool:
        return _WORDS.get(text.strip().lower(), text)
    if field is not None and field.annotation is int and _WHOLE.fullmatch(text.strip()):
        return int(text)
    return text


def default_values(at: Places) -> dict[str, dict[str, Any]]:
    """The defaults that depend on whether the daemon serves the machine or one user."""
    gateway = f"unix:{at.runtime}/gateway.sock" if at.is_system else "127.0.0.1:7433"
    return {
        "daemon": {"state_dir": str(at.state)},
        "gateway": {"listen": [gateway]},
        "control": {"listen": [f"unix:{at.runtime}/control.sock"]},
    }


_AT_RELOADS: Final = frozenset({"daemon.strict"})
"""Settings that hold from the reload that reads them on: no start of the daemon is needed."""


def changed_settings(old: Settings, new: Settings) -> tuple[str, ...]:
    """The settings in which two versions differ and that are read at the daemon's start alone, as `section.key`."""
    before, after = old.model_dump(), new.model_dump()
    return tuple(
        f"{section}.{key}"
        for section in SECTIONS
        for key in after[section]
        if before[section][key] != after[section][key] and f"{section}.{key}" not in _AT_RELOADS
    )
