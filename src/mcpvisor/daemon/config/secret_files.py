"""Owns how entries depend on files: secrets that variables get from the disk, and what others read, by its contents."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mcpvisor.daemon.config.config_file import decode, read_bytes
from mcpvisor.daemon.config.entry_scope import home_expanded
from mcpvisor.daemon.config.expansion import FileUnread, Sources
from mcpvisor.daemon.config.look import Digester
from mcpvisor.daemon.config.problems import ConfigError
from mcpvisor.daemon.config.trust import Replaced, distrust

MAX_BYTES: Final = 128 * 1024
"""The largest secret: what the kernel takes as one variable or argument of a program."""


class SecretFiles:
    """The files that one reading of the configuration has looked into, each once; `seen` names them, readable or not."""

    def __init__(self, environ: Mapping[str, str], uid: int, digest: Digester) -> None:
        self._environ = environ
        self._uid = uid
        self._digest = digest
        self._texts: dict[str, str | FileUnread] = {}
        self.seen: dict[str, str] = {}
        """By path what each contained before it was read: to be watched like the files of the configuration themselves."""

    def sources(self, folder: Path) -> Sources:
        """Where the values of an entry come from whose file is in `folder`."""

        def read_file(written: str) -> str:
            return self._text(folder / home_expanded(written, self._environ))

        def read_credential(name: str) -> str:
            where = self._environ.get("CREDENTIALS_DIRECTORY")
            if not where:
                raise LookupError(f"the credential {name} is not there: CREDENTIALS_DIRECTORY is not set")
            return self._text(Path(where) / name)

        return Sources(self._environ, read_file, read_credential, self._distrust, self._contents)

    def _contents(self, path: Path) -> str:
        """The digest of a file that somebody else reads; empty where it cannot be read, or is not to be."""
        if str(path) not in self.seen:
            self.seen[str(path)] = self._digest(path)
        seen = self.seen[str(path)]
        return "" if ":" in seen else seen

    def _text(self, path: Path) -> str:
        """The text of a file without the one line end that may close it. Raises FileUnread."""
        known = self._texts.get(str(path))
        if known is None:
            self.seen[str(path)] = self._digest(path)
            try:
                known = self._read(path)
            except FileUnread as error:
                known = error
            self._texts[str(path)] = known
        if isinstance(known, str):
            return known
        raise FileUnread(str(known), known.file)

    def _read(self, path: Path) -> str:
        """See `_text`. An empty file is none: whoever writes it in two steps is between them."""
        try:
            text = decode(read_bytes(path, self._uid, "a file with one secret", MAX_BYTES), path)
        except ConfigError as error:
            raise FileUnread(f"{path} {error.problem.message}", path) from error
        text = text.removesuffix("\n").removesuffix("\r")
        if not text:
            raise FileUnread(f"{path} is empty", path)
        return text

    def _distrust(self, path: Path) -> str:
        try:
            return distrust(path, self._uid)
        except (OSError, ValueError, Replaced):  # whoever needs it says what is wrong with it
            return ""
