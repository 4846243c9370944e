"""Owns the fetching of OAuth 2 tokens with client credentials, and how they outlive the process."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

import anyio

from mcpvisor.supervisor.auth.assertion import ASSERTION_TYPE, client_assertion
from mcpvisor.supervisor.auth.credential import HEADER_VALUE, Credential, CredentialsMissing
from mcpvisor.supervisor.auth.fetching import Answer, Fetcher
from mcpvisor.supervisor.auth.kinds import ClientAuth, ClientCredentials, basic_value
from mcpvisor.supervisor.auth.metadata import TokenEndpoint, discover, of_issuer
from mcpvisor.supervisor.auth.token import LONGEST_LIFE, Obtained, obtained
from mcpvisor.supervisor.cleaning import clip
from mcpvisor.supervisor.errors import SpecError
from mcpvisor.supervisor.masking import Mask
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.secret_names import names_secret
from mcpvisor.supervisor.spec import HttpTarget
from mcpvisor.supervisor.store import KeptToken, Store
from mcpvisor.supervisor.transports.address import Address, parse_address
from mcpvisor.supervisor.transports.http_outcome import excerpt, parse_retry_after, status_line

SECOND_TRY: Final = 1.0
"""Seconds after which an endpoint that did not answer is asked once more, before it counts as away."""

_BUSY: Final = frozenset({408, 425, 429})
_SAID: Final = 200
"""Characters that are shown of what an endpoint says."""


class TokenSource:
    """Tokens of one client at one server."""

    kind = "token_endpoint"

    def __init__(self, name: str, target: HttpTarget, auth: ClientCredentials, store: Store, mask: Mask) -> None:
        """`name` is the server's: no other server gets a token of this one. `mask` learns what leaves the process."""
        self._server = parse_address(target.url)
        self._auth = auth
        self._store = store
        self._mask = mask
        self._key = token_key(name, self._server, auth)
        known = [self._server.origin]
        known += [parse_address(url).origin for url in (auth.token_url, auth.issuer) if url]
        self._fetcher = Fetcher(target.tls, frozenset(known))
        self._endpoint: TokenEndpoint | None = None

    def kept(self) -> Obtained | None:
        """See `Source`."""
        kept = self._store.token(self._key)
        if kept is None:
            return None
        self._mask.learn_fetched([kept.value.reveal()])
        return _as_obtained(kept.value.reveal(), kept.expires_at)

    async def keep(self, fetched: Obtained) -> None:
        """See `Source`."""
        (token,) = fetched.secrets
        await self._store.keep_token(self._key, KeptToken(value=Secret(token), expires_at=fetched.expires_at))

    async def forget(self) -> None:
        """See `Source`."""
        await self._store.keep_token(self._key, None)

    async def fetch(self, challenge: dict[str, str]) -> Obtained:
        """See `Source`."""
        try:
            token, expires_at = await self._fetch(challenge)
        except CredentialsMissing as missing:
            self._endpoint = None  # what was discovered may have moved
            if missing.cause == "auth" or missing.retry_after_s is not None:
                raise
            await anyio.sleep(SECOND_TRY * (0.5 + random.random()))  # noqa: S311 - spreads load
            token, expires_at = await self._fetch(challenge)
        return _as_obtained(token, expires_at)

    async def _fetch(self, challenge: dict[str, str]) -> tuple[str, float | None]:
        if self._endpoint is None:
            self._endpoint = await self._locate(challenge)
        headers, form = self._request(self._endpoint, challenge.get("scope", ""))
        headers["content-type"] = "application/x-www-form-urlencoded"
        answer = await self._fetcher.post(self._endpoint.address, headers, urlencode(form).encode())
        told = answer.json() or {}
        # Others than ours, such as a refresh token, are not kept, and not to be heard of either.
        self._mask.learn_fetched([one for name, one in told.items() if isinstance(one, str) and names_secret(name)])
        token, expires_at = self._read(answer, self._endpoint.address)
        self._mask.learn_fetched([token])
        return token, expires_at

    async def _locate(self, challenge: Mapping[str, str]) -> TokenEndpoint:
        auth = self._auth
        if auth.token_url:
            return TokenEndpoint(address=parse_address(auth.token_url), issuer=auth.issuer)
        if auth.issuer:
            return await of_issuer(self._fetcher, auth.issuer)
        return await discover(self._fetcher, self._server, challenge)

    def _request(self, endpoint: TokenEndpoint, asked_scope: str) -> tuple[dict[str, str], dict[str, str]]:
        """The headers and the form of a request for a token."""
        auth = self._auth
        form = {"grant_type": "client_credentials"}
        # Only a server that was discovered is surely of those that know what a resource is.
        optional = {"scope": auth.scope or endpoint.scope or asked_scope, "audience": auth.audience}
        optional["resource"] = auth.resource or endpoint.resource
        form |= {name: value for name, value in optional.items() if value}
        if auth.private_key is not None:
            form |= {"client_id": auth.client_id, "client_assertion_type": ASSERTION_TYPE}
            form["client_assertion"] = self._assertion(endpoint, auth.private_key)
            return {}, form
        secret = auth.client_secret.reveal() if auth.client_secret is not None else ""
        if _by_post(auth.client_auth, endpoint.methods):
            return {}, {**form, "client_id": auth.client_id, "client_secret": secret}
        return {"authorization": f"Basic {basic_value(auth.client_id, secret)}"}, form

    def _assertion(self, endpoint: TokenEndpoint, key: Secret) -> str:
        # The issuer where it is known: an assertion for a mere address could be used at another issuer's.
        url = f"{endpoint.address.origin}{endpoint.address.path}"
        audience = endpoint.issuer or url
        try:
            assertion = client_assertion(
                key.reveal(), client_id=self._auth.client_id, audience=audience, key_id=self._auth.key_id, now=time.time()
            )
        except SpecError as error:
            raise CredentialsMissing("auth", f"auth.private_key {error}") from error
        self._mask.learn_fetched([assertion])
        return assertion

    def _read(self, answer: Answer, where: Address) -> tuple[str, float | None]:
        """The token of an answer, and its wall-clock expiry. Raises CredentialsMissing."""
        told = answer.json()
        if not 200 <= answer.status < 300:
            raise _refused(answer, where, told)
        token = told.get("access_token") if told is not None else None
        if told is None or not isinstance(token, str) or not token or not HEADER_VALUE.fullmatch(token):
            said = self._said(answer)
            raise CredentialsMissing("auth_unavailable", f"the token endpoint {where} gave no access_token: {said}")
        kind = told.get("token_type", "Bearer")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise CredentialsMissing("auth", f"the token endpoint {where} gave a token that is not of the type Bearer")
        return token, _expiry(told.get("expires_in"), where)

    @staticmethod
    def _said(answer: Answer) -> str:
        """What is shown of an answer that is none: never its values, since a secret may be under any name."""
        kind = clip(answer.headers.get("content-type", "no content type").partition(";")[0], _SAID)
        return f"{len(answer.body)} bytes of {kind}"


