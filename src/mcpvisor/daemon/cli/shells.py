"""Owns how bash, zsh and fish ask what may be typed next, and how each of them wants to be answered."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from mcpvisor.daemon.cli.completion import Completion
from mcpvisor.daemon.cli.output import clean_line

FILES: Final = ":files"
"""The line that asks the shell to offer names of files itself; no candidate begins with a colon."""

_BASH: Final = """\
# Completion of mcpvisor for bash: `mcpvisor completion bash`.
_mcpvisor() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ $line == :files ]]; then
            compopt -o default 2>/dev/null
        else
            COMPREPLY+=("$line")
        fi
    done < <(mcpvisor completion bash -- "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" 2>/dev/null)
}
complete -F _mcpvisor mcpvisor
"""

_ZSH: Final = """\
#compdef mcpvisor
# Completion of mcpvisor for zsh: `mcpvisor completion zsh`.
_mcpvisor() {
    local line files=0
    local -a found
    while IFS= read -r line; do
        if [[ $line == :files ]]; then
            files=1
        else
            found+=("$line")
        fi
    done < <(mcpvisor completion zsh -- "${(@Q)words[1,CURRENT]}" 2>/dev/null)
    (( $#found )) && _describe -t mcpvisor mcpvisor found
    (( files )) && _files
    return 0
}
if [[ $funcstack[1] == _mcpvisor ]]; then
    _mcpvisor "$@"
else
    compdef _mcpvisor mcpvisor
fi
"""

_FISH: Final = """\
# Completion of mcpvisor for fish: `mcpvisor completion fish`.
function __mcpvisor_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in (mcpvisor completion fish -- $words 2>/dev/null)
        if test "$line" = :files
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c mcpvisor -f -a '(__mcpvisor_complete)'
"""

_JOINED: Final = frozenset(":=")
"""Characters at which bash may part words although the program takes them as one."""

SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def _bash_words(given: Sequence[str]) -> list[str]:
    """The words of the line up to the cursor, whose quotes may not be closed yet."""
    line = given[0]
    for closing in ("", "'", '"'):
        try:
            words = shlex.split(line + closing)
        except ValueError:
            continue
        return [*words, ""] if not closing and line[-1:].isspace() else words
    return []


def _as_bash(found: Completion, given: Sequence[str]) -> Iterator[str]:
    """What is to stand in place of the end of the word, which begins behind the last character at which bash parts words."""
    last = (_bash_words(given) or [""])[-1]
    breaks = set(given[1]) & _JOINED if len(given) > 1 else _JOINED
    kept = max((last.rfind(one) + 1 for one in breaks), default=0)
    yield from (one.word[kept:] for one in found.candidates)
    yield from [FILES] * found.files


def _as_zsh(found: Completion, _: Sequence[str]) -> Iterator[str]:
    for one in found.candidates:
        word = one.word.replace("\\", "\\\\").replace(":", "\\:")
        yield f"{word}:{clean_line(one.help)}" if one.help else word
    yield from [FILES] * found.files


def _as_fish(found: Completion, _: Sequence[str]) -> Iterator[str]:
    for one in found.candidates:
        yield f"{one.word}\t{clean_line(one.help)}" if one.help else one.word
    yield from [FILES] * found.files


WORDS: Final[Mapping[str, Callable[[Sequence[str]], list[str]]]] = {"bash": _bash_words, "zsh": list, "fish": list}
"""By shell: the words of the command, from what its script gives."""

ANSWERS: Final[Mapping[str, Callable[[Completion, Sequence[str]], Iterator[str]]]] = {
    "bash": _as_bash,
    "zsh": _as_zsh,
    "fish": _as_fish,
}
"""By shell: the lines that its script expects; given what it gave, too."""
