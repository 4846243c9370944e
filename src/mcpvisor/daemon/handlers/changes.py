"""Owns what a reload does to handlers, as a pure comparison of what is wanted with what was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mcpvisor.daemon.handlers.contract import JsonObject
from mcpvisor.daemon.handlers.specs import HandlerSpec, changed_fields
from mcpvisor.supervisor.spec import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerChange:
    """What happens to one handler: it is started, restarted or stopped; `fields` are the keys that differ."""

    handler: str
    change: Change
    fields: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """The change as the log has it."""
        match self.change:
            case Change.START:
                return f"handler {self.handler} is there"
            case Change.STOP:
                return f"handler {self.handler} is gone"
            case _:
                return f"handler {self.handler} is another one ({', '.join(self.fields)})"

    def as_json(self) -> JsonObject:
        """As the control API gives it."""
        return {"handler": self.handler, "change": self.change.value, "fields": list(self.fields)}


def changes_between(old: Mapping[str, HandlerSpec], new: Mapping[str, HandlerSpec]) -> tuple[HandlerChange, ...]:
    """What happens to each handler that does not stay as it is: a handler whose spec differs is another one."""
    found: list[HandlerChange] = []
    for name, spec in new.items():
        if name not in old:
            found.append(HandlerChange(handler=name, change=Change.START))
        elif old[name] != spec:
            found.append(HandlerChange(handler=name, change=Change.RESTART, fields=changed_fields(old[name], spec)))
    found += [HandlerChange(handler=name, change=Change.STOP) for name in old if name not in new]
    return tuple(found)
