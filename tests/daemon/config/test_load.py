"""Which files are read, in which order, and whose files are believed."""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpvisor.daemon.config.check import check
from mcpvisor.daemon.config.load import load
from mcpvisor.daemon.config.places import config_paths, control_sockets, places
from mcpvisor.daemon.config.settings import Settings

Write = Callable[[Path, str | bytes], Path]

ONE = '[servers.{}]\ncommand = "true"\n'


def test_files_are_read_in_order(etc: Path, environ: dict[str, str], write: Write) -> None:
    """The main file comes first, then the drop-ins by name; hidden, backup and other files are passed over."""
    write(etc / "mcpvisor.toml", ONE.format("main"))
    for name in ("20-b.toml", "10-a.json", "30-c.toml", "40-d.jsonc"):
        server = name[3]
        text = ONE.format(server)
        if not name.endswith("toml"):
            text = json.dumps({"mcpServers": {server: {"command": "true"}}}) + " // theirs"
        write(etc / "servers.d" / name, text)
    for name in (
        ".hidden.toml",
        "x.toml~",
        "x.toml.bak",
        "#x.toml#",
        ".x.toml.swp",
        "x.tmp",
        "x.toml.dpkg-new",
        "..data.toml",
        "a..toml",
        "README",
    ):
        write(etc / "servers.d" / name, "not read [")

    loaded = load([etc], environ)

    assert [file.name for file in loaded.files] == ["mcpvisor.toml", "10-a.json", "20-b.toml", "30-c.toml", "40-d.jsonc"]
    assert list(loaded.specs) == ["main", "a", "b", "c", "d"]
    assert loaded.problems == ()


def test_a_path_that_cannot_be_looked_at_is_a_problem(environ: dict[str, str]) -> None:
    """Whatever the system says of a path, such as that a folder above is closed, is told with the path."""
    path = Path("/" + "x" * 300)

    loaded = load([path], environ)

    assert [f"{path}: cannot be read: file name too long"] == [str(problem) for problem in loaded.problems]


def test_of_two_servers_with_one_name_the_first_wins(etc: Path, environ: dict[str, str], write: Write) -> None:
    """The later entry is an error that names both places; its neighbours run."""
    write(etc / "servers.d/a.toml", ONE.format("x"))
    write(etc / "servers.d/b.toml", ONE.format("x") + ONE.format("y"))

    loaded = load([etc], environ)

    assert f"{etc}/servers.d/a.toml:1" == loaded.specs["x"].origin
    assert list(loaded.specs) == ["x", "y"]
    assert str(loaded.problems[0]).startswith(
        f"{etc}/servers.d/b.toml:1:1: servers.x: a server of this name is written at {etc}/servers.d/a.toml:1 already"
    )


def test_a_bad_first_entry_still_owns_its_name(etc: Path, environ: dict[str, str], write: Write) -> None:
    """Mending an entry must not move its server from one file to another."""
    write(etc / "servers.d/a.toml", "[servers.x]\n")
    write(etc / "servers.d/b.toml", ONE.format("x"))

    assert load([etc], environ).specs == {}


@pytest.mark.parametrize(
    "content",
    [
        codecs.BOM_UTF8 + ONE.format("x").encode(),
        codecs.BOM_UTF16_LE + ONE.format("x").encode("utf-16-le"),
        codecs.BOM_UTF16_BE + ONE.format("x").encode("utf-16-be"),
        ONE.format("x").replace("\n", "\r\n").encode(),
    ],
)
def test_encodings(content: bytes, etc: Path, environ: dict[str, str], write: Write) -> None:
    """Byte order marks and line ends of other systems are read."""
    write(etc / "mcpvisor.toml", content)

    assert list(load([etc], environ).specs) == ["x"]


def test_utf16_without_a_mark_is_named(etc: Path, environ: dict[str, str], write: Write) -> None:
    """An encoding that cannot be told is an error that names it."""
    write(etc / "mcpvisor.toml", ONE.format("x").encode("utf-16-le"))

    assert "as UTF-16 without a byte order mark does" in str(load([etc], environ).problems[0])


