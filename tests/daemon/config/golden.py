"""Owns the golden files of other programs: one folder for each dialect, and beside its file what the import makes of it.

In the files `/opt/python` and `/opt/servers` stand for this Python and the puppet servers, `http://127.0.0.1:9100` for an HTTP
server of a test, `/golden` for the folder that a file was put into, and `/home/ann` for the home folder.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

FILES = Path(__file__).parent / "testdata/dialects"
SERVERS = Path(__file__).parents[2] / "servers"
EXPECTED = "expected.toml"
DIALECTS = sorted(folder.name for folder in FILES.iterdir())

VARIABLES = {
    name: f"value-of-{name}"
    for name in (
        *("CODE_TOKEN", "CODEX_TEAM", "CODEX_TOKEN", "COPILOT_KEY", "CURSOR_KEY", "KIRO_KEY", "OPENCODE_NAME", "SEP_KEY"),
        "WINDSURF_TOKEN",
    )
}
"""What the golden files want of the daemon's environment."""


NAMES = {name for dialect in DIALECTS for name in tomllib.loads((FILES / dialect / EXPECTED).read_text())["servers"]}
"""The servers that all of them together become; no two have one name."""


class Golden(NamedTuple):
    """A golden file that was put somewhere, and the text that its import has to give."""

    file: Path
    expected: str


def put(dialect: str, folder: Path, home: str, url: str = "http://127.0.0.1:9100") -> Golden:
    """Put the file of a dialect, with all that stands beside it, into a folder of its own."""
    words = {
        "/opt/python": sys.executable,
        "/opt/servers": str(SERVERS),
        "http://127.0.0.1:9100": url,
        "/golden": str(folder),
        "/home/ann": home,
    }

    def placed(source: Path) -> str:
        text = source.read_bytes().decode()
        for word, meant in words.items():
            text = text.replace(word, meant)
        return text

    found: list[Path] = []
    for source in sorted((FILES / dialect).rglob("*")):
        if source.is_file() and source.name != EXPECTED:
            target = folder / source.relative_to(FILES / dialect)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(placed(source).encode())
            target.chmod(0o644)
            found.append(target)
    (file,) = [one for one in found if one.suffix in {".json", ".jsonc", ".toml"}]
    return Golden(file, placed(FILES / dialect / EXPECTED))
