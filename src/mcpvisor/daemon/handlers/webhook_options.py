"""Owns what can be said of a handler that is an HTTP address."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from mcpvisor.supervisor.secret import Secret, all_in
from mcpvisor.supervisor.spec import Text, TlsTrust

OURS: Final = frozenset(
    {
        *("accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect", "host"),
        *("idempotency-key", "te", "trailer", "transfer-encoding", "upgrade", "user-agent"),
        *("webhook-id", "webhook-signature", "webhook-timestamp"),
    }
)
"""Headers that an entry cannot set: what is sent depends on them. In lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOptions:
    """`type = "webhook"`: each event is one signed POST.

    Each of `secrets` signs, the newest first. `proxy` is the URL of an HTTP proxy. `connect_timeout` is in seconds, TLS
    included; a whole delivery has the deadline of its handler.
    """

    url: Text
    secrets: tuple[Secret, ...]
    headers: tuple[tuple[str, Text], ...] = ()
    tls: TlsTrust = field(default_factory=TlsTrust)
    proxy: Text | None = None
    connect_timeout: float = 10.0


def secrets_of(options: WebhookOptions) -> list[str]:
    """The plain values that must never be shown: the keys, every secret header, and what is secret in the addresses."""
    texts = all_in([*options.secrets, *(value for _, value in options.headers)])
    texts += [text.partition(" ")[2].strip() for text in texts if " " in text]
    for url in (options.url, options.proxy):
        if isinstance(url, Secret):
            parts = urlsplit(url.reveal())
            texts += [*all_in([url]), parts.path, parts.query, parts.password or "", *parts.path.split("/")]
            texts += [part.partition("=")[2] or part for part in parts.query.split("&")]
    return list(dict.fromkeys(text for text in texts if text))
