"""Owns the keys of a handler of type `webhook`."""

from __future__ import annotations

from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.daemon.handlers.webhook_options import WebhookOptions
from mcpvisor.supervisor.secret import Secret, reveal
from mcpvisor.supervisor.spec import Text


def read_webhook(entry: TableReader) -> WebhookOptions | None:
    """`type = "webhook"`, `url`, `secret`, `headers`, `ca`; None after a problem with the address itself."""
    url = entry.text("url")
    if url is None:
        if entry.item("url") is None:
            entry.scope.missing("url", expected='url = "https://..."')
    elif not reveal(url).startswith(("https://", "http://")):
        item = entry.item("url")
        assert item is not None
        entry.scope.problem(item, "is no address of HTTP", expected='url = "https://..."')
        url = None
    secret = entry.text("secret")
    headers: list[tuple[str, Text]] = []
    table = entry.table("headers")
    for name, item in table.all_items().items() if table is not None else ():
        text = entry.text_of(item)
        if text is not None:
            headers.append((name, Secret(reveal(text))))
    ca = entry.path("ca")
    if url is None:
        return None
    return WebhookOptions(url=url, secret=Secret(reveal(secret)) if secret is not None else None, headers=tuple(headers), ca=ca)
