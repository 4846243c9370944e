"""Entries of our own files: keys, defaults, secrets and names."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from mcpvisor.daemon.config.load import Loaded, load
from mcpvisor.daemon.config.names import MAX_LENGTH, carried_over, is_name
from mcpvisor.supervisor.auth.kinds import ApiKey, Bearer, ClientAuth, ClientCredentials, HeaderCommand
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import (
    Era,
    HttpTarget,
    HttpTransport,
    Intensity,
    ProbePolicy,
    ResourceLimits,
    RestartPolicy,
    RestartRule,
    ServerSpec,
    Sharing,
    StdioLaunch,
    StopGraces,
    TlsTrust,
    ToolView,
)

Load = Callable[..., Loaded]

STDIO = """
[servers.all_keys]
command = "python3"
args = ["-m", "x"]
env = { B = "2", A = "1" }
inherit_env = ["KUBECONFIG"]
cwd = "work"
type = "stdio"
enabled = true
required = true
era = "legacy"
start_timeout = "2m"
call_timeout = 30
call_max = "1h"
wait_ready = "500ms"
drain = 0
overlap = true
stop = { stdin = "1s", term = "1.5s" }
concurrency = 2
queue = 0
max_message = "1MiB"
limits = { memory = "64MiB", tasks = 8, cpu = 0.5, files = 128 }
probe = { interval = "10s", timeout = "1s", failures = 2, slow = "500ms" }
trust_hints = true
replay_on_session_loss = true
tools = { allow = ["get_*"], deny = ["get_secret"] }
allow = ["roots", "sampling"]
sharing = "per-identity"
[servers.all_keys.restart]
policy = "on-failure"
delay = "2s"
max_delay = "4s"
intensity = "3/10s"
stable_after = "5s"
crash_loop_retry = "1m"
success_codes = [143]
prevent_codes = [2, 78]
max_memory = "1GiB"
"""

HTTP = """
[servers.remote]
url = "https://mcp.example.com/mcp"
transport = "sse"
headers = { X-Team = "core" }
auth = { type = "bearer", token = "t0ken" }
tls = { ca = "ca.pem", ca_mode = "replace", client_cert = "/c.pem", client_key = "~/k.pem" }
"""


def test_every_key_of_a_stdio_server(load_text: Load, etc: Path) -> None:
    """Each key of an entry reaches the spec, in seconds and bytes, with the place where the entry is written."""
    loaded = load_text(STDIO)

    expected = ServerSpec(
        name="all_keys",
        target=StdioLaunch(
            command="python3",
            args=("-m", "x"),
            env=(("A", Secret("1")), ("B", Secret("2"))),
            inherit_env=("KUBECONFIG",),
            cwd=str(etc / "work"),
            limits=ResourceLimits(memory=64 * 1024**2, tasks=8, cpu=0.5, files=128),
        ),
        required=True,
        era=Era.LEGACY,
        start_timeout=120.0,
        call_timeout=30.0,
        call_max=3600.0,
        wait_ready=0.5,
        drain=0.0,
        overlap=True,
        stop=StopGraces(stdin=1.0, term=1.5),
        concurrency=2,
        queue=0,
        max_message=1024**2,
        restart=RestartPolicy(
            policy=RestartRule.ON_FAILURE,
            delay=2.0,
            max_delay=4.0,
            intensity=Intensity(ends=3, within=10.0),
            stable_after=5.0,
            crash_loop_retry=60.0,
            success_codes=(143,),
            prevent_codes=(2, 78),
            max_memory=1024**3,
        ),
        probe=ProbePolicy(interval=10.0, timeout=1.0, failures=2, slow=0.5),
        trust_hints=True,
        replay_on_session_loss=True,
        tools=ToolView(allow=("get_*",), deny=("get_secret",)),
        sharing=Sharing.PER_IDENTITY,
        allow=("sampling", "roots"),
    )
    assert ((), expected) == (loaded.problems, loaded.specs["all_keys"])
    assert f"{etc}/mcpvisor.toml:2" == loaded.specs["all_keys"].origin


@pytest.mark.parametrize(
    ("written", "key", "expected"),
    [
        ("success_codes = 143", "success_codes", "a list of exit codes, each from 0 to 255"),
        ("prevent_codes = [256]", "prevent_codes", "a list of exit codes, each from 0 to 255"),
        ('prevent_codes = ["SIGTERM"]', "prevent_codes", "a list of exit codes, each from 0 to 255"),
        ("prevent_codes = [true]", "prevent_codes", "a list of exit codes, each from 0 to 255"),
        ('max_memory = "1kB"', "max_memory", 'of at least 1MiB, or "off"'),
        ('max_memory = "much"', "max_memory", 'of at least 1MiB, or "off"'),
    ],
)
def test_a_restart_key_that_makes_no_sense_is_named(load_text: Load, written: str, key: str, expected: str) -> None:
    """The problem names the key, and what was expected."""
    loaded = load_text(f'[servers.a]\ncommand = "true"\n[servers.a.restart]\n{written}\n')

    [problem] = loaded.problems
    assert key in str(problem)
    assert expected in str(problem)


def test_a_ceiling_of_the_defaults_can_be_turned_off(load_text: Load) -> None:
    """`off` is no ceiling."""
    text = '[defaults]\nrestart = { max_memory = "1GiB" }\n[servers.a]\ncommand = "a"\nrestart = { max_memory = "off" }\n'
    loaded = load_text(text)

    assert ((), None) == (loaded.problems, loaded.specs["a"].restart.max_memory)


def test_every_key_of_an_http_server(load_text: Load, etc: Path, tmp_path: Path) -> None:
    """Headers, bearer token and certificates reach the target; paths start at the file or at the home folder."""
    loaded = load_text(HTTP)

    expected = HttpTarget(
        url="https://mcp.example.com/mcp",
        transport=HttpTransport.SSE,
        headers=(("X-Team", Secret("core")),),
        auth=Bearer(Secret("t0ken")),
        tls=TlsTrust(ca=str(etc / "ca.pem"), replace=True, client_cert="/c.pem", client_key=str(tmp_path / "k.pem")),
    )
    assert ((), expected) == (loaded.problems, loaded.specs["remote"].target)


def test_defaults_stand_beneath_each_entry(load_text: Load) -> None:
    """An entry's own key wins over `[defaults]`; tables are merged key by key, and each kind takes what it can use."""
    loaded = load_text(
        """
        [defaults]
        call_timeout = "10s"
        env = { A = "default", B = "default" }
        headers = { X = "default" }
        restart = { policy = "never", delay = "3s" }
        [servers.program]
        command = "true"
        env = { B = "own" }
        restart = { delay = "5s" }
        [servers.remote]
        url = "https://x.test/mcp"
        call_timeout = "20s"
        """
    )

    program, remote = loaded.specs["program"], loaded.specs["remote"]
    assert isinstance(program.target, StdioLaunch)
    assert isinstance(remote.target, HttpTarget)
    assert loaded.problems == ()
    assert (("A", Secret("default")), ("B", Secret("own"))) == program.target.env
    assert (("X", Secret("default")),) == remote.target.headers
    assert (program.call_timeout, remote.call_timeout) == (10.0, 20.0)
    assert RestartPolicy(policy=RestartRule.NEVER, delay=5.0) == program.restart


