"""Owns the keys of a handler of type `webhook`."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from mcpvisor.daemon.config.address import kept_address, read_headers, read_tls, url_fault
from mcpvisor.daemon.config.advice import is_loopback
from mcpvisor.daemon.config.entry_scope import Item
from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.daemon.handlers.signing import signing_key
from mcpvisor.daemon.handlers.webhook_options import OURS, WebhookOptions
from mcpvisor.supervisor.secret import Secret, reveal
from mcpvisor.supervisor.secret_looks import passwords_in
from mcpvisor.supervisor.spec import Text

URL_EXPECTED: Final = 'url = "https://..."'
KEYS_EXPECTED: Final = 'secret = "${cred:NAME}", or a list of such, the newest first'
PROXY_EXPECTED: Final = "the URL of an HTTP proxy such as http://proxy.example.com:3128"


def read_webhook(entry: TableReader) -> WebhookOptions | None:
    """`type = "webhook"` and its keys; None after a problem with the address or the secrets."""
    url = _url(entry, allow_http=entry.flag("allow_http", default=False))
    secrets = _secrets(entry)
    headers = read_headers(entry, frozenset(), OURS)
    tls = read_tls(entry)
    proxy = _proxy(entry)
    connect_timeout = entry.seconds("connect_timeout", 10.0, positive=True)
    if url is None or not secrets:
        return None
    return WebhookOptions(url=url, secrets=secrets, headers=headers, tls=tls, proxy=proxy, connect_timeout=connect_timeout)


def _url(entry: TableReader, *, allow_http: bool) -> Text | None:
    item, url = entry.item("url"), entry.text("url")
    if item is None:
        entry.scope.missing("url", expected=URL_EXPECTED)
        return None
    if url is None:
        return None
    fault = url_fault(reveal(url))
    if not fault and not allow_http and not _is_private(reveal(url)):
        fault = "is no https, and leads off this machine: whoever is on the way reads and changes what is sent"
        entry.scope.problem(item, fault, expected="https, or allow_http = true")
        return None
    if fault:
        entry.scope.problem(item, fault, expected=URL_EXPECTED)
        return None
    return kept_address(url)


def _is_private(url: str) -> bool:
    """Whether nobody on the way can read what is sent: by https, or within this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


def _secrets(entry: TableReader) -> tuple[Secret, ...]:
    """`secret`, a text or a list of texts: secrets whatever they are written as."""
    item = entry.item("secret")
    if item is None:
        entry.scope.missing("secret", expected=KEYS_EXPECTED)
        return ()
    elements = entry.elements("secret") if isinstance(item.value, list) else [item]
    if not elements and isinstance(item.value, list):
        entry.scope.problem(item, "is empty, so that nothing would be signed", expected=KEYS_EXPECTED)
    found = [_secret(entry, element) for element in elements]
    return tuple(secret for secret in found if secret is not None)


def _secret(entry: TableReader, item: Item) -> Secret | None:
    text = entry.text_of(item)
    if text is None:
        return None
    secret = Secret.of(text)
    try:
        signing_key(secret)
    except ValueError as error:
        entry.scope.problem(item, str(error), expected='a long random text, such as "openssl rand -hex 32" prints')
        return None
    return secret


def _proxy(entry: TableReader) -> Text | None:
    item, proxy = entry.item("proxy"), entry.text("proxy")
    if item is None or proxy is None:
        return None
    text = reveal(proxy)
    parts = urlsplit(text) if text.isprintable() and "://" in text else None
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
        entry.scope.problem(item, "is no address of an HTTP proxy", expected=PROXY_EXPECTED)
        return None
    secret = Secret.of(proxy)  # a user and a password may stand in it
    return Secret(text, dict.fromkeys([*secret.reveal_parts(), *passwords_in(text)]))
