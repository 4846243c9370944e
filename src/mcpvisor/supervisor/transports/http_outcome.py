"""Owns the one table that says what an HTTP response means for the request it answers. Pure: no I/O, no clock."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final

from mcpvisor.supervisor.auth.challenge import challenge_words
from mcpvisor.supervisor.cleaning import clean_text, clip
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.transports.codec import Unreadable, decode
from mcpvisor.supervisor.transports.exchange import peer_error

EXCERPT: Final = 200
"""Characters of a foreign body that are shown."""

MAX_ERROR_BODY: Final = 64 * 1024
"""Bytes that are read of the body of a refusal."""

MAX_CHALLENGE: Final = 2048
"""Characters of a WWW-Authenticate that a failure carries."""

MAX_RETRY_AFTER: Final = 86_400.0
_SECONDS: Final = re.compile(r"[0-9]+(\.[0-9]*)?")

REPEATABLE: Final = frozenset(
    {
        "initialize", "ping", "server/discover", "tools/list", "resources/list", "resources/templates/list",
        "prompts/list", "resources/read", "prompts/get", "completion/complete", "resources/subscribe",
        "resources/unsubscribe", "logging/setLevel",
    }
)  # fmt: skip
"""Methods that may be written again when their connection turns out closed before a byte of the answer came."""

_METHOD_NOT_FOUND: Final = -32601
_NOT_STREAMABLE: Final = frozenset({400, 404, 405})

NO_ENDPOINT: Final = frozenset({404, 405, 410})
"""What a POST is answered with, without a word of JSON-RPC, where nothing speaks MCP."""

_SESSION_GONE: Final = re.compile(
    r"(no valid|invalid|unknown|expired|missing|bad) session"
    r"|session\b.{0,60}\b(not found|not exist|invalid|not valid|expired|terminated|closed|unknown|missing|required)"
    r"|(server|session) not initialized",
    re.IGNORECASE | re.DOTALL,
)
"""Spellings of a lost session. Only looked for where a session id was sent; a status of 404 needs none of them."""


class Meaning(StrEnum):
    """What a response is."""

    ANSWERED = "answered"
    """A JSON text to be sorted: it holds the answer, or should."""
    STREAM = "stream"
    """An event stream that is to bring the answer."""
    ACCEPTED = "accepted"
    """A message that gets no answer has arrived."""
    SESSION_LOST = "session_lost"
    AUTH = "auth"
    BUSY = "busy"
    NOT_FOUND = "not_found"
    """Nothing speaks MCP there, or not any more."""
    NOT_STREAMABLE_HTTP = "not_streamable_http"
    """`initialize` was refused the way servers of the old HTTP+SSE transport do it."""
    REFUSED = "http_refused"
    """Another status of the 4xx kind."""
    REDIRECT = "redirect"
    """A redirect that leads nowhere: those that are followed never come here."""
    SERVER_ERROR = "server_error"
    NOT_MCP = "not_mcp"
    NO_ANSWER = "no_answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The facts of one response, and of the message it answers."""

    status: int
    content_type: str = ""
    """Media type in lower case, without parameters."""
    body: bytes = b""
    """Empty for an event stream; may be cut for a refusal."""
    method: str | None
    """The method of the request; None for a notification or an answer of ours."""
    request_id: int | None = None
    was_redirected: bool = False
    """Whether the request had been written to another address before, which sent it here."""
    session_sent: bool = False
    retry_after: str = ""
    www_authenticate: str = ""
    now: float = 0.0
    """Wall-clock seconds, for a `Retry-After` that is a date."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a response means; `failure` is what the request ends with, None where there is more to read."""

    meaning: Meaning
    failure: RequestFailed | None = None
    is_doubtful: bool = False
    """Whether it may concern all of the session, and not this request alone: a probe finds out."""


def is_repeatable(method: str | None) -> bool:
    """Whether a message may be written twice: a method of `REPEATABLE`, or (None) one that gets no answer."""
    return method is None or method in REPEATABLE


