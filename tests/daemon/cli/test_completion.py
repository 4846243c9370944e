"""What shells complete: from the parser and from the running daemon, in bash, zsh and fish themselves."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.daemon.cli.conftest import COMMAND, environ
from tests.daemon.cli.terminal import Terminal

from mcpvisor.daemon.cli import names, shells
from mcpvisor.daemon.cli.completion import NAMED, complete_words
from mcpvisor.daemon.cli.main import build_parser, main
from mcpvisor.daemon.cli.tree import all_verbs, options_of, places_of

ASKED = {
    "server": ["github", "git"],
    "tool": ["echo"],
    "handler": ["note"],
}


def known(kind, typed):
    return [*ASKED.get(kind, ()), *(f"{key}={value}" for key, value in typed.items() if kind == "uri")]


def completed(*words):
    return [one.word for one in complete_words(build_parser(), ["mcpvisor", *words], known).candidates]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sta"], ["status", "start"]),
        (["--col"], ["--color"]),
        (["--color", "a"], ["auto", "always"]),
        (["--color=n"], ["--color=never"]),
        (["--socket", "/x", "expl"], ["explain"]),
        (["status", "--w"], ["--watch", "--wait"]),
        (["status", "gith"], ["github"]),
        (["status", "--timeout", "g"], []),
        (["status", "--timeout", "5s", "g"], ["github", "git"]),
        (["status", "--timeout=5s", "g"], ["github", "git"]),
        (["status", "github", "g"], []),
        (["call", "github", "e"], ["echo"]),
        (["read", "github", ""], ["server=github"]),
        (["read", "--socket", "/x", "github", "soc"], ["socket=/x"]),
        (["events", "e"], ["emit"]),
        (["events", "emit", "--kind", "list"], ["list_changed"]),
        (["events", "retry", "--handler", ""], ["note"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["status", "--", "--w"], []),
        (["nosuch", "g"], []),
        (["status", "--nosuch", "g"], ["github", "git"]),
    ],
    ids=" ".join,
)
def test_what_may_stand_there(words, expected):
    """Verbs, options, their values, and names that the daemon knows: each where it may stand, after what was typed already."""
    assert expected == completed(*words)


def test_every_verb_and_option_is_offered():
    """Whatever verb is added to the parser is completed, with its options; no verb has to be named anywhere else."""
    for verb in all_verbs(build_parser()):
        *above, last = verb.words
        assert last in completed(*above, last[:2])
        wanted = {option.names[-1] for option in options_of(verb.parser)}
        assert wanted == set(completed(*verb.words, "-"))


def test_files_are_left_to_the_shell():
    """Where a path may stand the shell offers files, which it knows best."""
    for words in (["check", "a"], ["run", "--config", ""], ["backup", ""], ["--socket", ""]):
        assert complete_words(build_parser(), ["mcpvisor", *words], known).files


def test_every_place_for_a_server_offers_servers():
    """A place or an option that is called `server` in the parser is completed with the names of servers, in every verb."""
    found = [verb.words for verb in all_verbs(build_parser()) if any(one.dest == "server" for one in places_of(verb.parser))]

    assert ("status",) in found
    assert all("github" in completed(*words, "g") for words in found)
    assert set(NAMED.values()) == set(names._LOOK_UPS)


class Client:
    """A daemon whose servers have chosen names that shells take for something else."""

    def get(self, path, query=None):
        return {"tools": [{"name": name} for name in ("good", "$(reboot)", "a b", "-rf", "x;y", "`z`", "a\nb", "ü", None)]}


def test_words_of_servers_are_offered_only_where_they_are_harmless(monkeypatch):
    """The name of a tool is the server's own word: what a shell could run, or take for an option, is not offered."""
    monkeypatch.setattr(names, "ControlClient", lambda _: Client())

    assert ["good"] == names.known_names("tool", {"server": "s"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["mcpvisor status g"], ["mcpvisor", "status", "g"]),
        (["mcpvisor status "], ["mcpvisor", "status", ""]),
        (["mcpvisor check 'a b"], ["mcpvisor", "check", "a b"]),
        (['mcpvisor check "a '], ["mcpvisor", "check", "a "]),
        (["mcpvisor read docs docs://x"], ["mcpvisor", "read", "docs", "docs://x"]),
    ],
)
def test_a_line_of_bash_is_taken_apart_as_bash_does(given, words):
    """Quotes that are not closed yet, and colons within a word, are understood."""
    assert words == shells.WORDS["bash"](given)


