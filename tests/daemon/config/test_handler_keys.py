"""The keys of webhooks and of handlers in Python: what they become, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mcpvisor.daemon.config.load import Loaded
from mcpvisor.daemon.handlers.python_options import MEMORY, PythonOptions
from mcpvisor.daemon.handlers.webhook_options import WebhookOptions
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import ResourceLimits, TlsTrust

LoadText = Callable[..., Loaded]

KEY = "a-shared-secret-of-some-length"
HOOK = f'[handlers.a]\ntype = "webhook"\nsecret = "{KEY}"\n'
CODE = '[handlers.a]\ntype = "python"\n'


def test_a_webhook_needs_an_address_and_a_secret(load_text: LoadText) -> None:
    """An address by https and one secret are enough; a secret is one however it is written."""
    loaded = load_text(f'{HOOK}url = "https://hooks.example.com/in"\n')

    assert () == loaded.problems
    assert WebhookOptions(url="https://hooks.example.com/in", secrets=(Secret(KEY),)) == loaded.handlers["a"].options


def test_every_key_of_a_webhook(load_text: LoadText, etc: Path) -> None:
    """Secrets may be several while they change; headers, trust, proxy and the time for a connection are the entry's own."""
    loaded = load_text(
        '[handlers.a]\ntype = "webhook"\nurl = "http://hooks.example.com/${PART}"\nallow_http = true\n'
        'secret = ["${NEW}", "the-secret-that-was-before-it"]\nheaders = { x-team = "blue" }\n'
        'tls = { ca = "ca.pem", ca_mode = "replace", client_cert = "c.pem", client_key = "c.key" }\n'
        'proxy = "http://user:${PASS}@proxy.example.com:3128"\nconnect_timeout = "2s"\n',
        PART="T0/B0",
        NEW="a-newer-secret-of-some-length",
        PASS="of-the-proxy",
    )
    ca, cert, key = (str(etc / name) for name in ("ca.pem", "c.pem", "c.key"))

    assert () == loaded.problems
    assert loaded.handlers["a"].options == WebhookOptions(
        url=Secret("http://hooks.example.com/T0/B0"),
        secrets=(Secret("a-newer-secret-of-some-length"), Secret("the-secret-that-was-before-it")),
        headers=(("x-team", Secret("blue")),),
        tls=TlsTrust(ca=ca, replace=True, client_cert=cert, client_key=key),
        proxy=Secret("http://user:of-the-proxy@proxy.example.com:3128"),
        connect_timeout=2.0,
    )


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8080", "127.8.9.1", "[::1]:80"])
def test_plain_http_stays_on_this_machine(load_text: LoadText, host: str) -> None:
    """An address on this machine needs no https."""
    assert () == load_text(f'{HOOK}url = "http://{host}/in"\n').problems


def test_a_query_is_a_secret(load_text: LoadText) -> None:
    """Keys of services stand in queries, written out or not."""
    loaded = load_text(f'{HOOK}url = "https://hooks.example.com/in?key=written-out"\n')

    assert "written-out" not in repr(loaded.handlers["a"])


def test_an_object_of_python(load_text: LoadText, etc: Path) -> None:
    """A handler in Python is an object of a module or an entry point; its worker may use half a gigabyte."""
    loaded = load_text(f'{CODE}object = "hooks.mail:Mailer"\npath = "code"\n[handlers.b]\ntype = "python"\nentry_point = "x"\n')

    assert () == loaded.problems
    assert [
        PythonOptions(object="hooks.mail:Mailer", path=str(etc / "code"), limits=ResourceLimits(memory=MEMORY)),
        PythonOptions(entry_point="x"),
    ] == [loaded.handlers[name].options for name in "ab"]


