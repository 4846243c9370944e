"""What a start makes of a broken configuration and of what an earlier run has kept; the state file is a real one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from mcpvisor.daemon.config.applied import Applied, decide
from mcpvisor.daemon.config.load import load
from mcpvisor.daemon.config.past import decide_with_past
from mcpvisor.daemon.config.problems import Problem
from mcpvisor.daemon.config.reload import NoConfiguration, Reloader
from mcpvisor.daemon.local_time import iso_time
from mcpvisor.daemon.reloading import faults_in_status
from mcpvisor.daemon.state.store import StateStore
from mcpvisor.daemon.versions.reading import read_past
from mcpvisor.daemon.versions.shelf import Shelf
from mcpvisor.daemon.versions.trials import Good
from mcpvisor.supervisor.secret import reveal
from mcpvisor.supervisor.spec import PlannedChange, ServerSpec, StdioLaunch

pytestmark = pytest.mark.anyio


class Desk:
    """A folder with a main file (x, a handler, a setting) and a drop-in (y), as a run of the daemon has left it."""

    def __init__(self, etc: Path, environ: dict[str, str]) -> None:
        self.etc, self.environ = etc, environ
        self.main, self.drop_in = etc / "mcpvisor.toml", etc / "servers.d" / "y.toml"
        self.drop_in.parent.mkdir()
        self.drop_in.parent.chmod(0o755)
        self.state = etc.parent / "state"
        self.state.mkdir(mode=0o700)
        self.put(self.main, self.main_text())
        self.put(self.drop_in, '[servers.y]\ncommand = "true"\nargs = ["good"]\n')

    def main_text(self) -> str:
        return (
            f'[daemon]\nstate_dir = "{self.state}"\n[gateway]\nfirst_list_wait = "7s"\n[handlers.h]\ntype = "log"\n'
            '[servers.x]\ncommand = "true"\nargs = ["good", "${env:WORD}"]\n'
        )

    def put(self, file: Path, text: str) -> None:
        file.write_text(text)
        file.chmod(0o644)

    async def ran(self) -> Applied:
        """A run of the daemon in which all were ready."""
        applied = decide(None, load([self.etc], self.environ), 0.0)
        assert applied is not None
        assert applied.ok
        store = StateStore(self.state / "state.db")
        await store.open()
        Shelf.of(store, self.state).keep(applied, lambda name: Good(applied.specs[name], 1.0))
        assert await store.flush()
        await store.close()
        return applied

    def reloader(self) -> Reloader:
        """The reloader of the next run."""
        return Reloader([self.etc], self.environ, past=lambda loaded: read_past(loaded, paths=[self.etc], environ=self.environ))

    async def start(self) -> Applied:
        """What the next run has in force at its start."""
        return await self.reloader().start()

    async def reload(self, reloader: Reloader) -> tuple[Problem, ...]:
        """What a reload finds wrong."""

        async def apply(_: Iterable[ServerSpec]) -> list[PlannedChange]:
            return []

        return (await reloader.reload("command", apply)).rejected


@pytest.fixture
def desk(etc: Path, environ: dict[str, str]) -> Desk:
    """See `Desk`."""
    return Desk(etc, {**environ, "WORD": "secret"})


@pytest.mark.parametrize("broken", ["[[[\n", "", None, "[gateway]\nlisten = 5\n"])
async def test_a_main_file_that_cannot_be_used(desk: Desk, broken: str | None) -> None:
    """Its settings, handlers and servers are those that were good, and the folder of the state is found; one line says so."""
    before = await desk.ran()
    if broken is None:
        desk.main.unlink()
        desk.environ["STATE_DIRECTORY"] = str(desk.state)
    else:
        desk.put(desk.main, f'{broken}[daemon]\nstate_dir = "{desk.state}"\n' if broken else "")
        desk.environ["STATE_DIRECTORY"] = str(desk.state)
    after = await desk.start()

    assert before.basis.settings == after.running == after.basis.settings
    if broken != "[gateway]\nlisten = 5\n":
        assert (before.specs, before.handlers) == (after.specs, after.handlers)
    assert not after.ok
    assert {True} == {problem.keeps_running for problem in after.rejected}
    assert "which an earlier run has kept" in after.rejected[0].error
    told = faults_in_status(after)
    assert told.startswith(f"; 1 configuration error at {desk.main}")
    assert told.endswith(", and settings that an earlier run has kept")


async def test_the_state_is_found_by_a_line_of_a_broken_main_file(desk: Desk) -> None:
    """Nothing else of such a file is believed."""
    before = await desk.ran()
    desk.put(desk.main, desk.main_text() + "[[[\n")

    assert before.specs == (await desk.start()).specs


async def test_without_a_past_it_is_no_configuration(desk: Desk) -> None:
    """Nor with one whose key is gone."""
    desk.put(desk.main, "[[[\n")
    with pytest.raises(NoConfiguration):
        await desk.start()
    desk.put(desk.main, desk.main_text())
    await desk.ran()
    (desk.state / "config-versions.keys").unlink()
    desk.put(desk.main, desk.main_text() + "[[[\n")
    with pytest.raises(NoConfiguration):
        await desk.start()


async def test_a_bad_entry_runs_as_it_was_with_the_secrets_of_now(desk: Desk) -> None:
    """All else is as it is written, and one that nothing is kept of is left out."""
    await desk.ran()
    desk.environ["WORD"] = "renewed"
    bad = '[servers.x]\ncommand = 5\n[servers.new]\ncommand = "true"\n[servers.worse]\ncommand = 5\n'
    desk.put(desk.main, desk.main_text().partition("[servers.x]")[0] + bad)
    after = await desk.start()
    target = after.specs["x"].target

    assert {"x", "y", "new"} == set(after.specs)
    assert isinstance(target, StdioLaunch)
    assert "renewed" == reveal(target.args[1])
    assert [("x", True), ("worse", False)] == [(one.server, one.keeps_running) for one in after.rejected]
    line = after.rejected[0].line
    since = iso_time(after.rejected[0].since or 0.0)
    assert f"; 2 configuration errors, the first at {desk.main}:{line} since {since}" == faults_in_status(after)


async def test_the_age_of_what_runs_is_told_until_it_is_mended(desk: Desk) -> None:
    """A plan and later reloads say how old the version is that runs, as the start does; what was good since has no age."""
    await desk.ran()
    desk.put(desk.drop_in, "[servers.y]\ncommand = 5\n")
    reloader = desk.reloader()
    started = await reloader.start()
    planned = await reloader.preview()
    again = await desk.reload(reloader)
    desk.put(desk.drop_in, '[servers.y]\ncommand = "true"\n')
    mended = await desk.reload(reloader)
    desk.put(desk.drop_in, "[servers.y]\ncommand = 5\n")
    after = await desk.reload(reloader)

    (told,) = started.rejected
    assert "the last good version keeps running, as of " in told.error
    assert told.error.endswith(", which an earlier run has kept)")
    assert (told,) == planned.rejected == again
    assert () == mended
    assert ["(the last good version keeps running)"] == [one.error[-37:] for one in after]


async def test_a_strict_start_runs_what_is_kept(desk: Desk) -> None:
    """With `strict` one bad entry leaves all that an earlier run has kept in force, and each fault says so with its age."""
    desk.put(desk.main, desk.main_text().replace("[gateway]", "strict = true\n[gateway]"))
    before = await desk.ran()
    desk.put(desk.drop_in, '[servers.y]\ncommand = 5\n[servers.new]\ncommand = "true"\n')
    after = await desk.start()

    assert before.specs == after.specs
    assert [("y", True)] == [(one.server, one.keeps_running) for one in after.rejected]
    assert "daemon.strict is set" in after.rejected[0].error
    assert "which an earlier run has kept" in after.rejected[0].error


async def test_an_entry_whose_variable_is_gone_is_not_run(desk: Desk) -> None:
    """A version that cannot be read any more is none."""
    await desk.ran()
    del desk.environ["WORD"]
    after = await desk.start()

    assert ({"y"}, [("x", False)]) == (set(after.specs), [(one.server, one.keeps_running) for one in after.rejected])


async def test_what_was_removed_meanwhile_is_gone(desk: Desk) -> None:
    """A drop-in, the folder of all of them, and an entry of a file that is there, whatever else is broken."""
    await desk.ran()
    desk.drop_in.unlink()
    desk.put(desk.main, desk.main_text() + "[[[\n")
    without_file = set((await desk.start()).specs)
    desk.drop_in.parent.rmdir()
    without_folder = set((await desk.start()).specs)
    desk.put(desk.main, desk.main_text().partition("[servers.x]")[0] + "[nonsense]\n")
    without_entry = set((await desk.start()).specs)

    assert ({"x"}, {"x"}, set()) == (without_file, without_folder, without_entry)


async def test_a_named_folder_that_is_not_there_keeps_what_it_held(desk: Desk) -> None:
    """Its disk may come later: main file and drop-ins stay as they were, and what is said of it says so."""
    before = await desk.ran()
    other = desk.etc.parent / "other"
    desk.etc.rename(other)
    desk.environ["STATE_DIRECTORY"] = str(desk.state)
    after = await desk.start()
    other.rename(desk.etc)

    assert before.specs == after.specs
    assert all(problem.keeps_running and "which an earlier run has kept" in problem.error for problem in after.rejected)
    assert not any("nothing of this file" in problem.error for problem in after.rejected)


async def test_an_ordinary_start_opens_nothing(desk: Desk) -> None:
    """Where all that is written is what was ready, nobody asks what was kept."""
    await desk.ran()
    loaded = load([desk.etc], desk.environ)

    assert read_past(loaded, paths=[desk.etc], environ=desk.environ) is None


async def test_an_edit_while_no_daemon_ran_is_measured_by_what_was_ready(desk: Desk) -> None:
    """It is what runs, and the version that was ready is known beside it."""
    before = await desk.ran()
    desk.put(desk.drop_in, '[servers.y]\ncommand = "true"\nargs = ["new"]\n')
    loaded = load([desk.etc], desk.environ)
    past = read_past(loaded, paths=[desk.etc], environ=desk.environ)
    applied = decide_with_past(past, loaded, 0.0)

    assert past is not None
    assert applied is not None
    assert (before.specs["y"], True) == (past.ready["y"].spec, applied.ok)
    assert before.specs["y"] != applied.specs["y"]


async def test_a_state_file_that_others_can_write_is_not_believed(desk: Desk) -> None:
    """They could have what they like run."""
    await desk.ran()
    (desk.state / "state.db").chmod(0o666)
    desk.put(desk.main, desk.main_text() + "[[[\n")
    with pytest.raises(NoConfiguration):
        await desk.start()
