"""Webhooks against a real receiver: what is sent, and what becomes of every way in which it can fail."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.stopwatch import Stopwatch
from tests.supervisor.transports.certificates import Authority
from tests.supervisor.transports.http_rig import Puppet, puppet, raw_server

from mcpvisor.daemon.handlers.contract import DeliveryFailed, HandlerAnswer, HandlerEvent, HandlerQuestion
from mcpvisor.daemon.handlers.webhook import WebhookHandler
from mcpvisor.daemon.handlers.webhook_options import WebhookOptions
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import TlsTrust

pytestmark = pytest.mark.anyio
SECRET = Secret("shared-secret-of-the-tests")
EVENT = HandlerEvent(id="ev-1", kind="resource_updated", server="docs", at=12.5, data={"uri": "docs://ä", "reason": "notified"})
QUESTION = HandlerQuestion(id="q-1", server="docs", mode="form", message="docs asks: sure?", schema={"type": "object"})


@pytest.fixture
def receiver() -> Iterator[Puppet]:
    with puppet("webhook_receiver.py") as running:
        yield running


def hook(url: str, **changes: Any) -> WebhookHandler:
    return WebhookHandler(replace(WebhookOptions(url=url, secrets=(SECRET,)), **changes))


async def failing(handler: WebhookHandler, event: HandlerEvent = EVENT) -> DeliveryFailed:
    with anyio.fail_after(20), pytest.raises(DeliveryFailed) as caught:
        await handler.deliver(event)
    return caught.value


async def refused(url: str, **changes: Any) -> tuple[bool, float | None, str]:
    async with hook(url, **changes) as handler:
        failed = await failing(handler)
    return failed.is_final, failed.retry_after, str(failed)


async def test_what_is_sent(receiver: Puppet) -> None:
    """A delivery is one POST of the event as JSON, with its id as idempotency key, signed over id, time and body."""
    async with hook(receiver.url, headers=(("x-team", "blue"), ("authorization", Secret("Bearer of-the-receiver")))) as handler:
        began = time.time()
        await handler.deliver(EVENT)
    (seen,) = receiver.state()["seen"]
    headers, body = seen["headers"], seen["body"].encode()
    stamp = headers["webhook-timestamp"]
    digest = hmac.new(SECRET.reveal().encode(), f"ev-1.{stamp}.".encode() + body, hashlib.sha256).digest()

    assert ("/hook", EVENT.as_json()) == (seen["path"], json.loads(body))
    assert f"v1,{base64.b64encode(digest).decode()}" == headers["webhook-signature"]
    assert began - 1 <= int(stamp) <= time.time()
    assert ["ev-1", "ev-1", "blue", "Bearer of-the-receiver", "application/json", "identity"] == [
        headers[name]
        for name in ("webhook-id", "idempotency-key", "x-team", "authorization", "content-type", "accept-encoding")
    ]


async def test_the_same_event_again_is_signed_anew(receiver: Puppet) -> None:
    """A second delivery of one event has the same id, and a time and signatures of its own, one for each secret."""
    receiver.control("set", turns=[500])
    moments = iter([1000.0, 1000.0, 2000.0, 2000.0])
    options = WebhookOptions(url=receiver.url, secrets=(SECRET, Secret("the-secret-before-it")))
    async with WebhookHandler(options, now=lambda: next(moments)) as handler:
        await failing(handler)
        await handler.deliver(EVENT)
    first, second = (seen["headers"] for seen in receiver.state()["seen"])

    assert ["ev-1", "ev-1"] == [first["webhook-id"], second["webhook-id"]]
    assert ["1000", "2000"] == [first["webhook-timestamp"], second["webhook-timestamp"]]
    assert 4 == len({*first["webhook-signature"].split(" "), *second["webhook-signature"].split(" ")})


async def test_connections_are_kept(receiver: Puppet) -> None:
    """Deliveries one after another share a connection, after refusals too; one that the receiver closed is no failure."""
    receiver.control("set", turns=[200, 500, 204, 200])
    before = receiver.state()["connections"]
    async with hook(receiver.url) as handler:
        await handler.deliver(EVENT)
        await failing(handler)
        await handler.deliver(EVENT)
        await handler.deliver(EVENT)
        state = receiver.state()
    assert 1 == len({seen["connection"] for seen in state["seen"]})
    assert 2 == state["connections"] - before


@pytest.mark.parametrize(
    ("turn", "is_final", "retry_after", "words"),
    [
        (500, False, None, "answered 500 Internal Server Error: as told"),
        (404, False, None, "answered 404 Not Found: as told"),
        (410, True, None, "answered 410 Gone: as told"),
        (422, True, None, "answered 422 Unprocessable"),
        ("later-seconds", False, 7.0, "answered 429 Too Many Requests: slow down"),
        ("later-far", False, 3600.0, "answered 503 Service Unavailable"),
        ("moved", False, None, "answered 307 Temporary Redirect to https://elsewhere.example, and redirects are not followed"),
        ("close", False, None, "no answer of http://127.0.0.1:"),
    ],
)
async def test_refusals(receiver: Puppet, turn: Any, is_final: bool, retry_after: float | None, words: str) -> None:
    """Each way of refusing says whether and when to try again, and in which words it was refused; nothing is sent twice."""
    receiver.control("set", turns=[turn])
    failed = await refused(receiver.url)

    assert (is_final, retry_after) == failed[:2]
    assert words in failed[2]
    assert 1 == len(receiver.state()["seen"])


async def test_a_date_to_come_back(receiver: Puppet) -> None:
    """Retry-After may be a date."""
    receiver.control("set", turns=["later-date"])
    is_final, retry_after, _ = await refused(receiver.url)

    assert not is_final
    assert retry_after is not None
    assert 80 < retry_after <= 90


async def test_a_delivery_can_be_cancelled(receiver: Puppet) -> None:
    """Deliveries that are cancelled at their deadline leave room for as many as come after them."""
    receiver.control("set", turns=["hang"] * 20)
    async with hook(receiver.url) as handler:
        for _ in range(20):
            with anyio.move_on_after(0.05) as scope:
                await handler.deliver(EVENT)
            assert scope.cancelled_caught
        receiver.control("set", turns=[])
        with anyio.fail_after(20):
            await handler.deliver(EVENT)
    receiver.control("open")


async def test_its_end_fails_what_is_under_way(receiver: Puppet) -> None:
    """A handler that is left while somebody waits for an answer fails that, instead of holding it up."""
    receiver.control("set", turns=["hang"])
    failures: list[str] = []

    async def ask() -> None:
        with pytest.raises(DeliveryFailed) as caught:
            await handler.answer(QUESTION)
        failures.append(str(caught.value))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks, hook(receiver.url) as handler:
            tasks.start_soon(ask)
            while not receiver.state()["seen"]:
                await anyio.sleep(0.01)
    receiver.control("open")
    assert [True] == ["http://127.0.0.1:" in failure for failure in failures]


@pytest.mark.parametrize("turn", ["stall", "cut", "huge"])
async def test_the_status_alone_decides(receiver: Puppet, turn: str) -> None:
    """An event is handled once a good status has come, whatever becomes of the body behind it, within two seconds."""
    receiver.control("set", turns=[turn])
    async with hook(receiver.url) as handler:
        watch = Stopwatch(threading.get_native_id(), receiver.process.pid)
        watch.start()
        await handler.deliver(EVENT)
        assert watch.seconds() < 2.5
    receiver.control("open")


async def test_nobody_listens() -> None:
    """An address at which nobody listens is tried again."""
    async with raw_server(lambda _: anyio.sleep(0)) as url:
        pass
    is_final, retry_after, words = await refused(url)

    assert (False, None) == (is_final, retry_after)
    assert f"cannot connect to {url.removesuffix('/mcp')}: Connection refused" == words


CRUMBS = b"HTTP/1.1 %s\r\ntransfer-encoding: chunked\r\n\r\n"


async def crumbling(status: bytes) -> tuple[str, bool]:
    """What a receiver gets whose body has no end and comes a byte at a time; whether the loop was free meanwhile."""
    turns = 0

    async def serve(stream: Any) -> None:
        await stream.receive()
        await stream.send(CRUMBS % status)
        while True:
            await stream.send(b"1\r\na\r\n" * 10_000)

    async def others() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with raw_server(serve) as url, hook(url) as handler, anyio.create_task_group() as tasks:
        tasks.start_soon(others)
        told = "handled"
        with anyio.fail_after(20):
            try:
                await (handler.deliver(EVENT) if status != b"200 OK" else handler.answer(QUESTION))
            except DeliveryFailed as failed:
                told = str(failed)
        tasks.cancel_scope.cancel()
    return told, turns >= 1000


async def test_crumbs_hold_nobody_up() -> None:
    """A body in endless pieces of a byte is not read for long, and others have their turn between the pieces."""
    answer = await crumbling(b"200 OK")
    refusal = await crumbling(b"500 Oh")

    assert ("the answer came in pieces of less than 64 bytes", True) == answer
    assert refusal[0].endswith("answered 500 Internal Server Error")
    assert refusal[1]


async def test_garbage_is_no_answer() -> None:
    """What is no HTTP is tried again."""

    async def serve(stream: Any) -> None:
        await stream.receive()
        await stream.send(b"220 mail.example ESMTP\r\n")

    async with raw_server(serve) as url:
        is_final, _, words = await refused(url)

    assert not is_final
    assert words.startswith(f"no answer of {url.removesuffix('/mcp')}: ")


async def test_no_secret_is_told(receiver: Puppet, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the key, nor a header, nor an address that a secret went into is in an error or a log, also when repeated."""
    caplog.set_level(logging.DEBUG)
    receiver.control("set", turns=["quote", "moved"])
    url = receiver.url.replace("/hook", "/services/canary-of-the-path?key=canary-of-the-query")
    headers = (("authorization", Secret("Bearer canary-of-the-header")),)
    async with hook(url=Secret(url), secrets=(Secret("canary-of-the-signature"),), headers=headers) as handler:
        texts = [str(await failing(handler)) for _ in range(2)]
    shown = "\n".join([*texts, repr(handler._options), *(r.getMessage() for r in caplog.records if r.levelno > logging.DEBUG)])

    assert "canary" not in shown
    assert "/***" in texts[0]
    assert "canary-of-the-path" in receiver.state()["seen"][0]["path"]


