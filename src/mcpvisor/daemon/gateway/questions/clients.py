"""Owns how a client of the handshake era is asked: by a request, on the stream of its own request, in the words of its era."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

from mcp.shared.exceptions import MCPError, NoBackChannelError

from mcpvisor.daemon.gateway.asking import Asked, Line
from mcpvisor.daemon.gateway.questions.completions import Completions
from mcpvisor.daemon.gateway.questions.parked import NotReached
from mcpvisor.daemon.gateway.sdk_server import ask_client, declared_capabilities
from mcpvisor.daemon.questions.contract import CanBeAsked
from mcpvisor.supervisor.questions import ELICITATION
from mcpvisor.supervisor.transports.exchange import PeerRefusal

if TYPE_CHECKING:
    from mcpvisor.daemon.gateway.sessions import Session

JsonObject = dict[str, Any]

_ID_BYTES: Final = 16
_CONNECTION_CLOSED: Final = -32000


class SessionClient:
    """The client of one request in a session; see `ClientDoor`."""

    def __init__(self, asked: Asked, session: Session, line: Line, completions: Completions) -> None:
        self._asked = asked
        self._session = session
        self._line = line
        self._completions = completions

    @property
    def can(self) -> CanBeAsked:
        """What the client has declared when it opened the session, in whichever run of the daemon that was."""
        return CanBeAsked.of(declared_capabilities(self._asked.ctx))

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """See `ClientDoor`. Raises PeerRefusal and NotReached."""
        if method == ELICITATION and params.get("mode") == "url":
            # Servers of 2026-07-28 give no id, and never tell that it was visited; clients of this era need one.
            params = {"elicitationId": secrets.token_hex(_ID_BYTES), **params}
            self.expect(params)
        try:
            return await ask_client(self._asked.ctx, self._session.transport, method, params)
        except NoBackChannelError as error:
            raise NotReached("the client reads none of its streams") from error
        except MCPError as error:
            if error.code == _CONNECTION_CLOSED:
                raise NotReached("the client's session has ended") from error
            raise PeerRefusal(error.code, error.message) from error

    def expect(self, page: JsonObject) -> None:
        """The client was told of a page; what its server says of it concerns this client alone."""
        elicitation_id = page.get("elicitationId")
        if isinstance(elicitation_id, str):
            self._completions.expect(self._asked.server, elicitation_id, self._session, self._line.hearing)
