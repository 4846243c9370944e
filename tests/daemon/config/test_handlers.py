"""Handlers and routes as they are read: their specs, what is wrong with them, and what a reload keeps of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mcpvisor.daemon.config.applied import Applied, decide
from mcpvisor.daemon.config.load import Loaded, load
from mcpvisor.daemon.handlers.globs import Glob
from mcpvisor.daemon.handlers.routing import Match, Route, RoutingOptions
from mcpvisor.daemon.handlers.specs import (
    CircuitPolicy,
    ExecOptions,
    HandlerSpec,
    LogLevel,
    LogOptions,
    RetryPolicy,
    changed_fields,
)
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import StdioLaunch

LoadText = Callable[..., Loaded]
Write = Callable[[Path, str], Path]

LOG = '[handlers.note]\ntype = "log"\n'


def test_a_handler_has_defaults(load_text: LoadText) -> None:
    """A handler needs no more than its type."""
    loaded = load_text(LOG)

    assert ((), {"note": HandlerSpec(name="note", options=LogOptions())}) == (loaded.problems, loaded.handlers)


def test_every_key_of_all_handlers(load_text: LoadText, etc: Path) -> None:
    """Queue, concurrency, deadline, retry and circuit belong to every type; the place of a handler is known."""
    loaded = load_text(
        '[handlers.note]\ntype = "log"\nlevel = "warning"\nqueue = 5\nconcurrency = 2\ndeadline = "3s"\n'
        'retry = { attempts = 4, delay = "100ms", max_delay = "5s" }\ncircuit = { failures = 2, open_for = "1m" }\n'
    )

    assert loaded.handlers["note"] == HandlerSpec(
        name="note",
        options=LogOptions(level=LogLevel.WARNING),
        queue=5,
        concurrency=2,
        deadline=3.0,
        retry=RetryPolicy(attempts=4, delay=0.1, max_delay=5.0),
        circuit=CircuitPolicy(failures=2, open_for=60.0),
    )
    assert f"{etc}/mcpvisor.toml:1" == loaded.handlers["note"].origin


def test_a_program_is_a_list_and_its_environment_is_secret(load_text: LoadText, tmp_path: Path) -> None:
    """`exec` has a command, variables, what is inherited and a folder; variables are put in, and are secrets."""
    loaded = load_text(
        '[handlers.run]\ntype = "exec"\ncommand = ["~/bin/run", "-v"]\nenv = { KEY = "${TOKEN}" }\n'
        'inherit_env = ["EDITOR"]\ncwd = "/"\n',
        TOKEN="hush",
    )

    launch = StdioLaunch(
        command=f"{tmp_path}/bin/run", args=("-v",), env=(("KEY", Secret("hush")),), inherit_env=("EDITOR",), cwd="/"
    )
    assert ((), ExecOptions(launch=launch)) == (loaded.problems, loaded.handlers["run"].options)


def test_routes_stand_in_the_order_of_the_files(load_text: LoadText, etc: Path, write: Write) -> None:
    """Routes of the main file come first, then those of the drop-ins; a handler may be in another file than its route."""
    write(etc / "servers.d/a.toml", f'{LOG}\n[[routes]]\nevent = "log_message"\nlevel = "error"\nhandler = "note"\n')
    loaded = load_text(
        '[routing]\nmatch = "all"\ndefault = "note"\n[[routes]]\nserver = "docs*"\nuri = ["file:///**", "x"]\n'
        'event = "resource_updated"\nhandler = ["note"]\n'
    )
    applied = decide(None, loaded, 0.0)

    assert applied is not None
    assert () == applied.rejected
    assert RoutingOptions(match=Match.ALL, default=("note",)) == applied.routing.options
    assert (
        Route(
            handlers=("note",),
            kinds=frozenset({"resource_updated"}),
            servers=(Glob("docs*"),),
            uris=(Glob("file:///**"), Glob("x")),
        ),
        Route(handlers=("note",), kinds=frozenset({"log_message"}), level="error"),
    ) == applied.routing.routes


@pytest.mark.parametrize(
    ("text", "line", "key", "words"),
    [
        ('[handlers.a]\nlevel = "info"\n', 1, "handlers.a", 'the type is missing; expected type = one of "log", "exec"'),
        ('[handlers.a]\ntype = "exce"\n', 2, "handlers.a.type", '"exce": not a type of handler; expected one of'),
        ('[handlers.a]\ntype = "exce"\n', 2, "handlers.a.type", 'did you mean "exec"?'),
        ('[handlers.a]\ntype = "log"\nlevle = "info"\n', 3, "handlers.a.levle", 'unknown key; did you mean "level"?'),
        ('[handlers.a]\ntype = "log"\ncommand = ["x"]\n', 3, "handlers.a.command", "unknown key; expected one of"),
        ('[handlers.a]\ntype = "exec"\n', 1, "handlers.a", "the command is missing; expected command = a list"),
        ('[handlers.a]\ntype = "exec"\ncommand = "x y"\n', 3, "handlers.a.command", "is a text; expected a list"),
        ('[handlers.a]\ntype = "exec"\ncommand = []\n', 3, "handlers.a.command", "names no program"),
        (
            '[handlers.a]\ntype = "exec"\ncommand = ["x"]\ninherit_env = ["NOTIFY_SOCKET"]\n',
            4,
            "handlers.a.inherit_env",
            "NOTIFY_SOCKET belongs to the daemon and is never inherited",
        ),
        ('[handlers.a]\ntype = "log"\nqueue = 0\n', 3, "handlers.a.queue", "a whole number, at least 1"),
        (
            '[handlers.a]\ntype = "log"\nretry = { delay = "2s", max_delay = "1s" }\n',
            3,
            "handlers.a.retry.max_delay",
            "max_delay is shorter than delay",
        ),
        ('[handlers.a]\ntype = "webhook"\n', 1, "handlers.a", "the url is missing"),
        ('[handlers.a]\ntype = "python"\n', 1, "handlers.a", "the object is missing"),
        ('[handlers."a b"]\ntype = "log"\n', 1, 'handlers."a b"', "cannot be the name of a handler"),
        ('[handlers]\na = "log"\n', 2, "handlers.a", "is a text; expected a table with a type"),
        ("handlers = 5\n", 1, "handlers", "is a number; expected [handlers.NAME]"),
        ("routes = 5\n", 1, "routes", "is a number; expected [[routes]]"),
        ('[[routes]]\nserver = "x"\n', 1, "routes[0]", "the handler is missing; expected handler = the name"),
        (f'{LOG}[[routes]]\nhandler = "noet"\n', 4, "routes[0].handler", '"noet": there is no handler of this name; did you'),
        (f'{LOG}[[routes]]\nhandler = "other"\n', 4, "routes[0].handler", "expected one of note"),
        (f'{LOG}[routing]\ndefault = "noet"\n', 4, "routing.default", 'did you mean "note"?'),
        (f'{LOG}[routing]\nmatch = "some"\n', 4, "routing.match", 'expected one of "first", "all"'),
        (f'{LOG}[[routes]]\nhandler = "note"\nevent = "resource_update"\n', 5, "routes[0].event", '"resource_updated"?'),
        (f'{LOG}[[routes]]\nhandler = "note"\nuri = "x"\nevent = "progress"\n', 5, "routes[0].uri", "no event of this route"),
        (f'{LOG}[[routes]]\nhandler = "note"\nlevel = "error"\n', 5, "routes[0].level", 'expected event = "log_message"'),
        (f'{LOG}[[routes]]\nhandler = "note"\nhandlr = "x"\n', 5, "routes[0].handlr", 'unknown key; did you mean "handler"?'),
        (
            f'{LOG}[[routes]]\nhandler = "note"\nevent = "elicitation"\n',
            4,
            "routes[0].handler",
            "note is of type log, which answers no questions",
        ),
        (
            '[handlers.no]\ntype = "policy"\n[[routes]]\nhandler = "no"\n',
            4,
            "routes[0].handler",
            "no is of type policy, which takes questions only",
        ),
        (
            '[handlers.no]\ntype = "policy"\n[routing]\ndefault = ["no"]\n',
            4,
            "routing.default",
            "no is of type policy, which takes questions only",
        ),
        *(
            (f'{LOG}[[routes]]\nhandler = "note"\n{key} = []\n', 5, f"routes[0].{key}", "an empty list, which nothing meets")
            for key in ("event", "server", "uri")
        ),
        (
            f'{LOG}[[routes]]\nhandler = "note"\nevent = "progress"\ntool = []\n',
            6,
            "routes[0].tool",
            "expected no such key where anything will do",
        ),
    ],
)
def test_what_is_wrong_is_named(load_text: LoadText, text: str, line: int, key: str, words: str) -> None:
    """An error of a handler or a route names its line, its key, what was expected and the word that is close."""
    problem = load_text(text).problems[0]

    assert (line, key) == (problem.line, problem.key_path)
    assert words in problem.error


def test_secrets_are_not_in_errors(load_text: LoadText) -> None:
    """What a variable holds is in no error about the key that it went into."""
    loaded = load_text('[handlers.a]\ntype = "webhook"\nurl = "${WHERE}"\n', WHERE="s3cret")

    assert ["s3cret" in str(problem) for problem in loaded.problems] == [False, False]


def test_routing_is_for_the_main_file(load_text: LoadText, etc: Path, write: Write) -> None:
    """A drop-in may hold handlers and routes, and does not say how all of them are read."""
    write(etc / "servers.d/a.toml", f"{LOG}[routing]\n")
    loaded = load_text("# none\n")

    assert ["belongs into the main file"] == [problem.message.partition(";")[0] for problem in loaded.problems]


# What a reload keeps


class Files:
    """A main file and a drop-in, decided on again and again."""

    def __init__(self, etc: Path, environ: dict[str, str], write: Write) -> None:
        self._etc, self._environ, self._write = etc, environ, write
        self.applied: Applied | None = None

    def decide(self, text: str, drop_in: str | None = None) -> Applied:
        """What is in force after `text` was written as the main file, and `drop_in` beside it."""
        self._write(self._etc / "mcpvisor.toml", text)
        if drop_in is not None:
            self._write(self._etc / "servers.d/a.toml", drop_in)
        previous = self.applied.basis if self.applied is not None else None
        self.applied = decide(self.applied, load([self._etc], self._environ, previous=previous), 0.0)
        assert self.applied is not None
        return self.applied


@pytest.fixture
def files(etc: Path, environ: dict[str, str], write: Write) -> Files:
    """See `Files`."""
    return Files(etc, environ, write)


def test_a_broken_handler_keeps_its_last_good_version(files: Files) -> None:
    """A handler that is edited into nonsense goes on as it was, and the others are as they are written."""
    before = files.decide(f'{LOG}[handlers.b]\ntype = "log"\n')
    after = files.decide('[handlers.note]\ntype = "lgo"\n[handlers.b]\ntype = "log"\nqueue = 7\n')

    assert before.handlers["note"] is after.handlers["note"]
    assert 7 == after.handlers["b"].queue
    assert [("note", True)] == [(problem.handler, problem.keeps_running) for problem in after.rejected]


def test_a_broken_handler_without_a_past_is_left_out(files: Files) -> None:
    """A route to a handler that cannot be used leads nowhere, and is no error of its own."""
    applied = files.decide('[handlers.note]\ntype = "lgo"\n[[routes]]\nhandler = "note"\n')

    assert ({}, ()) == (applied.handlers, applied.routing.routes)
    assert [("note", False)] == [(problem.handler, problem.keeps_running) for problem in applied.rejected]


def test_routes_of_a_file_count_together(files: Files) -> None:
    """With one route that is wrong, all routes of its file stay as they were; those of other files are as written."""
    first = f'{LOG}[[routes]]\nserver = "one"\nhandler = "note"\n'
    files.decide(first, '[[routes]]\nserver = "a"\nhandler = "note"\n')
    after = files.decide(
        f'{LOG}[[routes]]\nserver = "two"\nhandler = "note"\n[[routes]]\nhandler = "noet"\n',
        '[[routes]]\nserver = "b"\nhandler = "note"\n',
    )

    assert [("one",), ("b",)] == [tuple(glob.pattern for glob in route.servers) for route in after.routing.routes]
    assert [("routes[1].handler", True)] == [(problem.key_path, problem.keeps_running) for problem in after.rejected]


def test_a_file_that_cannot_be_read_keeps_its_handlers(files: Files) -> None:
    """Handlers and routes of a file that is no TOML any more stay as they were, and routes to them stay good."""
    files.decide('[[routes]]\nhandler = "note"\n', LOG)
    after = files.decide('[[routes]]\nhandler = "note"\nserver = "s"\n', "[handlers.note\n")

    assert ["note"] == list(after.handlers)
    assert [(("note",), (Glob("s"),))] == [(route.handlers, route.servers) for route in after.routing.routes]


def test_of_two_handlers_with_one_name_the_first_counts(files: Files) -> None:
    """The later one is rejected, with both places."""
    applied = files.decide(LOG, '[handlers.note]\ntype = "log"\nqueue = 3\n')

    assert 1000 == applied.handlers["note"].queue
    assert ["a handler of this name is written at"] == [p.message[:36] for p in applied.rejected if p.handler == "note"]


def test_what_differs_between_two_specs() -> None:
    """A change of a handler is told by its keys; where it is written is none of them."""
    old = HandlerSpec(name="a", options=LogOptions(), origin="x:1")
    new = HandlerSpec(name="a", options=LogOptions(level=LogLevel.ERROR), queue=2, origin="y:9")

    assert ("options", "queue") == changed_fields(old, new)
