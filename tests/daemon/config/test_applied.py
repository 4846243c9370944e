"""What a reload applies, case by case: nothing here waits, time is an argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from mcpvisor.daemon.config.applied import ABSENCE, Applied, decide
from mcpvisor.daemon.config.load import load

Write = Callable[[Path, str], Path]


class Desk:
    """Edits a configuration and decides about it, at a time of the test's own."""

    def __init__(self, etc: Path, environ: dict[str, str], write: Write) -> None:
        self.etc = etc
        self.paths = [etc]
        self.environ = environ
        self._write = write
        self.now = 1000.0
        self.applied: Applied | None = None

    def put(self, name: str, *servers: str, text: str | None = None, args: str = "") -> None:
        """Writes a file with these servers, or with this text."""
        lines = "".join(f'[servers.{server}]\ncommand = "true"\nargs = ["{args}"]\n' for server in servers)
        self._write(self.etc / name, lines or "# none\n" if text is None else text)

    def decide(self, after: float = 0.0, gone: Mapping[Path, float] | None = None) -> Applied:
        """Loads what is written and decides, `after` seconds later; `gone` is since when files are known to be absent."""
        self.now += after
        previous = self.applied.basis if self.applied is not None else None
        self.applied = decide(self.applied, load(self.paths, self.environ, previous=previous), self.now, gone=gone)
        assert self.applied is not None
        return self.applied

    def rejected(self) -> list[tuple[str, bool]]:
        """What is not in force: the file and entry, and whether something older runs in its place."""
        assert self.applied is not None
        return [
            (f"{p.file.relative_to(self.etc) if p.file else p.source} {p.server}".strip(), p.keeps_running)
            for p in self.applied.rejected
        ]


@pytest.fixture
def desk(etc: Path, environ: dict[str, str], write: Write) -> Desk:
    """A folder with a main file (m), and two drop-ins (a1, a2 and b1), in force."""
    desk = Desk(etc, environ, write)
    desk.put("mcpvisor.toml", "m")
    desk.put("servers.d/a.toml", "a1", "a2")
    desk.put("servers.d/b.toml", "b1")
    assert list(desk.decide().specs) == ["m", "a1", "a2", "b1"]
    return desk


@pytest.mark.parametrize(
    ("file", "text", "stays"),
    [
        ("servers.d/b.toml", "[servers", True),
        ("servers.d/b.toml", "", True),
        ("servers.d/b.toml", "[servers.b1]\ncommand = 1\n", False),
        ("servers.d/only.toml", "[handlers", False),
        ("mcpvisor.toml", "[servers", True),
        ("mcpvisor.toml", '[servers.m]\ncommand = "true"\n[log]\nlevel = "loud"\n', False),
    ],
)
def test_what_keeps_servers_says_so(desk: Desk, file: str, text: str, stays: bool) -> None:
    """A file that cannot be used keeps the servers that it held; one of handlers alone, an entry and a setting keep none."""
    desk.put("servers.d/only.toml", text='[handlers.h]\ntype = "log"\n')
    desk.decide()
    desk.put(file, text=text)

    assert {stays} == {problem.keeps_servers for problem in desk.decide().rejected}


def test_a_strict_reload_keeps_all_servers(desk: Desk) -> None:
    """With `strict` whatever is wrong keeps every server."""
    desk.put("mcpvisor.toml", text="[daemon]\nstrict = true\n")
    desk.decide()
    desk.put("servers.d/b.toml", text="[servers.b1]\ncommand = 1\n")

    assert [True] == [problem.keeps_servers for problem in desk.decide().rejected]


def test_an_edit_changes_what_it_changes(desk: Desk) -> None:
    """Entries that are added, changed and removed come out so; all others stay equal."""
    before = desk.decide().specs
    desk.put("servers.d/a.toml", "a1", "a3")
    desk.put("servers.d/b.toml", "b1", args="new")

    after = desk.decide().specs

    assert list(after) == ["m", "a1", "a3", "b1"]
    assert tuple(before[name] == after[name] for name in ("m", "a1", "b1")) == (True, True, False)
    assert desk.applied is not None
    assert desk.applied.ok


def test_another_layout_is_no_change(desk: Desk) -> None:
    """Spaces, comments, order of keys and line numbers are no part of the goal."""
    before = desk.decide().specs
    desk.put("servers.d/b.toml", text='# more\n\n[servers.b1]\nargs=[ "", ]\ncommand="true"\n')

    assert before == desk.decide().specs


def test_a_bad_entry_keeps_its_last_good_version(desk: Desk) -> None:
    """Its neighbours in the file change; it runs on as it was, and the rejection says so."""
    before = desk.decide().specs
    desk.put("servers.d/a.toml", text='[servers.a1]\ncomand = "true"\n[servers.a2]\ncommand = "false"\n')

    after = desk.decide().specs

    assert before["a1"] is after["a1"]
    assert before["a2"] != after["a2"]
    assert list(dict.fromkeys(desk.rejected())) == [("servers.d/a.toml a1", True)]


