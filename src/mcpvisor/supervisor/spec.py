"""Owns what is wanted of one server: its spec, and which differences between two specs need a restart."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from mcpvisor.supervisor.auth.kinds import CREDENTIAL_HEADERS, Auth, public_part, secrets_in
from mcpvisor.supervisor.secret import Secret, all_in, reveal
from mcpvisor.supervisor.secret_looks import passwords_in

Text = str | Secret
"""A string of an entry, secret where a variable or a credential went into it."""


ALLOWABLE: Final = ("sampling", "roots")
"""What servers may ask of clients where their entry allows it: to run their model, and which folders they work in."""


class Sharing(StrEnum):
    """Who uses the same instance of a server: all, each client (one session of it) its own, or each identity its own."""

    SHARED = "shared"
    PER_CLIENT = "per-client"
    PER_IDENTITY = "per-identity"


class Era(StrEnum):
    """Which of the protocol's two eras to speak: `auto` asks the server."""

    AUTO = "auto"
    LEGACY = "legacy"
    MODERN = "modern"


class HttpTransport(StrEnum):
    """The HTTP transport; `auto` tries Streamable HTTP and falls back to HTTP+SSE where a server knows only that."""

    AUTO = "auto"
    STREAMABLE_HTTP = "streamable-http"
    SSE = "sse"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """Limits of a server's processes; None is no limit of ours. `memory` in bytes, `cpu` in whole cores."""

    memory: int | None = None
    tasks: int | None = None
    cpu: float | None = None
    files: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopGraces:
    """Seconds a process gets after its stdin is closed, and again after SIGTERM, before the next step of the ladder."""

    stdin: float = 2.0
    term: float = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioLaunch:
    """How to start a stdio server. `env` is added to the inherited allow-list, `inherit_env` names more to inherit."""

    command: Text
    args: tuple[Text, ...] = ()
    env: tuple[tuple[str, Text], ...] = ()
    inherit_env: tuple[str, ...] = ()
    cwd: str | None = None
    limits: ResourceLimits = ResourceLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsTrust:
    """Which certificates to trust: the system's, and `ca` (a PEM file) beside them or, with `replace`, instead of them."""

    ca: str | None = None
    replace: bool = False
    client_cert: str | None = None
    client_key: str | None = None
    contents: str = ""
    """What tells these files from former ones of the same names, where that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTarget:
    """How to reach an HTTP server. `headers` are sent with every request, and so is what `auth` gives."""

    url: Text
    transport: HttpTransport = HttpTransport.AUTO
    headers: tuple[tuple[str, Text], ...] = ()
    auth: Auth | None = None
    tls: TlsTrust = TlsTrust()


class RestartRule(StrEnum):
    """When an ended server is started again."""

    ALWAYS = "always"
    ON_FAILURE = "on-failure"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intensity:
    """More than `ends` ends within `within` seconds are a crash loop."""

    ends: int
    within: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """How a server is brought back; all durations in seconds, `intensity` None turns the window off.

    `success_codes` are exit codes that mean a good end, beside 0; after one of `prevent_codes` the server is not started
    again, whatever the policy (systemd's SuccessExitStatus and RestartPreventExitStatus). `max_memory` is in bytes: a server
    whose processes use more is replaced in good order, at most once in `stable_after`; None is no ceiling.
    """

    policy: RestartRule = RestartRule.ALWAYS
    delay: float = 1.0
    max_delay: float = 60.0
    intensity: Intensity | None = Intensity(ends=5, within=60.0)
    stable_after: float = 60.0
    crash_loop_retry: float = 300.0
    success_codes: tuple[int, ...] = ()
    prevent_codes: tuple[int, ...] = ()
    max_memory: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePolicy:
    """Liveness probes: every `interval` seconds without traffic, `failures` misses in a row replace the session.

    Three answers in a row that take longer than `slow` seconds are `degraded`.
    """

    interval: float = 30.0
    timeout: float = 5.0
    failures: int = 3
    slow: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedResource:
    """A resource whose changes are wanted; `uri` is sent and compared letter by letter.

    `poll`: seconds between two reads while the server cannot push, None for no reads. `force`: it is asked for even where the
    server says that it offers no subscriptions.
    """

    uri: str
    poll: float | None = None
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolView:
    """Which tools of the server are shown. Patterns are shell globs; an empty `allow` allows all, `deny` wins."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """The goal for one server. Durations in seconds, sizes in bytes."""

    name: str
    target: StdioLaunch | HttpTarget
    enabled: bool = True
    required: bool = False
    era: Era = Era.AUTO
    start_timeout: float = 60.0
    call_timeout: float = 60.0
    call_max: float = 900.0
    wait_ready: float = 5.0
    drain: float = 30.0
    overlap: bool = False
    """Whether a planned restart brings up the next process while the last one serves; two of them run meanwhile."""
    stop: StopGraces = StopGraces()
    concurrency: int = 16
    queue: int = 64
    max_message: int = 32 * 1024 * 1024
    restart: RestartPolicy = RestartPolicy()
    probe: ProbePolicy = ProbePolicy()
    trust_hints: bool = False
    replay_on_session_loss: bool = False
    subscriptions: tuple[WantedResource, ...] = ()
    tools: ToolView = ToolView()
    sharing: Sharing = Sharing.SHARED
    allow: tuple[str, ...] = ()
    """What the server may ask of clients beside elicitation; words of `ALLOWABLE`."""
    rollback: bool = True
    """Whether an edit that does not become ready is taken back: by whoever applies specs, since it has the former one."""
    origin: str = field(default="", compare=False)
    """Where the entry is written, as `file:line`; no part of the goal itself."""
    shown_name: str = field(default="", compare=False)
    """The name as its author wrote it, where the rule for names changed it; else empty."""

    @property
    def transport(self) -> str:
        """`stdio`, `http` or `sse`, as shown in status and metrics."""
        if isinstance(self.target, StdioLaunch):
            return "stdio"
        return "sse" if self.target.transport is HttpTransport.SSE else "http"

    @property
    def stop_seconds(self) -> float:
        """The most that the server is given to end by itself: its calls finish, then come the hints before SIGKILL."""
        return self.drain + self.stop.stdin + self.stop.term


def secrets_of(spec: ServerSpec) -> list[str]:
    """The plain values of every secret in a spec: what must never be shown, wherever a server may write it.

    Where a secret has a known word before it, as in `--token=...` and `Bearer ...`, what follows is one by itself, too.
    """
    target = spec.target
    if isinstance(target, StdioLaunch):
        texts = [target.command, *target.args, *(value for _, value in target.env)]
        before = "="
    else:
        texts = [value for _, value in target.headers]
        before = " "
    known = all_in(texts)
    known += [text.partition(before)[2].strip() for text in known if before in text]
    known += [password for text in known for password in passwords_in(text)]
    if isinstance(target, HttpTarget):
        known += secrets_in(target.auth)
        known += target.url.reveal_parts() if isinstance(target.url, Secret) else ()
        query = urlsplit(reveal(target.url)).query
        known += [part.partition("=")[2] or part for part in query.split("&") if part]
        known += [value for _, value in parse_qsl(query)]
    return list(dict.fromkeys(known))


def resolved_in(spec: ServerSpec) -> list[str]:
    """The plain values that are secret whoever tells them: what variables, files and credentials brought in, and credentials.

    A secret of an entry may be an ordinary word or a path, which is masked in what its own server says and nowhere else.
    """
    target = spec.target
    if isinstance(target, StdioLaunch):
        texts = [target.command, *target.args, *(value for _, value in target.env)]
        return [part for text in texts if isinstance(text, Secret) for part in text.reveal_parts()]
    texts = [target.url, *(value for _, value in target.headers)]
    known = [part for text in texts if isinstance(text, Secret) for part in text.reveal_parts()]
    credentials = [value for name, value in target.headers if name.lower() in CREDENTIAL_HEADERS]
    known += [part for text in credentials for part in (reveal(text), reveal(text).rpartition(" ")[2])]
    return [*known, *secrets_in(target.auth)]


class Change(StrEnum):
    """What a new spec means for a server that runs under an old one."""

    KEEP = "keep"
    UPDATE = "update"
    """Applied in place: no process, session or subscription is touched."""
    RESTART = "restart"
    START = "start"
    STOP = "stop"


RESTARTING: Final = frozenset({"name", "target", "era", "max_message", "allow"})
"""The fields whose change cannot be applied to a session that already stands; of a target all but its credentials."""


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One line of a plan: what happens to a server, and which keys of its entry are the reason."""

    server: str
    change: Change
    fields: tuple[str, ...] = ()


def changed_fields(old: ServerSpec, new: ServerSpec) -> tuple[str, ...]:
    """The names of the fields in which two specs of one server differ, in the order of the class."""
    return tuple(f.name for f in fields(ServerSpec) if f.compare and getattr(old, f.name) != getattr(new, f.name))


def rotates(old: StdioLaunch | HttpTarget, new: StdioLaunch | HttpTarget) -> bool:
    """Whether two targets differ in the values of credentials at most: each request of a session asks for those anew."""
    if not isinstance(old, HttpTarget) or not isinstance(new, HttpTarget):
        return old == new
    if public_part(old.auth) != public_part(new.auth):
        return False
    return _without_credentials(old) == _without_credentials(new)


def _without_credentials(target: HttpTarget) -> HttpTarget:
    headers = tuple((name, "" if name.lower() in CREDENTIAL_HEADERS else value) for name, value in target.headers)
    return replace(target, auth=None, headers=headers)


def change_between(old: ServerSpec | None, new: ServerSpec | None) -> PlannedChange:
    """What to do to get from `old` to `new`; None stands for "no such server".

    Raises ValueError when both are None.
    """
    if new is None:
        if old is None:
            raise ValueError("a change needs an old or a new spec")
        return PlannedChange(old.name, Change.STOP)
    if old is None:
        return PlannedChange(new.name, Change.START)
    differing = changed_fields(old, new)
    if not differing:
        return PlannedChange(new.name, Change.KEEP)
    if "enabled" in differing:
        return PlannedChange(new.name, Change.START if new.enabled else Change.STOP, _as_written(old, new, differing))
    restart = not RESTARTING.isdisjoint(differing) and not (
        RESTARTING.isdisjoint({*differing} - {"target"}) and rotates(old.target, new.target)
    )
    return PlannedChange(new.name, Change.RESTART if restart else Change.UPDATE, _as_written(old, new, differing))


def _as_written(old: ServerSpec, new: ServerSpec, differing: tuple[str, ...]) -> tuple[str, ...]:
    """The keys that these fields come from: of a target those in which it differs, or what makes it another kind."""
    if "target" not in differing:
        return differing
    before, after = old.target, new.target
    if type(before) is type(after):
        keys = [key.name for key in fields(after) if getattr(before, key.name) != getattr(after, key.name)]
    else:
        keys = ["command", "url"]
    return (*keys, *(field for field in differing if field != "target"))


def plan_changes(old: dict[str, ServerSpec], new: dict[str, ServerSpec]) -> list[PlannedChange]:
    """One line for every server of either side, in name order."""
    return [change_between(old.get(name), new.get(name)) for name in sorted(old.keys() | new.keys())]