def test_every_key_of_a_handler_in_python(load_text: LoadText) -> None:
    """Arguments of any depth, with variables in them, environment, folder and limits belong to its worker."""
    loaded = load_text(
        f'{CODE}object = "hooks:make"\narguments = {{ to = ["${{WHO}}", 5], deep = {{ on = true, part = 0.5 }} }}\n'
        'env = { KEY = "value" }\ninherit_env = ["EDITOR"]\ncwd = "/"\nlimits = { memory = "1GiB", tasks = 20 }\n',
        WHO="me@example.com",
    )

    assert () == loaded.problems
    assert loaded.handlers["a"].options == PythonOptions(
        object="hooks:make",
        arguments=Secret('{"deep": {"on": true, "part": 0.5}, "to": ["me@example.com", 5]}'),
        secrets=(Secret("me@example.com"),),
        env=(("KEY", Secret("value")),),
        inherit_env=("EDITOR",),
        cwd="/",
        limits=ResourceLimits(memory=1024**3, tasks=20),
    )
    assert "me@example.com" not in repr(loaded.handlers["a"])


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ('type = "webhook"\nurl = "https://x"\n', "handlers.a", "the secret is missing; expected secret = "),
        (f'type = "webhook"\nsecret = "{KEY}"\n', "handlers.a", "the url is missing; expected url = "),
        (
            'type = "webhook"\nurl = "https://x"\nsecret = []\n',
            "handlers.a.secret",
            "is empty, so that nothing would be signed",
        ),
        ('type = "webhook"\nurl = "https://x"\nsecret = "short"\n', "handlers.a.secret", "a key of 5 bytes can be guessed"),
        ('type = "webhook"\nurl = "https://x"\nsecret = ["whsec_!"]\n', "handlers.a.secret[0]", "is no base64"),
        (f'type = "webhook"\nsecret = "{KEY}"\nurl = "http://x/"\n', "handlers.a.url", "https, or allow_http = true"),
        (f'type = "webhook"\nsecret = "{KEY}"\nurl = "http://10.0.0.1/"\n', "handlers.a.url", "leads off this machine"),
        (f'type = "webhook"\nsecret = "{KEY}"\nurl = "https://me:pw@x/"\n', "handlers.a.url", "a user or a password"),
        (f'type = "webhook"\nsecret = "{KEY}"\nurl = "ftp://x/"\n', "handlers.a.url", 'the scheme "ftp" is not served'),
        (f'type = "webhook"\nsecret = "{KEY}"\nurl = "https://x/#a"\n', "handlers.a.url", "holds a fragment"),
        (
            f'type = "webhook"\nsecret = "{KEY}"\nurl = "https://x/"\nheaders = {{ Webhook-Id = "1" }}\n',
            "handlers.a.headers.Webhook-Id",
            "is set by the daemon itself",
        ),
        (
            f'type = "webhook"\nsecret = "{KEY}"\nurl = "https://x/"\nproxy = "socks5://p:1"\n',
            "handlers.a.proxy",
            "is no address of an HTTP proxy",
        ),
        ('type = "python"\n', "handlers.a", "the object is missing"),
        ('type = "python"\nobject = "no-module"\n', "handlers.a.object", "names no object"),
        ('type = "python"\nobject = "a:b"\nentry_point = "c"\n', "handlers.a.object", "say different things"),
        ('type = "python"\nentry_point = "c"\npath = "x"\n', "handlers.a.path", "belongs to object"),
        ('type = "python"\nobject = "a:b"\narguments = 5\n', "handlers.a.arguments", "is a number; expected a table"),
        (
            'type = "python"\nobject = "a:b"\narguments = { on = 2026-01-01 }\n',
            "handlers.a.arguments.on",
            "expected a text, a number",
        ),
        ('type = "python"\nobject = "a:b"\narguments = { "a-b" = 1 }\n', "handlers.a.arguments.a-b", "the name of an argument"),
        ('type = "python"\nobject = "a:b"\nlimits = { memory = "1KiB" }\n', "handlers.a.limits.memory", "at least 1048576"),
    ],
)
def test_what_is_wrong_is_named(load_text: LoadText, text: str, key: str, words: str) -> None:
    """An error names its key and what was expected, and nothing that may be a secret."""
    problems = load_text(f"[handlers.a]\n{text}").problems

    assert [key] == [problem.key_path for problem in problems]
    assert words in str(problems[0])
    assert [] == [word for word in (KEY, "me:pw", "short ", "whsec_!") if word in str(problems[0])]


def test_the_examples_are_right(load_text: LoadText, etc: Path) -> None:
    """The handlers in the example file load once their `#` is taken away."""
    example = (Path(__file__).parents[3] / "configs/servers.d/40-handlers.toml").read_text()
    lines = [line.removeprefix("# ") for line in example.splitlines()[3:]]
    loaded = load_text("\n".join(lines).replace("${cred:", "${WORD:-").replace('}"', '-long-enough}"'))

    assert ((), ["mail", "ops"]) == (loaded.problems, sorted(loaded.handlers))
