"""The reference configuration that ships with the project says what the code does."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

from mcpvisor.daemon.config.load import load
from mcpvisor.daemon.config.places import places
from mcpvisor.daemon.config.settings import SECTIONS, Settings, default_values
from mcpvisor.supervisor.spec import ServerSpec, StdioLaunch

CONFIGS = Path(__file__).parents[3] / "configs"


def _copy(etc: Path) -> None:
    shutil.copyfile(CONFIGS / "mcpvisor.toml", etc / "mcpvisor.toml")
    for file in (CONFIGS / "servers.d").iterdir():
        shutil.copyfile(file, etc / "servers.d" / file.name)
    for file in etc.rglob("*.*"):
        file.chmod(0o755 if file.is_dir() else 0o644)


def test_every_default_is_the_code_s_own(etc: Path, environ: dict[str, str]) -> None:
    """Each value in the reference file equals the default of the code, for settings and for servers."""
    _copy(etc)
    (etc / "servers.d/plain.toml").write_text('[servers.plain]\ncommand = "true"\n')
    (etc / "servers.d/plain.toml").chmod(0o644)

    loaded = load([etc], environ, uid=0)

    assert loaded.problems == ()
    assert Settings.model_validate(default_values(places({}, 0))) == loaded.settings
    assert ServerSpec(name="plain", target=StdioLaunch(command="true")) == loaded.specs["plain"]


def test_every_key_is_in_the_reference(etc: Path) -> None:
    """No key of a setting or of a server is missing in the reference file."""
    written = tomllib.loads((CONFIGS / "mcpvisor.toml").read_text())
    of_servers = {field.name for field in fields(ServerSpec)} - {"name", "target", "origin", "shown_name"}

    for section in SECTIONS:
        model = Settings.model_fields[section].annotation
        assert model is not None
        assert set(getattr(model, "model_fields", {})) == set(written[section])
    assert set() == of_servers - set(written["defaults"])


def test_the_examples_are_right(etc: Path, environ: dict[str, str]) -> None:
    """The example entries load without an error or a hint."""
    _copy(etc)

    loaded = load([etc], environ)

    assert (list(loaded.specs), loaded.problems, loaded.hints) == (["filesystem", "memory", "docs"], (), ())


def test_the_check_does_not_need_the_sdk() -> None:
    """Checking a configuration loads neither the SDK nor a web server."""
    code = "import sys, mcpvisor.daemon.config.check; print([m for m in ('mcp', 'starlette') if m in sys.modules])"

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)

    assert result.stdout.strip() == "[]"
