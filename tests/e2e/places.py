"""Owns where a canary is looked for: the routes of the control API, and what people type."""

from __future__ import annotations

from typing import Final

READ: Final = (
    *("/v1/version", "/v1/status", "/v1/events?follow=false&backlog=1000", "/v1/offers", "/v1/elicitations", "/v1/handlers"),
    *("/v1/handlers/dead", "/v1/log", "/v1/doctor"),
)
READ_OF_A_SERVER: Final = ("", "/logs?lines=200", "/offer")
"""Routes of the control API that change nothing."""


def _typed(lines: str) -> tuple[str, ...]:
    return tuple(one.strip() for line in lines.splitlines() for one in line.split(";") if one.strip())


UP: Final = _typed("""
version; status; events -n 1000; events dead; handlers; tools; resources; prompts; elicitations; plan; doctor;
connect; connect cursor; connect cursor --token; check {config}; plan {config}; config show --origin --all {config};
config schema; call argument say; call echo_token say; read echo_token memo://x; status no_token; status echo_query;
events emit --kind state_changed --server sample; plan --event state_changed; events retry --all; events drop --all;
call everywhere ask; restart sample; stop sample; start sample; disable sample; enable sample; log-level debug;
reload; import {config}/servers.d/broken.json; import {folder}/other.json; completion bash;
completion zsh --complete; backup {folder}/backup/state.db
""")
OF_A_SERVER: Final = ("explain {}", "logs {}", "tools {}", "resources {}", "doctor {}")
DOWN: Final = _typed("""
status; explain everywhere; logs everywhere; events; handlers; tools; plan; plan {config}; check {config}; doctor;
doctor everywhere; connect cursor; import {config}/servers.d/broken.json; import {folder}/other.json;
config show --all {config}; reload; call everywhere say; elicitations; restart sample
""")
"""What a person types while the daemon runs, and while it does not."""
WATCHED: Final = ("logs -f -n 200", "logs gossip -f --color always", "events -f -n 1000 --color always", "status --watch")
"""What a person leaves running in a terminal."""
LEFT_OUT: Final = {"run": "the daemon itself", "demo": "has no secrets", "elicitations answer": "is used", "stdio": "is used"}

ACTED_ON: Final = frozenset(
    {
        *("/v1/reload", "/v1/plan", "/v1/backup", "/v1/elicitations/{id}:answer", "/v1/servers/{server}:{order}"),
        *("/v1/servers/{server}/call", "/v1/servers/{server}/read", "/v1/handlers/dead:retry", "/v1/handlers/dead:drop"),
        "/v1/events:emit",
    }
)
"""Routes that verbs use."""