def test_a_bad_default_leaves_the_entries_alone(load_text: Load) -> None:
    """A key of `[defaults]` that cannot be used is one error, and is left out; the entries run."""
    loaded = load_text('[defaults]\ncall_timeout = "soon"\ndrain = "1s"\n[servers.a]\ncommand = "true"\n')

    assert [problem.key_path for problem in loaded.problems] == ["defaults.call_timeout"]
    assert (loaded.specs["a"].call_timeout, loaded.specs["a"].drain) == (60.0, 1.0)


def test_all_mistakes_of_an_entry_are_told_at_once(load_text: Load) -> None:
    """One pass names every mistake of an entry."""
    loaded = load_text('[servers.a]\ncommand = "true"\nqueue = -1\ndrain = "x"\nqueu = 1\nargs = [1, []]\n')

    assert sorted((problem.key_path, problem.line) for problem in loaded.problems) == [
        ("servers.a.args[1]", 6),
        ("servers.a.drain", 4),
        ("servers.a.queu", 5),
        ("servers.a.queue", 3),
    ]


def test_what_a_variable_touched_is_secret(load_text: Load) -> None:
    """A value out of a variable prints as nothing in env, headers, arguments, address and token alike."""
    loaded = load_text(
        """
        [servers.a]
        command = "true"
        args = ["--key=${CANARY}", "plain"]
        env = { K = "${CANARY}" }
        [servers.b]
        url = "https://x.test/${CANARY}"
        headers = { K = "a ${env:CANARY}" }
        auth = { type = "bearer", token = "${CANARY}" }
        [servers.c]
        url = "https://x.test/mcp?key=CANARYvalue"
        """,
        CANARY="CANARYvalue",
    )

    a, b, c = (loaded.specs[name].target for name in "abc")
    assert isinstance(a, StdioLaunch)
    assert isinstance(b, HttpTarget)
    assert isinstance(c, HttpTarget)
    assert loaded.problems == ()
    assert "CANARYvalue" not in repr(loaded)
    assert (Secret("--key=CANARYvalue"), "plain") == a.args
    assert Secret("https://x.test/CANARYvalue") == b.url
    assert Secret("https://x.test/mcp?key=CANARYvalue") == c.url
    assert [hint.key_path for hint in loaded.hints] == ["servers.a.args"]