def test_no_servers(etc: Path, environ: dict[str, str], write: Write) -> None:
    """An empty object and a comment say "no servers"; that is no error."""
    write(etc / "servers.d/a.json", "{}")
    write(etc / "servers.d/b.json", '{"$schema": "x", "//": "y"}')
    write(etc / "servers.d/c.toml", "# none\n")

    loaded = load([etc], environ)

    assert (loaded.problems, loaded.specs) == ((), {})


def test_what_cannot_be_read(etc: Path, environ: dict[str, str], write: Write) -> None:
    """A folder, a pipe, a loop of links, a dead link and a huge file are one clear error each; the rest is read."""
    drop_ins = etc / "servers.d"
    (drop_ins / "1.toml").mkdir()
    os.mkfifo(drop_ins / "2.toml")
    (drop_ins / "3.toml").symlink_to("3.toml")
    (drop_ins / "4.toml").symlink_to("nowhere")
    write(drop_ins / "5.toml", b"#" * (4 * 1024 * 1024 + 1))
    write(drop_ins / "6.toml", ONE.format("x"))

    loaded = load([etc], environ)

    assert list(loaded.specs) == ["x"]
    assert [problem.message for problem in loaded.problems] == [
        "is a folder",
        "is no regular file",
        "cannot be read: its symbolic links form a loop",
        "cannot be read: no such file or directory",
        "larger than 4 MiB",
    ]


@pytest.mark.parametrize(("mode", "remedy"), [(0o666, "chmod o-w"), (0o646, "chmod o-w")])
def test_a_file_that_others_may_write_is_refused(
    mode: int, remedy: str, etc: Path, environ: dict[str, str], write: Write
) -> None:
    """Whoever can write the configuration runs programs as the daemon: such a file is not used."""
    file = write(etc / "mcpvisor.toml", ONE.format("x"))
    file.chmod(mode)

    loaded = load([etc], environ)

    assert loaded.specs == {}
    assert f"run: {remedy} {file}" in str(loaded.problems[0])


def test_a_folder_that_others_may_write_is_refused(etc: Path, environ: dict[str, str], write: Write) -> None:
    """The folders above count as the file does; with the sticky bit they are as good as closed."""
    write(etc / "mcpvisor.toml", ONE.format("x"))
    etc.chmod(0o777)
    open_to_all = load([etc], environ)
    etc.chmod(0o1777)
    sticky = load([etc], environ)

    assert f"run: chmod o-w {etc}" in str(open_to_all.problems[0])
    assert (list(sticky.specs), sticky.problems) == (["x"], ())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_refused(etc: Path, environ: dict[str, str], write: Write) -> None:
    """The file belongs to root or to the daemon; a group of others must not write it either."""
    file = write(etc / "mcpvisor.toml", ONE.format("x"))
    os.chown(file, 54321, 54321)
    foreign = load([etc], environ, uid=0)
    own = load([etc], environ, uid=54321)
    file.chmod(0o664)
    group = load([etc], environ, uid=54321)

    assert f"run: chown 0 {file}" in str(foreign.problems[0])
    assert list(own.specs) == ["x"]
    assert f"run: chmod g-w {file}" in str(group.problems[0])


def test_settings_belong_into_the_main_file(etc: Path, environ: dict[str, str], write: Write) -> None:
    """A drop-in holds servers only: everything else in it is an error, and its servers run."""
    write(etc / "servers.d/a.toml", "[daemon]\nstrict = true\n[defaults]\nqueue = 1\n" + ONE.format("x"))

    loaded = load([etc], environ)

    assert [problem.key_path for problem in loaded.problems] == ["daemon", "defaults"]
    assert list(loaded.specs) == ["x"]


def _settings(loaded_settings: Settings | None) -> Settings:
    assert loaded_settings is not None
    return loaded_settings