def judge(reply: Reply) -> Verdict:
    """The meaning of a response."""
    if 200 <= reply.status < 300:
        return _judge_success(reply)
    error = _rpc_error(reply)
    if reply.status in (401, 403):  # no word of it is about the session, whatever else it says
        refused = _failed(Meaning.AUTH, Outcome.NOT_SENT, reply, error)
        return replace(refused, is_doubtful=reply.status == 401)  # 403: not for this request, whoever asks is known
    if _says_session_lost(reply, error):
        return Verdict(Meaning.SESSION_LOST, session_lost(reply.status))
    retry_after = parse_retry_after(reply.retry_after, reply.now)
    if reply.status == 429:
        return _failed(Meaning.BUSY, Outcome.NOT_SENT, reply, error, retry_after)
    if reply.status == 503 and retry_after is not None:
        # A proxy also says so of a server that broke off in the middle of its work.
        outcome = Outcome.NOT_SENT if is_repeatable(reply.method) else Outcome.MAYBE_EXECUTED
        return _failed(Meaning.BUSY, outcome, reply, error, retry_after)
    if error is not None and (reply.status < 500 or _is_answer(error, reply)):
        return Verdict(Meaning.ANSWERED, _answered_error(reply, error))
    if reply.status >= 500:
        return _failed(Meaning.SERVER_ERROR, Outcome.MAYBE_EXECUTED, reply, error, retry_after)
    if 300 <= reply.status < 400:
        outcome = Outcome.REJECTED if is_repeatable(reply.method) else Outcome.MAYBE_EXECUTED
        return _failed(Meaning.REDIRECT, outcome, reply, error)
    if reply.method == "initialize" and reply.status in _NOT_STREAMABLE:
        return _failed(Meaning.NOT_STREAMABLE_HTTP, Outcome.NOT_SENT, reply, error)
    if reply.status in NO_ENDPOINT:
        return replace(_failed(Meaning.NOT_FOUND, Outcome.PEER_ERROR, reply, error), is_doubtful=True)
    return _failed(Meaning.REFUSED, Outcome.PEER_ERROR, reply, error)


def _judge_success(reply: Reply) -> Verdict:
    if reply.method is None:
        return Verdict(Meaning.ACCEPTED)
    if reply.content_type == "text/event-stream":
        return Verdict(Meaning.STREAM)
    if not reply.body.strip():
        return _failed(Meaning.NO_ANSWER, Outcome.MAYBE_EXECUTED, reply, None)
    if not is_json(reply.content_type) and not (reply.content_type == "" and reply.body.lstrip()[:1] in (b"{", b"[")):
        return _failed(Meaning.NOT_MCP, Outcome.MAYBE_EXECUTED, reply, None)
    if reply.session_sent and is_session_error(reply.body):
        return Verdict(Meaning.SESSION_LOST, session_lost(reply.status))
    return Verdict(Meaning.ANSWERED)


def is_json(content_type: str) -> bool:
    """Whether a media type is JSON."""
    return content_type == "application/json" or (content_type.startswith("application/") and content_type.endswith("+json"))


def session_lost(status: int) -> RequestFailed:
    """What a request ends with that met a session that is gone: a server may have run a tool before it says so."""
    return RequestFailed(
        Outcome.MAYBE_EXECUTED,
        "session_lost",
        f"the server no longer knows the session (status {status})",
        data={"http_status": status},
    )


def is_session_error(text: bytes) -> bool:
    """Whether a JSON text is an error that belongs to no request and speaks of a lost session (field case: status 200).

    The wording is only a hint, so an error that carries the id of a request is never taken for one.
    """
    if len(text) > 4096 or b'"error"' not in text:
        return False
    try:
        message = decode(text, max_bytes=4096)
    except Unreadable:
        return False
    if not isinstance(message, dict) or "error" not in message or _names_a_request(message.get("id")):
        return False
    return asks_for_session(_error_text(message["error"]))


def asks_for_session(text: str) -> bool:
    """Whether the text of an error speaks of a session that is missing or lost; the wording is only a hint."""
    return _SESSION_GONE.search(text) is not None


def _says_session_lost(reply: Reply, error: dict[str, Any] | None) -> bool:
    if not reply.session_sent or reply.status not in (400, 404):
        return False
    if error is not None and _answers_in_session(error, reply):
        return False
    if reply.status == 404:
        return True
    text = _error_text(error["error"]) if error is not None else reply.body[:4096].decode("utf-8", "replace")
    return asks_for_session(text)


def _answers_in_session(error: dict[str, Any], reply: Reply) -> bool:
    """Whether a server that knows the session sends this, whatever its words; an unknown method is also answered 404."""
    return _is_answer(error, reply) and (reply.status == 400 or error["error"].get("code") == _METHOD_NOT_FOUND)


