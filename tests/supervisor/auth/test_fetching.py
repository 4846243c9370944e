"""What is asked of authorisation servers, where it may go, and what is read of refusals, metadata and keys."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.abc
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from tests.supervisor.transports.http_rig import BOTH, Request, raw_server, read_request, reply

from mcpvisor.supervisor.auth import challenge as challenge_module
from mcpvisor.supervisor.auth.assertion import client_assertion, signing_key
from mcpvisor.supervisor.auth.challenge import challenge_parameters, challenge_words
from mcpvisor.supervisor.auth.credential import CredentialsMissing
from mcpvisor.supervisor.auth.fetching import Fetcher, GlobalAddresses
from mcpvisor.supervisor.auth.kinds import ClientCredentials
from mcpvisor.supervisor.auth.metadata import discover, of_issuer
from mcpvisor.supervisor.auth.token_source import token_key
from mcpvisor.supervisor.errors import SpecError
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import TlsTrust
from mcpvisor.supervisor.transports.address import Address, parse_address
from mcpvisor.supervisor.transports.resolver import LookupFailed

pytestmark = pytest.mark.anyio
LOCAL = "http://127.0.0.1:9/mcp"


@pytest.fixture(params=BOTH)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


class Pages:
    """A server of fixed pages, and what it was asked for."""

    def __init__(self, pages: dict[str, bytes]) -> None:
        self.pages = pages
        self.asked: list[Request] = []

    async def serve(self, stream: anyio.abc.ByteStream) -> None:
        request = await read_request(stream, bytearray())
        self.asked.append(request)
        await stream.send(self.pages.get(request.path, reply(status="404 Not Found")))


def fetcher(own: str = LOCAL) -> Fetcher:
    """That of an entry with this URL."""
    return Fetcher(TlsTrust(), frozenset({parse_address(own).origin}))


async def missing(awaitable: Any) -> CredentialsMissing:
    with pytest.raises(CredentialsMissing) as caught:
        with anyio.fail_after(20):
            await awaitable
    return caught.value


# Requests


async def test_a_redirect_within_the_origin_is_followed() -> None:
    """Metadata is found where its server says that it is; a POST is repeated only where the same request is asked for."""
    there = {f"/{status}": reply(status=f"{status} X", head="Location: /there\r\n") for status in (302, 307)}
    pages = Pages({**there, "/there": reply({"a": 1})})
    async with raw_server(pages.serve) as url:
        base = parse_address(url)
        assert {"a": 1} == (await fetcher().get(Address(base.origin, "/302"))).json()
        assert {"a": 1} == (await fetcher().post(Address(base.origin, "/307"), {}, b"x=1")).json()
        assert 302 == (await fetcher().post(Address(base.origin, "/302"), {}, b"x=1")).status
    assert b"x=1" == pages.asked[3].body


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (reply(status="307 X", head="Location: http://127.0.0.2:9/\r\n"), "another origin"),
        (reply(status="307 X", head="Location: /\r\n"), "more than 3 redirects"),
        (reply(b"x" * 100_000), "over the limit"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", "broke off"),
        (b"garbage", "not an HTTP/1.1 response"),
    ],
)
async def test_what_is_not_taken(page: bytes, words: str) -> None:
    """Another origin never sees a secret, and no answer is longer than a token needs."""
    async with raw_server(Pages({"/": page}).serve) as url:
        failure = await missing(fetcher().post(Address(parse_address(url).origin, "/"), {}, b"secret"))
    assert words in failure.detail


async def test_a_header_cannot_break_out() -> None:
    """A client's name with a line break is refused before anything is sent."""
    failure = await missing(fetcher().post(parse_address("http://127.0.0.1:9/"), {"authorization": "a\r\nb: c"}, b""))
    assert ("auth", True) == (failure.cause, "the header authorization" in failure.detail)


@pytest.mark.parametrize(
    "url", ["http://auth.example.com/token", "http://127.0.0.2/token", "http://127.0.0.1:8/token", "ftp://x/", "https://u:p@x/"]
)
def test_where_metadata_may_lead(url: str) -> None:
    """To https, or to an origin of the entry itself: nowhere else is a secret sent."""
    with pytest.raises(CredentialsMissing, match="the token endpoint"):
        fetcher().address(url, "the token endpoint")
    assert "/t" == fetcher().address("http://127.0.0.1:9/t", "the token endpoint").path


