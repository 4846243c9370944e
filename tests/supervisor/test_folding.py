"""How a secret is found that was folded over lines."""

from __future__ import annotations

import base64
import textwrap
import time

from hypothesis import given
from hypothesis import strategies as st

from mcpvisor.supervisor.folding import unfolded
from mcpvisor.supervisor.known_secrets import KnownSecrets
from mcpvisor.supervisor.masking import Mask
from mcpvisor.supervisor.process.stderr import StderrRing

SECRET = "eyJhbGciOiJI.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4ifQ.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV"


def ring(mask: Mask) -> StderrRing:
    """A ring for nobody."""
    return StderrRing(lambda _lines, _dropped: None, mask=mask)


def masks() -> list[Mask]:
    """One that knows the secret as its server's own, and one that knows it as another's."""
    known = KnownSecrets()
    known.learn([SECRET])
    return [Mask([SECRET]), Mask([], known)]


@given(width=st.integers(1, 120), before=st.text("ab ", max_size=30), indent=st.integers(0, 20), padding=st.integers(0, 3))
def test_a_folded_secret_leaves_no_piece(width: int, before: str, indent: int, padding: int):
    """Wherever a line ends within it, however far the next one is indented and the former one padded."""
    told = f"{before} {SECRET} end"
    lines = [f"{' ' * indent}{told[at : at + width]}{' ' * padding}\n" for at in range(0, len(told), width)]
    # What is shorter than the shortest begin that is told from ordinary words may stay, at the end of a line.
    for mask in masks():
        taken = ring(mask)
        taken.feed("".join(lines).encode(), 0.0)
        shown = "".join(line.strip() for line in taken.tail())
        assert not any(SECRET[at : at + 8] in shown for at in range(len(SECRET) - 8)) or width < 8
        assert SECRET[-8:] not in shown or width < 8


def test_lines_that_are_none():
    """Ordinary lines stay as they are, and a begin of a secret at the end of one hides nothing of the next."""
    mask = Mask(["s3cr3t-one-and-more"])
    taken = ring(mask)
    taken.feed(b"a s3cr3t-one\n-and-less\n  and s3c\n ret\n\n plain  \n", 0.0)

    assert ["a ***", "-and-less", "  and s3c", " ret", "", " plain  "] == taken.tail()


def test_a_line_that_has_no_end_yet():
    """What is shown of it goes on with the line before, and changes nothing of what comes."""
    taken = ring(Mask(["s3cr3t-one-and-more"]))
    taken.feed(b"a s3cr3t-one\n   -and", 0.0)
    assert ["a ***", "   ***"] == taken.tail()
    taken.feed(b"-more, b\nc", 0.0)

    assert ["a ***", "   ***, b", "c"] == taken.tail()


def test_base64_of_a_program_in_lines():
    """Base64 is folded by those who write mails and keys: each line of it is a piece."""
    coded = base64.encodebytes(f"user:{SECRET * 3}".encode()).decode()
    taken = ring(Mask([SECRET * 3]))
    taken.feed(coded.encode(), 0.0)

    assert max(map(len, "".join(taken.tail()).split("***"))) < 12


def test_it_takes_little_more_than_the_lines_themselves():
    """Thousands of secrets of others, and lines that end like the begin of one, cost no more than the looking."""
    known = KnownSecrets()
    known.learn([f"eyJhbGci{number:08}{'x' * 200}" for number in range(1000)])
    mask = Mask([SECRET], known)
    lines = textwrap.wrap("GET /tools/list took 12 ms and ended with eyJhb " * 200, 90)
    began = time.thread_time()
    before = ""
    for line in lines * 4:
        _, before = unfolded(line, before, mask)

    assert time.thread_time() - began < 0.5
