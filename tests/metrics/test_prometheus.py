"""The real programs agree: promtool lints what is exposed, checks and tests the alerts, Prometheus scrapes."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ports import KeptPort

import mcpvisor.metrics
from mcpvisor.metrics.exposition import Exposition
from mcpvisor.metrics.listener import MetricsServer
from mcpvisor.supervisor import events as ev
from mcpvisor.supervisor.states import State

pytestmark = pytest.mark.prometheus
RULES = Path(mcpvisor.metrics.__file__).parent / "assets" / "rules"


def promtool(*arguments: str, cwd: Path | None = None, stdin: bytes = b"") -> tuple[int, str]:
    program = shutil.which("promtool")
    assert program, "promtool is not installed; deselect with -m 'not prometheus'"
    done = subprocess.run([program, *arguments], input=stdin, capture_output=True, cwd=cwd, timeout=60)
    return done.returncode, (done.stdout + done.stderr).decode()


def test_promtool_finds_nothing_to_say_about_the_exposition(scene):
    """Names, types and help texts pass Prometheus' own lint."""
    scene.fill(3)
    scene.recorder.loop_ticked()
    scene.recorder.state_store(up=True)
    scene.recorder.config_reloaded("start", "applied", 1.0)
    answer = Exposition(scene.registry).respond(b"GET /metrics HTTP/1.1\r\nHost: localhost")

    assert (0, "") == promtool("check", "metrics", stdin=answer.partition(b"\r\n\r\n")[2])


def test_promtool_accepts_the_alerts():
    """The rules pass every lint and fire exactly as their tests say."""
    checked, told = promtool("check", "rules", "--lint=all", "mcpvisor.yml", cwd=RULES)
    assert 0 == checked, told
    tested, told = promtool("test", "rules", "mcpvisor.yml", cwd=RULES / "tests")
    assert 0 == tested, told


class Prometheus:
    """A real Prometheus that scrapes one target every second."""

    def __init__(self, folder: Path, target: str) -> None:
        program = shutil.which("prometheus")
        assert program, "prometheus is not installed; deselect with -m 'not prometheus'"
        self._port = KeptPort()
        self.url = f"http://127.0.0.1:{self._port.number}"
        config = folder / "prometheus.yml"
        scrape = {"job_name": "mcpvisor", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
        config.write_text(json.dumps({"scrape_configs": [scrape]}))
        listen = self.url.removeprefix("http://")
        self.process = subprocess.Popen(
            [program, f"--config.file={config}", f"--storage.tsdb.path={folder}/data", f"--web.listen-address={listen}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def get(self, path: str, **query: str) -> dict:
        with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(query)}", timeout=20) as response:
            return json.load(response)["data"]

    def wait_for(self, expression: str, expected: list[str], seconds: float = 60) -> list[str]:
        """The values of an expression, once they are as expected or when time is up."""
        deadline = time.monotonic() + seconds
        values: list[str] = ["nothing answered"]
        while values != expected and time.monotonic() < deadline:
            try:
                values = [point["value"][1] for point in self.get("/api/v1/query", query=expression)["result"]]
            except (urllib.error.URLError, ConnectionError):
                assert self.process.poll() is None, "prometheus ended"
            time.sleep(0.1)
        return values

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)
        self._port.close()


@pytest.fixture
def prometheus(scene, tmp_path) -> Iterator[Prometheus]:
    server = MetricsServer(scene.registry, ["127.0.0.1:0"])
    server.start()
    running = Prometheus(tmp_path, server.addresses[0])
    yield running
    running.stop()
    server.stop()


def test_a_real_prometheus_scrapes_openmetrics_and_forgets_a_removed_server(scene, prometheus):
    """Prometheus takes the OpenMetrics exposition, and a server that was removed is gone at the next scrape."""
    scene.fill(2)
    assert ["1"] == prometheus.wait_for('up{job="mcpvisor"}', ["1"])
    assert ["2"] == prometheus.wait_for("sum(mcpvisor_server_up)", ["2"])
    assert ["1"] == prometheus.wait_for('mcpvisor_server_state{server="server-1",state="ready"} == 1', ["1"])
    scene.move("server-1", State.READY, State.CRASH_LOOP)
    assert ["1"] == prometheus.wait_for('mcpvisor_server_state{server="server-1",state="crash_loop"} == 1', ["1"])
    scene.recorder(ev.ServerRemoved(at=2.0, server="server-1"))

    assert [] == prometheus.wait_for('mcpvisor_server_state{server="server-1"}', [])
    kinds = prometheus.get("/api/v1/metadata", metric="mcpvisor_server")["mcpvisor_server"]
    assert "info" == kinds[0]["type"]  # a type that only OpenMetrics has: the older text says gauge
