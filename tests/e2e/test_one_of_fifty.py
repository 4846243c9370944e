"""Of fifty servers one is edited, in every way that there is: the others keep processes, sessions and subscriptions."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.fifty import Fifty

pytestmark = pytest.mark.slow

LONGER_THAN_QUIET = 0.6
"""Seconds in which a reload would have come."""


@pytest.fixture(scope="module")
def fifty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fifty]:
    """A daemon with fifty servers: stdio and HTTP, in TOML and JSON, behind links, with subscriptions, and a client.

    Each test leaves it with as many, and with nothing rejected.
    """
    with Fifty(tmp_path_factory.mktemp("d")) as one:
        yield one


def with_args(fifty: Fifty, file: Path, name: str, *args: str, **keys: object) -> str:
    """The text of a TOML file with another entry of one server."""
    before, _, rest = file.read_text().partition(f"[servers.{name}]\n")
    after = rest.partition("[servers.")
    assert rest, name
    return before + fifty.text(name, *args, **keys) + "".join(after[1:])


def test_one_of_fifty(fifty: Fifty) -> None:
    """Each edit is one reload, changes what it says, and touches no process, session or subscription of another server."""
    drop_in, main = fifty.drop_ins / "servers.toml", fifty.main
    edit = fifty.step

    edit("in place", lambda: main.write_text(with_args(fifty, main, "m3", "--name", "x")), m3="replaced")
    edit("a rename", lambda: fifty.put(drop_in.name, with_args(fifty, drop_in, "t5", "--name", "x")), t5="replaced")
    edit("another rename", lambda: fifty.put(drop_in.name, with_args(fifty, drop_in, "t6", "--name", "x")), t6="replaced")
    edit("JSON", lambda: (fifty.drop_ins / "json.json").write_text(of_json(fifty)), j7="replaced")
    edit("JSON, written otherwise", lambda: (fifty.drop_ins / "json.json").write_text(of_json(fifty).replace("  ", " ")))
    edit("a slow write", lambda: write_slowly(drop_in, with_args(fifty, drop_in, "t13", "--name", "x")), t13="replaced")
    edit("a new server", lambda: append(main, fifty.text("new")), new="added")
    edit("a server less", lambda: main.write_text(main.read_text().replace(fifty.text("new"), "")), new="removed")
    edit("over HTTP", lambda: fifty.put("web.toml", of_web(fifty)), w3="replaced")
    edit("a ConfigMap", lambda: fifty.map(2, fifty.json(mapped=["--name", "x"])), mapped="replaced")
    edit("the same again", lambda: fifty.map(3, fifty.json(mapped=["--name", "y"])), mapped="replaced")
    edit("a link's target", lambda: (fifty.elsewhere / "linked.json").write_text(fifty.json(linked=["--x"])), linked="replaced")
    edit("a secret", lambda: fifty.secret.write_text("second"), sealed="replaced")
    edit(
        "metadata",
        lambda: fifty.put("solo.toml", fifty.text("solo", tools={"deny": ["big"]}, call_timeout="9s")),
        solo="updated",
    )
    edit("a drop-in that is gone", (fifty.drop_ins / "solo.toml").unlink, solo="removed")
    edit("and comes back", lambda: fifty.put("solo.toml", fifty.text("solo")), solo="added")
    edit("a drop-in with another name", lambda: (fifty.drop_ins / "solo.toml").rename(fifty.drop_ins / "one.toml"))

    def nothing() -> None:
        os.utime(main)
        drop_in.chmod(0o600)
        main.write_text(main.read_text())
        fifty.put(drop_in.name, drop_in.read_text())
        time.sleep(LONGER_THAN_QUIET)

    edit("no change", nothing, {})
    edit("and one", lambda: main.write_text(with_args(fifty, main, "m4", "--name", "x")), m4="replaced")

    def reloaded() -> None:
        text = with_args(fifty, main, "m8", "--name", "x")
        with main.open("w") as stream:  # for the end of which the watch waits
            stream.write(text)
            stream.flush()
            assert fifty.running.control.post("/v1/reload", {"wait": False}, timeout=20)["ok"]
        time.sleep(LONGER_THAN_QUIET)

    edit("an edit that is reloaded by hand", reloaded, {}, m8="replaced")

    kept = fifty.elsewhere / "kept"
    shutil.copytree(fifty.drop_ins, kept, symlinks=True)
    edit("the folder is gone", lambda: shutil.rmtree(fifty.drop_ins), {"rejected": 1})
    (kept / drop_in.name).write_text(with_args(fifty, kept / drop_in.name, "t7", "--name", "x"))
    edit("and comes back", lambda: shutil.copytree(kept, fifty.drop_ins, symlinks=True), t7="replaced")


def test_one_of_fifty_by_a_program_that_writes_in_every_way(fifty: Fifty) -> None:
    """The steps of `reload_writer.py`, each with what it expects, on a file that is named by itself."""
    step = fifty.step
    names = fifty.before.keys()

    def written(expected: list[str]) -> Callable[[], None]:
        def write() -> None:
            assert expected == fifty.write_step()

        return write

    both, all_three = written(["change", "keep"]), written(["change", "extra", "keep"])
    step("in-place", all_three, extra="added")
    step("rename", all_three, change="replaced")
    step("touch", lambda: (all_three(), time.sleep(LONGER_THAN_QUIET)), {})
    step("reformat", all_three)
    step("half", both, extra="removed")
    step("recreate", all_three, {"rejected": 1, "applied": 1}, extra="added")
    step("broken", all_three, {"rejected": 1})
    step("fixed", all_three)
    step("burst", both, extra="removed")
    step("disable", written(["keep"]), change="disabled")
    step("enable", both, change="enabled")
    step("empty", both, {"rejected": 1})
    step("unreadable", both, {"applied": 1} if os.geteuid() == 0 else {"applied": 2, "rejected": 1})
    text = fifty.named.read_text()
    step("gone", both, {"rejected": 1})
    step("and comes back", lambda: fifty.named.write_text(text))

    assert names == fifty.snapshot().keys()


def append(file: Path, text: str) -> None:
    with file.open("a") as stream:
        stream.write(text)


def write_slowly(file: Path, text: str) -> None:
    """Write half of the entries, wait for as long as a reload takes, and write the others."""
    middle = text.index("[servers.t7]")
    with file.open("w") as stream:
        stream.write(text[:middle])
        stream.flush()
        time.sleep(LONGER_THAN_QUIET)
        stream.write(text[middle:])


def of_json(fifty: Fifty) -> str:
    return fifty.json(**{f"j{number}": ["--name", "x"] if number == 7 else [] for number in range(12)})


def of_web(fifty: Fifty) -> str:
    return "".join(fifty.web_text(f"w{number}", "?x=1" if number == 3 else "") for number in range(4))