class Fixed:
    def __init__(self, *addresses: str) -> None:
        self._addresses = list(addresses)

    async def addresses(self, host: str) -> list[str]:
        return self._addresses


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "::1",
        "fd00::1",
        "fe80::1%eth0",
        "64:ff9b::7f00:1",
        "64:ff9b:1::a00:1",
        "2002:7f00:1::1",
        "::7f00:1",
        "::ffff:10.0.0.1",
        "fec0::1",
        "224.0.0.1",
    ],
)
async def test_metadata_leads_into_no_private_network(address: str) -> None:
    """A name that only metadata has given is dialled at public addresses only, whatever it resolves to."""
    with pytest.raises(LookupFailed, match="no public address"):
        await GlobalAddresses(Fixed(address)).addresses("auth.example.com")
    assert ["1.1.1.1"] == await GlobalAddresses(Fixed(address, "1.1.1.1")).addresses("auth.example.com")


async def test_what_leads_into_a_private_network_is_not_dialled() -> None:
    """The check is of the address that is connected to."""
    pages = Pages({})
    async with raw_server(pages.serve) as url:
        port = parse_address(url).origin.port
        asking = Fetcher(TlsTrust(), frozenset(), Fixed("127.0.0.1"))
        failure = await missing(asking.get(parse_address(f"http://auth.example.com:{port}/")))
    assert ("auth_unavailable", [], True) == (failure.cause, pages.asked, "no public address" in failure.detail)


@pytest.mark.parametrize("told", ["a" * 1_000_000, "a " * 500_000, 'a="' * 300_001, 'a="\\' * 250_000, " " * 1_000_000])
def test_a_challenge_costs_no_time(told: str) -> None:
    """What a server says of a refusal is read in no time, however long it is and whatever it repeats."""
    began = time.process_time()
    challenge_words("Bearer " + told)
    assert time.process_time() - began < 0.02


def test_a_challenge_is_read_in_one_pass() -> None:
    """The reading is linear in itself: it is bounded by more than the length that is read."""
    began = time.process_time()
    for told in ("a" * 200_000, "a " * 100_000, 'a="\\"' * 50_000, "a" + " " * 200_000):
        challenge_module._PARAMETER.findall(told)  # pyright: ignore[reportPrivateUsage]
    assert time.process_time() - began < 0.5


# Metadata

ISSUER = "/.well-known/oauth-authorization-server"


@contextmanager
def suppress_missing() -> Iterator[list[CredentialsMissing]]:
    """Keeps the failure, which would be wrapped by the tasks of the server around it."""
    failures: list[CredentialsMissing] = []
    try:
        yield failures
    except CredentialsMissing as missing:
        failures.append(missing)


async def found(pages: dict[str, bytes], **options: Any) -> Any:
    """What discovery finds, or why it finds nothing; `ORIGIN` in a page is the server's own."""
    held = Pages({})
    async with raw_server(held.serve) as url:
        origin = str(parse_address(url).origin)
        for path, page in pages.items():
            body = page.replace(b"ORIGIN", origin.encode())
            held.pages[path] = reply(body) if body[:1] == b"{" else body
        with anyio.fail_after(20), suppress_missing() as failure:
            if options.get("issuer"):
                return await of_issuer(fetcher(url), origin + options["issuer"])
            return await discover(fetcher(url), parse_address(url), {})
        return failure[0].detail


@pytest.mark.parametrize(
    ("issuer", "place"),
    [
        ("/", ISSUER),
        ("/a/b", ISSUER + "/a/b"),
        ("/a/b/", ISSUER + "/a/b"),
        ("/a", "/.well-known/openid-configuration/a"),
        ("/a", "/a/.well-known/openid-configuration"),
    ],
)
async def test_places_of_metadata(issuer: str, place: str) -> None:
    """The metadata of an issuer is looked for in each of the places that the standards name."""
    page = b'{"issuer": "ORIGIN' + issuer.encode() + b'", "token_endpoint": "ORIGIN/t"}'
    assert "/t" == (await found({place: page}, issuer=issuer)).address.path


async def test_a_server_without_metadata_is_its_own_issuer() -> None:
    """As servers were before there was metadata of resources."""
    endpoint = await found({ISSUER: b'{"issuer": "ORIGIN/", "token_endpoint": "ORIGIN/t"}'})
    assert ("/t", "") == (endpoint.address.path, endpoint.resource)


