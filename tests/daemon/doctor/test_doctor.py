"""Each check of the doctor by itself: real files, real sockets, and what each says of them."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from mcpvisor.daemon.config.load import load
from mcpvisor.daemon.config.places import Places
from mcpvisor.daemon.config.settings import Settings, default_values
from mcpvisor.daemon.doctor.addresses import look_at_address
from mcpvisor.daemon.doctor.examining import Subject, examine
from mcpvisor.daemon.doctor.findings import Finding, Findings, Level, exit_says_no
from mcpvisor.daemon.doctor.footing import look_at_addresses, look_at_groups, look_at_state
from mcpvisor.daemon.doctor.machine import OLDEST_NOW, judge_unit, look_at_clock, look_at_watches
from mcpvisor.daemon.doctor.programs import look_at_program
from mcpvisor.supervisor.process.delegation import Subtree
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import HttpTarget, StdioLaunch, TlsTrust


def told(look: Callable[[Findings], Any]) -> dict[str, Finding]:
    """What a check finds, by its word; a later finding stands over an earlier one."""
    findings = Findings()
    look(findings)
    return {finding.check: finding for finding in findings.found}


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder of programs that is a PATH by itself."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text, mode in (
        ("good", "#!/bin/sh\n", 0o755),
        ("closed", "#!/bin/sh\n", 0o644),
        ("bare", "#!/no/such/interpreter\n", 0o755),
        ("script", "#!/usr/bin/env no-such-language\n", 0o755),
        ("npx", "#!/bin/sh\n", 0o755),
    ):
        (folder / name).write_text(text)
        (folder / name).chmod(mode)
    return folder


@pytest.mark.parametrize(
    ("command", "level", "text", "remedy"),
    [
        ("good", Level.OK, "bin/good", ""),
        ("missing", Level.ERROR, "there is no missing on the daemon's PATH=", "install it, or write its whole path"),
        ("/no/such", Level.ERROR, "there is no /no/such", "install it, or edit command"),
        ("closed", Level.ERROR, "may not be run by the daemon's user", "run: chmod a+x"),
        ("bare", Level.ERROR, "needs /no/such/interpreter, which is not there", "install /no/such/interpreter"),
        ("script", Level.ERROR, "needs no-such-language, which is not on", "install no-such-language"),
    ],
)
def test_a_program_is_looked_for_as_it_would_be_started(
    tools: Path, command: str, level: Level, text: str, remedy: str
) -> None:
    """The program, its rights and what its first line asks for, on the daemon's PATH; each fault has its remedy."""
    found = told(lambda findings: look_at_program(StdioLaunch(command=command), {"PATH": str(tools)}, findings))["program"]

    assert level == found.level, found
    assert text in found.text
    assert found.remedy.startswith(remedy)


def test_what_a_program_is_given_is_looked_at(tools: Path, tmp_path: Path) -> None:
    """A launcher without what it runs on, a missing script and a missing folder are errors; a secret is not shown."""
    shutil.copy(tools / "good", tools / "python3")
    environ = {"PATH": str(tools)}
    launcher = told(lambda found: look_at_program(StdioLaunch(command="npx"), environ, found))
    script = StdioLaunch(command="python3", args=("-u", "/no/such.py"), cwd=str(tmp_path / "none"))
    run = told(lambda found: look_at_program(script, environ, found))
    hidden = told(lambda found: look_at_program(StdioLaunch(command=Secret("/no/canary")), environ, found))

    assert (Level.ERROR, "npx runs on node") == (launcher["launcher"].level, launcher["launcher"].text[:16])
    assert "there is no /no/such.py" == run["script"].text
    assert (Level.ERROR, f"run: mkdir -p {tmp_path}/none; or edit cwd") == (run["cwd"].level, run["cwd"].remedy)
    assert "canary" not in str(hidden)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost that ends in five days, with its key behind it."""
    folder = tmp_path_factory.mktemp("tls")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "5",
        "-subj",
        "/CN=localhost",
    ]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(folder / "key"), "-out", str(folder / "cert")]
    subprocess.run(command, check=True, capture_output=True)
    (folder / "both").write_bytes((folder / "cert").read_bytes() + (folder / "key").read_bytes())
    return folder / "both"


@pytest.fixture
def tls_server(certificate: Path) -> Iterator[tuple[int, list[bytes]]]:
    """A TLS listener: its port, and whatever clients sent it after the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    heard: list[bytes] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    stream, _ = listener.accept()
                    with stream, suppress(OSError), context.wrap_socket(stream, server_side=True) as secured:
                        heard.append(secured.recv(1024))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1], heard
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(20)