def test_a_variable_in_the_wrong_place_is_not_printed(load_text: Load) -> None:
    """A value out of a variable is never part of an error, whatever key it was written to."""
    loaded = load_text(
        '[servers.a]\ncommand = "true"\ndrain = "${CANARY}"\nera = "${CANARY}"\nqueue = "${CANARY}"\nenabled = "${CANARY}"\n'
        '[servers.b]\nurl = "${CANARY}"\ntype = "http"\n',
        CANARY="CANARYvalue",
    )

    assert len(loaded.problems) == 5
    assert "CANARYvalue" not in " ".join(str(problem) for problem in loaded.problems)


def test_numbers_and_flags_out_of_variables(load_text: Load) -> None:
    """A variable may hold a number, a duration or a truth value where one is wanted."""
    loaded = load_text(
        '[servers.a]\ncommand = "true"\nqueue = "${N}"\ndrain = "${D}"\nrequired = "${F}"\n', N="7", D="2m", F="true"
    )

    assert loaded.problems == ()
    assert (loaded.specs["a"].queue, loaded.specs["a"].drain, loaded.specs["a"].required) == (7, 120.0, True)


def test_secrets_out_of_files(etc: Path, environ: dict[str, str], write: Callable[[Path, str], Path], tmp_path: Path) -> None:
    """`${file:}` starts at the folder of the file and `${cred:}` at the credentials; one last line end is cut off."""
    write(etc / "key", "from file\n")
    credentials = tmp_path / "cred"
    credentials.mkdir(mode=0o755)
    write(credentials / "token", "from credential\r\n")
    write(etc / "mcpvisor.toml", '[servers.a]\ncommand = "true"\nenv = { A = "${file:key}", B = "${cred:token}" }\n')

    loaded = load([etc], {**environ, "CREDENTIALS_DIRECTORY": str(credentials)})

    target = loaded.specs["a"].target
    assert isinstance(target, StdioLaunch)
    assert (("A", Secret("from file")), ("B", Secret("from credential"))) == target.env
    assert (etc / "key", credentials / "token") == loaded.secret_files


def test_a_secret_file_that_others_may_write_is_refused(
    etc: Path, environ: dict[str, str], write: Callable[[Path, str], Path]
) -> None:
    """A secret file is held to the same rule as the configuration: an error of the entry that names the remedy."""
    write(etc / "key", "x").chmod(0o666)
    write(etc / "mcpvisor.toml", '[servers.a]\ncommand = "true"\nenv = { A = "${file:key}" }\n')

    loaded = load([etc], environ)

    assert loaded.specs == {}
    assert f"run: chmod o-w {etc / 'key'}" in str(loaded.problems[0])


@pytest.mark.parametrize(
    ("original", "expected"),
    [
        ("github", "github"),
        ("my_server-2", "my_server-2"),
        ("my server", "my-server"),
        ("@scope/pkg", "-scope-pkg"),
        ("a__b", "a_b"),
        ("_a_", "a"),
        ("a.b.c", "a-b-c"),
        ("天气", "--"),
        ("Cafe\u0301", "Caf-"),
        ("___", ""),
        ("x" * 32, "x" * 32),
        ("x" * 33, "x" * 23 + "-HASH"),
    ],
)
def test_names_of_others(original: str, expected: str) -> None:
    """A name from another program's file is carried over by one rule."""
    assert expected == re.sub(r"(?<=x-)[a-z2-7]{8}$", "HASH", carried_over(original))


