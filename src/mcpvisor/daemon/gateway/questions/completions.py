"""Owns whom it concerns that a page was visited: the one client that was asked to visit it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

if TYPE_CHECKING:
    from mcpvisor.daemon.gateway.asking import Hearing
    from mcpvisor.daemon.gateway.sessions import Session

COMPLETE_METHOD: Final = "notifications/elicitation/complete"

KEPT_PER_SERVER: Final = 256
"""Pages of one server that may be waited for at one time; the oldest is forgotten first, which costs its client a hint."""

MAX_ID: Final = 512
"""Characters of an id that is remembered."""


class Completions:
    """The pages that are waited for, by server and the server's own id: no server can speak of another's."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, dict[str, tuple[ref[Session], ref[Hearing] | None]]] = defaultdict(dict)

    def expect(self, server: str, elicitation_id: str, session: Session, hearing: Hearing | None) -> None:
        """A client was asked to visit a page, of which its server may say that this has happened.

        It is told on the stream of the request that `hearing` is of, for as long as that is open.
        """
        if len(elicitation_id) > MAX_ID:
            return
        waiting = self._waiting[server]
        waiting.pop(elicitation_id, None)
        waiting[elicitation_id] = ref(session), ref(hearing) if hearing is not None else None
        if len(waiting) > KEPT_PER_SERVER:
            del waiting[next(iter(waiting))]

    def tell(self, server: str, params: dict[str, Any]) -> None:
        """Pass on to exactly that client what the server says of one of its pages."""
        elicitation_id = params.get("elicitationId")
        waiting = self._waiting.get(server, {})
        entry = waiting.pop(elicitation_id, None) if isinstance(elicitation_id, str) else None
        if entry is None:
            return
        session, hearing = entry[0](), entry[1]() if entry[1] is not None else None
        said = {"elicitationId": elicitation_id}
        if hearing is not None and hearing.is_open:
            hearing.put(COMPLETE_METHOD, said)
        elif session is not None:
            session.outbox.tell(COMPLETE_METHOD, said)

    def forget(self, server: str) -> None:
        """A server is gone."""
        self._waiting.pop(server, None)
