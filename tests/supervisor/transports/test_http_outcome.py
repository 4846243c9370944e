"""The one table of what an HTTP response means: a row for each case."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mcpvisor.supervisor.auth.challenge import MAX_READ
from mcpvisor.supervisor.errors import Outcome
from mcpvisor.supervisor.masking import SHORTEST_SECRET, Mask
from mcpvisor.supervisor.transports.http_outcome import (
    EXCERPT,
    MAX_CHALLENGE,
    Meaning,
    PushAnswer,
    Reply,
    excerpt,
    is_session_error,
    judge,
    judge_push,
    parse_retry_after,
)

NOW = 1_800_000_000.0
JSON = "application/json"


def rpc(code: int, message: str, ident: Any = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": ident, "error": {"code": code, "message": message}}).encode()


def reply(status: int, kind: str = "", body: bytes = b"", **facts: Any) -> Reply:
    return Reply(status=status, content_type=kind, body=body, **{"method": "tools/call", "request_id": 7, "now": NOW} | facts)


SENT = {"session_sent": True}
ANY_ANSWER = json.dumps({"jsonrpc": "2.0", "id": 7, "result": {}}).encode()

ROWS = [
    # what is answered
    ("json", reply(200, JSON, ANY_ANSWER), Meaning.ANSWERED, None, None),
    ("json of a vendor", reply(200, "application/vnd.x+json", ANY_ANSWER), Meaning.ANSWERED, None, None),
    ("json without a type", reply(200, "", ANY_ANSWER), Meaning.ANSWERED, None, None),
    ("stream", reply(200, "text/event-stream"), Meaning.STREAM, None, None),
    ("error at 400 with our id", reply(400, JSON, rpc(-32602, "bad", 7)), Meaning.ANSWERED, "peer_error", "error_answer"),
    ("error at 400 without id", reply(400, JSON, rpc(-32000, "bad")), Meaning.ANSWERED, "peer_error", "error_answer"),
    ("unknown method, modern", reply(404, JSON, rpc(-32601, "no", 7)), Meaning.ANSWERED, "peer_error", "error_answer"),
    ("unknown method, session", reply(404, JSON, rpc(-32601, "no", 7), **SENT), Meaning.ANSWERED, "peer_error", "error_answer"),
    ("error at 500 with our id", reply(500, JSON, rpc(-32603, "x", 7)), Meaning.ANSWERED, "peer_error", "error_answer"),
    # what needs no answer
    ("202", reply(202, method=None), Meaning.ACCEPTED, None, None),
    ("204", reply(204, method=None), Meaning.ACCEPTED, None, None),
    ("200 null", reply(200, JSON, b"null", method=None), Meaning.ACCEPTED, None, None),
    ("200 text", reply(200, "text/plain", b"ok", method=None), Meaning.ACCEPTED, None, None),
    ("202 to a request", reply(202), Meaning.NO_ANSWER, "maybe_executed", "no_answer"),
    ("200 empty to a request", reply(200, JSON, b" \n"), Meaning.NO_ANSWER, "maybe_executed", "no_answer"),
    # the session
    ("404", reply(404, **SENT), Meaning.SESSION_LOST, "maybe_executed", "session_lost"),
    ("404 html", reply(404, "text/html", b"<h1>404", **SENT), Meaning.SESSION_LOST, "maybe_executed", "session_lost"),
    ("404 json", reply(404, JSON, rpc(-32600, "Session not found", "server-error"), **SENT), Meaning.SESSION_LOST,
     "maybe_executed", "session_lost"),
    ("404 to a notification", reply(404, method=None, **SENT), Meaning.SESSION_LOST, "maybe_executed", "session_lost"),
    ("400 no valid session", reply(400, JSON, rpc(-32000, "Bad Request: No valid session ID provided"), **SENT),
     Meaning.SESSION_LOST, "maybe_executed", "session_lost"),
    ("400 not initialized", reply(400, JSON, rpc(-32000, "Bad Request: Server not initialized"), **SENT),
     Meaning.SESSION_LOST, "maybe_executed", "session_lost"),
    ("400 text", reply(400, "text/plain", b"Invalid session ID", **SENT),
     Meaning.SESSION_LOST, "maybe_executed", "session_lost"),
    ("400 without a session", reply(400, JSON, rpc(-32000, "Bad Request: No valid session ID provided")),
     Meaning.ANSWERED, "peer_error", "error_answer"),
    ("400 of another kind", reply(400, JSON, rpc(-32602, "Unknown tool", 7), **SENT),
     Meaning.ANSWERED, "peer_error", "error_answer"),
    ("400 with our id", reply(400, JSON, rpc(-32000, "login session expired, please sign in", 7), **SENT),
     Meaning.ANSWERED, "peer_error", "error_answer"),
    ("400 with our id as text", reply(400, JSON, rpc(-32000, "login session expired", "7"), **SENT),
     Meaning.ANSWERED, "peer_error", "error_answer"),
    ("200 with a session error", reply(200, JSON, rpc(-32600, "Session not found"), **SENT),
     Meaning.SESSION_LOST, "maybe_executed", "session_lost"),
    ("a tool that speaks of sessions", reply(200, JSON, rpc(-32600, "browser session not found", 7), **SENT),
     Meaning.ANSWERED, None, None),
    # credentials
    ("401", reply(401, **SENT), Meaning.AUTH, "not_sent", "auth"),
    ("401 with json", reply(401, JSON, rpc(-32001, "Session expired"), **SENT), Meaning.AUTH, "not_sent", "auth"),
    ("403", reply(403, "text/plain", b"Invalid Origin header"), Meaning.AUTH, "not_sent", "auth"),
    ("401 to a call that was redirected", reply(401, was_redirected=True), Meaning.AUTH, "maybe_executed", "auth"),
    # limits
    ("429", reply(429, **SENT), Meaning.BUSY, "not_sent", "busy"),
    ("429 garbage", reply(429, retry_after="soon"), Meaning.BUSY, "not_sent", "busy"),
    ("429 to a call that was redirected", reply(429, was_redirected=True), Meaning.BUSY, "maybe_executed", "busy"),
    ("503 with a time", reply(503, retry_after="3"), Meaning.BUSY, "maybe_executed", "busy"),
    ("503 with a time to a read", reply(503, retry_after="3", method="tools/list"), Meaning.BUSY, "not_sent", "busy"),
    ("503 with a time to a notification", reply(503, retry_after="3", method=None), Meaning.BUSY, "not_sent", "busy"),
    ("503 garbage", reply(503, retry_after="soon"), Meaning.SERVER_ERROR, "maybe_executed", "server_error"),
    # faults
    ("500", reply(500, "text/html", b"<h1>oops"), Meaning.SERVER_ERROR, "maybe_executed", "server_error"),
    ("500 without our id", reply(500, JSON, rpc(-32603, "Internal")), Meaning.SERVER_ERROR, "maybe_executed", "server_error"),
    ("502 to a read", reply(502, method="resources/read"), Meaning.SERVER_ERROR, "maybe_executed", "server_error"),
    # addresses
    ("404 without a session", reply(404), Meaning.NOT_FOUND, "peer_error", "not_found"),
    ("405", reply(405), Meaning.NOT_FOUND, "peer_error", "not_found"),
    ("404 to initialize", reply(404, method="initialize"), Meaning.NOT_STREAMABLE_HTTP, "not_sent", "not_streamable_http"),
    ("405 to initialize", reply(405, method="initialize"), Meaning.NOT_STREAMABLE_HTTP, "not_sent", "not_streamable_http"),
    ("400 to initialize", reply(400, method="initialize"), Meaning.NOT_STREAMABLE_HTTP, "not_sent", "not_streamable_http"),
    ("400 json to initialize", reply(400, JSON, rpc(-32602, "version", 7), method="initialize"), Meaning.ANSWERED,
     "peer_error", "error_answer"),
    ("406", reply(406), Meaning.REFUSED, "peer_error", "http_refused"),
    ("304", reply(304), Meaning.REDIRECT, "maybe_executed", "redirect"),
    ("304 to a read", reply(304, method="tools/list"), Meaning.REDIRECT, "rejected", "redirect"),
    ("404 to a call that was redirected", reply(404, was_redirected=True), Meaning.NOT_FOUND, "maybe_executed", "not_found"),
    ("404 to a read that was redirected", reply(404, was_redirected=True, method="tools/list"), Meaning.NOT_FOUND,
     "peer_error", "not_found"),
    # what is no MCP
    ("sign-in page", reply(200, "text/html", b"<h1>Sign in</h1>"), Meaning.NOT_MCP, "maybe_executed", "not_mcp"),
    ("text without a type", reply(200, "", b"hello"), Meaning.NOT_MCP, "maybe_executed", "not_mcp"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "meaning", "outcome", "cause"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_table(given: Reply, meaning: Meaning, outcome: str | None, cause: str | None) -> None:
    """Every kind of response means what the table says, and fails the request with the outcome it says."""
    verdict = judge(given)

    failure = verdict.failure
    assert (meaning, outcome, cause) == (
        verdict.meaning,
        failure.outcome.value if failure else None,
        failure.cause if failure else None,
    )


def test_a_busy_server_keeps_its_time() -> None:
    """A call that may have run still tells the time after which the server wants to be asked again."""
    failure = judge(reply(503, retry_after="3")).failure

    assert failure is not None
    assert 3.0 == failure.retry_after_s


def test_refusal_carries_what_the_server_said() -> None:
    """A refusal tells status, type, excerpt and challenge, so that nobody has to guess why a call failed."""
    challenge = 'Bearer error="invalid_token"'
    failure = judge(reply(401, "text/html", b"<h1>Sign\n in</h1>", www_authenticate=challenge)).failure

    assert failure is not None
    told = "the server answered 401 Unauthorized, text/html: <h1>Sign in</h1>; it says error invalid_token"
    assert told == failure.message
    assert {"http_status": 401, "content_type": "text/html", "www_authenticate": challenge} == failure.data


def test_server_error_is_relayed_as_it_is() -> None:
    """An error of the server itself reaches the caller with its own code, message and data."""
    body = json.dumps({"jsonrpc": "2.0", "id": 7, "error": {"code": -32042, "message": "go", "data": {"url": "x"}}}).encode()
    failure = judge(reply(400, JSON, body)).failure

    assert failure is not None
    assert (Outcome.PEER_ERROR, -32042, "go", {"url": "x"}) == (failure.outcome, failure.code, failure.message, failure.data)


def test_status_of_an_error_that_answers_nobody() -> None:
    """An error of the HTTP layer (no id of ours) shows its status, by which a server of the older era is known."""
    failure = judge(reply(400, JSON, rpc(-32000, "Bad Request: Mcp-Session-Id header is required"))).failure

    assert failure is not None
    assert {"http_status": 400} == failure.data


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("999999999", 86_400.0),
        ("Fri, 15 Jan 2027 08:00:30 GMT", 30.0),
        ("Fri, 15 Jan 2021 08:00:30 GMT", 0.0),
        ("soon", None),
        ("", None),
        ("-3", None),
        ("1e9", None),
    ],
)
def test_retry_after(value: str, seconds: float | None) -> None:
    """Retry-After is read as seconds or as a date, is at most a day, and garbage says nothing."""
    assert seconds == parse_retry_after(value, NOW)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"error": "Session not found"}', True),
        (b'{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session terminated"}}', True),
        (b'{"jsonrpc":"2.0","id":3,"error":{"code":-32600,"message":"Session not found"}}', False),
        (b'{"jsonrpc":"2.0","id":"3","error":{"code":-32600,"message":"Session not found"}}', False),
        (b'{"jsonrpc":"2.0","method":"x","params":{"error":"session not found"}}', False),
        (b'{"error": "disk full"}', False),
        (b'{"error": ', False),
        (b"[]", False),
    ],
)
def test_session_error_inside_an_answer(text: bytes, expected: bool) -> None:
    """An error that answers no request of ours and speaks of a lost session is taken as a hint, all else is not."""
    assert expected == is_session_error(text)


def test_refused_credentials_and_a_lost_endpoint_may_concern_the_whole_session() -> None:
    """A 401 and a 404 make it doubtful; a 403 is about that request, and every other row says itself what it means for it."""
    doubtful = [name for name, answer, *_ in ROWS if judge(answer).is_doubtful]

    assert [
        "401",
        "401 with json",
        "401 to a call that was redirected",
        "404 without a session",
        "405",
        "404 to a call that was redirected",
        "404 to a read that was redirected",
    ] == doubtful


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        (200, "text/event-stream", PushAnswer.OPEN),
        (200, "application/json", PushAnswer.NONE),
        (200, "text/plain", PushAnswer.NONE),
        (400, "", PushAnswer.NONE),
        (401, "", PushAnswer.REFUSED),
        (403, "", PushAnswer.REFUSED),
        (404, "", PushAnswer.NONE),
        (405, "", PushAnswer.NONE),
        (406, "", PushAnswer.NONE),
        (409, "", PushAnswer.RETRY),
        (429, "", PushAnswer.RETRY),
        (500, "", PushAnswer.RETRY),
        (503, "text/event-stream", PushAnswer.RETRY),
    ],
)
def test_answers_to_the_get(status: int, kind: str, expected: PushAnswer) -> None:
    """A GET that is refused in any of the ways seen in the field means "no push stream"; trouble means "try again".

    Refused credentials are neither: they say nothing of the stream.
    """
    assert expected == judge_push(status, kind)


def test_excerpt_is_clean() -> None:
    """What a server wrote is shown as one line without control characters, cut."""
    assert "a b" + "x" * 196 + "…" == excerpt(b"a\n\x1b\t b" + b"x" * 900)


SECRET = "s3cr3t-of-the-server"


def challenge(**parameters: str) -> str:
    return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in parameters.items())


@pytest.mark.parametrize("length", range(SHORTEST_SECRET, len(SECRET)))
@pytest.mark.parametrize(
    "cut",
    [
        lambda fill: reply(503, "text/html", fill(EXCERPT).encode(), retry_after="3"),
        lambda fill: reply(403, JSON, rpc(-32000, fill(EXCERPT)), www_authenticate=challenge(error="x")),
        lambda fill: reply(401, www_authenticate=challenge(error="x", error_description=fill(200))),
        lambda fill: reply(401, www_authenticate=challenge(error=fill(200), scope="a")),
        lambda fill: reply(401, www_authenticate=challenge(error="insufficient_scope", scope=fill(200))),
        lambda fill: reply(401, www_authenticate=fill(MAX_CHALLENGE)),
        lambda fill: reply(403, www_authenticate="Bearer error=x, " + fill(MAX_READ - 22).replace(" ", " scope=")),
    ],
)
def test_a_secret_at_a_cut_leaves_nothing(cut: Callable[[Callable[[int], str]], Reply], length: int) -> None:
    """Wherever foreign text is cut, it shows, so that the begin of a secret in front of it is masked whatever comes after."""
    failure = judge(cut(lambda room: "x" * (room - 2 - length) + " " + SECRET + "y" * 5000)).failure
    mask = Mask([SECRET])

    assert failure is not None
    told = mask.text(failure.message) + json.dumps(mask.value(failure.data))
    assert "***" in told
    assert "s3cr3t" not in told


def test_a_secret_with_unseen_characters_in_it_is_shown_without_them() -> None:
    """A body is cleaned before anything is masked in it."""
    assert f"a {SECRET} b" == excerpt(f"a\n{SECRET[:6]}\u200b\x1b[0m\xad{SECRET[6:]} b".encode())
