"""What verbs say of answers that no daemon gives: one line each, with nothing of what was in them."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpvisor.daemon.cli import main as cli
from mcpvisor.daemon.cli.exits import fault

CANARY = "canary-7f3a9c51e2"
VERBS = (
    *(
        "status",
        "status --json",
        "status a",
        "status --wait --timeout 1",
        "explain a",
        "logs",
        "logs a",
        "logs a -f",
        "logs -f",
    ),
    *(
        "events",
        "events -f",
        "events dead",
        "events retry --all",
        "events emit --kind state_changed --server a",
        "handlers",
        "tools",
    ),
    *("tools a", "resources", "prompts", "elicitations", "elicitations answer 1 --decline", "plan", "doctor", "doctor a"),
    *("connect cursor", "call a b", "read a memo://x", "start a", "restart a", "log-level debug", "reload", "reload --wait"),
    "version",
)
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
REFUSAL = b"HTTP/1.1 500 Oops\r\nContent-Type: application/json\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SECRET = json.dumps(CANARY).encode()
ANSWERS = {
    "nothing": b"",
    "no HTTP": f"{CANARY}\r\n".encode(),
    "a status that is none": f"HTTP/1.1 {CANARY}\r\n\r\n".encode(),
    "a length that is none": f"HTTP/1.1 200 OK\r\nContent-Length: {CANARY}\r\n\r\n".encode(),
    "a piece that is none": CHUNKED + f"{CANARY}\r\n".encode(),
    "no JSON": JSON + CANARY.encode(),
    "no UTF-8": JSON + b"\xff" + CANARY.encode(),
    "deep JSON": JSON + b"[" * 100_000,
    "a text": JSON + SECRET,
    "a list": JSON + b"[" + SECRET + b"]",
    "a number": JSON + b"5",
    "nothing in it": JSON + b"{}",
    "null": JSON + b"null",
    "other values": JSON
    + json.dumps(
        {key: [CANARY] for key in ("servers", "events", "lines", "daemon", "tools", "handlers", "checks", "elicitations")}
    ).encode(),
    "a stream of no JSON": STREAM + f"event: event\ndata: {CANARY}\n\n".encode(),
    "a stream of no UTF-8": STREAM + b"event: \xff\ndata: \xff\n\n",
    "a stream of texts": STREAM + b"event: event\ndata: " + SECRET + b"\n\n",
    "a refusal without reason": REFUSAL + b"{}",
    "a refusal that is a text": REFUSAL + b'{"error": ' + SECRET + b"}",
    "a refusal that is no JSON": REFUSAL + CANARY.encode(),
    "an odd refusal": REFUSAL + b'{"error": {"status": [], "message": {}, "details": 5}}',
}


@contextlib.contextmanager
def answering(path: Path, answer: bytes) -> Iterator[None]:
    """A socket at which everybody gets the same answer."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(16)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.recv(65536)
                        connection.sendall(answer)
                        connection.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_is_none(
    tmp_path: Path, answer: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Whatever is at the other end of the socket, a verb ends by itself, with an exit code and at most a line of its own."""
    parser = cli.build_parser()
    monkeypatch.setattr(cli, "build_parser", lambda: parser)
    with answering(tmp_path / "s", ANSWERS[answer]):
        for verb in VERBS:
            code = cli.main(["--socket", str(tmp_path / "s"), *verb.split()])
            told = capsys.readouterr()
            assert (verb, True) == (verb, code in (0, 1, 3, 64, 69, 77))
            assert (verb, False) == (verb, "Traceback" in told.err)
            is_shown = answer in ("a text", "a list", "other values", "a stream of texts")  # such a thing may be data
            assert (verb, False) == (verb, CANARY in told.err or (CANARY in told.out and not is_shown))


def test_a_fault_of_a_verb_tells_where_it_is_and_no_more():
    """Nobody knows what is in the words of an error that nobody has foreseen, in its notes and in its values."""

    def fail(token: str) -> None:
        raise LookupError(f"no place for {token}")

    try:
        fail(CANARY)
    except LookupError as error:
        error.add_note(CANARY)
        told = fault(error)

    assert "LookupError at fail in line " in told
    assert CANARY not in told
