"""How servers of the field speak HTTP: each case run by a puppet, and what its header says a client must do."""

from __future__ import annotations

import time
from dataclasses import replace

import anyio
import pytest

from mcpvisor.supervisor.auth.kinds import Bearer
from mcpvisor.supervisor.errors import Outcome
from mcpvisor.supervisor.events import ServerStateChanged, SessionLost
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import HttpTarget, TlsTrust
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.transports.push import ASK_AGAIN

pytestmark = pytest.mark.anyio


class TestNoPushStream:
    @pytest.mark.parametrize(
        ("mode", "said"),
        [
            ("405", "405 Method Not Allowed"),
            ("200-json", "200 OK, application/json"),
            ("200-text", "200 OK, text/plain"),
            ("404", "404 Not Found"),
            ("400", "400 Bad Request"),
            ("406", "406 Not Acceptable"),
        ],
    )
    async def test_a_server_without_one_is_as_good_as_any(self, http_case, mode, said):
        """However it says so, it is asked once, it is ready, calls work, and the status says that nothing is pushed and why."""
        case, puppet = await http_case("http_get_refused", mode)
        await case.reach(State.READY)
        await case.until(lambda: case.status.push == "none")
        answers = [await case.call(text=text) for text in ("one", "two")]

        assert ["one", "two"] == answers
        assert said in case.status.push_reason
        assert case.status.push_next is not None
        assert ASK_AGAIN - 60 < case.status.push_next - time.time() <= ASK_AGAIN
        assert (State.READY, 1, 1) == (case.status.state, case.status.generation, puppet.state()["gets"])

    async def test_a_server_that_fails_at_it_is_asked_again_more_slowly(self, http_case):
        """An error is no refusal: the server is degraded by it, says why, and is asked again with growing delays."""
        case, puppet = await http_case("http_get_refused", "500")
        reason = (await case.reach(State.DEGRADED)).reason
        await case.until(lambda: puppet.state()["gets"] == 3)
        ups = [event.new for event in case.told(ServerStateChanged) if event.old is State.DEGRADED]

        assert reason.startswith("push channel: GET was answered 500")
        assert ("retrying", 1, []) == (case.status.push, case.status.generation, ups)
        assert "up" == await case.call(text="up")

    async def test_a_get_that_hangs_holds_nothing_up(self, http_case):
        """The handshake and calls do not wait for the answer to the GET."""
        case, puppet = await http_case("http_get_refused", "hang")
        await case.reach(State.READY, seconds=3)
        await case.until(lambda: puppet.state().get("gets") == 1)

        assert "up" == await case.call(text="up")
        assert ("opening", State.READY, 1) == (case.status.push, case.status.state, case.status.generation)


class TestRedirects:
    @pytest.mark.parametrize("mode", ["307", "301"])
    async def test_within_the_origin_they_are_followed_and_remembered(self, http_case, mode):
        """The POST stays one, with its credentials, and the new address is used from then on."""
        case, puppet = await http_case("http_redirect_slash", mode, auth=Bearer(Secret("t")))
        await case.reach(State.READY)

        assert ["one", "two"] == [await case.call(text=text) for text in ("one", "two")]
        assert (1, 0, 0) == (puppet.state()["redirects"], puppet.state().get("leaked", 0), puppet.state().get("caught", 0))

    @pytest.mark.parametrize(("mode", "named"), [("cross", "which is another origin"), ("loop", "more than 5 redirects")])
    async def test_others_are_refused_and_their_address_named(self, http_case, mode, named):
        """Nothing is sent there; the entry has to be edited, so that the next try is minutes away."""
        case, puppet = await http_case("http_redirect_slash", mode, auth=Bearer(Secret("t")))
        status = await case.reach(State.FAILED)

        assert named in status.reason
        assert "http://127.0.0.1:" in status.reason
        assert (0, 0) == (puppet.state().get("leaked", 0), puppet.state().get("caught", 0))
        assert status.next_attempt is not None
        assert 290 < status.next_attempt - status.since < 310

    async def test_a_certificate_of_its_own(self, http_case):
        """Refused with the key to set and not tried like an outage; with its CA file it is served, and never led to http."""
        case, puppet = await http_case("http_redirect_slash", "tls")
        ca = puppet.line()
        failed = await case.reach(State.FAILED)
        spec = case.supervisor.connection("http").spec
        target = HttpTarget(url=puppet.url, tls=TlsTrust(ca=ca))
        led = replace(spec, name="led", target=replace(target, url=puppet.url + "/"))
        await case.supervisor.apply([replace(spec, target=target), led])
        await case.reach(State.READY)
        answer = await case.call(text="up")
        with anyio.fail_after(20):
            led_away = await case.supervisor.wait_until("led", lambda status: status.state is State.FAILED)

        assert "up" == answer
        assert "key tls.ca names a CA to trust" in failed.reason
        assert (failed.next_attempt or 0) - failed.since > 290
        assert "http://127.0.0.1:" in led_away.reason


