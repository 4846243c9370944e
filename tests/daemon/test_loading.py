"""What the daemon's program loads until it serves: what others would use of the SDK is not among it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

RUN = "import sys\nfrom mcpvisor.daemon.loading import sparing\nwith sparing():\n    import mcpvisor.daemon.run\n"
HEAVY = ("cryptography", "httpx2", "mcp.client.client", "mcp.client.stdio", "mcp.server.mcpserver")


def after_the_start(code: str) -> Any:
    """What a fresh process prints as JSON when it has loaded the daemon as `mcpvisor run` does."""
    command = [sys.executable, "-c", RUN + "import json\n" + code]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)


def test_nothing_is_loaded_that_the_first_answers_do_not_need() -> None:
    """Neither other HTTP clients, nor cryptography, nor the SDK's clients and servers: they take as long as all of ours."""
    found = f"json.dumps([one for one in {HEAVY!r} if one in sys.modules])"
    plainly = subprocess.run(
        [sys.executable, "-c", f"import json, sys, mcp\nprint({found})"], capture_output=True, text=True, check=True, timeout=60
    )

    assert [] == after_the_start(f"print({found})")
    assert list(HEAVY) == json.loads(plainly.stdout)  # else this test would look for what nobody loads


def test_a_package_left_unopened_opens_when_it_is_asked() -> None:
    """Whoever imports the SDK's own names after the start finds them, and an unknown name is an error as ever."""
    code = (
        "import mcp\nfrom mcp.server import MCPServer\nfrom mcp import Client\n"
        "print(json.dumps([MCPServer.__name__, Client.__name__, hasattr(mcp, 'no_such_name'), type(mcp).__name__]))"
    )

    assert ["MCPServer", "Client", False, "module"] == after_the_start(code)


def test_models_of_the_wire_are_built_when_they_are_used() -> None:
    """None is built by the start; each one that a method has can be built then, and is asked like any other."""
    code = (
        "from mcp_types import methods\n"
        "kinds = ('CLIENT_REQUESTS', 'CLIENT_NOTIFICATIONS', 'SERVER_REQUESTS', 'SERVER_NOTIFICATIONS')\n"
        "models = {model for kind in kinds for model in getattr(methods, kind).values()}\n"
        "before = sum(model.__pydantic_complete__ for model in models)\n"
        "said = methods.validate_client_request('tools/call', '2025-11-25', {'name': 'x'})\n"
        "built = sum(model.__pydantic_complete__ for model in models)\n"
        "[model.model_rebuild() for model in models]\n"
        "print(json.dumps([before, built > 0, all(model.__pydantic_complete__ for model in models), len(models) > 40]))"
    )

    assert [0, True, True, True] == after_the_start(code)


def test_what_was_loaded_is_not_looked_at_by_the_collector() -> None:
    """The collector is on again, and passes over all that the imports have made."""
    enabled, frozen = after_the_start("import gc\nprint(json.dumps([gc.isenabled(), gc.get_freeze_count()]))")

    assert enabled
    assert frozen > 50_000