def test_a_certificate_that_ends_soon_is_told(tls_server: tuple[int, list[bytes]], certificate: Path) -> None:
    """A handshake is made and nothing sent; a certificate with five days left is a warning, an unknown CA an error."""
    port, heard = tls_server
    url = Secret(f"https://localhost:{port}/mcp?key=canary")
    auth = (("Authorization", Secret("Bearer canary")),)
    trusted = told(
        lambda found: look_at_address(HttpTarget(url=url, headers=auth, tls=TlsTrust(ca=str(certificate), replace=True)), found)
    )
    strange = told(lambda found: look_at_address(HttpTarget(url=url, headers=auth), found))

    assert {"dns": "ok", "connection": "ok", "tls": "warning"} == {check: one.level.value for check, one in trusted.items()}
    assert "ends in 5 days" in trusted["tls"].text
    assert (Level.ERROR, "name its CA in tls.ca, or mend url") == (strange["tls"].level, strange["tls"].remedy)
    assert "canary" not in str(trusted) + str(strange)
    assert b"" == b"".join(heard)


def test_a_host_that_is_not_there_is_told() -> None:
    """A name that nobody knows and a port at which nobody listens are errors that say which of the two."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    closed = told(lambda found: look_at_address(HttpTarget(url=f"http://127.0.0.1:{port}/"), found))

    def unknown(host: str, _: int) -> list[Any]:
        raise socket.gaierror(-2, "Name or service not known")

    nameless = told(lambda found: look_at_address(HttpTarget(url="http://nowhere.example/"), found, unknown))

    assert (Level.ERROR, "127.0.0.1: Connection refused") == (
        closed["connection"].level,
        closed["connection"].text.partition("(")[2].rstrip(")"),
    )
    assert "nowhere.example is not known: Name or service not known" == nameless["dns"].text
    assert {"dns"} == set(nameless)


def settings(tmp_path: Path, *listen: str) -> Settings:
    at = Places(False, tmp_path, tmp_path / "state", tmp_path)
    return Settings.model_validate({**default_values(at), "gateway": {"listen": list(listen)}, "metrics": {"listen": []}})


def test_an_address_is_free_ours_or_another_s(tmp_path: Path) -> None:
    """A port that something else has is an error; that of the running daemon is well; so is a socket that nobody answers on."""
    stale = tmp_path / "stale.sock"
    with closing(socket.socket(socket.AF_UNIX)) as left:
        left.bind(str(stale))
    with closing(socket.create_server(("127.0.0.1", 0))) as listener, closing(socket.socket(socket.AF_UNIX)) as other:
        other.bind(str(tmp_path / "other.sock"))
        other.listen()
        port = listener.getsockname()[1]
        taken = f"127.0.0.1:{port}"

        def levels(ours: list[str], *listen: str) -> list[Level]:
            findings = Findings()
            look_at_addresses(settings(tmp_path, *listen), ours, findings)
            return [finding.level for finding in findings.found if "gateway" in finding.text]

        assert [Level.ERROR] == levels([], taken)
        assert [Level.OK] == levels([f"http://{taken}"], taken)
        assert [Level.OK] == levels([f"http://localhost:{port}"], f"localhost:{port}")
        assert [Level.OK, Level.OK] == levels([], "127.0.0.1:0", f"unix:{stale}")
        assert [Level.ERROR] == levels([], f"unix:{tmp_path}/other.sock")
        assert [Level.OK] == levels([f"unix:{tmp_path}/other.sock"], f"unix:{tmp_path}/other.sock")


def test_the_state_folder_is_looked_at(tmp_path: Path) -> None:
    """A folder that is there or can be made is well; one of somebody else, or open to all, is an error with the command."""
    tmp_path.chmod(0o755)
    new, wide = tmp_path / "new", tmp_path / "wide"
    wide.mkdir()
    wide.chmod(0o777)
    found = {folder.name: told(lambda one, at=folder: look_at_state(at, os.geteuid(), one)) for folder in (new, wide)}

    assert (Level.OK, "is made at the start") == (found["new"]["state_dir"].level, found["new"]["state_dir"].text[-20:])
    assert (Level.ERROR, True) == (found["wide"]["state_dir"].level, "chmod o-w" in found["wide"]["state_dir"].text)
    assert "MiB are free at" in found["new"]["disk"].text


@pytest.mark.parametrize(
    ("now", "keeps", "level", "text"),
    [
        (OLDEST_NOW - 1, 0, Level.ERROR, "it is 2025-12-31 by the clock"),
        (OLDEST_NOW + 1000, 0, Level.WARNING, "files of the configuration are 99000 s newer than now"),
        (OLDEST_NOW + 200_000, 5, Level.WARNING, "nothing keeps the clock right"),
        (OLDEST_NOW + 200_000, -1, Level.UNKNOWN, "cannot be seen from here"),
        (OLDEST_NOW + 200_000, 0, Level.OK, "it is kept right"),
    ],
)
def test_the_clock_is_judged(tmp_path: Path, now: float, keeps: int, level: Level, text: str) -> None:
    """A clock from before this program, one behind the files, and one that nobody keeps right are told."""
    file = tmp_path / "mcpvisor.toml"
    file.write_text("")
    os.utime(file, (OLDEST_NOW + 100_000, OLDEST_NOW + 100_000))
    found = told(lambda findings: look_at_clock([file, tmp_path / "gone"], now, findings, keeps))["clock"]

    assert level == found.level
    assert text in found.text


@pytest.mark.parametrize(
    ("unit", "level", "text"),
    [
        ({"LoadState": "not-found"}, Level.UNKNOWN, "there is no unit"),
        ({"ActiveState": "failed", "SubState": "failed", "Result": "exit-code"}, Level.ERROR, "failed (failed), enabled"),
        ({"NeedDaemonReload": "yes"}, Level.WARNING, "its file has changed since"),
        ({"Delegate": "no"}, Level.WARNING, "without Delegate=yes"),
        ({"NRestarts": "3"}, Level.WARNING, "restarted 3 times by itself"),
        ({}, Level.OK, "mcpvisor.service is active (running), enabled"),
    ],
)
def test_the_unit_is_judged(unit: dict[str, str], level: Level, text: str) -> None:
    """What systemd says of the unit: not there, failed, changed, without its control groups, restarted, or well."""
    well = {
        "LoadState": "loaded", "ActiveState": "active", "SubState": "running", "UnitFileState": "enabled",
        "NeedDaemonReload": "no", "Delegate": "yes", "NRestarts": "0",
    }  # fmt: skip
    found = told(lambda findings: judge_unit({**well, **unit}, findings))["systemd"]

    assert (level, True) == (found.level, text in found.text), found


def test_limits_of_the_kernel_are_told(tmp_path: Path) -> None:
    """Few file watches are a warning; limits of servers without control groups are one, and nothing to say without limits."""
    (tmp_path / "max_user_watches").write_text("100\n")
    (tmp_path / "max_user_instances").write_text("128\n")
    few = told(lambda findings: look_at_watches(tmp_path, findings))["file watches"]
    none = told(lambda findings: look_at_watches(tmp_path / "none", findings))["file watches"]
    subtree = Subtree(why_not="not delegated")
    limited = told(lambda findings: look_at_groups(subtree, ["files"], findings))["control groups"]
    free = told(lambda findings: look_at_groups(subtree, [], findings))["control groups"]

    assert (Level.WARNING, Level.UNKNOWN) == (few.level, none.level)
    assert (Level.WARNING, Level.UNKNOWN) == (limited.level, free.level)
    assert "limits of files do not hold" in limited.text


def test_what_only_the_daemon_has_is_unknown_from_outside(tmp_path: Path) -> None:
    """A credential or variable that only the unit has is no error of a doctor without it, and is one of the daemon's."""
    tmp_path.chmod(0o755)
    file = tmp_path / "mcpvisor.toml"
    entries = {"a": 'env = { A = "${cred:a}" }', "b": 'env = { A = "${NO_SUCH_VARIABLE}" }', "c": "queue = -1"}
    file.write_text("".join(f'[servers.{name}]\ncommand = "true"\n{line}\n' for name, line in entries.items()))
    file.chmod(0o644)
    loaded = load([file], {"PATH": "/usr/bin:/bin", "HOME": "/root"})

    def levels(*, is_daemon: bool) -> dict[str, str]:
        subject = Subject(
            settings=None, specs=loaded.specs, problems=loaded.problems, environ={}, uid=os.geteuid(), is_daemon=is_daemon
        )
        return {name: examine(subject, name)[0].level.value for name in entries}

    assert {"a": "unknown", "b": "unknown", "c": "error"} == levels(is_daemon=False)
    assert {"a": "error", "b": "error", "c": "error"} == levels(is_daemon=True)
    with pytest.raises(LookupError, match="no server is named 'd'; there are a, b, c"):
        examine(
            Subject(settings=None, specs={}, problems=loaded.problems, environ={}, uid=0, is_daemon=True),
            "d",
        )


def test_only_errors_say_no() -> None:
    """Warnings and what is unknown leave the exit code 0; a finding survives its way over the control socket."""
    found = [Finding(level=level, check="clock", text="t", remedy="r", server="s") for level in Level]

    assert not exit_says_no(one for one in found if one.level is not Level.ERROR)
    assert exit_says_no(found)
    assert found == [Finding.from_json(one.as_json()) for one in found]
    assert Level.UNKNOWN is Finding.from_json({**found[0].as_json(), "level": "of a later version"}).level
