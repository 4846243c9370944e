"""Owns which era of the protocol a server speaks: how to ask, what counts as an answer, and what is remembered of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import anyio
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError

from mcpvisor.supervisor import sdk
from mcpvisor.supervisor.errors import McpvisorError, Outcome, RequestFailed
from mcpvisor.supervisor.spec import Era
from mcpvisor.supervisor.transports.http_outcome import asks_for_session
from mcpvisor.supervisor.transports.wire import REQUEST_TIMEOUT_CODE, Wire

JsonObject = dict[str, Any]

STDIO_SILENCE: Final = 2.0
"""Seconds after which a stdio server that does not answer the probe is spoken to in the older era."""

_LEGACY_CODES: Final = frozenset({-32601, -32602, -32600})
_LEGACY_STATUSES: Final = frozenset({400, 404, 405})
_CONFLICT: Final = 409

_OCCUPIED: Final = re.compile(
    r"already (initiali[sz]ed|connected|in use)"
    r"|(too many|max(imum)?|only (a |one|single)|limit|another|existing)\b.{0,40}\b(session|client|connection)s?\b"
    r"|\b(session|client|connection)s?\b.{0,40}\b(already|exists|limit|in use|exceeded|connected)\b",
    re.IGNORECASE | re.DOTALL,
)
"""Spellings of "there is no room for another session"; looked for in what `initialize` is refused with."""


class NegotiationFailed(McpvisorError):
    """The handshake did not come about; `cause` is of the closed set of `WireEnd`, or `era_probe` or `not_streamable_http`."""

    def __init__(
        self,
        cause: str,
        detail: str,
        retry_after_s: float | None = None,
        *,
        exit_code: int | None = None,
        http_status: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.cause = cause
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.exit_code = exit_code
        """That of the process, where it exited instead of answering."""
        self.http_status = http_status
        """What an HTTP server answered with, where it refused the handshake by that alone."""


@dataclass(slots=True)
class EraMemory:
    """What is known of a server's era; outlives its generations. A verdict is only stored when the server gave it.

    It is forgotten when it stops working: the server may have been replaced by another one of its name.
    """

    verdict: Era | None = None
    skip_probe: bool = False
    """Whether the last process did not survive the probe, or never answered after it: begin with `initialize`."""
    only_sse: bool = False
    """Whether the server knows only the old HTTP+SSE transport, as it said by refusing a POST."""
    refused_post: tuple[str, int | None] = ("", None)
    """In what words, and with which status, it refused that; empty where this run has seen none."""


def is_legacy_evidence(failure: RequestFailed, *, stdio: bool) -> bool:
    """Whether a failed probe shows a server of the older era.

    On stdio every error answer does. On HTTP only an answer of the protocol does, or one that asks for a session, which only
    the older era has: timeouts, credentials, limits and faults of the network say nothing of the era.
    """
    if failure.outcome is not Outcome.PEER_ERROR:
        return failure.cause == "not_streamable_http"
    if stdio:
        return True
    data = failure.data
    status = data.get("http_status") if isinstance(data, dict) else None
    return failure.code in _LEGACY_CODES or status in _LEGACY_STATUSES or asks_for_session(failure.message)


def is_occupied(failure: RequestFailed) -> bool:
    """Whether a refusal of `initialize` says that the server has no room for a session beside those that stand.

    Only what was answered is asked for its words: limits on requests and credentials come first.
    """
    if failure.cause in ("auth", "auth_unavailable") or failure.retry_after_s is not None:
        return False
    data = failure.data if isinstance(failure.data, dict) else {}
    answered = failure.outcome is Outcome.PEER_ERROR or "http_status" in data
    return answered and (data.get("http_status") == _CONFLICT or _OCCUPIED.search(failure.message) is not None)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a server was sent to come to a handshake, and not answered yet. Times are monotonic seconds."""

    method: str
    at: float
    until: float | None = None
    """When its silence is taken for an answer, and it is sent something else; None where it is waited for."""