def test_without_a_daemon_there_are_no_names_and_no_words(mcpvisor, tmp_path):
    """Verbs are offered all the same, and stderr stays empty."""
    none = tmp_path / "none.sock"

    assert "status\nstart\n" == mcpvisor("completion", "bash", "--", "mcpvisor sta", ":=", path=none).stdout
    for shell, words in (("bash", ["mcpvisor explain ", ":="]), ("zsh", ["mcpvisor", "explain", ""])):
        done = mcpvisor("completion", shell, "--", *words, path=none)
        assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


def test_what_gives_up_soon_is_done_by_then(capsys):
    """The alarm that ends a completion which takes too long is off once there is an answer, and ends nothing else."""
    assert 0 == main(["completion", "bash", "--", "mcpvisor sta", ":="])
    assert "status\nstart\n" == capsys.readouterr().out
    assert (0.0, 0.0) == signal.getitimer(signal.ITIMER_REAL)


TABS = 20
"""How often the key is pressed: a completion gives up after less than a second, which a busy machine may take to start it."""


def in_shell(command: list[str], daemon, load: str, keys: dict[str, str], tmp_path: Path) -> str:
    """What an interactive shell has on its line once the answer of the verb `explain` was seen.

    Each of the keys is followed by the tab key, until there is what the shell is to put behind it.
    """
    env = environ(daemon.path, PATH=f"{COMMAND.parent}:{os.environ['PATH']}", TERM="xterm", PS1="$ ", HOME=str(tmp_path))
    with Terminal(command, {**env, "XDG_CONFIG_HOME": str(tmp_path)}) as terminal:
        terminal.type(f"{load}; echo loa''ded\n")
        terminal.until("loaded")
        for typed, completed in keys.items():
            terminal.type(typed)
            assert any(terminal.type("\t") or terminal.within(3.0, completed) for _ in range(TABS)), terminal.written
        terminal.type("\n")
        terminal.until("is ready")
        return terminal.written.replace("\a", "")


def test_bash_completes(daemon, tmp_path):
    """In a real bash the tab key completes a verb, an option and the name of a server."""
    load = "source <(mcpvisor completion bash)"
    keys = {"mcpvisor expl": "ain ", "--col": "or ", "never go": "od "}
    written = in_shell(["bash", "--norc", "--noprofile"], daemon, load, keys, tmp_path)

    assert "mcpvisor explain --color never good" in written


def test_bash_completes_a_uri(daemon, tmp_path):
    """A colon, at which bash parts words, is no end of a word."""
    script = f"""
        source <({COMMAND} completion bash); PATH={COMMAND.parent}:$PATH
        COMP_LINE="mcpvisor read good puppet://g" COMP_POINT=29
        ask() {{
            for _ in {{1..{TABS}}}; do _mcpvisor; [[ ${{COMPREPLY[*]}} ]] && break; done
            printf '%s|' "${{COMPREPLY[@]}}"
        }}
        ask; COMP_WORDBREAKS=' '; ask
    """
    done = subprocess.run(["bash", "-c", script], env=environ(daemon.path), capture_output=True, text=True, timeout=30)

    assert ("//good|puppet://good|", "") == (done.stdout, done.stderr)


@pytest.mark.shells
def test_zsh_completes(daemon, tmp_path):
    """In a real zsh, too."""
    load = "autoload -U compinit; compinit -u; source <(mcpvisor completion zsh)"

    assert "good" in in_shell(["zsh", "-f"], daemon, load, {"mcpvisor expl": "ain", "go": "od"}, tmp_path)


@pytest.mark.shells
def test_fish_completes(daemon, tmp_path):
    """In a real fish, too; each with what it is for."""
    ask = f"function ask; for time in (seq {TABS}); complete -C $argv | grep . && break; end; end"
    script = f"mcpvisor completion fish | source; {ask}; ask 'mcpvisor expl'; ask 'mcpvisor explain go'"
    env = environ(daemon.path, PATH=f"{COMMAND.parent}:{os.environ['PATH']}", HOME=str(tmp_path), XDG_CONFIG_HOME=str(tmp_path))
    done = subprocess.run(["fish", "--no-config", "-c", script], env=env, capture_output=True, text=True, timeout=60)
    verb, server = done.stdout.splitlines()

    assert ["explain", "say why a server"] == [verb.split("\t")[0], verb.split("\t")[1][:16]]
    assert ("good", "") == (server, done.stderr)


@pytest.mark.shells
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_scripts_are_what_the_shell_can_read(shell, tmp_path):
    """Each script passes the shell's own check."""
    (tmp_path / "script").write_text(shells.SCRIPTS[shell])
    done = subprocess.run([shell, "-n", str(tmp_path / "script")], capture_output=True, text=True, timeout=30)

    assert (0, "") == (done.returncode, done.stderr)