@given(st.text(min_size=1, max_size=60))
def test_names_of_others_are_names(original: str) -> None:
    """Whatever another program calls a server becomes a name, the same one each time, or nothing."""
    name = carried_over(original)

    assert name == "" or is_name(name)
    assert name == carried_over(original)
    assert len(name) <= MAX_LENGTH


def test_a_changed_name_is_shown_with_its_original(load_text: Load) -> None:
    """The spec keeps the name as its author wrote it, and a hint tells the new one."""
    loaded = load_text('{"mcpServers": {"my server": {"command": "true"}, "plain": {"command": "true"}}}', "a.json")

    assert {n: s.shown_name for n, s in loaded.specs.items()} == {"my-server": "my server", "plain": ""}
    assert [hint.message for hint in loaded.hints] == ['carried over under the name "my-server"']


def test_a_program_named_with_spaces_is_kept(load_text: Load, etc: Path, write: Callable[[Path, str], Path]) -> None:
    """A command that is a file as it stands is not split, and a value with spaces never makes two arguments."""
    write(etc / "my server", "#!/bin/sh\n").chmod(0o755)
    loaded = load_text(f'[servers.a]\ncommand = "{etc}/my server"\n[servers.b]\ncommand = "prog ${{V}} end"\n', V="two words")

    a, b = loaded.specs["a"].target, loaded.specs["b"].target
    assert isinstance(a, StdioLaunch)
    assert isinstance(b, StdioLaunch)
    assert (f"{etc}/my server", ()) == (a.command, a.args)
    assert ("prog", (Secret("two words"), "end")) == (b.command, b.args)


def test_every_way_to_give_credentials(load_text: Load, etc: Path) -> None:
    """Each type of `auth`, and a command, reach the target; a key is read from its file, which is watched."""
    key = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    (etc / "client.pem").write_text(key)
    (etc / "client.pem").chmod(0o600)
    loaded = load_text(
        """
        [servers.header]
        url = "https://x.test/mcp"
        auth = { type = "api_key", header = "X-Key", key = "k3y" }
        [servers.query]
        url = "https://x.test/mcp"
        auth = { type = "api_key", query = "key", key = "${KEY}" }
        [servers.secret]
        url = "https://x.test/mcp"
        [servers.secret.auth]
        type = "client_credentials"
        client_id = "c"
        client_secret = "s"
        token_url = "http://127.0.0.1/t"
        scope = "a b"
        [servers.signed]
        url = "https://x.test/mcp"
        [servers.signed.auth]
        type = "client_credentials"
        client_id = "c"
        private_key = "client.pem"
        key_id = "k1"
        issuer = "https://auth.test/tenant"
        audience = "api"
        resource = "https://x.test/"
        client_auth = "post"
        [servers.command]
        url = "https://x.test/mcp"
        header_command = ["vault", "--secret=${KEY}"]
        headers = { Authorization = "Bearer t" }
        """,
        KEY="v4lue",
    )
    client = ClientCredentials(client_id="c", client_secret=Secret("s"), token_url="http://127.0.0.1/t", scope="a b")
    signed = ClientCredentials(
        client_id="c",
        private_key=Secret(key.removesuffix("\n")),
        key_id="k1",
        issuer="https://auth.test/tenant",
        audience="api",
        resource="https://x.test/",
        client_auth=ClientAuth.POST,
    )

    assert ((), ()) == (loaded.problems, loaded.hints)
    assert {
        "header": ApiKey(key=Secret("k3y"), header="X-Key"),
        "query": ApiKey(key=Secret("v4lue"), query="key"),
        "secret": client,
        "signed": signed,
        "command": HeaderCommand(("vault", Secret("--secret=v4lue"))),
    } == {name: spec.target.auth for name, spec in loaded.specs.items() if isinstance(spec.target, HttpTarget)}
    assert (etc / "client.pem",) == loaded.secret_files


def test_a_secret_that_goes_where_the_server_says_is_worth_a_hint(load_text: Load) -> None:
    """Without an issuer it is the server that names the place."""
    loaded = load_text(
        """
        [servers.a]
        url = "https://x.test/mcp"
        auth = { type = "client_credentials", client_id = "c", client_secret = "s" }
        """
    )

    assert ["without token_url or issuer the server itself says where the secret is sent"] == [
        hint.message for hint in loaded.hints
    ]
