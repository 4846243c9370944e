"""Credentials that stand in an entry: where they are sent, and how they rotate without touching a session."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.supervisor.auth.rig import client, spec_of, supervised
from tests.supervisor.transports.http_rig import BOTH, Puppet, puppet

from mcpvisor.supervisor.auth.credential import FixedCredentials, written_credential
from mcpvisor.supervisor.auth.kinds import ApiKey, Auth, Bearer, HeaderCommand
from mcpvisor.supervisor.errors import Outcome, SpecError
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import Change, HttpTarget, change_between, secrets_of
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.transports.address import parse_address
from mcpvisor.supervisor.transports.endpoint import Endpoint
from mcpvisor.supervisor.transports.http_pool import HttpPool

pytestmark = pytest.mark.anyio
FIRST, SECOND = Secret("first key & more"), Secret("second+key=")


@pytest.fixture(params=BOTH)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def server() -> Iterator[Puppet]:
    with puppet("oauth.py") as running:
        running.control("set", accepted=[FIRST.reveal()])
        yield running


def in_header(key: Secret) -> Auth:
    return ApiKey(key=key, header="X-Api-Key")


def in_query(key: Secret) -> Auth:
    return ApiKey(key=key, query="key")


@pytest.mark.parametrize("made", [Bearer, in_header, in_query])
async def test_a_key_rotates(server: Puppet, made) -> None:
    """A new key holds from the next request on, in the same session; requests in between lose nothing."""
    async with supervised(server, made(FIRST)) as rig:
        await rig.reach(State.READY)
        server.control("set", accepted=[FIRST.reveal(), SECOND.reveal()])
        await rig.apply(auth=made(SECOND))
        server.control("set", accepted=[SECOND.reveal()])
        assert ["hello"] * 3 == [await rig.call() for _ in range(3)]
        assert (1, 0) == rig.counted("initializes", "unauthorized")
        assert State.READY is rig.supervisor.status("docs").state


async def test_a_header_that_is_a_credential_rotates(server: Puppet) -> None:
    """What other programs write as a header of that kind is no less a credential."""
    headers = (("Authorization", Secret(f"Bearer {FIRST.reveal()}")),)
    async with supervised(server, None, headers=headers) as rig:
        await rig.reach(State.READY)
        server.control("set", accepted=[FIRST.reveal(), SECOND.reveal()])
        await rig.apply(headers=(("Authorization", Secret(f"Bearer {SECOND.reveal()}")),))
        server.control("set", accepted=[SECOND.reveal()])
        assert ("hello", (1, 0)) == (await rig.call(), rig.counted("initializes", "unauthorized"))


async def test_a_key_in_the_query_is_nowhere_to_be_seen(server: Puppet) -> None:
    """It is sent with each request, and shown in no reason, status, event or failure."""
    async with supervised(server, in_query(FIRST)) as rig:
        await rig.reach(State.READY)
        assert {("key",)} == {tuple(one) for one in rig.counted("queries")[0]}
        server.control("set", accepted=[], quote=True)
        failure = await rig.failure()
        shown = [
            repr(failure),
            repr(failure.data),
            repr(await rig.reach(State.AUTH_REQUIRED)),
            *map(repr, rig.supervisor.history("docs")),
        ]
    assert [] == [text for text in shown if "first" in text]


async def test_a_revoked_key_is_told_and_comes_back_with_an_edit(server: Puppet) -> None:
    """A key that is refused in mid-session needs somebody: few requests, a clear reason, and the next key is tried at once."""
    async with supervised(server, in_header(FIRST)) as rig:
        await rig.reach(State.READY)
        server.control("set", accepted=[SECOND.reveal()])
        failure = await rig.failure()
        assert (Outcome.NOT_SENT, "auth", 401) == (failure.outcome, failure.cause, failure.data["http_status"])
        status = await rig.reach(State.AUTH_REQUIRED)
        assert "401 Unauthorized" in status.reason
        assert {"auth_required"} == {(await rig.failure()).cause for _ in range(5)}
        assert rig.counted("unauthorized")[0] <= 4
        await rig.apply(auth=in_header(SECOND))
        await rig.reach(State.READY)
        assert "hello" == await rig.call()


def test_what_is_applied_in_place(server: Puppet) -> None:
    """Another value of the same credential touches no session; another kind, place or client does."""
    command = HeaderCommand(("a",))
    key, moved = ApiKey(key=FIRST, header="x"), ApiKey(key=FIRST, header="y")
    oauth = client(server)
    expected = [
        (Bearer(FIRST), Bearer(SECOND), Change.UPDATE),
        (key, ApiKey(key=SECOND, header="x"), Change.UPDATE),
        (key, moved, Change.RESTART),
        (key, Bearer(FIRST), Change.RESTART),
        (oauth, replace(oauth, client_secret=SECOND), Change.UPDATE),
        (oauth, replace(oauth, client_secret=None, private_key=SECOND), Change.UPDATE),
        (oauth, replace(oauth, client_id="other"), Change.RESTART),
        (oauth, replace(oauth, scope="other"), Change.RESTART),
        (command, HeaderCommand(("b",)), Change.UPDATE),
        (command, None, Change.RESTART),
        (None, None, Change.KEEP),
    ]

    found = [change_between(spec_of(server, old), spec_of(server, new)).change for old, new, _ in expected]
    assert [change for _, _, change in expected] == found


def test_which_headers_are_applied_in_place(server: Puppet) -> None:
    """A header restarts its server, unless it is one that holds a credential."""

    def spec(**headers: str):
        return spec_of(server, None, headers=tuple((name, Secret(value)) for name, value in headers.items()))

    assert Change.UPDATE is change_between(spec(Authorization="a"), spec(Authorization="b")).change
    assert Change.RESTART is change_between(spec(team="a"), spec(team="b")).change
    assert Change.RESTART is change_between(spec(Authorization="a", team="a"), spec(Authorization="b", team="b")).change
    assert Change.RESTART is change_between(spec(), spec(Authorization="b")).change


def test_every_form_of_a_secret_is_known(server: Puppet) -> None:
    """A key as it stands in a query, and a client's secret as it stands in its header, are masked as well."""
    key = spec_of(server, in_query(FIRST))
    oauth = spec_of(server, client(server))

    assert {"first key & more", "first%20key%20%26%20more"} <= set(secrets_of(key))
    assert {"machine-secret-1", "bWFjaGluZTptYWNoaW5lLXNlY3JldC0x"} <= set(secrets_of(oauth))