async def test_an_own_authority(tmp_path: Any) -> None:
    """An own CA is trusted beside the system's or instead of them; without it the certificate is refused, with the key."""
    ours, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    issued = ours.issue()
    with puppet("webhook_receiver.py", "--tls", issued.cert, issued.key) as receiver:
        url = receiver.state()["tls_url"]
        for trust in (TlsTrust(ca=ours.cert), TlsTrust(ca=ours.cert, replace=True)):
            async with hook(url, tls=trust) as handler:
                await handler.deliver(EVENT)
        strangers = [await refused(url, tls=trust) for trust in (TlsTrust(), TlsTrust(ca=other.cert, replace=True))]
        assert 2 == len(receiver.state()["seen"])
    missing = await refused(url, tls=TlsTrust(ca=str(tmp_path / "none.pem")))

    assert [(False, True)] * 2 == [(one[0], "is not trusted" in one[2] and "(key tls.ca)" in one[2]) for one in strangers]
    assert (False, True) == (missing[0], missing[2].startswith("tls.ca: "))


async def test_a_renewed_authority_is_read(tmp_path: Any) -> None:
    """After a certificate was refused the files of the entry are read again, so that they can be mended in place."""
    ours, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    issued = ours.issue()
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes((tmp_path / "other.pem").read_bytes())
    assert str(tmp_path / "other.pem") == other.cert
    with puppet("webhook_receiver.py", "--tls", issued.cert, issued.key) as receiver:
        async with hook(receiver.state()["tls_url"], tls=TlsTrust(ca=str(trusted), replace=True)) as handler:
            await failing(handler)
            trusted.write_bytes((tmp_path / "ours.pem").read_bytes())
            await handler.deliver(EVENT)


