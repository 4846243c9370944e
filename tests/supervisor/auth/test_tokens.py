"""OAuth client credentials against a real token endpoint: one flight for all, nothing lost, and the truth about failures."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import anyio
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.supervisor.auth.rig import SECRET, client, spec_of, supervised
from tests.supervisor.transports.http_rig import BOTH, Puppet, puppet

from mcpvisor.supervisor import events
from mcpvisor.supervisor.auth.kinds import Bearer, ClientAuth, ClientCredentials
from mcpvisor.supervisor.auth.token_source import token_key
from mcpvisor.supervisor.errors import Outcome
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import ProbePolicy
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.store import KeptToken, MemoryStore
from mcpvisor.supervisor.supervisor import Order
from mcpvisor.supervisor.transports.address import parse_address

pytestmark = pytest.mark.anyio

CANARY = "canary-5b1d"


@pytest.fixture(params=BOTH)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def server() -> Iterator[Puppet]:
    with puppet("oauth.py", "--canary", CANARY) as running:
        yield running


async def test_ten_callers_meet_a_token_that_is_worthless(server: Puppet) -> None:
    """One token is fetched for all of them, each call is answered, and the session is the same."""
    async with supervised(server, client(server)) as rig:
        await rig.reach(State.READY)
        assert "hello" == await rig.call()
        server.control("revoke")
        answers = await rig.together(10)
        assert (["hello"] * 10, (2, 1)) == (answers, rig.counted("token_requests", "initializes"))
        assert 11 == rig.counted("calls")[0]
        assert State.READY is rig.supervisor.status("docs").state


async def test_authorised_calls_run_side_by_side(server: Puppet) -> None:
    """Three calls are within the server at the same time: none waits for another's answer."""
    async with supervised(server, client(server)) as rig:
        await rig.reach(State.READY)
        assert ["met"] * 3 == await rig.together(3, tool="meet", arguments={"people": 3})
        assert 3 == rig.counted("most")[0]


async def test_side_by_side_after_a_refusal(server: Puppet) -> None:
    """Calls that were refused together are repeated together."""
    async with supervised(server, client(server)) as rig:
        await rig.reach(State.READY)
        server.control("revoke")
        assert ["met"] * 3 == await rig.together(3, tool="meet", arguments={"people": 3})
        assert (2, 3) == rig.counted("token_requests", "calls")


async def test_a_token_that_has_run_out(server: Puppet) -> None:
    """A token is not sent after its expiry: the next call fetches another, and nothing is answered 401."""
    server.control("set", accepted=["kept"])
    store, key = MemoryStore(), token_key("docs", parse_address(server.url), client(server))
    expires_at = time.time() + 3
    await store.keep_token(key, KeptToken(value=Secret("kept"), expires_at=expires_at))
    async with supervised(server, client(server), store=store) as rig:
        await rig.reach(State.READY)
        server.control("set", accepted=[])
        await anyio.sleep(expires_at - time.time() + 0.1)  # what is waited for is the clock itself
        assert "hello" == await rig.call()
        assert (1, 0, 1) == rig.counted("token_requests", "unauthorized", "initializes")


async def test_a_secret_and_a_scope_reach_the_endpoint(server: Puppet) -> None:
    """The client is named in the way that was asked for, with its scope, its audience and its resource."""
    auth = client(server, scope="a b", audience="api", resource="urn:docs")
    async with supervised(server, auth) as rig:
        await rig.reach(State.READY)
        await rig.apply(auth=replace(auth, client_auth=ClientAuth.POST))
        server.control("revoke")
        await rig.call()
        basic, post = rig.counted("forms")[0]
    asked = {"grant_type": "client_credentials", "scope": "a b", "audience": "api", "resource": "urn:docs"}
    assert (asked, {**asked, "client_id": "machine", "client_secret": SECRET}) == (basic, post)


