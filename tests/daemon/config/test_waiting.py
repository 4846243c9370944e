"""What is told of a configuration that is not in force: since when, what waits for what, what goes by itself, as values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mcpvisor.daemon.config.absences import ABSENCE
from mcpvisor.daemon.config.applied import Applied, decide
from mcpvisor.daemon.config.load import load
from mcpvisor.daemon.reload_telling import gone_files, state_of
from mcpvisor.supervisor.spec import HttpTarget

Write = Callable[[Path, str], Path]

ONE = '[servers.{0}]\ncommand = "true"\n'
WEB = '[servers.w]\nurl = "https://x.test/mcp"\ntls = {{ ca = "{0}" }}\n'
HOOK = (
    '[handlers.h]\ntype = "webhook"\nurl = "https://x.test/"\nsecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="\n'
)


class Desk:
    """Edits a configuration and decides about it; `at` is the time on the wall, `now` the monotonic one."""

    def __init__(self, etc: Path, environ: dict[str, str], write: Write, *, strict: bool) -> None:
        self.etc, self.environ, self.write = etc, environ, write
        self.now, self.at = 1000.0, 5000.0
        self.applied: Applied | None = None
        self.put("mcpvisor.toml", f"[daemon]\nstrict = {str(strict).lower()}\n")

    def put(self, name: str, text: str) -> Path:
        return self.write(self.etc / name, text)

    def decide(self, after: float = 0.0, *, is_final: bool = False) -> Applied:
        self.now, self.at = self.now + after, self.at + after
        loaded = load([self.etc], self.environ, previous=self.applied.basis if self.applied is not None else None)
        self.applied = decide(self.applied, loaded, self.now, is_final=is_final, at=self.at)
        assert self.applied is not None
        return self.applied


@pytest.fixture
def desk(etc: Path, environ: dict[str, str], write: Write) -> Desk:
    """Three servers in three files, in force."""
    desk = Desk(etc, environ, write, strict=False)
    for name in "abc":
        desk.put(f"servers.d/{name}.toml", ONE.format(name))
    assert ["a", "b", "c"] == list(desk.decide().specs)
    return desk


@pytest.fixture
def strict(etc: Path, environ: dict[str, str], write: Write) -> Desk:
    """The same with `daemon.strict`, a handler and a route."""
    desk = Desk(etc, environ, write, strict=True)
    for name in "abc":
        desk.put(f"servers.d/{name}.toml", ONE.format(name))
    desk.put("servers.d/h.toml", HOOK + '[[routes]]\nevent = "resource_updated"\nhandler = "h"\n')
    assert ["a", "b", "c"] == list(desk.decide().specs)
    return desk


def waiting(applied: Applied) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(one.label, one.change.value, one.fields) for one in applied.waiting]


def test_what_is_right_waits_with_strict(strict: Desk) -> None:
    """Edits, new and removed entries, handlers, routes and settings wait for the first fault, and for no other thing."""
    strict.put("servers.d/a.toml", "[servers.a]\n")
    strict.put("servers.d/b.toml", ONE.format("b") + "queue = 3\n" + ONE.format("new"))
    strict.put("servers.d/c.toml", "# nothing\n")
    strict.put("servers.d/h.toml", HOOK + "queue = 7\n")
    strict.put("mcpvisor.toml", '[daemon]\nstrict = true\n[gateway]\nauth = "open"\n')
    applied = strict.decide()

    assert [
        ("b", "update", ("queue",)),
        ("c", "stop", ()),
        ("new", "start", ()),
        ("handler h", "restart", ("queue",)),
        ("routes", "update", ()),
        ("settings", "update", ("gateway.auth",)),
    ] == waiting(applied)
    assert {applied.rejected[0].where} == {one.fault.where for one in applied.waiting}
    assert not applied.ok


def test_nothing_waits_where_nothing_is_strict(desk: Desk) -> None:
    """What is right is applied beside what is wrong."""
    desk.put("servers.d/a.toml", "[servers.a]\n")
    desk.put("servers.d/b.toml", ONE.format("b") + "queue = 3\n")
    applied = desk.decide()

    assert ((), 3) == (applied.waiting, applied.specs["b"].queue)


def test_an_entry_that_is_disabled_is_not_called_removed(strict: Desk) -> None:
    """A stop by `enabled` is an edit, though nothing runs after it."""
    strict.put("servers.d/a.toml", "[servers.a]\n")
    strict.put("servers.d/b.toml", ONE.format("b") + "enabled = false\n")
    (one,) = strict.decide().waiting

    assert ("stop", ("enabled",)) == (one.change.value, one.fields)
    assert one.told.startswith("the edit of it (enabled) is not applied until ")


def test_since_when_something_is_wrong_or_waits(strict: Desk) -> None:
    """The time is that of the first reading, whatever else is wrong with the same entry later; it ends when all is right."""
    strict.put("servers.d/a.toml", "[servers.a]\n")
    strict.put("servers.d/b.toml", ONE.format("b") + "queue = 3\n")
    first = strict.decide(after=10)
    strict.put("servers.d/a.toml", "[servers.a]\ncommand = 5\n")
    strict.put("servers.d/b.toml", ONE.format("b") + "queue = 4\n")
    second = strict.decide(after=10)
    strict.put("servers.d/a.toml", ONE.format("a"))
    third = strict.decide(after=10)
    strict.put("servers.d/a.toml", "[servers.a]\n")
    fourth = strict.decide(after=10)

    times = [
        ({one.since for one in each.rejected}, {one.since for one in each.waiting}) for each in (first, second, third, fourth)
    ]
    assert [({5010.0}, {5010.0}), ({5010.0}, {5010.0}), (set(), set()), ({5040.0}, set())] == times
    assert 4 == third.specs["b"].queue


def test_a_fault_that_is_mended_lets_a_removal_go_at_once(strict: Desk) -> None:
    """The time of a file that is away goes on while its removal waits for a fault."""
    strict.put("servers.d/a.toml", "[servers.a]\n")
    (strict.etc / "servers.d/c.toml").unlink()
    held = strict.decide()
    strict.put("servers.d/a.toml", ONE.format("a"))
    mended = strict.decide(after=ABSENCE)

    assert ([("c", "stop", ())], (), "c" in held.specs) == (waiting(held), held.removals({}), True)
    assert ["a", "b"] == list(mended.specs)


def test_a_file_that_comes_back_while_a_fault_holds_all_is_no_removal(strict: Desk) -> None:
    """Nothing waits for it any more, and its time begins anew."""
    strict.put("servers.d/a.toml", "[servers.a]\n")
    (strict.etc / "servers.d/c.toml").unlink()
    strict.decide()
    strict.put("servers.d/c.toml", ONE.format("c"))
    back = strict.decide(after=3)
    (strict.etc / "servers.d/c.toml").unlink()
    strict.put("servers.d/a.toml", ONE.format("a"))
    away = strict.decide(after=3)

    assert () == back.waiting
    assert (True, strict.now + ABSENCE) == ("c" in away.specs, away.recheck_at)


def test_what_is_to_come_of_a_file_that_is_away(desk: Desk) -> None:
    """A drop-in that is away is a removal then, and the file is named; a folder or a named file that is away never is."""
    file = desk.etc / "servers.d/c.toml"
    file.unlink()
    before = desk.decide()
    after = desk.decide(is_final=True)
    for name in "ab":
        (desk.etc / f"servers.d/{name}.toml").unlink()
    (desk.etc / "servers.d/h.toml").unlink(missing_ok=True)
    (desk.etc / "servers.d").rmdir()

    assert [("c", file, 1000.0, 1000.0 + ABSENCE)] == [(one.server, one.file, one.since, one.at) for one in before.removals({})]
    assert (["a", "b"], (), None) == (list(after.specs), after.removals({}), after.recheck_at)
    assert {"c": str(file)} == gone_files(before, after)
    assert ["a", "b"] == list(desk.decide(is_final=True).specs)


def test_a_file_of_which_only_the_watch_knows(desk: Desk) -> None:
    """A removal is told before any reload has noticed that its file is away, and no file is one that took its servers along."""
    applied = desk.decide()
    file = desk.etc / "servers.d/c.toml"
    file.rename(desk.etc / "servers.d/z.toml")

    assert [("c", 990.0)] == [(one.server, one.since) for one in applied.removals({file: 990.0})]
    assert {} == gone_files(applied, desk.decide())


def test_the_verdict_has_all_of_it(strict: Desk) -> None:
    """What the control socket gives: what is wrong, what waits, and settings that wait for a start."""
    strict.put("mcpvisor.toml", '[daemon]\nstrict = true\n[gateway]\nauth = "open"\n')
    needing = state_of(strict.decide())
    strict.put("servers.d/a.toml", "[servers.a]\n")
    strict.put("servers.d/b.toml", ONE.format("b") + "queue = 3\n")
    verdict = state_of(strict.decide())

    assert (True, ["gateway.auth"]) == (needing["ok"], needing.get("needs_restart"))
    assert not verdict["ok"]
    assert [("b", verdict["rejected"][0]["where"])] == [(one["server"], one["waits_for"]) for one in verdict.get("waiting", [])]


def ca_of(applied: Applied) -> str:
    target = applied.specs["w"].target
    assert isinstance(target, HttpTarget)
    return target.tls.contents


@pytest.mark.parametrize("text", [None, ""])
def test_a_certificate_that_is_away_is_no_edit(desk: Desk, text: str | None) -> None:
    """While the file is gone or empty the entry is as it was, and the problem names the file; another content is an edit."""
    ca = desk.put("ca.pem", "one")
    desk.put("servers.d/w.toml", WEB.format(ca))
    desk.put("servers.d/h.toml", HOOK + f'tls = {{ ca = "{ca}" }}\n')
    before = desk.decide()
    ca.unlink()
    if text is not None:
        desk.put("ca.pem", text)
    away = desk.decide()
    desk.put("ca.pem", "two")
    other = desk.decide()

    assert (before.specs, before.handlers) == (away.specs, away.handlers)
    assert [("w", "", str(ca), True), ("", "h", str(ca), True)] == sorted(
        ((one.server, one.handler, one.needs, one.keeps_running) for one in away.rejected), reverse=True
    )
    assert (True, ca_of(before)) == (other.ok, ca_of(away))
    assert ca_of(other) != ca_of(before)


def test_an_edit_beside_a_certificate_that_is_away_is_an_edit(desk: Desk) -> None:
    """Only where nothing else is another is the entry kept; one that never had the file is as it is written."""
    ca = desk.etc / "ca.pem"
    desk.put("servers.d/w.toml", WEB.format(ca))
    never = desk.decide()
    desk.put("ca.pem", "one")
    desk.decide()
    ca.unlink()
    desk.put("servers.d/w.toml", WEB.format(ca) + "queue = 3\n")
    edited = desk.decide()

    assert (True, "") == (never.ok, ca_of(never))
    assert (True, 3, "") == (edited.ok, edited.specs["w"].queue, ca_of(edited))


def test_a_module_that_is_away_is_no_edit_of_its_handler(desk: Desk) -> None:
    """A worker is not replaced by one that cannot be made."""
    code = desk.put("mine.py", "x = 1\n")
    desk.put("servers.d/p.toml", f'[handlers.p]\ntype = "python"\nobject = "mine:x"\npath = "{code.parent}"\n')
    before = desk.decide()
    code.unlink()
    away = desk.decide()

    assert before.handlers == away.handlers
    assert [("p", str(code.parent))] == [(one.handler, one.needs) for one in away.rejected]


def test_a_secret_that_is_away_is_named_as_what_is_to_be_mended(desk: Desk) -> None:
    """Not the entry, which is right."""
    secret = desk.put("secret", "one")
    secret.chmod(0o600)
    desk.put("servers.d/a.toml", ONE.format("a") + f'env = {{ T = "${{file:{secret}}}" }}\n')
    desk.decide()
    secret.unlink()
    (one,) = desk.decide().rejected

    assert ("a", str(secret), True) == (one.server, one.needs, one.keeps_running)
