"""Owns what a request carries of credentials, and how a wire asks for it: anew for each request, so that they can rotate."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from mcpvisor.supervisor.auth.kinds import CREDENTIAL_HEADERS, ApiKey, Auth, Bearer
from mcpvisor.supervisor.errors import SpecError
from mcpvisor.supervisor.secret import reveal
from mcpvisor.supervisor.spec import HttpTarget

HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\U0010ffff]*")

OURS: Final = frozenset(
    {
        "accept-encoding", "connection", "content-length", "cookie", "expect", "keep-alive", "last-event-id",
        "mcp-protocol-version", "mcp-session-id", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
"""Headers that an entry cannot set: the connection or the protocol depends on them."""

MissingCause = Literal["auth", "auth_unavailable"]


class CredentialsMissing(Exception):
    """There is nothing to send a request with; it was not sent.

    `cause` is `auth` where somebody has to mend something, `auth_unavailable` where the source does not answer now.
    """

    def __init__(self, cause: MissingCause, detail: str, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.cause: MissingCause = cause
        self.detail = detail
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True, eq=False)
class Credential:
    """What one request carries: headers with names in lower case, and a parameter of the query. Told apart by identity."""

    headers: tuple[tuple[str, str], ...] = ()
    query: tuple[str, str] | None = None


class Credentials(Protocol):
    """Where the requests of a wire get their credentials from."""

    async def current(self) -> Credential:
        """What a request that leaves now carries; waits for it within the caller's deadline. Raises CredentialsMissing."""
        ...

    async def instead_of(self, refused: Credential, challenge: str) -> Credential | None:
        """What to repeat a request with that was answered 401; None where there is nothing else.

        `challenge` is the answer's WWW-Authenticate. Raises CredentialsMissing.
        """
        ...

    def accepted(self, credential: Credential) -> None:
        """A request with it was not answered 401."""
        ...

    async def attend(self, told: Callable[[str], None]) -> None:
        """Keep the credentials fresh while a session stands on them.

        `told` is called with why there are none, empty when there are: at once, and whenever that may have changed.
        Returns where there is nothing to attend to.
        """
        ...


class FixedCredentials:
    """What the entry itself says, which does not change while the wire lasts."""

    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    async def current(self) -> Credential:
        """See `Credentials`."""
        return self._credential

    async def instead_of(self, refused: Credential, challenge: str) -> Credential | None:
        """See `Credentials`."""
        del refused, challenge
        return None

    def accepted(self, credential: Credential) -> None:
        """See `Credentials`."""

    async def attend(self, told: Callable[[str], None]) -> None:
        """See `Credentials`."""
        del told


def written_credential(target: HttpTarget) -> Credential:
    """The credentials that stand in an entry. Raises SpecError where it says how to get them instead, or wrong ones."""
    return with_entry_headers(fixed_credential(target.auth), target)


def fixed_credential(auth: Auth | None) -> Credential:
    """What `auth` says. Raises SpecError, which names the key."""
    match auth:
        case None:
            return Credential()
        case Bearer(token=token):
            return Credential((("authorization", f"Bearer {checked(token.reveal().strip(), 'auth.token')}"),))
        case ApiKey(header=header) if header:
            return Credential(((header.lower(), checked(auth.key.reveal().strip(), "auth.key")),))
        case ApiKey():
            return Credential(query=(auth.query, auth.key.reveal().strip()))
        case _:
            raise SpecError("auth: these credentials have to be fetched, which a supervisor does")


def with_entry_headers(credential: Credential, target: HttpTarget) -> Credential:
    """The credential with those headers of an entry that are credentials themselves; they win, whatever their case."""
    written = {name.lower(): reveal(text).strip() for name, text in target.headers if name.lower() in CREDENTIAL_HEADERS}
    for name, value in written.items():
        checked(value, f"headers.{name}")
    headers = {name: value for name, value in credential.headers if name not in written}
    return Credential((*written.items(), *headers.items()), credential.query)


def checked(value: str, key: str) -> str:
    """The value of a header. Raises SpecError, which names the key and not the value."""
    if not HEADER_VALUE.fullmatch(value):
        raise SpecError(f"{key}: holds a line break or a control character: remove it")
    return value


def printed_credential(headers: Mapping[str, str], where: str) -> Credential:
    """The credential made of headers that somebody else gave us. Raises ValueError, which names the header."""
    made: dict[str, str] = {}
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name):
            raise ValueError(f"{where}: what it gave as the name of a header is none")
        if name.lower() in OURS or name.lower() in ("host", "content-type", "accept"):
            raise ValueError(f"{where}: gave the header {name}, which is set by mcpvisor itself")
        if not HEADER_VALUE.fullmatch(value):
            raise ValueError(f"{where}: the value of {name} holds a line break or a control character")
        made[name.lower()] = value.strip()
    return Credential(tuple(made.items()))
