"""Policies, routes to the operator, and `[questions]`, as they are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mcpvisor.daemon.config.applied import decide
from mcpvisor.daemon.config.load import Loaded
from mcpvisor.daemon.handlers.globs import Glob
from mcpvisor.daemon.handlers.policy_options import PolicyAction, PolicyOptions, PolicyRule, QuestionMode
from mcpvisor.daemon.handlers.routing import Subject, Way
from mcpvisor.supervisor.secret import Secret

LoadText = Callable[..., Loaded]


def rule(text: str) -> str:
    return f'[handlers.p]\ntype = "policy"\nrules = [{{ {text} }}]\n'


def test_every_key_of_a_rule(load_text: LoadText, tmp_path: Path) -> None:
    """Conditions, the answer, and a content of texts, numbers, flags and lists; variables in it are secrets."""
    (tmp_path / "token").write_text("s3cret\n")
    loaded = load_text(
        rule(
            'server = "g*", tool = ["a", "b"], mode = "form", requires = "name", asks = ["*Token*"], action = "accept", '
            f'defaults = true, content = {{ name = "x", token = "${{file:{tmp_path}/token}}", size = 3, part = 0.5, '
            'yes = true, all = ["u", "v"] }'
        )
    )

    assert () == loaded.problems
    assert loaded.handlers["p"].options == PolicyOptions(
        rules=(
            PolicyRule(
                action=PolicyAction.ACCEPT,
                servers=(Glob("g*"),),
                tools=(Glob("a"), Glob("b")),
                modes=(QuestionMode.FORM,),
                requires=("name",),
                asks=(Glob("*token*"),),
                content=(
                    ("name", Secret("x")),
                    ("token", Secret("s3cret")),
                    ("size", 3),
                    ("part", 0.5),
                    ("yes", True),
                    ("all", (Secret("u"), Secret("v"))),
                ),
                defaults=True,
            ),
        )
    )


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        (rule('server = "x"'), "handlers.p.rules[0]", "the action is missing"),
        (rule('action = "allow"'), "handlers.p.rules[0].action", 'expected one of "accept", "decline", "cancel"'),
        (rule('action = "accept", mode = "voice"'), "handlers.p.rules[0].mode", 'expected "form" or "url"'),
        (rule('action = "accept", srever = "x"'), "handlers.p.rules[0].srever", 'did you mean "server"?'),
        (rule('action = "decline", content = { a = 1 }'), "handlers.p.rules[0].content", "only an accepted form has a content"),
        (rule('action = "cancel", defaults = true'), "handlers.p.rules[0].defaults", "only an accepted form has a content"),
        (rule('action = "accept", mode = "url", requires = "a"'), "handlers.p.rules[0].requires", "has no form"),
        (rule('action = "accept", mode = "url", content = { a = 1 }'), "handlers.p.rules[0].content", "has no form"),
        (
            rule('action = "accept", content = { a = { b = 1 } }'),
            "handlers.p.rules[0].content.a",
            "is a table; expected a text",
        ),
        (rule('action = "accept", content = { a = [1] }'), "handlers.p.rules[0].content.a", "is a list; expected a text"),
        (rule('action = "accept", content = { a = nan }'), "handlers.p.rules[0].content.a", "expected a text, a number"),
        (rule('action = "accept", server = ""'), "handlers.p.rules[0].server", "expected patterns of 1 to"),
        *(
            (rule(f'action = "accept", {key} = []'), f"handlers.p.rules[0].{key}", "an empty list, which nothing meets")
            for key in ("server", "tool", "mode", "asks")
        ),
        ('[handlers.p]\ntype = "policy"\nrules = ["x"]\n', "handlers.p.rules[0]", "is a text; expected a table"),
        ('[handlers.operator]\ntype = "log"\n', "handlers.operator", "is the name of the built-in handler"),
        (
            '[[routes]]\nevent = "log_message"\nhandler = "operator"\n',
            "routes[0].handler",
            "operator is the built-in handler, which takes questions only",
        ),
        ('[routing]\ndefault = "operator"\n', "routing.default", "there is no handler of this name"),
        ('[questions]\ndeadline = "0s"\n', "questions.deadline", "must be more than 0"),
        ("[questions]\nper_server = 0\n", "questions.per_server", "must be at least 1"),
        ('[questions]\ndedline = "1s"\n', "questions.dedline", 'did you mean "deadline"?'),
    ],
)
def test_what_is_wrong_is_named(load_text: LoadText, text: str, key: str, words: str) -> None:
    """What can never come to pass is an error of its key, with what was expected."""
    problem = load_text(text).problems[0]

    assert key == problem.key_path
    assert words in problem.error


def test_routes_lead_questions_to_the_operator(load_text: LoadText) -> None:
    """The built-in handler needs no table, and takes questions alone."""
    applied = decide(None, load_text('[[routes]]\nevent = "elicitation"\nserver = "git"\nhandler = "operator"\n'), 0.0)
    assert applied is not None

    assert ["operator"] == [way.handler for way in applied.routing.ways(Subject(kind="elicitation", server="git"))]
    empty: tuple[Way, ...] = ()
    assert empty == applied.routing.ways(Subject(kind="elicitation", server="x"))


def test_the_defaults_of_questions(load_text: LoadText) -> None:
    """Five minutes to think, and sixteen open questions of each server and to each client."""
    settings = load_text("[questions]\n").settings
    assert settings is not None

    assert {"deadline": 300.0, "per_server": 16, "per_client": 16} == settings.questions.model_dump()
