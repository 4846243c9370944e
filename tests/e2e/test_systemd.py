"""The shipped unit, installed as its operator would, under a real systemd."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mcpvisor.daemon.control.peer import why_refused  # noqa: F401
from tests.conftest import SERVERS
from tests.e2e.running import entry
from tests.systemd.installation import PUPPETS, PYTHON, install
from tests.systemd.machine import Machine
from tests.systemd.service import CLI, Service

pytestmark = pytest.mark.systemd