@pytest.mark.parametrize(
    ("auth", "text"),
    [
        (Bearer(Secret("a\nb")), "auth.token"),
        (ApiKey(key=Secret("a\nb"), header="x"), "auth.key"),
        (HeaderCommand(("x",)), "fetched"),
    ],
)
def test_what_cannot_be_sent(auth: Auth, text: str) -> None:
    """A value that no header can carry is an error that names the key, and not the value."""
    with pytest.raises(SpecError, match=text):
        written_credential(HttpTarget(url="http://x/", auth=auth))


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/mcp", "/mcp?key=a%26b"), ("/mcp?x=1", "/mcp?x=1&key=a%26b"), ("/mcp?key=old&x=1", "/mcp?x=1&key=a%26b")],
)
async def test_where_a_key_stands_in_a_query(path: str, expected: str) -> None:
    """It follows what the address has, and takes the place of one that a redirect brought back."""
    target = HttpTarget(url="http://127.0.0.1:9/", auth=ApiKey(key=Secret("a&b"), query="key"))
    credential = written_credential(target)
    address = parse_address("http://127.0.0.1:9" + path)
    endpoint = Endpoint(address, target, HttpPool(_nobody), FixedCredentials(credential))

    assert f"GET {expected} HTTP/1.1" == endpoint._request(address, "GET", b"", {}, credential).decode().splitlines()[0]


async def _nobody():
    raise AssertionError("nothing is to be dialled")
