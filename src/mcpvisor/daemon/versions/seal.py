"""Owns the seal on kept versions: entries may hold secrets, which nobody reads out of the state file or of a copy of it."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from typing import Any, Final

from mcpvisor.daemon.config.written import Written
from mcpvisor.daemon.gateway.questions.keys import Key
from mcpvisor.daemon.gateway.questions.sealing import Seals

KEY_FILE: Final = "config-versions.keys"
"""Beside the state file, and no part of it: a backup of that opens nothing."""


class VersionSeal:
    """Seals and opens what is written, each for one key of the table; its digest tells versions apart without opening any."""

    def __init__(self, keys: Sequence[Key]) -> None:
        """`keys` is not empty."""
        self._secret = keys[0].secret
        self._seals = Seals(keys)

    def content(self, written: Written) -> bytes | None:
        """What is sealed of an entry; None for one that JSON cannot say."""
        try:
            return json.dumps(written.as_json(), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError):  # a date in TOML, or half a character
            return None

    def digest(self, written: Written) -> str:
        """A digest of what is written, wherever it stands in its file; of no use without the key."""
        told: dict[str, Any] = {**written.as_json(), "line": None, "column": None, "is_main": None}
        text = json.dumps(told, sort_keys=True, separators=(",", ":"), default=str)
        return hmac.new(self._secret, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()

    def seal(self, content: bytes, key: str) -> str:
        """A text that only `open` can read, for the same key of the table."""
        return self._seals.seal(content, key.encode())

    def open(self, sealed: str, key: str) -> Written | None:
        """What was sealed; None for all else."""
        content = self._seals.open(sealed, key.encode())
        if content is None:
            return None
        try:
            return Written.from_json(json.loads(content))
        except (ValueError, TypeError, KeyError):
            return None
