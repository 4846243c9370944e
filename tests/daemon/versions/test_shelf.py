"""What is kept of the configuration for the next run, and what a start makes of it; the store is in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mcpvisor.daemon.config.applied import Applied, decide, hold_back
from mcpvisor.daemon.config.held_back import HeldBack
from mcpvisor.daemon.config.load import load
from mcpvisor.daemon.gateway.questions.keys import read_or_mint
from mcpvisor.daemon.state.store import StateStore
from mcpvisor.daemon.versions.keys import SERVER, key_of
from mcpvisor.daemon.versions.seal import KEY_FILE, VersionSeal
from mcpvisor.daemon.versions.shelf import Shelf
from mcpvisor.daemon.versions.trials import Good

ONE = '[servers.x]\ncommand = "true"\nargs = ["{word}"]\n{more}'


class Desk:
    """A main file, what is in force of it, and a shelf."""

    def __init__(self, etc: Path, environ: dict[str, str]) -> None:
        self.file, self.environ = etc / "mcpvisor.toml", environ
        self.store = StateStore(etc / "state.db")
        self.seal = VersionSeal(read_or_mint(etc, name=KEY_FILE, renew=float("inf")))
        self.shelf = Shelf(self.store, self.seal)
        self.applied: Applied | None = None
        self.good: dict[str, Good] = {}

    def edit(self, text: str, *, ready: bool) -> Applied:
        """Write, apply and keep; `ready` is whether every server was ready with what is in force."""
        self.file.write_text(text)
        self.file.chmod(0o644)
        self.applied = decide(self.applied, load([self.file.parent], self.environ), 0.0)
        assert self.applied is not None
        if ready:
            self.good = {name: Good(spec, 1.0) for name, spec in self.applied.specs.items()}
        self.shelf.keep(self.applied, self.good.get)
        return self.applied

    def kept(self, name: str = "x") -> tuple[str, bool] | None:
        """The word of the version of a server that is kept, and whether it was ready."""
        key = key_of(SERVER, name)
        version = self.store.versions().get(key)
        if version is None:
            return None
        written = self.seal.open(version.sealed(), key)
        assert written is not None
        return written.data["servers"][name]["args"][0], version.ready


@pytest.fixture
def desk(etc: Path, environ: dict[str, str]) -> Desk:
    """Nothing is written yet."""
    return Desk(etc, environ)


def text(word: str, more: str = "") -> str:
    """A main file with one server."""
    return ONE.format(word=word, more=more)


def test_one_that_was_never_ready_replaces_none_that_was(desk: Desk) -> None:
    """The first is kept for want of a better one; a ready one takes its place, and gives it to the next ready one."""
    seen: list[object] = []
    for word, ready in (("a", False), ("b", False), ("c", True), ("d", False), ("e", True)):
        desk.edit(text(word), ready=ready)
        seen.append(desk.kept())

    assert [("a", False), ("b", False), ("c", True), ("c", True), ("e", True)] == seen


@pytest.mark.parametrize("more", ["enabled = false\n", "rollback = false\n"])
def test_what_is_not_measured_by_being_ready_is_good_at_once(desk: Desk, more: str) -> None:
    """Else a server that was disabled would be back after the next broken file."""
    desk.edit(text("a"), ready=True)
    desk.edit(text("b", more), ready=False)

    assert ("b", False) == desk.kept()


def test_what_is_the_same_is_not_written_again(desk: Desk) -> None:
    """Wherever it stands in its file by now."""
    desk.edit(text("a"), ready=True)
    before = desk.store.versions()
    desk.edit("# more\n\n" + text("a"), ready=True)

    assert before == desk.store.versions()


def test_what_is_removed_is_kept_no_longer(desk: Desk) -> None:
    """A server, and handlers with it."""
    desk.edit(text("a") + '[handlers.h]\ntype = "log"\n', ready=True)
    desk.edit("# none\n", ready=True)

    assert desk.kept() is None
    assert {"handlers", "settings"} == {key.partition(":")[0] for key in desk.store.versions()}


def test_one_that_is_held_back_is_kept_beside_the_former(desk: Desk) -> None:
    """And forgotten when it is edited."""
    former = desk.edit(text("a"), ready=True).specs["x"]
    applied = desk.edit(text("b"), ready=False)
    held = HeldBack(written=applied.specs["x"], former=former, former_at=1.0, since=2.0, why="it hangs")
    desk.applied = hold_back(applied, held)
    assert desk.applied is not None
    desk.shelf.keep(desk.applied, desk.good.get)
    version = desk.store.versions()["held:x"]
    first = (desk.kept(), version.why, version.good_at)
    desk.edit(text("c"), ready=False)

    assert (("a", True), "it hangs", 2.0) == first
    assert (("a", True), False) == (desk.kept(), "held:x" in desk.store.versions())


def test_the_seal_opens_for_its_own_key_only(desk: Desk) -> None:
    """Neither under the name of another server, nor with another key; and no word of it can be read."""
    desk.edit(text("canary-word"), ready=True)
    sealed = desk.store.versions()["server:x"].sealed()
    other = VersionSeal(read_or_mint(desk.file.parent, name="other.keys"))

    assert (None, None) == (desk.seal.open(sealed, "server:y"), other.open(sealed, "server:x"))
    assert "canary" not in sealed
    assert "canary" not in repr(desk.store.versions())


def test_the_defaults_beneath_are_part_of_a_version(desk: Desk) -> None:
    """With others it is another version, of which nobody knows whether it would be ready."""
    desk.edit('[defaults]\nenv = { A = "1" }\n' + text("a"), ready=True)
    before = desk.store.versions()["server:x"].digest
    desk.edit('[defaults]\nenv = { A = "2" }\n' + text("a"), ready=True)

    assert before != desk.store.versions()["server:x"].digest


def test_a_date_is_kept_by_nobody(desk: Desk) -> None:
    """What JSON cannot say is no version; everything else is kept all the same."""
    written = desk.edit(text("a"), ready=True).files[desk.file].written["x"]

    assert desk.seal.content(replace(written, data={"a": object()})) is None


def test_one_that_is_held_back_after_another_reload_is_kept_too(desk: Desk) -> None:
    """What was applied then, and what is read now, are two values that are the same."""
    former = desk.edit(text("a"), ready=True).specs["x"]
    tried = desk.edit(text("b"), ready=False).specs["x"]
    again = desk.edit(text("b"), ready=False)
    desk.applied = hold_back(again, HeldBack(written=tried, former=former, former_at=1.0, since=2.0, why="it hangs"))
    assert desk.applied is not None
    desk.shelf.keep(desk.applied, desk.good.get)
    first = "held:x" in desk.store.versions()
    desk.edit("# more\n" + text("b"), ready=False)

    assert (True, True) == (first, "held:x" in desk.store.versions())
