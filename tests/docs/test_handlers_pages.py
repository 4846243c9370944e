"""docs/webhooks.md and docs/python-handlers.md say what the code does."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from mcpvisor.daemon.config.load import load
from mcpvisor.daemon.handlers import answers, signing, webhook, webhook_outcome, worker_link
from mcpvisor.daemon.handlers.python_handler import RESTARTS, STABLE_SECONDS, START_SECONDS
from mcpvisor.daemon.handlers.python_options import MEMORY
from mcpvisor.daemon.handlers.webhook_options import WebhookOptions
from mcpvisor.daemon.handlers.webhook_outcome import Response, failure
from mcpvisor.supervisor.process.stderr import LINES_PER_SECOND
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.transports.address import parse_address
from mcpvisor.supervisor.transports.http_outcome import MAX_ERROR_BODY

DOCS = Path(__file__).parents[2] / "docs"


def page(name: str) -> str:
    """A page with each run of white space as one space, so that a sentence is found however it is broken."""
    return re.sub(r"\s+", " ", (DOCS / name).read_text())


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / name).read_text(), re.DOTALL)


@pytest.mark.parametrize("name", ["webhooks.md", "python-handlers.md"])
def test_the_examples_are_read(name, tmp_path, monkeypatch):
    """The configuration on the page is taken without a problem or a hint."""
    tmp_path.chmod(0o755)
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    for one in ("ops_webhook", "mail"):
        (credentials / one).write_text("a-secret-of-some-length")
    (tmp_path / "mcpvisor.toml").write_text(blocks(name, "toml")[0])
    (tmp_path / "mcpvisor.toml").chmod(0o644)
    loaded = load([tmp_path], {"HOME": "/root", "PATH": "/usr/bin:/bin", "CREDENTIALS_DIRECTORY": str(credentials)})

    assert ((), ()) == (loaded.problems, loaded.hints)
    assert 1 == len(loaded.handlers)


def test_the_check_of_a_receiver_is_right():
    """The function for receivers on the page takes what we sign, with each of two secrets, and nothing else."""
    space: dict = {}
    exec(blocks("webhooks.md", "python")[0], space)
    keys = [b"a-new-secret-of-some-length", b"the-old-secret-before-it"]
    headers = dict(signing.signed_headers(keys, "id-1", int(time.time()), b"{}"))
    late = dict(signing.signed_headers(keys, "id-1", int(time.time()) - 400, b"{}"))

    assert [True, True] == [space["is_genuine"](key, headers, b"{}") for key in keys]
    assert [False, False, False] == [
        space["is_genuine"](b"another-secret", headers, b"{}"),
        space["is_genuine"](keys[0], headers, b"{ }"),
        space["is_genuine"](keys[0], late, b"{}"),
    ]


def test_the_table_of_responses_is_that_of_the_code():
    """What the page says of each status is what becomes of it."""
    text = (DOCS / "webhooks.md").read_text()
    rows = re.findall(r"^\| ([^|]*) \| (handled|tried again|given up) \|", text, re.MULTILINE)
    told = {number: what for statuses, what in rows for number in re.findall(r"\d+", statuses)}
    kinds = {"2xx": "handled", "3xx": "tried again", "4xx": "given up", "5xx": "tried again"}
    assert kinds == {kind: what for statuses, what in rows for kind in re.findall(r"\dxx", statuses)}
    where = parse_address("https://hooks.example.com/")
    for status in range(200, 600):
        failed = failure(where, Response(status, "", "", b"", 0.0))
        became = "handled" if failed is None else "given up" if failed.is_final else "tried again"
        assert told.get(str(status), kinds[f"{status // 100}xx"]) == became, status


def test_the_numbers_are_those_of_the_code():
    """Sizes, times and names on the pages are the code's."""
    hooks, code = page("webhooks.md"), page("python-handlers.md")
    options = WebhookOptions(url="https://x/", secrets=(Secret("x" * 16),))

    assert f"of at least {signing.SHORTEST_KEY} bytes" in hooks
    assert f'`"{options.connect_timeout:g}s"`' in hooks
    assert 3600.0 == webhook_outcome.MAX_RETRY_AFTER
    assert "an hour at most" in hooks
    assert (4, f"for {webhook.KEPT_SECONDS:g} s" in hooks) == (webhook.KEPT_CONNECTIONS, True)
    assert f"At most {MAX_ERROR_BODY // 1024} KiB of the body" in hooks
    assert f"of at most {answers.MAX_ANSWER // 1024} KiB" in hooks
    assert f"one JSON object on stdout, of at most {answers.MAX_ANSWER // 1024} KiB" in page("handlers.md")
    assert f'memory = "{MEMORY // 1024**2}MiB"' in code
    assert f"killed {worker_link.CANCEL_SECONDS:g} s later" in code
    assert f"does not load within {START_SECONDS:g} s" in code
    assert f"at most {LINES_PER_SECOND} a second" in code
    assert f"of {RESTARTS.delay:g} s, doubled up to {RESTARTS.max_delay:g} s" in code
    assert f"forgotten after {STABLE_SECONDS:g} s without an end" in code


def test_the_example_of_a_handler_is_one():
    """The code on the page has the methods of a handler, and answers."""
    space: dict = {}
    exec(blocks("python-handlers.md", "python")[0], space)
    made = space["Mailer"](to="x", password="y")
    question = space["HandlerQuestion"](id="q", server="s", mode="form", message="?")
    with pytest.raises(StopIteration) as answered:
        made.answer(question).send(None)

    assert {"action": "decline", "content": None} == json.loads(json.dumps(vars_of(answered.value.value)))


def vars_of(answer) -> dict:
    return {"action": answer.action, "content": answer.content}