async def test_a_proxy_is_used_where_it_is_written(receiver: Puppet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy of the entry is asked, and one of the environment is not."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with hook(receiver.url) as handler:
        await handler.deliver(EVENT)
    async with hook("http://far.example/hook", proxy=receiver.url.removesuffix("/hook")) as handler:
        await handler.deliver(EVENT)
    assert ["/hook", "http://far.example/hook"] == [seen["path"] for seen in receiver.state()["seen"]]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"action": "accept", "content": {"sure": True}}, HandlerAnswer(action="accept", content={"sure": True})),
        ({"action": "accept"}, HandlerAnswer(action="accept")),
        ({"action": "decline", "content": {"a": 1}, "more": 1}, HandlerAnswer(action="decline")),
        ({"action": "cancel"}, HandlerAnswer(action="cancel")),
    ],
)
async def test_answers(receiver: Puppet, answer: dict[str, Any], expected: HandlerAnswer) -> None:
    """A question is posted like an event, and the body of the response is its answer."""
    receiver.control("set", turns=[answer])
    async with hook(receiver.url) as handler:
        assert expected == await handler.answer(QUESTION)
    (seen,) = receiver.state()["seen"]
    assert (QUESTION.as_json(), "q-1") == (json.loads(seen["body"]), seen["headers"]["webhook-id"])


@pytest.mark.parametrize(
    ("turn", "words"),
    [
        ({"action": "maybe"}, 'gave an answer without an "action" of accept, decline, cancel'),
        ({"action": "accept", "content": [1]}, 'gave an answer whose "content" is no object'),
        (204, "gave no answer"),
        (200, "gave an answer that is no JSON (syntax)"),
        ("huge", "gave an answer of more than 262144 bytes"),
        ("cut", "no answer of http://127.0.0.1"),
        (500, "answered 500 Internal Server Error"),
        ("moved", "redirects are not followed"),
    ],
)
async def test_what_is_no_answer(receiver: Puppet, turn: Any, words: str) -> None:
    """Whatever is no answer fails, so that whoever asked can decline."""
    receiver.control("set", turns=[turn])
    async with hook(receiver.url) as handler:
        with anyio.fail_after(20), pytest.raises(DeliveryFailed) as caught:
            await handler.answer(QUESTION)
    assert words in str(caught.value)
