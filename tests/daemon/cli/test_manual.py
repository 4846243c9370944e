"""The help, the manual page and the completions that are installed come from one source, and are as they are now."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from mcpvisor.daemon.cli.exits import Exit
from mcpvisor.daemon.cli.handling import EVENT_KINDS
from mcpvisor.daemon.cli.main import build_parser
from mcpvisor.daemon.cli.manual import _EXIT_STATUS, installed_files, man_page
from mcpvisor.daemon.cli.overview import GROUPS
from mcpvisor.daemon.cli.tree import all_verbs, verbs_of
from mcpvisor.daemon.handlers.routing import KINDS

ROOT = Path(__file__).parents[3]
VERBS = list(all_verbs(build_parser()))
COMMANDS = [verb for verb in VERBS if verb.parser.get_default("run") is not None]


@pytest.mark.parametrize("verb", COMMANDS, ids=lambda verb: " ".join(verb.words))
def test_a_verb_shows_examples_that_are_understood(verb):
    """Every verb has examples in its help, and each of them is a command that the parser takes."""
    assert verb.parser.examples, f"give examples to add_verb of {' '.join(verb.words)}"
    for example in verb.parser.examples:
        command, *words = shlex.split(example.partition(" >")[0])
        arguments = build_parser().parse_args(words)
        assert ("mcpvisor", verb.parser.get_default("run")) == (command, arguments.run)
        assert example in verb.parser.format_help()


def test_every_verb_has_its_group():
    """The overview shows each verb once, and none below `more`."""
    names = [verb.words[0] for verb in verbs_of(build_parser())]
    grouped = [name for group in GROUPS.values() for name in group]

    assert [] == sorted(set(names) - set(grouped)), "name these verbs in GROUPS of cli/overview.py"
    assert len(grouped) == len(set(grouped))


def test_the_overview_names_every_verb_with_what_it_is_for(mcpvisor):
    """`mcpvisor --help` has a line for each verb, those that a newcomer needs before all others."""
    text = mcpvisor("--help").stdout

    for verb in verbs_of(build_parser()):
        assert re.search(rf"^  {verb.words[0]} +{re.escape(verb.summary.split()[0])}", text, re.MULTILINE)
    assert text.index("  demo ") < text.index("  status ") < text.index("  backup ")
    assert max(map(len, mcpvisor("--help", COLUMNS="60").stdout.splitlines())) <= 60


@pytest.mark.parametrize(("typed", "meant"), [("statsu", "status"), ("relaod", "reload")])
def test_a_verb_that_is_mistyped_is_told_what_was_meant(mcpvisor, typed, meant):
    """The nearest verb is named."""
    done = mcpvisor(typed)

    assert 64 == done.returncode
    assert f"did you mean {meant!r}?" in done.stderr


def test_what_is_installed_is_current():
    """The files in data/ are what the parser gives now."""
    for name, text in installed_files(build_parser()).items():
        assert text == (ROOT / "data" / name).read_text(), "run `make manual`"


def test_the_manual_has_every_verb_and_exit_code():
    """Every verb and every code of its end is on the page."""
    page = man_page(build_parser())
    page = page.replace(r"\-", "-")
    assert [] == [verb.words for verb in VERBS if f".SS \\fBmcpvisor {' '.join(verb.words)}\\fR" not in page]
    assert [int(code) for code in Exit] == [int(code) for code, _ in _EXIT_STATUS]


@pytest.mark.shells
def test_the_manual_is_good_roff():
    """mandoc has nothing to say of the page, except that it bears no date, since it is the same on whatever day it is made."""
    page = ROOT / "data" / "share" / "man" / "man1" / "mcpvisor.1"
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", str(page)], capture_output=True, text=True, timeout=30)
    shown = subprocess.run(["mandoc", "-T", "utf8", str(page)], capture_output=True, text=True, timeout=30).stdout

    assert [] == [line for line in (done.stdout + done.stderr).splitlines() if "missing date" not in line]
    assert 'mcpvisor call github search_code \'{"q": "mcpvisor"}\'' in re.sub(".\b", "", shown)


def test_the_kinds_of_test_events_are_those_that_can_be_routed():
    """What `events emit --kind` takes is what the daemon takes."""
    assert KINDS == EVENT_KINDS