class TestRecycledStreams:
    async def test_with_ids_the_stream_is_taken_up_when_the_server_says(self, http_case):
        """Ended on purpose again and again, it is opened one at a time, never sooner than `retry:` asks; the session stays."""
        case, puppet = await http_case("http_sse_recycle", "ids", "--life", "0.5")
        await case.reach(State.READY)
        await case.until(lambda: puppet.state()["gets"] >= 3)
        await case.until(lambda: case.status.push == "open")
        state = puppet.state()

        assert (1, 1) == (state["most_open"], state["initializes"])
        assert state["gets_per_second_max"] <= 3
        assert ([], 1) == (case.told(SessionLost), case.status.generation)
        assert "up" == await case.call(text="up")

    async def test_without_ids_what_was_missed_is_read_again(self, http_case):
        """Between two streams it shows that nothing is pushed; after it the lists are read again, and the session stays."""
        case, puppet = await http_case("http_sse_recycle", "no-ids", "--life", "0.5")
        await case.reach(State.READY)
        await case.until(lambda: puppet.state()["gets"] >= 2)
        await case.until(lambda: case.status.push == "open")
        seen = [event.reason for event in case.told(ServerStateChanged) if event.new is State.DEGRADED]

        assert seen[0].startswith("push channel: the server ended the stream")
        assert (1, 1) == (puppet.state()["most_open"], puppet.state()["initializes"])
        assert "up" == await case.call(text="up")

    async def test_streams_that_end_at_once_are_opened_more_and_more_slowly(self, http_case):
        """A server that ends each stream without a byte is not asked once a second for ever; calls work all the time."""
        case, puppet = await http_case("http_sse_recycle", "empty")
        began = time.monotonic()
        await case.until(lambda: puppet.state().get("gets", 0) == 4, seconds=20)

        # After 1, 2 and 4 seconds, each of them at least by half: the fourth stream is not opened earlier than that.
        assert time.monotonic() - began > 3.5
        assert puppet.state()["gets_per_second_max"] <= 2
        assert "up" == await case.call(text="up")
        assert 1 == case.status.generation


class TestCredentialsThatRunOut:
    @pytest.mark.parametrize("mode", ["refresh", "revoked"])
    async def test_a_fixed_token_that_is_refused_is_not_hammered_with(self, http_case, mode):
        """A token that nobody can renew: it is told that it is refused, few requests are sent with it, and no word shows it."""
        case, puppet = await http_case("http_auth_expiry", mode, "--uses", "6", auth=Bearer(Secret("fake-access-1")))
        await case.reach(State.READY)
        failure = None
        while failure is None:
            failure = await case.outcome("tools/call", {"name": "echo", "arguments": {"text": "x"}})
        status = await case.reach(State.AUTH_REQUIRED, State.DEGRADED)
        await anyio.sleep(1.0)  # that nothing more is sent is the subject: there is nothing that could be waited for

        assert (Outcome.NOT_SENT, "auth") == (failure.outcome, failure.cause)
        assert "401 Unauthorized" in status.reason
        assert puppet.state()["unauthorized"] <= 5
        assert "fake-access" not in repr(case.supervisor.history("http")) + status.reason

    async def test_another_token_in_the_entry_is_tried_at_once(self, http_case):
        """An edit mends what a credential has broken, without waiting for the slow retry."""
        case, puppet = await http_case("http_auth_expiry", "refresh", "--uses", "100", auth=Bearer(Secret("wrong")))
        await case.reach(State.AUTH_REQUIRED)
        spec = case.supervisor.connection("http").spec
        await case.supervisor.apply([replace(spec, target=replace(spec.target, auth=Bearer(Secret("fake-access-1"))))])
        await case.reach(State.READY)

        assert "up" == await case.call(text="up")
        assert 1 == puppet.state()["initializes"]


class TestPushedUpdates:
    @pytest.mark.parametrize("mode", ["get", "gone"])
    async def test_a_lost_session_is_noticed_by_the_end_of_its_stream(self, http_case, mode):
        """The server drops its sessions: the next call waits for the new one instead of meeting the loss."""
        case, puppet = await http_case("http_resource_subs", mode)
        await case.reach(State.READY)
        await case.until(lambda: case.status.push == "open")
        puppet.control("drop")
        await case.until(lambda: bool(case.told(SessionLost)))
        answers = [await case.call(text=text) for text in ("one", "two")]

        assert ["one", "two"] == answers
        assert (2, ["session_lost"]) == (puppet.state()["initializes"], [event.cause for event in case.told(SessionLost)])

    async def test_uris_are_sent_letter_by_letter(self, http_case):
        """What no class of URLs would leave as it is reaches the server as it was written."""
        case, puppet = await http_case("http_resource_subs", "post")
        await case.reach(State.READY)
        uris = [
            "file:///C:/My Notes/plan é.txt",
            "MiXeD://Host/Path/",
            "http://example.test",
            "notes/today",
            "res://x?b=2&a=1#frag",
        ]
        for uri in uris:
            await case.request("resources/subscribe", {"uri": uri})

        assert (0, sorted(uris)) == (puppet.state().get("bad_uris", 0), puppet.state()["subscribed"])
