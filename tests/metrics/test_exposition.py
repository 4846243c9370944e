"""What a scrape is answered: formats, hosts, methods."""

from __future__ import annotations

import gzip
from collections.abc import Iterable

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from mcpvisor.metrics.exposition import Exposition, host_of, prefers_openmetrics


def ask(exposition: Exposition, *headers: str, method: str = "GET", path: str = "/metrics", host: str = "localhost"):
    """The status line, the headers and the body of one answer."""
    raw = "\r\n".join((f"{method} {path} HTTP/1.1", f"Host: {host}", *headers)).encode()
    head, _, body = exposition.respond(raw).partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return status, dict(line.split(": ", 1) for line in lines), body


def names(families: Iterable) -> set[str]:
    return {family.name for family in families}


def test_both_formats_hold_the_same_families(scene):
    """Prometheus text and OpenMetrics are chosen by Accept, parse strictly and name the same families."""
    scene.fill(2)
    exposition = Exposition(scene.registry)
    _, old_headers, old = ask(exposition)
    _, new_headers, new = ask(exposition, "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5")

    assert "text/plain; version=0.0.4; charset=utf-8" == old_headers["Content-Type"]
    assert new_headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    in_old = {name.removesuffix("_info") for name in names(parse_text(old.decode()))}
    assert names(parse_openmetrics(new.decode())) == in_old
    assert b"_created" not in old + new


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", False),
        ("*/*", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=0.2,text/plain;q=0.9", False),
        ("application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5", True),
        ("application/openmetrics-text;q=junk", False),
    ],
)
def test_the_format_goes_by_the_weights(accept, expected):
    """OpenMetrics is sent to those who ask for it no less than for text."""
    assert expected == prefers_openmetrics(accept)


def test_gzip_is_sent_to_those_who_take_it(scene):
    """A compressed answer unpacks to the plain one."""
    scene.fill(2)
    exposition = Exposition(scene.registry)
    _, headers, packed = ask(exposition, "Accept-Encoding: gzip")

    assert "gzip" == headers["Content-Encoding"]
    assert gzip.decompress(packed).startswith(b"# HELP")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9433", 200),
        ("LOCALHOST", 200),
        ("[::1]:9433", 200),
        ("metrics.internal:9433", 200),
        ("attacker.example", 421),
        ("127.0.0.1.attacker.example:9433", 421),
        ("10.0.0.7", 421),
        ("", 421),
    ],
)
def test_only_known_hosts_are_answered(scene, host, status):
    """A page that rebinds its own name to this address reads nothing, and the refusal is counted."""
    refused: list[str] = []
    exposition = Exposition(scene.registry, ["metrics.internal"], refused.append)

    line, _, body = ask(exposition, host=host)
    assert f"HTTP/1.1 {status}" == " ".join(line.split(" ")[:2])
    assert (["host"] if status == 421 else []) == refused
    assert (status == 200) == (b"mcpvisor_" in body)


def test_a_wildcard_stands_for_every_address_but_no_name(scene):
    """Listening on 0.0.0.0 answers any literal address; a rebound name is still refused."""
    exposition = Exposition(scene.registry, ["0.0.0.0"])

    lines = [ask(exposition, host=host)[0].split(" ")[1] for host in ("10.0.0.7:9433", "[fe80::1]:9433", "attacker.example")]
    assert ["200", "200", "421"] == lines


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", "/metrics", "405"), ("GET", "/", "404"), ("GET", "/metrics?x=1", "200"), ("HEAD", "/metrics", "200")],
)
def test_only_metrics_are_served(scene, method, path, status):
    """Any other path or method is told so, and HEAD gets no body."""
    line, headers, body = ask(Exposition(scene.registry), method=method, path=path)

    assert status == line.split(" ")[1]
    assert (0 if method == "HEAD" else int(headers["Content-Length"])) == len(body)


@pytest.mark.parametrize("raw", [b"", b"junk", b"GET /metrics SPDY/3", b"GET /metrics HTTP/1.1\r\nHost : x", b"\xff" * 99])
def test_what_is_no_http_is_400(scene, raw):
    """A head that is no HTTP/1 gets one clear refusal."""
    assert Exposition(scene.registry).respond(raw).startswith(b"HTTP/1.1 400 ")


def test_two_host_headers_are_400(scene):
    """A request that names two hosts is refused, whichever of them is known."""
    raw = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: attacker.example"

    assert Exposition(scene.registry).respond(raw).startswith(b"HTTP/1.1 400 ")


def test_host_of_strips_port_and_brackets():
    """The host is compared without its port."""
    assert ["a", "a", "::1", "::1"] == [host_of(text) for text in ("A:1", "a", "[::1]:1", "[::1]")]
