"""Owns the texts of broken configurations: what can be wrong within a file, made at random from one seed.

Whether a text is broken is not asked of the program under test: what is cut off or mixed up is tried with the parsers of the
standard library, and all else is wrong by what docs/configuration.md promises.
"""

from __future__ import annotations

import codecs
import json
import random
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.e2e.running import toml

MAIN, TOML, JSON = "mcpvisor.toml", "servers.d/own.toml", "servers.d/theirs.json"
TARGETS = (MAIN, TOML, JSON)
LIMIT = 4 * 1024 * 1024

SERVER_KEYS = (
    *("command", "args", "env", "inherit_env", "cwd", "limits", "enabled", "required", "era", "start_timeout"),
    *("call_timeout", "call_max", "wait_ready", "drain", "overlap", "stop", "concurrency", "queue", "max_message"),
    *("trust_hints", "replay_on_session_loss", "restart", "probe", "subscriptions", "sharing", "allow", "tools", "type"),
    *("stop.term", "restart.policy", "restart.intensity", "restart.success_codes", "probe.failures", "limits.cpu"),
)
SETTINGS = (
    *("daemon.state_dir", "daemon.parallel_starts", "daemon.strict", "log.level", "log.format", "gateway.listen"),
    *("gateway.auth", "gateway.hosts", "gateway.origins", "gateway.first_list_wait", "gateway.drain_notice"),
    *("questions.deadline", "questions.per_server", "questions.per_client", "control.listen", "metrics.listen"),
    *("defaults.drain", "defaults.restart.delay", "defaults.queue", "daemon", "log", "defaults", "routing.match", "servers"),
)


KINDS = (
    *("truncated", "wrong type", "duplicate", "encoding", "UTF-16", "half character", "deep"),
    *("number", "long", "many", "expansion", "name", "unknown", "garbage"),
)
"""What can be wrong with a text."""


@dataclass(frozen=True, slots=True)
class Text:
    """One broken text of a file. `line` is where it says that the fault is: None for any line, 0 for none at all."""

    kind: str
    target: str
    content: bytes
    line: int | None = None