def _names_a_request(ident: object) -> bool:
    """Whether an id is one of ours; some servers give it back as text."""
    return isinstance(ident, int) or (isinstance(ident, str) and ident.isdecimal())


def _is_answer(error: dict[str, Any], reply: Reply) -> bool:
    """Whether an error carries the id of the very request it came for."""
    ident = error.get("id")
    return reply.request_id is not None and _names_a_request(ident) and str(ident) == str(reply.request_id)


def _answered_error(reply: Reply, error: dict[str, Any]) -> RequestFailed:
    """The server's error, as it is; one that names no request of ours comes from its HTTP layer, and tells the status."""
    failure = peer_error(error["error"])
    if failure.data is None and not _is_answer(error, reply):
        failure.data = {"http_status": reply.status}
    return failure


def _error_text(error: object) -> str:
    return str(error.get("message", "")) if isinstance(error, dict) else str(error)


def _rpc_error(reply: Reply) -> dict[str, Any] | None:
    """The JSON-RPC error message in the body of a refusal, if there is one."""
    if reply.body.lstrip()[:1] != b"{":
        return None
    try:
        message = decode(reply.body, max_bytes=MAX_ERROR_BODY)
    except Unreadable:
        return None
    return message if isinstance(message, dict) and "jsonrpc" in message and isinstance(message.get("error"), dict) else None


def _failed(
    meaning: Meaning, outcome: Outcome, reply: Reply, error: dict[str, Any] | None, retry_after: float | None = None
) -> Verdict:
    if reply.was_redirected and not is_repeatable(reply.method):
        outcome = Outcome.MAYBE_EXECUTED  # what is refused here says nothing about the address before
    data: dict[str, Any] = {"http_status": reply.status, "content_type": reply.content_type}
    if reply.www_authenticate:
        data["www_authenticate"] = clip(reply.www_authenticate, MAX_CHALLENGE)
    said = clip(_error_text(error["error"]), EXCERPT) if error is not None else excerpt(reply.body)
    message = f"the server answered {status_line(reply.status)}, {reply.content_type or 'no content type'}"
    message += f": {said}" if said else ", and no body"
    if words := challenge_words(reply.www_authenticate):
        message += f"; {words}"
    if retry_after is not None:
        message += f"; it wants to be tried again in {retry_after:.0f} s (Retry-After)"
    return Verdict(meaning, RequestFailed(outcome, meaning.value, message, data=data, retry_after_s=retry_after))


def status_line(status: int) -> str:
    """A status with its words: `503 Service Unavailable`."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def excerpt(body: bytes) -> str:
    """The begin of a foreign body as one clean line."""
    text = clean_text(body, EXCERPT * 4)
    return clip(" ".join("".join(filter(str.isprintable, text)).split()), EXCERPT)


def parse_retry_after(value: str, now: float) -> float | None:
    """Seconds to wait by a `Retry-After` of seconds (with a fraction, too) or of a date, at most a day; None for garbage."""
    value = value.strip()
    if _SECONDS.fullmatch(value):
        return min(float(value[:9]), MAX_RETRY_AFTER)
    try:
        date = parsedate_to_datetime(value)
        # The oldest of the three forms of a date names no zone: all of them are in GMT.
        moment = (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
        return min(max(moment - now, 0.0), MAX_RETRY_AFTER)
    except (ValueError, OverflowError):
        return None


class PushAnswer(StrEnum):
    """What the answer to the GET for the push stream means."""

    OPEN = "open"
    NONE = "none"
    """The server has no push stream; asked again after minutes."""
    REFUSED = "refused"
    """The credentials were refused, which says nothing of the stream: others may be there in a moment."""
    RETRY = "retry"


def judge_push(status: int, content_type: str) -> PushAnswer:
    """What the head of the answer to a GET says about the push stream (field cases: every wrong way of saying no)."""
    if 200 <= status < 300:
        return PushAnswer.OPEN if content_type == "text/event-stream" else PushAnswer.NONE
    if status in (401, 403):
        return PushAnswer.REFUSED
    if status >= 500 or status in (408, 409, 425, 429):  # 409: the server has not noticed the end of the stream before
        return PushAnswer.RETRY
    return PushAnswer.NONE