def test_precedence_of_settings(etc: Path, environ: dict[str, str], write: Write, tmp_path: Path) -> None:
    """Command line, environment, credentials, files and defaults win in this order."""
    credentials = tmp_path / "cred"
    credentials.mkdir(mode=0o755)
    keys = ["parallel_starts", "strict", "state_dir"]
    write(
        etc / "mcpvisor.toml", '[daemon]\nparallel_starts = 1\nstate_dir = "/file"\n[log]\nlevel = "debug"\nformat = "json"\n'
    )
    write(credentials / "mcpvisor_daemon__parallel_starts", "2\n")
    write(credentials / "mcpvisor_daemon__state_dir", "/credential")
    write(credentials / "mcpvisor_log__level", "info")
    environ |= {"MCPVISOR_DAEMON__STATE_DIR": "/environment", "MCPVISOR_LOG__LEVEL": "warning"}
    environ |= {"CREDENTIALS_DIRECTORY": str(credentials), "MCPVISOR_CONFIG": "/no/setting", "MCPVISOR_SOCKET": "/nor/this"}

    loaded = load([etc], environ, overrides={"log": {"level": "error"}})

    settings = _settings(loaded.settings)
    assert loaded.problems == ()
    assert [2, False, Path("/environment")] == [getattr(settings.daemon, key) for key in keys]
    assert (settings.log.level, settings.log.format) == ("error", "json")


def test_lists_and_durations_out_of_the_environment(etc: Path, environ: dict[str, str]) -> None:
    """Commas or JSON make a list of a variable, and durations are written as in a file."""
    environ |= {"MCPVISOR_GATEWAY__LISTEN": "127.0.0.1:0, unix:/run/x", "MCPVISOR_GATEWAY__HOSTS": '["a.test"]'}
    environ |= {
        "MCPVISOR_GATEWAY__FIRST_LIST_WAIT": "2",
        "MCPVISOR_DAEMON__STRICT": "true",
        "MCPVISOR_METRICS__LISTEN": "[::1]:9433",
    }

    settings = _settings(load([etc], environ).settings)

    assert (
        settings.gateway.listen,
        settings.gateway.hosts,
        settings.gateway.first_list_wait,
    ) == (("127.0.0.1:0", "unix:/run/x"), ("a.test",), 2.0)
    assert (settings.daemon.strict, settings.metrics.listen) == (True, ("[::1]:9433",))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("MCPVISOR_GATWAY__AUTH", 'environment: MCPVISOR_GATWAY__AUTH: there is no such section; did you mean "gateway"?'),
        ("MCPVISOR_GATEWAY__AUHT", 'environment: MCPVISOR_GATEWAY__AUHT: unknown key; did you mean "auth"?'),
        ("MCPVISOR_LOG__LEVEL", "environment: MCPVISOR_LOG__LEVEL: not a word that is known here; expected one of"),
    ],
)
def test_mistakes_in_the_environment(name: str, text: str, etc: Path, environ: dict[str, str]) -> None:
    """A variable that names no setting, or a wrong value, is an error that says where it comes from, without the value."""
    problem = str(load([etc], {**environ, name: "sekret"}).problems[0])

    assert problem.startswith(text)
    assert "sekret" not in problem


def test_no_settings_no_basis(etc: Path, environ: dict[str, str], write: Write) -> None:
    """A main file that cannot be used gives no settings to run on; the other files are checked all the same."""
    write(etc / "mcpvisor.toml", "[gateway\n")
    write(etc / "servers.d/a.toml", ONE.format("x"))

    loaded = load([etc], environ)

    assert (loaded.settings, list(loaded.specs), len(loaded.problems)) == (None, ["x"], 1)


def test_default_places() -> None:
    """Root has the system's folders, a unit those that systemd names, a user those of XDG."""
    user = {"HOME": "/home/me", "XDG_RUNTIME_DIR": "/run/user/7"}
    unit = {"RUNTIME_DIRECTORY": "/run/mcpvisor", "STATE_DIRECTORY": "/var/lib/mcpvisor", "HOME": "/var/lib/mcpvisor"}

    assert _folders({}, 0) == ("/run/mcpvisor", "/var/lib/mcpvisor", "/etc/mcpvisor")
    assert _folders(unit, 999) == ("/run/mcpvisor", "/var/lib/mcpvisor", "/etc/mcpvisor")
    assert _folders(user, 7) == ("/run/user/7/mcpvisor", "/home/me/.local/state/mcpvisor", "/home/me/.config/mcpvisor")
    assert _folders({"HOME": "/home/me"}, 7)[0] == "/tmp/mcpvisor-7"
    assert [Path("/a"), Path("/b")] == config_paths({"MCPVISOR_CONFIG": "/a:/b"}, 0)
    assert [str(path) for path in control_sockets(user, 7)] == [
        "/run/mcpvisor/control.sock",
        "/run/user/7/mcpvisor/control.sock",
        "/tmp/mcpvisor-7/control.sock",
    ]
    assert [Path("/s")] == control_sockets({"MCPVISOR_SOCKET": "/s"}, 7)