class Texts:
    """The good texts of the three files, and broken ones of one kind beside them."""

    def __init__(self, good: dict[str, str], seed: int, kind: str) -> None:
        self._good = good
        self._kind = kind
        self._random = random.Random(f"{seed} {kind}")

    def some(self, count: int) -> Iterator[Text]:
        """So many of them."""
        makers: tuple[Callable[[], Text], ...] = (
            *(self._truncated, self._wrong_type, self._duplicate, self._bytes, self._utf_16, self._half_character),
            *(self._deep, self._number, self._long, self._many, self._expansion, self._name, self._unknown, self._garbage),
        )
        make = dict(zip(KINDS, makers, strict=True))[self._kind]
        return (make() for _ in range(count))

    def _target(self) -> str:
        return self._random.choice(TARGETS)

    def _lines(self, target: str) -> int:
        return self._good[target].count("\n")

    def _behind(self, kind: str, target: str, added: str, line: int | None = 1) -> Text:
        """The good text of a file in TOML with more behind it, wrong in its `line`."""
        at = None if line is None else self._lines(target) + line
        return Text(kind, target, (self._good[target] + added).encode(), at)

    def _own(self) -> str:
        """Where keys of a server may be put behind the text."""
        return self._random.choice((TOML, JSON))

    def _foreign(self, kind: str, added: str, line: int | None = 1) -> Text:
        """The good text of the file in JSON with more entries in it, wrong in their `line`."""
        good = self._good[JSON].removesuffix("\n}}\n")
        return Text(kind, JSON, f"{good},\n{added}}}}}\n".encode(), None if line is None else good.count("\n") + 1 + line)

    def _entry(self, kind: str, target: str, key: str, value: str) -> Text:
        """An entry more, whose third line is wrong: `value` is written as the format of the file has it."""
        if target == JSON:
            return self._foreign(kind, '"more": {"command": "true",\n' + json.dumps(key) + ": " + value + "}", 2)
        return self._behind(kind, target, f'[servers.more]\ncommand = "true"\n{key} = {value}\n', 3)

    def _truncated(self) -> Text:
        """Cut at a byte at which it is no document any more."""
        target = self._target()
        raw = self._good[target].encode()
        while True:
            part = raw[: self._random.randrange(1, len(raw) - 1)]
            if part.strip() and not _parses(part, target):
                return Text("truncated", target, part)

    def _wrong_type(self) -> Text:
        target = self._target()
        wrong = self._random.choice(("[[[]]]", "[[[]], 1]"))
        if target == MAIN:
            key = self._random.choice(SETTINGS)
            wrong = self._random.choice(("1979-05-27", "[1979-05-27, []]"))
            return Text("wrong type", MAIN, f"# the daemon's\n{key} = {wrong}\n".encode(), 2)
        if target == TOML:
            key = self._random.choice([one for one in SERVER_KEYS if one != "command"])
            return self._entry("wrong type", TOML, key, self._random.choice((wrong, "1979-05-27", "[1979-05-27]")))
        return self._entry(
            "wrong type", JSON, self._random.choice([k for k in SERVER_KEYS if "." not in k and k != "command"]), wrong
        )

    def _duplicate(self) -> Text:
        target = self._target()
        if target == JSON:
            key = self._random.choice(("command", "args", "env", "x" * self._random.randrange(1, 5000)))
            text = '{"mcpServers": {"more": {\n' + f'"command": "true", "{key}": 1,\n"{key}": 2' + "}}}\n"
            return Text("duplicate", JSON, text.encode(), 2 if key == "command" else 3)
        if target == MAIN:
            return self._behind("duplicate", MAIN, "[log]\n")
        added, line = self._random.choice(
            (
                ("[servers.own]\n", 1),
                ('[servers.more]\ncommand = "a"\ncommand = "b"\n', 3),
                ("[servers.more]\nenv.A = '1'\nenv.A = '2'\n", 3),
                ("[servers.more]\nenv = { A = '1', B = '2', A = '3' }\n", 2),
                ("[servers.more]\nenv = { A = '1' }\n[servers.more.env]\nB = '2'\n", 3),
                ("[servers.more]\ncommand = 'a'\n[servers.more]\nargs = []\n", 3),
                ("[[servers]]\n", 1),
            )
        )
        return self._behind("duplicate", TOML, added, line)

    def _bytes(self) -> Text:
        """Bytes that are no UTF-8, or NUL, in any place."""
        target = self._target()
        bad = self._random.choice(
            (b"\xe9", b"\xff\xfe\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\x00", b"\xe2\x82")
        )
        raw = self._good[target].encode()
        at = self._random.randrange(0, len(raw))
        at = max(at, 1) if bad.startswith(b"\xff\xfe") else at
        return Text("encoding", target, raw[:at] + bad + raw[at:], raw[:at].count(b"\n") + 1)

    def _utf_16(self) -> Text:
        """Two bytes for each character: without a mark, of an odd length, or cut within a pair."""
        target = self._target()
        form = self._random.choice(("le", "be"))
        mark = {"le": codecs.BOM_UTF16_LE, "be": codecs.BOM_UTF16_BE}[form]
        raw = self._good[target].encode(f"utf-16-{form}")
        half = "\ud83d".encode(f"utf-16-{form}", "surrogatepass")
        content = self._random.choice(
            (raw, mark + raw[:-1], mark + raw + half, mark + half + raw, "\ufeffa".encode("utf-32-le") + b"a")
        )
        return Text("UTF-16", target, content)

    def _half_character(self) -> Text:
        target = self._own()
        number = f"{self._random.randrange(0xD800, 0xE000):04x}"
        return self._entry("half character", target, "args", f'["\\u{number}"]')

    def _deep(self) -> Text:
        target = self._target()
        levels = self._random.choice((34, 500, 1_000, 100_000))
        if target == JSON:
            opened, closed = self._random.choice((("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")))
            end = closed * levels if self._random.random() < 0.5 else ""
            return Text("deep", JSON, ('{"mcpServers": {"more":\n' + opened * levels + "1" + end + "}}").encode(), 2)
        text = self._random.choice(
            (
                "x = " + "[" * levels,
                "x = " + "[" * levels + "]" * levels,
                "x = " + "{ a = " * levels,
                "x = " + "[{ a.b = " * levels + "1" + "}]" * levels,
                "a" + ".a" * levels + " = 1",
                "[a" + ".a" * levels + "]",
                "[[a" + ' . "a"' * levels + "]]",
                "x = { " + "a." * levels + "a = 1 }",
            )
        )
        return self._behind("deep", target, text + "\n")

    def _number(self) -> Text:
        target = self._own()
        key = self._random.choice(("call_timeout", "drain", "concurrency", "queue", "max_message"))
        values = ["1e999", "-1e999", "9" * 400, "-" + "9" * 5_000, "9" * 25, "9" * 5_000 + ".5", "-1"]
        values += ["0x" + "f" * 50_000, "inf", "nan", "-inf", "0b" + "1" * 900] if target == TOML else ["Infinity", "NaN"]
        return self._entry("number", target, key, self._random.choice(values))

    def _long(self) -> Text:
        """Long lines, keys and values, wrong or in a wrong place."""
        target, length = self._own(), self._random.randrange(10_000, 300_000)
        key = "x" * length
        match self._random.randrange(4):
            case 0:
                return self._behind("long", TOML, f'[servers.more]\ncommand = "true"\n{key} = 1\n', 3)
            case 1:
                return self._entry("long", target, "call_timeout", f'"{key}"')
            case 2:
                text = '{"a": "' + '\\"' * length
                return Text("long", JSON, text.encode(), 1)
            case _:
                return self._behind("long", self._random.choice((MAIN, TOML)), f"[{key}\n")

    def _many(self) -> Text:
        """Very many faults, or more values than a file may hold."""
        target = self._own()
        number = self._random.randrange(101, 1_500)
        match self._random.randrange(5):
            case 0:
                return self._behind("many", TOML, "".join(f"[servers.n{one}]\n" for one in range(number)))
            case 1:
                added = "[servers.more]\n" + "".join(f"unknown_{one} = {one}\n" for one in range(number))
                return self._behind("many", TOML, added)
            case 2:
                entries = ",\n".join(f'"n{one}": {{"comand": "x"}}' for one in range(number))
                return self._foreign("many", entries)
            case 3:
                return self._entry("many", target, "args", "[" + ", ".join("[]" for _ in range(number)) + "]")
            case _:
                return self._entry("many", target, "args", "[" + "1," * 110_000 + "1]")

    def _expansion(self) -> Text:
        forms = ("${BOMB}" * 3_000, "${A ${BOMB}}", "${BOMB", "${}", "${NO_SUCH_VARIABLE}", "${file:/dev/zero}", "${file:.}")
        forms += ("${cred:../x}", "${input:x}", "${env:}", "${file:/nowhere}", "${BOMB" + "${BOMB" * 1_000)
        return self._entry("expansion", self._own(), "args", json.dumps([self._random.choice(forms)]))

    def _name(self) -> Text:
        name = self._random.choice(
            ("", " ", "a b", "\x1b[31m", "\u202e", "x" * 33, "x" * 100_000, "a__b", "_", "../x", "\x00", "\n")
        )
        quoted = json.dumps(name)
        kind = self._random.choice(("servers", "handlers"))
        return self._behind(
            "name", TOML, f"[{kind}.{quoted}]\n" + ('command = "true"\n' if kind == "servers" else 'type = "log"\n')
        )

    def _unknown(self) -> Text:
        """Words that are known to nobody, in every table of ours."""
        word = "".join(self._random.choices("abcdefghijklmnopqrstuvwxyz_", k=self._random.randrange(3, 12))) + "q"
        target = self._random.choice((MAIN, TOML))
        tables = [
            "servers.more]\ncommand = 'true'\n[servers.more.restart",
            "handlers.more]\ntype = 'log'\n[handlers.more.retry",
        ]
        tables += ["servers.more"] if target == TOML else ["defaults", "routing", "questions", "servers.more", "defaults.probe"]
        table = self._random.choice(tables)
        return self._behind("unknown", target, f"[{table}]\n{word} = 1\n", None)

    def _garbage(self) -> Text:
        """Characters that mean something, in a random order."""
        target = self._target()
        while True:
            letters = self._random.choices("{}[]()\"'=:,.#/\\*\n\t aA0-\u00e9\u2028", k=self._random.randrange(5, 400))
            raw = "".join(letters).encode()
            if raw.strip() and not _parses(raw, target) and not raw.startswith(b"#"):
                return Text("garbage", target, raw)


def _parses(raw: bytes, target: str) -> bool:
    try:
        if target == JSON:
            json.loads(raw)
        else:
            tomllib.loads(raw.decode())
    except (ValueError, RecursionError):
        return False
    return True


def good_texts(servers: dict[str, list[str]], main: str) -> dict[str, str]:
    """The good texts of the three files; `servers` are the command lines of `own` and `theirs`."""
    own, theirs = servers["own"], servers["theirs"]
    foreign = json.dumps({"command": theirs[0], "args": theirs[1:], "env": {"B": "\u00fc"}})
    entry = f'[servers.own]\ncommand = {toml(own[0])}\nargs = {toml(own[1:])}\nenv = {{ A = \'x\', B = """two\nlines""" }}\n'
    return {
        MAIN: main,
        TOML: f"# ours\n{entry}[servers.own.restart]\ndelay = '2s'\n",
        JSON: f'{{"mcpServers": {{\n"theirs": {foreign}\n}}}}\n',
    }
