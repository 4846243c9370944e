"""Owns the verb `completion`: the scripts by which shells complete commands, and the answers that those scripts ask for."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Final

from mcpvisor.daemon.cli.exits import Exit
from mcpvisor.daemon.cli.output import say
from mcpvisor.daemon.cli.verb import Parser, Verbs, add_verb

SHELLS: Final = ("bash", "zsh", "fish")

_PATIENCE: Final = 0.8
"""Seconds after which somebody who has pressed a key would rather have nothing than wait."""

_EXAMPLES: Final = (
    "mcpvisor completion bash >/etc/bash_completion.d/mcpvisor",
    "mcpvisor completion zsh >/usr/local/share/zsh/site-functions/_mcpvisor",
    "mcpvisor completion fish >~/.config/fish/completions/mcpvisor.fish",
)


def register(verbs: Verbs, build_parser: Callable[[], Parser]) -> None:
    """Add the verb; `build_parser` makes the parser of all verbs."""
    summary = "print the script by which a shell completes commands: names of servers, handlers and tools too"
    completion = add_verb(verbs, "completion", complete, summary, prints=False, examples=_EXAMPLES)
    completion.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")
    completion.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    completion.set_defaults(build_parser=build_parser)


def complete(arguments: argparse.Namespace) -> int:
    """`completion SHELL`: the script. With words after `--` what may stand for the last of them; nothing is no error."""
    from mcpvisor.daemon.cli import shells

    if not arguments.words:
        say(shells.SCRIPTS[arguments.shell].rstrip("\n"))
        return int(Exit.DONE)
    from mcpvisor.daemon.cli.completion import complete_words
    from mcpvisor.daemon.cli.names import known_names

    signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE)
    words = shells.WORDS[arguments.shell](arguments.words)
    found = complete_words(arguments.build_parser(), words, known_names)
    for line in shells.ANSWERS[arguments.shell](found, arguments.words):
        say(line)
    sys.stdout.flush()
    signal.setitimer(signal.ITIMER_REAL, 0)  # at its end Python takes the handler away, and an alarm would kill
    return int(Exit.DONE)


def _give_up(_: int, __: FrameType | None) -> None:
    os._exit(0)