async def test_a_signed_assertion(server: Puppet) -> None:
    """A client with a private key proves it by a signature that the endpoint verifies; no two assertions are the same."""
    key = rsa.generate_private_key(65537, 2048)
    numbers = key.public_key().public_numbers()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    with puppet("oauth.py", "--rsa", str(numbers.n), str(numbers.e)) as verifying:
        auth = client(verifying, client_secret=None, private_key=Secret(pem), key_id="k1")
        async with supervised(verifying, auth) as rig:
            await rig.reach(State.READY)
            verifying.control("revoke")
            assert "hello" == await rig.call()
            forms = rig.counted("forms")[0]
    assert 2 == len({form["client_assertion"] for form in forms})
    assert {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"} == {form["client_assertion_type"] for form in forms}
    assert {"machine"} == {form["client_id"] for form in forms}


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("down", "503 Service Unavailable"),
        ("busy", "429 Too Many Requests"),
        ("away", "closed before an answer"),
        ("garbage", "gave no access_token: 19 bytes of text/html"),
        ("huge", "is over the limit"),
        ("expired", "has expired already"),
    ],
)
async def test_an_endpoint_that_does_not_serve(server: Puppet, mode: str, words: str) -> None:
    """The server waits in backoff with what the endpoint said, the endpoint is not flooded, and all mends itself."""
    server.control("set", mode=mode)
    async with supervised(server, client(server)) as rig:
        status = await rig.reach(State.BACKOFF)
        assert words in status.reason
        failures = [await rig.failure(deadline=0.5) for _ in range(5)]
        assert {Outcome.NOT_SENT} == {failure.outcome for failure in failures}
        assert rig.counted("token_requests")[0] <= 4
        server.control("set", mode="ok")
        await rig.apply(auth=client(server, key_id="tried again"))
        await rig.reach(State.READY)
        assert "hello" == await rig.call()
        assert "auth_unavailable" == rig.told(events.CredentialsFailed)[0].cause


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("refuse", "401 Unauthorized: invalid_client: unknown client"),
        ("mac", "not of the type Bearer"),
        ("elsewhere", "another origin"),
    ],
)
async def test_credentials_that_the_endpoint_refuses(server: Puppet, mode: str, words: str) -> None:
    """The server needs somebody, says what the endpoint said, is tried slowly, and at once when its entry is edited."""
    server.control("set", mode=mode)
    async with supervised(server, client(server)) as rig:
        status = await rig.reach(State.AUTH_REQUIRED)
        assert words in status.reason
        assert "/token" in status.reason
        assert status.next_attempt is not None
        assert (1, 0) == rig.counted("token_requests", "initializes")
        failure = await rig.failure()
        assert (Outcome.NOT_SENT, "auth_required") == (failure.outcome, failure.cause)
        server.control("set", mode="ok", secret="machine-secret-2")
        await rig.apply(auth=client(server, client_secret=Secret("machine-secret-2")))
        await rig.reach(State.READY)
        assert "hello" == await rig.call()


async def test_an_order_tries_at_once(server: Puppet) -> None:
    """Whoever mended it elsewhere need not wait for the next slow try."""
    server.control("set", mode="refuse")
    async with supervised(server, client(server)) as rig:
        await rig.reach(State.AUTH_REQUIRED)
        server.control("set", mode="ok")
        await rig.supervisor.order("docs", Order.RESTART, who="me")
        await rig.reach(State.READY)


async def test_a_session_outlives_the_endpoint(server: Puppet) -> None:
    """While no token can be had the session is kept, calls are told so as not sent, and afterwards go on within it."""
    async with supervised(server, client(server), probe=ProbePolicy(interval=0.1, timeout=5.0)) as rig:
        await rig.reach(State.READY)
        server.control("set", mode="down")
        server.control("revoke")
        status = await rig.reach(State.DEGRADED)
        assert "no credentials: the token endpoint" in status.reason
        failure = await rig.failure()
        assert (Outcome.NOT_SENT, "auth_unavailable", True) == (
            failure.outcome,
            failure.cause,
            failure.retry_after_s is not None,
        )
        server.control("set", mode="ok")
        await rig.reach(State.READY, seconds=20)
        assert ("hello", 1) == (await rig.call(), rig.counted("initializes")[0])


@pytest.mark.parametrize(("mode", "cause"), [("down", "auth_unavailable"), ("refuse", "auth")])
async def test_a_failed_fetch_shows_at_once_and_mends_itself(server: Puppet, mode: str, cause: str) -> None:
    """The first call that finds no token makes the server degraded, no session ends, and nobody has to call for it to end."""
    async with supervised(server, client(server)) as rig:  # the next probe is a minute away
        await rig.reach(State.READY)
        server.control("set", mode=mode)
        server.control("revoke")
        assert cause == (await rig.failure()).cause
        status = await rig.reach(State.DEGRADED, seconds=30)
        assert (True, None) == (status.reason.startswith("no credentials: the token endpoint"), status.token_expires_at)
        server.control("set", mode="ok")
        await rig.reach(State.READY, seconds=30)
        assert ("hello", 1, []) == (await rig.call(), rig.counted("initializes")[0], rig.told(events.ProbeMissed))


