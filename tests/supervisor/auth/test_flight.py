"""The one flight that renews a credential, with a source in memory, under virtual time."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from mcpvisor.supervisor.auth.credential import Credential, CredentialsMissing
from mcpvisor.supervisor.auth.kinds import ClientCredentials
from mcpvisor.supervisor.auth.server_credentials import FLIGHT_SECONDS, KEEP_SECONDS, ServerCredentials
from mcpvisor.supervisor.auth.token import LEAST_LIFE, MARGIN, MAX_DELAY, Obtained, delay_after, obtained
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import HttpTarget, ServerSpec

pytestmark = pytest.mark.anyio
AUTH = ClientCredentials(client_id="c", client_secret=Secret("s3cret"))
SPEC = ServerSpec(name="docs", target=HttpTarget(url="http://127.0.0.1:1/mcp", auth=AUTH))


@pytest.fixture(params=["virtual"])
def anyio_backend() -> Any:
    """Time that passes only when everybody waits."""
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


@dataclass
class Script:
    """A source, and everybody who is told of it. What it gives is numbered: `t1`, `t2`."""

    seconds: float = 1.0
    life: float | None = 3600.0
    failure: CredentialsMissing | None = None
    fetched: int = 0
    times: list[float] = field(default_factory=list)
    told: list[tuple[Any, ...]] = field(default_factory=list)
    remembered: list[Obtained] = field(default_factory=list)
    keeping: float = 0.0
    challenges: list[dict[str, str]] = field(default_factory=list)
    kind: str = "token_endpoint"
    kept_one: Obtained | None = None

    def kept(self) -> Obtained | None:
        return self.kept_one

    async def fetch(self, challenge: dict[str, str]) -> Obtained:
        self.fetched += 1
        number = self.fetched
        self.times.append(anyio.current_time())
        self.challenges.append(challenge)
        await anyio.sleep(self.seconds)
        if self.failure is not None:
            raise self.failure
        return self.token(f"t{number}")

    def token(self, name: str) -> Obtained:
        now = time.time()
        return obtained(
            Credential((("authorization", name),)), (name,), None if self.life is None else now + self.life, now, 0.5
        )

    async def keep(self, fetched: Obtained) -> None:
        await anyio.sleep(self.keeping)
        self.remembered.append(fetched)

    async def forget(self) -> None:
        self.kept_one = None

    def secrets_fetched(self, secrets: tuple[str, ...]) -> None:
        self.told.append(("secrets", *secrets))

    def credentials_refreshed(self, source: str, expires_at: float | None) -> None:
        self.told.append(("refreshed", source, expires_at is not None))

    def credentials_failed(self, cause: str, detail: str, retry_in: float) -> None:
        self.told.append(("failed", cause, detail))

    def credentials_dropped(self, cause: str) -> None:
        self.told.append(("dropped", cause))


@asynccontextmanager
async def flying(script: Script) -> AsyncIterator[ServerCredentials]:
    credentials = ServerCredentials(SPEC, script, lambda spec, target: script)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(credentials.run)
        yield credentials
        credentials.stop()


def name(credential: Credential | None) -> str | None:
    return credential.headers[0][1] if credential is not None else None


async def all_of(credentials: ServerCredentials, number: int) -> list[str | None]:
    got: list[str | None] = []

    async def one() -> None:
        got.append(name(await credentials.current()))

    async with anyio.create_task_group() as tasks:
        for _ in range(number):
            tasks.start_soon(one)
    return got


async def test_one_flight_for_all() -> None:
    """However many wait, the source is asked once; its secrets are told before anything else of it."""
    script = Script()
    async with flying(script) as credentials:
        assert ["t1"] * 100 == await all_of(credentials, 100)
        assert ["t1"] * 3 == await all_of(credentials, 3)
    assert (1, [("secrets", "t1"), ("refreshed", "token_endpoint", True)]) == (script.fetched, script.told)


async def test_it_is_renewed_beside_its_use() -> None:
    """In the margin before its expiry the old one is still sent, and nobody waits for the new one."""
    script = Script()
    due = replace(script.token("old"), renew_at=time.time() - 1)
    script.kept_one = due
    async with flying(script) as credentials:
        began = anyio.current_time()
        assert ["old"] * 10 == await all_of(credentials, 10)
        assert began == anyio.current_time()
        await anyio.sleep(2)
        assert ("t1", 1) == (name(await credentials.current()), script.fetched)


@pytest.mark.parametrize("life", [1e-5, -1.0, 1.0])
async def test_a_life_next_to_nothing_is_no_storm(life: float) -> None:
    """What was just fetched is used for the least life, however short its source says, and the source is spared meanwhile."""
    script = Script(seconds=0.01, life=life)
    async with flying(script) as credentials:
        with anyio.fail_after(1):
            got = [name(await credentials.current()) for _ in range(100)]
        assert time.time() + LEAST_LIFE - 1 <= (credentials.expires_at or 0) <= time.time() + LEAST_LIFE
    assert (["t1"] * 100, 1) == (got, script.fetched)


async def test_a_failed_renewal_costs_nobody_anything() -> None:
    """While the old one is good it is sent; the source is asked ever more rarely."""
    script = Script(failure=CredentialsMissing("auth_unavailable", "away"))
    script.kept_one = replace(script.token("old"), renew_at=time.time() - 1)
    async with flying(script) as credentials:
        for _ in range(3000):
            assert "old" == name(await credentials.current())
            await anyio.sleep(0.1)
    assert 5 <= script.fetched <= 14


async def test_a_failure_is_shared_and_the_source_is_spared() -> None:
    """Callers are told at once what the last flight met; the delays between flights double up to a minute, jittered by half."""
    script = Script(failure=CredentialsMissing("auth_unavailable", "away"))
    async with flying(script) as credentials:
        for _ in range(4000):
            with pytest.raises(CredentialsMissing, match="away") as caught:
                await credentials.current()
            assert caught.value.retry_after_s is not None
            await anyio.sleep(0.1)
    waits = [later - earlier - 1.0 for earlier, later in zip(script.times, script.times[1:], strict=False)]
    steps = [1, 2, 4, 8, 16, 32, *[60] * len(waits)]
    assert len(waits) >= 7
    assert [] == [(step, wait) for step, wait in zip(steps, waits, strict=False) if not step / 2 <= wait <= step + 0.2]


async def test_a_source_says_when_it_wants_to_be_asked() -> None:
    """Its Retry-After is obeyed where it is longer than our own delay, and an order does away with it."""
    script = Script(failure=CredentialsMissing("auth_unavailable", "busy", 90.0))
    async with flying(script) as credentials:
        for _ in range(10):
            with pytest.raises(CredentialsMissing):
                await credentials.current()
            await anyio.sleep(8)
        assert 1 == script.fetched
        script.failure = None
        credentials.try_again()
        assert "t2" == name(await credentials.current())


async def test_a_caller_that_leaves_takes_nothing_with_it() -> None:
    """The flight goes on for whoever is left, and for whoever comes later."""
    script = Script(seconds=5.0)
    async with flying(script) as credentials:
        async with anyio.create_task_group() as leaving:
            leaving.start_soon(credentials.current)
            await anyio.sleep(1)
            leaving.cancel_scope.cancel()
        assert ("t1", 1, 5.0) == (name(await credentials.current()), script.fetched, anyio.current_time() - script.times[0])


async def test_a_deadline_is_met_with_an_answer() -> None:
    """A caller whose time runs out learns that it was the credentials, a moment before it is cut off."""
    script = Script(seconds=20.0)
    async with flying(script) as credentials:
        began = anyio.current_time()
        with anyio.fail_after(4), pytest.raises(CredentialsMissing, match="not answered yet") as caught:
            await credentials.current()
        assert ("auth_unavailable", 3.6) == (caught.value.cause, round(anyio.current_time() - began, 6))
        assert "t1" == name(await credentials.current())
    assert 1 == script.fetched


async def test_a_source_that_hangs_is_given_up() -> None:
    """A flight has an end, and a source that hangs is asked again later."""
    script = Script(seconds=1e9)
    async with flying(script) as credentials:
        began = anyio.current_time()
        with pytest.raises(CredentialsMissing, match="no credentials within 30 s"):
            await credentials.current()
        assert FLIGHT_SECONDS == anyio.current_time() - began


async def test_a_refused_one_is_replaced_once_for_all() -> None:
    """Whoever comes back with what was replaced meanwhile gets the new one, without a further flight."""
    script = Script()
    async with flying(script) as credentials:
        old = await credentials.current()
        got: list[str | None] = []

        async def refused() -> None:
            got.append(name(await credentials.instead_of(old, 'Bearer error="invalid_token", scope="a b"')))

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(refused)
        assert (["t2"] * 10, 2) == (got, script.fetched)
        assert {"error": "invalid_token", "scope": "a b"} == script.challenges[-1]
        assert "t2" == name(await credentials.instead_of(old, ""))


async def test_refusals_in_a_row_are_no_storm() -> None:
    """Each refused credential after a refused one waits longer for its replacement; one that is accepted ends the row."""
    script = Script(seconds=0.0)
    async with flying(script) as credentials:
        for _ in range(1000):
            await credentials.instead_of(await credentials.current(), "")
            await anyio.sleep(0.1)
        assert 6 <= script.fetched <= 9
        script.life = None
        await anyio.sleep(MAX_DELAY)
        accepted = await credentials.instead_of(await credentials.current(), "") or await credentials.current()
        credentials.accepted(accepted)
        assert name(accepted) != name(await credentials.instead_of(accepted, ""))


async def test_an_edit_in_the_middle_of_a_flight() -> None:
    """What was asked for under the old entry is given up at once, and whoever waits gets what the new one gives."""
    first, second = Script(seconds=5.0), Script(seconds=1.0)
    sources = iter([first, second])
    credentials = ServerCredentials(SPEC, first, lambda spec, target: next(sources))
    got: list[str | None] = []

    async def wait() -> None:
        got.append(name(await credentials.current()))

    other = replace(SPEC, target=HttpTarget(url="http://127.0.0.1:1/mcp", auth=replace(AUTH, client_id="d")))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(credentials.run)
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(wait)
            await anyio.sleep(1)
            credentials.respecified(other)
        credentials.stop()
    assert (["t1"], 1, 1, [1.0]) == (got, first.fetched, second.fetched, [second.times[0] - first.times[0]])


async def test_a_slow_store_holds_nobody() -> None:
    """A token is in use before it is kept, and a store that hangs costs nothing but the keeping."""
    script = Script(seconds=0.0, keeping=1e9)
    async with flying(script) as credentials:
        old = await credentials.current()
        assert ("t1", 0.0) == (name(old), anyio.current_time() - script.times[0])
        assert "t2" == name(await credentials.instead_of(old, ""))
        assert anyio.current_time() - script.times[0] <= KEEP_SECONDS
        script.keeping = 0.0
        await anyio.sleep(KEEP_SECONDS)
        assert "t2" == name(await credentials.current())


async def test_what_is_held_outlives_the_end() -> None:
    """A session that ends in order still says so with what it had; nothing is fetched for it any more."""
    script = Script()
    async with flying(script) as credentials:
        held = await credentials.current()
    assert held is await credentials.current()
    with pytest.raises(CredentialsMissing, match="its entry was changed"):
        await credentials.instead_of(held, "")
    assert 1 == script.fetched


async def test_an_end_in_the_middle_of_a_flight() -> None:
    """Whoever waits is told at once."""
    script = Script(seconds=1e9)
    failures: list[str] = []

    async def wait(credentials: ServerCredentials) -> None:
        try:
            await credentials.current()
        except CredentialsMissing as missing:
            failures.append(missing.detail)

    async with anyio.create_task_group() as tasks, flying(script) as credentials:
        tasks.start_soon(wait, credentials)
        await anyio.sleep(1)
    assert ["its entry was changed"] == failures


async def test_a_fault_of_ours_costs_one_flight() -> None:
    """Whatever a source raises, the task lives on, and the fault is told as ours."""

    class Faulty(Script):
        async def fetch(self, challenge: dict[str, str]) -> Obtained:
            raise ZeroDivisionError

    async with flying(Faulty()) as credentials:
        for _ in range(2):
            with pytest.raises(CredentialsMissing, match="a fault of mcpvisor itself: ZeroDivisionError"):
                await credentials.current()
            credentials.try_again()


@given(life=st.floats(1, 1e8), chance=st.floats(0, 1, exclude_max=True))
def test_the_margin(life: float, chance: float) -> None:
    """Renewal is due within a minute before the expiry, or a tenth of a short life, never later and never long before."""
    token = obtained(Credential(), (), life, 0.0, chance)

    assert token.renew_at is not None
    assert min(MARGIN, life / 10) / 2 - 1e-6 <= life - token.renew_at <= min(MARGIN, life / 10) + 1e-6


@given(failures=st.integers(1, 10_000), chance=st.floats(0, 1, exclude_max=True))
def test_the_delays(failures: int, chance: float) -> None:
    """A delay is never next to nothing, and never longer than a minute."""
    assert 0.5 <= delay_after(failures, chance) <= MAX_DELAY


async def test_an_edit_that_cannot_work() -> None:
    """What cannot be sent is told as a fault of the entry to whoever asks, also in the middle of a flight; an edit mends it."""
    script = Script(seconds=5.0)
    failures: list[str] = []

    async def wait(credentials: ServerCredentials) -> None:
        try:
            await credentials.current()
        except CredentialsMissing as missing:
            failures.append(missing.detail)

    wrong = replace(SPEC, target=replace(SPEC.target, headers=(("Authorization", "a\nb"),)))
    async with anyio.create_task_group() as tasks, flying(script) as credentials:
        tasks.start_soon(wait, credentials)
        await anyio.sleep(1)
        credentials.respecified(wrong)
        await anyio.sleep(1)
        assert ["headers.authorization: holds a line break or a control character: remove it"] == failures
        credentials.respecified(SPEC)
        assert "t2" == name(await credentials.current())
