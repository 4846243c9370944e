"""The daemon, with a fault in it: once its servers run it fails, with what stands in $FAULT in its words."""

from __future__ import annotations

import os
import sys
from typing import Any

from mcpvisor.daemon.cli.main import main
from mcpvisor.daemon.daemon import Daemon


def _fail(_: Daemon) -> Any:
    raise LookupError(f"no place for {os.environ['FAULT']}")


if __name__ == "__main__":
    Daemon._background = _fail  # type: ignore[method-assign] # the fault
    sys.exit(main())