async def test_an_idle_server_has_its_token_renewed(server: Puppet) -> None:
    """A token of a short life is renewed before it runs out, whether anybody calls or not."""
    server.control("set", lifetime=10)
    async with supervised(server, client(server)) as rig:
        await rig.reach(State.READY)
        server.control("set", lifetime=3600)
        await rig.until("token_requests", 2)
        assert ("hello", (2, 0)) == (await rig.call(), rig.counted("token_requests", "unauthorized"))


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_refused_token_is_forgotten(server: Puppet, restarts: bool) -> None:
    """What the server has refused is neither kept, nor shown, nor taken again, whoever orders another try."""
    store = MemoryStore()
    key = token_key("docs", parse_address(server.url), client(server))
    async with supervised(server, client(server), store=store) as rig:
        await rig.reach(State.READY)
        server.control("set", mode="refuse")
        server.control("revoke")
        await rig.failure()
        if restarts:
            await rig.supervisor.order("docs", Order.RESTART, who="me")
            await rig.until("token_requests", 3)
        with anyio.fail_after(20):
            while store.token(key) is not None:
                await anyio.sleep(0.01)
        assert ["refused"] == [event.cause for event in rig.told(events.CredentialsDropped)]
        assert ["token_endpoint"] == [event.source for event in rig.told(events.CredentialsRefreshed)]


async def test_a_restart_without_credentials(server: Puppet) -> None:
    """Where neither the session that stands nor the next one has credentials, nothing says that calls are served."""
    async with supervised(server, client(server)) as rig:
        await rig.reach(State.READY)
        server.control("set", mode="refuse")
        server.control("revoke")
        await rig.failure()
        await rig.supervisor.order("docs", Order.RESTART, who="me")
        with anyio.fail_after(20):
            status = await rig.supervisor.wait_until("docs", lambda status: "did not come up" in status.reason)
        assert (State.DEGRADED, True, True) == (
            status.state,
            status.lacks_credentials,
            status.reason.endswith("the former one is kept"),
        )
        assert "serves on" not in status.reason


async def test_a_refused_probe_is_no_missed_one(server: Puppet) -> None:
    """A probe that was answered 401 tells of credentials and never of a server that is silent."""
    async with supervised(server, client(server), probe=ProbePolicy(interval=60.0, timeout=1.0)) as rig:
        await rig.reach(State.READY)
        server.control("set", refuse_all=True)
        await rig.failure()
        status = await rig.reach(State.DEGRADED)
        assert (True, True) == (status.has_refused_credentials, status.is_barred)
        await rig.reach(State.AUTH_REQUIRED)
        assert [] == rig.told(events.ProbeMissed)


