"""The public conformance suites: through the gateway a server scores what it scores by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.conformance import SUITES, Conformance
from tests.e2e.conformance_client import DOES
from tests.e2e.running import RunningDaemon, entry, serving
from tests.supervisor.transports.http_rig import Puppet
from tests.supervisor.transports.http_rig import puppet as http_puppet

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def alone() -> Iterator[Puppet]:
    """The server of the suites' own tools, by itself."""
    with http_puppet("sdk_conformance.py", "http") as server:
        yield server


@pytest.fixture(scope="module")
def behind(alone: Puppet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """The same server behind the gateway, once in each era."""
    folder = tmp_path_factory.mktemp("c")
    entries = [entry(era, url=alone.url, era=era, allow=["sampling", "roots"]) for era in ("legacy", "modern")]
    daemon = RunningDaemon(folder, "".join(entries))
    with serving(daemon):
        daemon.until_ready()
        yield daemon


@pytest.mark.parametrize("name", SUITES)
def test_a_server_scores_the_same_through_the_gateway(alone, behind, node_servers, tmp_path, name):
    """Each scenario comes to the same with the gateway before the server as without, and none of them to a failure."""
    suite, suites = SUITES[name], Conformance(node_servers)
    by_itself = suites.of_server(suite, alone.url, tmp_path / "alone")
    through = suites.of_server(suite, f"{behind.gateway}/{suite.upstream}", tmp_path / "behind")

    print(*through.remarks, sep="\n")

    assert [] == [remark for remark in by_itself.remarks if " FAILURE " in remark]
    assert by_itself.score == through.score


@pytest.mark.parametrize("scenario", DOES)
def test_a_daemon_is_a_client_as_the_suites_want_it(node_servers, tmp_path, scenario):
    """In front of the suites' own servers the daemon and `mcpvisor call` do all that a client must."""
    run = Conformance(node_servers).of_client("conformance-0.2", scenario, tmp_path)

    assert () == run.remarks
    assert 0 < sum(counts["SUCCESS"] for counts in run.score.values())