class Negotiation:
    """The handshake with one server on one wire; used once."""

    def __init__(self, session: ClientSession, wire: Wire, memory: EraMemory, capabilities: JsonObject) -> None:
        """`capabilities` are what is declared to a server of the older era."""
        self.asked: Asked | None = None
        """What it has not answered yet; None before the first question, and once all is over."""
        self._session = session
        self._wire = wire
        self._memory = memory
        self._capabilities = capabilities
        self._is_stdio = wire.kind == "stdio"

    async def agree(self, era: Era) -> sdk.Handshake:
        """Make the handshake that the spec or the server's own answers ask for.

        Takes as long as the caller's scope allows. Raises NegotiationFailed.
        """
        try:
            if era is Era.MODERN:
                return await self._discover()
            if era is Era.LEGACY:
                return await self._initialize()
            return await self._ask()
        except sdk.UnsupportedVersion as error:
            raise NegotiationFailed("version_mismatch", f"no protocol version in common: {error}") from error
        except sdk.ForeignVersion as error:
            raise NegotiationFailed("version_mismatch", str(error)) from error
        except sdk.HandshakeRefused as error:
            raise NegotiationFailed("protocol", str(error)) from error
        except MCPError as error:
            raise _failed(error, self._wire) from error
        finally:
            self.asked = None

    async def _discover(self, silence: float | None = None) -> sdk.Handshake:
        now = anyio.current_time()
        self.asked = Asked("server/discover", now, None if silence is None else now + silence)
        return await sdk.discover(self._session)

    async def _initialize(self) -> sdk.Handshake:
        self.asked = Asked("initialize", anyio.current_time())
        return await sdk.initialize(self._session, self._capabilities)

    async def _ask(self) -> sdk.Handshake:
        memory = self._memory
        if memory.verdict is Era.LEGACY or memory.skip_probe:
            try:
                return await self._legacy()
            except sdk.UnsupportedVersion:
                memory.verdict = None  # the server has been updated: what was remembered stopped working
            except MCPError as error:
                failure = _failure_of(error)
                if failure is not None and is_legacy_evidence(failure, stdio=self._is_stdio):  # it may be newer by now
                    memory.verdict, memory.skip_probe = None, False  # the next generation asks again
                raise
        try:
            probed = await self._probe()
        except sdk.HandshakeRefused as refused:
            return await self._legacy_after(refused)
        if probed is not None:
            memory.verdict = Era.MODERN
            return probed
        try:
            return await self._legacy()
        except sdk.UnsupportedVersion:
            # A slow server of the newer era: it had read the probe after all, and answers to that one only.
            handshake = await self._discover()
            memory.verdict = Era.MODERN
            return handshake

    async def _legacy_after(self, refused: sdk.HandshakeRefused) -> sdk.Handshake:
        """The older handshake with a server whose answer to the probe shows no newer era.

        Where it refuses this as well, that answer is what is wrong with it.
        """
        self._memory.verdict = None
        try:
            return await self._legacy()
        except sdk.UnsupportedVersion as error:
            raise refused from error
        except MCPError as error:
            failure = _failure_of(error)
            if failure is not None and failure.outcome is Outcome.PEER_ERROR:
                raise refused from error
            raise

    async def _legacy(self) -> sdk.Handshake:
        handshake = await self._initialize()
        self._memory.verdict, self._memory.skip_probe = Era.LEGACY, False
        return handshake

    async def _probe(self) -> sdk.Handshake | None:
        """The handshake of the newer era, or None where the server is to be spoken to in the older one."""
        memory, wire = self._memory, self._wire
        silence = STDIO_SILENCE if self._is_stdio and memory.verdict is not Era.MODERN else None
        try:
            with anyio.move_on_after(silence):
                return await self._discover(silence)
            memory.skip_probe = True  # should it stay silent now, the next process is not asked
        except anyio.get_cancelled_exc_class():
            memory.verdict = None  # what was remembered has stopped working: the next process is not waited for as long
            raise
        except sdk.UnsupportedVersion:
            pass  # it answered, and offers older versions only
        except MCPError as error:
            failure = _failure_of(error)
            if self._is_stdio and wire.end is not None and wire.end.cause in ("process_exited", "stdout_closed"):
                memory.skip_probe = True
                raise NegotiationFailed(
                    "era_probe",
                    "it ended when asked for its era; it is started again and not asked",
                    exit_code=wire.end.exit_code,
                ) from error
            if error.code == REQUEST_TIMEOUT_CODE:
                memory.verdict = None  # as for a cancellation
            if failure is None or not is_legacy_evidence(failure, stdio=self._is_stdio):
                raise
        return None


def _failure_of(error: MCPError) -> RequestFailed | None:
    cause = error.__cause__
    return cause if isinstance(cause, RequestFailed) else None


def _failed(error: MCPError, wire: Wire) -> NegotiationFailed:
    failure = _failure_of(error)
    if wire.end is not None:
        return NegotiationFailed(wire.end.cause, wire.end.detail, wire.end.retry_after_s, exit_code=wire.end.exit_code)
    if failure is None and error.code == REQUEST_TIMEOUT_CODE:
        return NegotiationFailed("no_answer", "it took the handshake and gave no answer to it")
    if failure is not None and is_occupied(failure):
        return NegotiationFailed("occupied", f"it has no room for another session: {failure.message}")
    if failure is not None and failure.cause == "not_streamable_http":
        status = failure.data.get("http_status") if isinstance(failure.data, dict) else None
        return NegotiationFailed("not_streamable_http", failure.message, http_status=status)
    if failure is None or failure.outcome is Outcome.PEER_ERROR:
        return NegotiationFailed("protocol", f"the handshake was answered with an error: {error.message}")
    return NegotiationFailed(failure.cause, failure.message, failure.retry_after_s)