def test_a_new_bad_entry_is_only_rejected(desk: Desk) -> None:
    """Where there is no good version nothing runs, and nobody else is hurt."""
    desk.put("servers.d/c.toml", text="[servers.c]\n")

    assert list(desk.decide().specs) == ["m", "a1", "a2", "b1"]
    assert desk.rejected() == [("servers.d/c.toml c", False)]


@pytest.mark.parametrize("text", ["", '[servers.a1]\ncommand = "tr', "[servers.a1]\n[servers.a1]\n"])
def test_a_broken_file_keeps_all_its_entries(text: str, desk: Desk) -> None:
    """An empty, half or broken file is never taken for "no servers"; its mending clears the rejection."""
    before = desk.decide().specs
    desk.put("servers.d/a.toml", text=text)

    assert before == desk.decide().specs
    assert desk.rejected() == [("servers.d/a.toml", True)]
    desk.put("servers.d/a.toml", "a1")
    assert list(desk.decide().specs) == ["m", "a1", "b1"]
    assert desk.rejected() == []


def test_a_file_that_may_not_be_believed_keeps_its_entries(desk: Desk) -> None:
    """A file that became writable to others is not read; what ran before goes on."""
    desk.put("servers.d/a.toml", "intruder")
    (desk.etc / "servers.d/a.toml").chmod(0o666)

    assert list(desk.decide().specs) == ["m", "a1", "a2", "b1"]
    assert desk.rejected() == [("servers.d/a.toml", True)]


def test_an_empty_object_removes_all(desk: Desk) -> None:
    """A readable file without entries says "no servers"."""
    desk.put("servers.d/a.toml", text="# none\n")

    assert list(desk.decide().specs) == ["m", "b1"]


@pytest.mark.parametrize("text", [None, "", "[daemon"])
def test_a_main_file_that_is_gone_keeps_everything(text: str | None, desk: Desk) -> None:
    """A main file that is gone, empty or broken keeps its servers, the settings and the defaults beneath all others."""
    desk.put("mcpvisor.toml", text='[log]\nlevel = "debug"\n[defaults]\nqueue = 3\n[servers.m]\ncommand = "true"\n')
    before = desk.decide()
    if text is None:
        (desk.etc / "mcpvisor.toml").unlink()
    else:
        desk.put("mcpvisor.toml", text=text)

    after = desk.decide(after=60)

    assert dict(before.specs) == dict(after.specs)
    assert (after.specs["b1"].queue, after.basis.settings.log.level) == (3, "debug")
    assert desk.rejected() == [("mcpvisor.toml", True)]


def test_a_drop_in_that_is_gone_is_a_removal_after_five_seconds(desk: Desk) -> None:
    """Deploy tools delete and write anew: until the time is up the servers run, then they go."""
    (desk.etc / "servers.d/a.toml").unlink()

    waiting = desk.decide()
    assert (["a1", "a2", "b1", "m"], desk.now + ABSENCE) == (sorted(waiting.specs), waiting.recheck_at)
    assert sorted(desk.decide(after=4.9).specs) == ["a1", "a2", "b1", "m"]
    gone = desk.decide(after=0.1)
    assert (sorted(gone.specs), gone.recheck_at, gone.ok) == (["b1", "m"], None, True)


def test_a_drop_in_of_which_it_is_known_since_when_it_is_gone(desk: Desk) -> None:
    """Its time has begun when its absence was seen, not with the reload."""
    file = desk.etc / "servers.d/a.toml"
    file.unlink()
    waiting = desk.decide(after=2, gone={file: desk.now})
    assert desk.now + ABSENCE - 2 == waiting.recheck_at
    desk.put("servers.d/a.toml", "a1", "a2")
    desk.decide()
    file.unlink()

    gone = desk.decide(gone={file: desk.now - ABSENCE})

    assert (["b1", "m"], None) == (sorted(gone.specs), gone.recheck_at)


def test_a_drop_in_that_comes_back_in_time_changes_nothing(desk: Desk) -> None:
    """The wait starts anew with each absence."""
    before = desk.decide().specs
    (desk.etc / "servers.d/a.toml").unlink()
    desk.decide(after=1)
    desk.put("servers.d/a.toml", "a1", "a2")
    assert before == desk.decide(after=4.5).specs
    (desk.etc / "servers.d/a.toml").unlink()
    desk.decide(after=1)
    assert sorted(before) == sorted(desk.decide(after=4.5).specs)