async def test_a_slow_endpoint_holds_nobody_beyond_their_time(server: Puppet) -> None:
    """Each caller waits within its own deadline, one that leaves takes nothing with it, and the others get their answer."""
    async with supervised(server, client(server)) as rig:
        await rig.reach(State.READY)
        server.control("set", mode="slow")
        server.control("revoke")
        answers: list[str] = []

        async def patient() -> None:
            answers.append(await rig.call("patient"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(patient)
            await rig.until("token_requests", 2)
            failure = await rig.failure(deadline=0.3)
            async with anyio.create_task_group() as leaving:
                leaving.start_soon(rig.call, "gone")
                await anyio.wait_all_tasks_blocked()
                leaving.cancel_scope.cancel()
            server.control("open")
        assert (Outcome.NOT_SENT, "auth_unavailable") == (failure.outcome, failure.cause)
        assert (["patient"], (2, 1, 1)) == (answers, rig.counted("token_requests", "calls", "initializes"))


async def test_a_server_that_refuses_every_token(server: Puppet) -> None:
    """A new token is tried once; when it is refused too, the server needs somebody, and the endpoint is left in peace."""
    async with supervised(server, client(server)) as rig:
        await rig.reach(State.READY)
        server.control("set", refuse_all=True)
        failure = await rig.failure()
        assert (Outcome.NOT_SENT, "auth") == (failure.outcome, failure.cause)
        status = await rig.reach(State.AUTH_REQUIRED)
        assert 'it says error invalid_token, "it has run out"' in status.reason
        assert rig.counted("token_requests")[0] <= 1 + ProbePolicy().failures  # one for each refusal
        assert "auth" == rig.told(events.SessionLost)[0].cause


async def test_one_refusal_is_no_matter_of_the_session(server: Puppet) -> None:
    """A missing scope fails that call, with the scope that is missing; the session goes on."""
    async with supervised(server, client(server)) as rig:
        await rig.reach(State.READY)
        server.control("set", forbid=True)
        failure = await rig.failure()
        assert (Outcome.NOT_SENT, "auth", 403) == (failure.outcome, failure.cause, failure.data["http_status"])
        assert "it wants the scope tools:run (insufficient_scope): add it to auth.scope" in failure.message
        assert {Outcome.NOT_SENT} == {(await rig.failure()).outcome for _ in range(3)}
        (denied,) = rig.told(events.AccessDenied)  # once a minute at most
        assert (True, 1) == ("it wants the scope tools:run" in denied.detail, denied.count)
        server.control("set", forbid=False)
        assert ("hello", (1, 1)) == (await rig.call(), rig.counted("token_requests", "initializes"))


async def test_a_token_outlives_the_process(server: Puppet) -> None:
    """A supervisor that is started again uses what the one before has fetched, and knows when it expires."""
    store = MemoryStore()
    async with supervised(server, client(server), store=store) as rig:
        await rig.reach(State.READY)
        first = rig.supervisor.status("docs").token_expires_at
    async with supervised(server, client(server), store=store) as rig:
        await rig.reach(State.READY)
        assert ("hello", 1) == (await rig.call(), rig.counted("token_requests")[0])
        assert (first, "store") == (
            rig.told(events.CredentialsRefreshed)[0].expires_at,
            rig.told(events.CredentialsRefreshed)[0].source,
        )
    async with supervised(server, client(server, scope="more"), store=store) as rig:
        await rig.reach(State.READY)
        assert 2 == rig.counted("token_requests")[0]


async def test_a_kept_token_that_was_revoked(server: Puppet) -> None:
    """What was kept and is refused is replaced, in the store too."""
    store = MemoryStore()
    async with supervised(server, client(server), store=store) as rig:
        await rig.reach(State.READY)
    server.control("revoke")
    async with supervised(server, client(server), store=store) as rig:
        await rig.reach(State.READY)
    async with supervised(server, client(server), store=store) as rig:
        await rig.reach(State.READY)
        assert (2, 1) == rig.counted("token_requests", "unauthorized")


async def test_a_token_without_an_expiry(server: Puppet) -> None:
    """It is used until it is refused."""
    server.control("set", mode="forever")
    async with supervised(server, client(server)) as rig:
        await rig.reach(State.READY)
        assert [None] == [event.expires_at for event in rig.told(events.CredentialsRefreshed)]
        server.control("revoke")
        assert ("hello", 2) == (await rig.call(), rig.counted("token_requests")[0])


async def test_a_new_secret_changes_nothing_that_works(server: Puppet) -> None:
    """An edit of the secret alone touches neither the session nor the token; it is used when the next one is fetched."""
    async with supervised(server, client(server)) as rig:
        await rig.reach(State.READY)
        server.control("set", secret="machine-secret-2")
        await rig.apply(auth=client(server, client_secret=Secret("machine-secret-2")))
        assert "hello" == await rig.call()
        assert (1, 1) == rig.counted("token_requests", "initializes")
        assert "update" == rig.told(events.ServerUpdated)[-1].change
        server.control("revoke")
        assert ("hello", (2, 1)) == (await rig.call(), rig.counted("token_requests", "initializes"))


async def test_another_client_is_another_session(server: Puppet) -> None:
    """Who asks decides what a server shows: an edit of the client's name restarts the session, with a token of its own."""
    async with supervised(server, client(server)) as rig:
        await rig.reach(State.READY)
        await rig.apply(auth=client(server, scope="other"))
        await rig.until("initializes", 2)
        await rig.reach(State.READY)
        assert 2 == rig.counted("token_requests")[0]
        told = [event.expires_at for event in rig.told(events.CredentialsRefreshed)]
        assert (told[1], []) == (rig.supervisor.status("docs").token_expires_at, rig.told(events.CredentialsDropped))


async def test_an_edit_that_is_not_in_force_leaves_the_session_its_credentials(server: Puppet) -> None:
    """While the next session does not come up the one that serves renews what it has; a corrected secret is tried at once."""
    wrong = Secret("wrong")
    async with supervised(server, client(server), probe=ProbePolicy(interval=0.2, timeout=2.0)) as rig:
        await rig.reach(State.READY)
        await rig.apply(auth=client(server, scope="other", client_secret=wrong))
        reason = (await rig.reach(State.DEGRADED)).reason
        server.control("revoke")
        assert ("hello", 1) == (await rig.call(), rig.counted("initializes")[0])
        assert reason == (await rig.reach(State.DEGRADED)).reason
        told = [event.expires_at for event in rig.told(events.CredentialsRefreshed)]
        assert told[1] == rig.supervisor.status("docs").token_expires_at
        await rig.apply(auth=client(server, scope="other"))
        await rig.until("initializes", 2)
        with anyio.fail_after(20):
            await rig.supervisor.wait_until("docs", lambda status: status.state is State.READY and not status.reason)
        assert "hello" == await rig.call()
        assert [] == rig.told(events.CredentialsDropped)


async def test_nothing_is_known_of_a_token_once_its_last_session_is_gone(server: Puppet) -> None:
    """An entry that fetches none any more has none that expires."""
    server.control("set", accepted=["fixed"])
    async with supervised(server, client(server)) as rig:
        await rig.reach(State.READY)
        await rig.apply(auth=Bearer(Secret("fixed")))
        await rig.until("deletes", 1)
        with anyio.fail_after(20):
            await rig.supervisor.wait_until("docs", lambda status: status.token_expires_at is None)
        assert ["entry"] == [event.cause for event in rig.told(events.CredentialsDropped)]


async def test_credentials_of_one_server_never_reach_another(server: Puppet) -> None:
    """When an entry is given another address and another key, the session of the old one is ended with the old key."""
    with puppet("oauth.py") as other:
        for one, key in ((server, "the-old-key"), (other, "the-new-key")):
            one.control("set", accepted=[key])
        async with supervised(server, Bearer(Secret("the-old-key"))) as rig:
            await rig.reach(State.READY)
            await rig.supervisor.apply([spec_of(other, Bearer(Secret("the-new-key")))])
            rig.server = other
            await rig.until("initializes", 1)
            await rig.reach(State.READY)
        seen = [Puppet.state(one)["seen"] for one in (server, other)]
    assert [["Bearer the-old-key"], ["Bearer the-new-key"]] == seen
    assert 1 == server.state()["deletes"]


# Discovery


@pytest.mark.parametrize("mode", ["ok", "slash", "challenge"])
async def test_discovery(server: Puppet, mode: str) -> None:
    """Where only the server's URL is known, its metadata leads to the endpoint, with a resource and the scope it asks for."""
    server.control("set", metadata=mode)
    auth = ClientCredentials(client_id="machine", client_secret=Secret(SECRET))
    async with supervised(server, auth) as rig:
        await rig.reach(State.READY)
        (form,) = rig.counted("forms")[0]
    assert server.url == form["resource"].rstrip("/")
    assert ("asked for" if mode == "challenge" else None) == form.get("scope")


@pytest.mark.parametrize(
    ("mode", "words"), [("none", "has no metadata: set auth.token_url"), ("other", "is about another resource")]
)
async def test_discovery_in_vain(server: Puppet, mode: str, words: str) -> None:
    """What cannot be discovered is said with the key that helps; no secret goes anywhere, and nothing is asked in a loop."""
    server.control("set", metadata=mode)
    auth = ClientCredentials(client_id="machine", client_secret=Secret(SECRET))
    async with supervised(server, auth) as rig:
        status = await rig.reach(State.AUTH_REQUIRED)
        assert words in status.reason
        assert 0 == rig.counted("token_requests")[0]
        assert len(rig.counted("metadata_reads")[0]) <= 8


async def test_an_issuer(server: Puppet) -> None:
    """Where the issuer is written, the server itself is not asked; the secret goes in the way the issuer knows."""
    server.control("set", methods=["client_secret_post"])
    issuer = server.url.replace("/mcp", "/tenant")
    auth = ClientCredentials(client_id="machine", client_secret=Secret(SECRET), issuer=issuer)
    async with supervised(server, auth) as rig:
        await rig.reach(State.READY)
        assert ["/.well-known/oauth-authorization-server/tenant"] == rig.counted("metadata_reads")[0]
        (form,) = rig.counted("forms")[0]
    assert {"grant_type": "client_credentials", "client_id": "machine", "client_secret": SECRET} == form


async def test_nothing_of_a_secret_is_told(server: Puppet) -> None:
    """Whatever endpoint and server repeat of what they were sent, events, status and failures show none of it."""
    server.control("set", quote=True, secret="another")
    shown = []
    async with supervised(server, client(server)) as rig:
        shown.append((await rig.reach(State.AUTH_REQUIRED)).reason)
        server.control("set", secret=SECRET)
        await rig.supervisor.order("docs", Order.RESTART, who="me")
        await rig.reach(State.READY)
        server.control("set", refuse_all=True)
        failure = await rig.failure()
        shown += [repr(failure), repr(failure.data), repr(await rig.reach(State.AUTH_REQUIRED))]
        shown += [repr(event) for event in rig.supervisor.history("docs")]
    text = "\n".join(shown)
    assert [] == [secret for secret in (SECRET, CANARY, "bWFjaGluZTptYWNoaW5l") if secret in text]
    assert "***" in text
