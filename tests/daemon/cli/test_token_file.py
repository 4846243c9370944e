"""How the gateway's token is read by whoever uses the gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcpvisor.daemon.cli.exits import CliError, Exit
from mcpvisor.daemon.cli.token_file import read_token


def test_a_token_is_read_without_what_is_around_it(tmp_path: Path):
    """The line end at its end is none of it."""
    file = tmp_path / "token"
    file.write_text("t0ken-of-the-gateway\n")

    assert "t0ken-of-the-gateway" == read_token(file)


@pytest.mark.parametrize("held", [b"", b"\n", b"two words", b"two\nlines", "t\u00f6ken".encode(), b"\x00\xff"])
def test_what_is_no_token_is_not_told(tmp_path: Path, held: bytes):
    """A file of something else is named, and nothing of what it holds is."""
    file = tmp_path / "token"
    file.write_bytes(held)
    with pytest.raises(CliError) as caught:
        read_token(file)

    assert (Exit.NO, f"{file} holds no token") == (caught.value.exit, str(caught.value))


def test_a_token_that_is_not_there_is_named(tmp_path: Path):
    """The system's own words say why it cannot be read."""
    with pytest.raises(CliError, match=r"cannot be read: No such file or directory$"):
        read_token(tmp_path / "none")