def token_key(name: str, server: Address, auth: ClientCredentials) -> str:
    """The name under which a token is kept: whose, from where and for what, in one line without a secret."""
    issuer = auth.token_url.partition("?")[0] or auth.issuer or "discovered"
    return json.dumps([name, str(server), issuer, auth.client_id, auth.scope, auth.audience, auth.resource])


def server_of(key: str) -> str | None:
    """The server whose token is kept under a key; None where it is none of `token_key`."""
    try:
        parts = json.loads(key)
    except ValueError:
        return None
    return parts[0] if isinstance(parts, list) and parts and isinstance(parts[0], str) else None


def _as_obtained(token: str, expires_at: float | None) -> Obtained:
    credential = Credential((("authorization", f"Bearer {token}"),))
    return obtained(credential, (token,), expires_at, time.time(), random.random())  # noqa: S311 - spreads load


def _by_post(wanted: ClientAuth, methods: tuple[str, ...]) -> bool:
    if wanted is ClientAuth.AUTO:
        return "client_secret_post" in methods and "client_secret_basic" not in methods
    return wanted is ClientAuth.POST


def _expiry(expires_in: Any, where: Address) -> float | None:
    """Wall-clock seconds; some endpoints write the number as a text."""
    if expires_in is None:
        return None
    try:
        seconds = float(expires_in)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise CredentialsMissing("auth_unavailable", f"the token endpoint {where} gave a token that has expired already")
    return time.time() + min(seconds, LONGEST_LIFE)


def _refused(answer: Answer, where: Address, told: dict[str, Any] | None) -> CredentialsMissing:
    """What a refusal of the endpoint means: wrong credentials, or an endpoint that is away."""
    words = [told[name] for name in ("error", "error_description") if isinstance(told.get(name), str)] if told else []
    said = ": ".join(excerpt(word.encode()) for word in words) if words else excerpt(answer.body)
    message = f"the token endpoint {where} answered {status_line(answer.status)}" + (f": {said}" if said else "")
    if answer.status >= 500 or answer.status in _BUSY:
        retry_after = parse_retry_after(answer.headers.get("retry-after", ""), time.time())
        return CredentialsMissing("auth_unavailable", message, retry_after)
    return CredentialsMissing("auth", message)