def _folders(environ: dict[str, str], uid: int) -> tuple[str, str, str]:
    at = places(environ, uid)
    return str(at.runtime), str(at.state), str(at.config)


def test_check_prints_everything(etc: Path, environ: dict[str, str], write: Write) -> None:
    """The check tells every error and hint as text and as JSON, and ends with 78 when there is an error."""
    write(etc / "mcpvisor.toml", ONE.format("x") + "[servers.y]\n")
    write(etc / "servers.d/a.json", '{"mcpServers": {"z": {"command": "true", "icon": "i"}}}')

    bad = check([etc], environ)
    write(etc / "mcpvisor.toml", ONE.format("x"))
    good = check([etc], environ)

    assert (bad.exit_code, good.exit_code) == (78, 0)
    assert [
        f"error: {etc}/mcpvisor.toml:3:1: servers.y: no server: it has neither command nor url; expected command or url",
        f"hint: {etc}/servers.d/a.json:1:42: mcpServers.z.icon: not a key that is used here",
        "2 files, 2 servers: 1 error, 1 hint",
    ] == bad.lines()
    assert (
        bad.as_json()["ok"],
        bad.as_json()["servers"],
        bad.as_json()["errors"][0]["line"],
        bad.as_json()["errors"][0]["server"],
    ) == (False, ["x", "z"], 3, "y")


def test_a_path_that_is_not_there(etc: Path, environ: dict[str, str]) -> None:
    """A path that does not exist is an error, and a folder with nothing of ours a hint."""
    (etc / "servers.d").rmdir()

    assert [f"{etc}/gone: cannot be read: no such file or directory"] == [
        str(p) for p in load([etc / "gone"], environ).problems
    ]
    assert [f"{etc}: holds neither mcpvisor.toml nor servers.d: no servers"] == [str(h) for h in load([etc], environ).hints]


def test_files_beside_the_places_that_are_read(etc: Path, environ: dict[str, str], write: Write) -> None:
    """Where nothing else is there they are an error with the remedy; beside it a TOML file is a hint, and JSON is anybody's."""
    (etc / "servers.d").rmdir()
    write(etc / "a.toml", ONE.format("x"))
    write(etc / "b.json", "{}")
    write(etc / "a.toml.bak", "")
    write(etc / "notes.txt", "")
    alone = load([etc], environ)
    write(etc / "mcpvisor.toml", "# mine\n")
    beside = load([etc], environ)

    told = f"{etc}: nothing of this folder is read: it holds neither mcpvisor.toml nor servers.d, and a.toml, b.json lie beside"
    expected = f"files of servers in {etc}/servers.d, or each of them named by itself (--config FILE)"
    assert [f"{told}; expected {expected}"] == [str(problem) for problem in alone.problems]
    assert ([], []) == (list(alone.hints), list(beside.problems))
    assert [f"{etc}/a.toml: not read: files of servers are in {etc}/servers.d"] == [str(hint) for hint in beside.hints]


def test_a_file_that_is_named_itself_is_not_loose(etc: Path, environ: dict[str, str], write: Write) -> None:
    """Nobody is told that a file is not read which is, in whatever order the paths are given."""
    (etc / "servers.d").rmdir()
    mine = write(etc / "mine.toml", ONE.format("x"))
    for paths in ([etc, mine], [mine, etc]):
        loaded = load(paths, environ)

        assert (["x"], ()) == (list(loaded.specs), loaded.problems)
        assert [] == [hint for hint in loaded.hints if "not read" in str(hint)]


def test_a_file_that_nobody_reads_is_news(etc: Path, environ: dict[str, str], write: Write) -> None:
    """What is told of a folder of loose files follows what lies there, and ends with it."""
    (etc / "servers.d").rmdir()
    empty = load([etc], environ).contents
    write(etc / "a.toml", ONE.format("x"))
    loose = load([etc], environ).contents
    write(etc / "b.toml", ONE.format("y"))

    assert 3 == len({empty, loose, load([etc], environ).contents})