@pytest.mark.parametrize(
    ("pages", "words"),
    [
        ({ISSUER: b'{"issuer": "https://evil.test", "token_endpoint": "ORIGIN/t"}'}, "is of another issuer"),
        ({ISSUER: b'{"issuer": "ORIGIN"}'}, "names no token endpoint"),
        ({ISSUER: b'{"issuer": "ORIGIN", "token_endpoint": "http://evil.test/t"}'}, "which is not https"),
        ({ISSUER: reply(b"[]")}, "has no metadata"),
        ({ISSUER: reply(status="503 X")}, "cannot be had"),
        ({"/.well-known/oauth-protected-resource/mcp": b'{"resource": "ORIGIN/mcp"}'}, "names no authorization server"),
        ({"/.well-known/oauth-protected-resource/mcp": b'{"resource": "ORIGIN/other"}'}, "is about another resource"),
        ({"/.well-known/oauth-protected-resource/mcp": b'{"resource": "ORIGIN/mc"}'}, "is about another resource"),
    ],
)
async def test_metadata_that_is_not_used(pages: dict[str, bytes], words: str) -> None:
    """What is not of whom it should be, or names no place to go to, is said so."""
    assert words in await found(pages)


# What a refusal says


@pytest.mark.parametrize(
    ("challenge", "words"),
    [
        ("", ""),
        ("Basic realm=x", ""),
        ('Bearer error="invalid_token"', "it says error invalid_token"),
        ('Bearer error="invalid_token", error_description="a \\"b\\""', 'it says error invalid_token, "a "b""'),
        ("Bearer scope=a", "it says scope a"),
        (
            'Bearer error="insufficient_scope", scope="a b"',
            "it wants the scope a b (insufficient_scope): add it to auth.scope, or have it granted",
        ),
        ('Bearer error="x", error="y"', "it says error x"),
        ("Bearer error=" + "x" * 100_000, "it says error " + "x" * 199 + "…"),
    ],
)
def test_words_of_a_challenge(challenge: str, words: str) -> None:
    """The error, its description and the scope are told, cut."""
    assert words == challenge_words(challenge)


def test_parameters_of_a_challenge() -> None:
    """Quoted, plain and oddly spaced parameters are read; names are of any case."""
    told = 'Bearer realm = "a, b" , Resource_Metadata="https://x/y",scope=z, Basic realm="c"'
    assert {"realm": "a, b", "resource_metadata": "https://x/y", "scope": "z"} == challenge_parameters(told)


# Keys and assertions


def pem(key: Any, password: bytes | None = None) -> str:
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()


def test_an_assertion_of_an_elliptic_key() -> None:
    """It is signed with ES256, names the client and whom it is for, and is good for two minutes."""
    key = ec.generate_private_key(ec.SECP256R1())
    made = client_assertion(pem(key), client_id="c", audience="https://issuer", key_id="k", now=1e9)
    options = {"verify_exp": False, "verify_iat": False}
    claims = jwt.decode(made, key.public_key(), algorithms=["ES256"], audience="https://issuer", options=options)  # type: ignore[arg-type]
    head = jwt.get_unverified_header(made)

    assert {"iss": "c", "sub": "c", "aud": "https://issuer", "iat": 10**9, "exp": 10**9 + 120} == {
        name: value for name, value in claims.items() if name != "jti"
    }
    assert ("ES256", "k") == (head["alg"], head["kid"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no key", "no private key in PEM form"),
        (pem(ed25519.Ed25519PrivateKey.generate()), "neither an RSA key nor"),
        (pem(ec.generate_private_key(ec.SECP384R1())), "neither an RSA key nor"),
        (pem(rsa.generate_private_key(65537, 1024)), "2048 are the least"),
        (pem(ec.generate_private_key(ec.SECP256R1()), b"password"), "is encrypted"),
    ],
    ids=["no key", "ed25519", "p384", "short", "encrypted"],
)
def test_keys_that_cannot_be_used(text: str, words: str) -> None:
    """Each is refused with the reason, and without a word of the key."""
    with pytest.raises(SpecError, match=words):
        signing_key(text)


def test_a_token_is_kept_for_one_client_at_one_server() -> None:
    """The name under which it is kept differs by server, issuer, client and scope, and holds no secret."""
    auth = ClientCredentials(client_id="c", client_secret=Secret("canary"), token_url="https://a/t?key=canary")
    other = ClientCredentials(client_id="c", client_secret=Secret("other"), token_url="https://a/t")
    server = parse_address(Secret("https://x/mcp?key=canary"))
    keys = [token_key(name, server, one) for name in ("docs", "more") for one in (auth, other)]

    assert "canary" not in "".join(keys)
    assert (keys[0], keys[2]) == (keys[1], keys[3])
    assert keys[0] != keys[2]