def test_a_renamed_drop_in_is_no_conflict(desk: Desk) -> None:
    """The file under its new name wins over the one that is absent, without an error and without a gap."""
    (desk.etc / "servers.d/a.toml").rename(desk.etc / "servers.d/z.toml")

    renamed = desk.decide()

    assert (sorted(renamed.specs), renamed.rejected, renamed.recheck_at) == (["a1", "a2", "b1", "m"], (), None)
    assert renamed.specs["a1"].origin.endswith("z.toml:1")
    assert sorted(desk.decide(after=6).specs) == ["a1", "a2", "b1", "m"]


def test_a_folder_that_is_gone_keeps_its_servers(desk: Desk) -> None:
    """Only a readable folder can say that a file is gone."""
    for file in (desk.etc / "servers.d").iterdir():
        file.unlink()
    (desk.etc / "servers.d").rmdir()

    desk.decide()
    assert sorted(desk.decide(after=60).specs) == ["a1", "a2", "b1", "m"]
    assert desk.rejected() == [("servers.d/a.toml", True), ("servers.d/b.toml", True)]


def test_a_named_file_is_never_removed_by_its_absence(desk: Desk) -> None:
    """What the command line names is wanted; its absence is an error."""
    desk.paths = [desk.etc / "servers.d/a.toml"]
    desk.applied = None
    desk.decide()
    (desk.etc / "servers.d/a.toml").unlink()

    assert list(desk.decide(after=60).specs) == ["a1", "a2"]
    assert desk.rejected() == [("servers.d/a.toml", True)]


def test_a_kept_entry_wins_over_a_later_file(desk: Desk) -> None:
    """The first file in order wins even while it cannot be read, and the later entry is rejected."""
    desk.put("servers.d/a.toml", text="[")
    desk.put("servers.d/b.toml", "a1", "b1")

    assert desk.decide().specs["a1"].origin.endswith("a.toml:1")
    assert desk.rejected() == [("servers.d/a.toml", True), ("servers.d/b.toml a1", False)]


def test_strict_is_all_or_nothing(desk: Desk) -> None:
    """With `strict` one bad entry rejects the whole reload, removals included."""
    desk.put("mcpvisor.toml", text='[daemon]\nstrict = true\n[servers.m]\ncommand = "true"\n')
    before = desk.decide().specs
    desk.put("servers.d/a.toml", text="[servers.a1]\n")
    desk.put("servers.d/b.toml", "b2")

    after = desk.decide()

    assert (before, None) == (after.specs, after.recheck_at)
    assert desk.rejected() == [("servers.d/a.toml a1", True)]


def test_wrong_settings_keep_the_last_good_ones(desk: Desk) -> None:
    """A setting that cannot be used is rejected; the servers in the same file are applied."""
    desk.put("mcpvisor.toml", text='[log]\nlevel = "loud"\n[servers.m2]\ncommand = "true"\n')

    after = desk.decide()

    assert (after.basis.settings.log.level, "m2" in after.specs) == ("info", True)
    assert desk.rejected() == [("mcpvisor.toml", True)]


def test_changed_settings_are_said_to_need_a_restart(desk: Desk) -> None:
    """Until the daemon starts anew, each reload names the settings that it does not follow."""
    desk.put("mcpvisor.toml", text='[metrics]\nlisten = "127.0.0.1:0"\n')
    desk.decide()

    assert desk.decide().needs_restart == ("metrics.listen",)


def test_nothing_to_run_on(etc: Path, environ: dict[str, str], write: Write) -> None:
    """A main file that cannot be used at the first start leaves nothing to decide."""
    write(etc / "mcpvisor.toml", "[")

    assert decide(None, load([etc], environ), 0.0) is None


def test_a_bad_entry_at_the_start_hurts_nobody(etc: Path, environ: dict[str, str], write: Write) -> None:
    """At the first start the good entries run and the bad one is rejected with its place."""
    write(etc / "mcpvisor.toml", '[servers.bad]\n[servers.good]\ncommand = "true"\n')

    applied = decide(None, load([etc], environ), 0.0)

    assert applied is not None
    assert list(applied.specs) == ["good"]
    assert [("bad", False, f"{etc}/mcpvisor.toml:1:1")] == [(p.server, p.keeps_running, p.where) for p in applied.rejected]


def test_strict_holds_for_the_reload_that_reads_it(desk: Desk) -> None:
    """Nobody is told to start the daemon for a setting that already decides: `strict` counts as it is written now."""
    desk.put("mcpvisor.toml", text='[daemon]\nstrict = true\n[log]\nlevel = "debug"\n[servers.m]\ncommand = "true"\n')

    assert desk.decide().needs_restart == ("log.level",)


def test_what_was_expected_is_named_once(desk: Desk) -> None:
    """Keys that are known in several ways are one word each of the list of what may be written."""
    desk.put("mcpvisor.toml", text='[servers.m]\ncommand = "true"\nzzzz = 1\n')
    (problem,) = desk.decide().rejected
    words = problem.expected.removeprefix("one of ").split(", ")

    assert sorted(set(words)) == sorted(words)
