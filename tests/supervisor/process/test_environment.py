"""What a server's process inherits, is given, and must never see."""

from __future__ import annotations

from mcpvisor.supervisor.process.environment import DEFAULT_PATH, Marker, child_environment
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import StdioLaunch

MARK = Marker("i1", "docs", 7)
MARKED = {"MCPVISOR_INSTANCE": "i1", "MCPVISOR_SERVER": "docs:7"}


def environment(own: dict[str, str], **launch) -> dict[str, str]:
    return child_environment(StdioLaunch(command="x", **launch), MARK, {"PATH": "/bin", **own})


def test_allow_list_is_inherited_and_nothing_else():
    """Names and patterns of the list pass, everything else stays with the daemon."""
    allowed = {
        "HOME": "/h",
        "LANG": "C",
        "LC_ALL": "C",
        "TZ": "UTC",
        "XDG_CACHE_HOME": "/c",
        "https_proxy": "p",
        "SSL_CERT_FILE": "f",
    }

    assert {"PATH": "/bin", **allowed, **MARKED} == environment({**allowed, "AWS_SECRET": "s", "PYTHONPATH": "/p", "LC": "x"})


def test_entry_adds_and_overrides():
    """`inherit_env` lets more through, patterns too; `env` wins over what is inherited; secrets are revealed here."""
    got = environment({"A_1": "1", "A_2": "2", "B": "3"}, inherit_env=("A_*",), env=(("PATH", "/x"), ("T", Secret("s3cret"))))

    assert {"PATH": "/x", "A_1": "1", "A_2": "2", "T": "s3cret", **MARKED} == got


def test_what_belongs_to_the_daemon_is_withheld_always():
    """The daemon's systemd variables reach no server, not even when an entry asks for them."""
    own = {"NOTIFY_SOCKET": "1", "LISTEN_FDS": "2", "LISTEN_PID": "3", "WATCHDOG_USEC": "4", "CREDENTIALS_DIRECTORY": "5"}

    assert {"PATH": "/bin", **MARKED} == environment(own, inherit_env=("*",), env=(("LISTEN_FDNAMES", "6"),))


def test_mark_cannot_be_taken_off():
    """An entry cannot give its server another mark."""
    assert {"PATH": "/bin", **MARKED} == environment({}, env=(("MCPVISOR_INSTANCE", "x"), ("MCPVISOR_SERVER", "y")))


def test_exported_functions_are_no_settings():
    """A shell function exported under an allowed name is left out."""
    assert {"PATH": "/bin", **MARKED} == environment({"XDG_X": "() { :; }"})


def test_there_is_always_a_path():
    """Without a PATH of its own the daemon gives its servers a usual one."""
    assert {"PATH": DEFAULT_PATH, **MARKED} == child_environment(StdioLaunch(command="x"), MARK, {})
