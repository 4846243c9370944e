"""How secrets are taken out of what is told of a server."""

from __future__ import annotations

import pytest

from mcpvisor.supervisor.masking import Mask

MASK = Mask(["s3cr3t-one", "s3cr3t-one-and-more", "tiny"])


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("nothing of it", "nothing of it"),
        ("a s3cr3t-one b s3cr3t-one", "a *** b ***"),
        ("s3cr3t-one-and-more", "***"),
        ("tiny", "tiny"),
        ("cut at the end: s3cr3t-o", "cut at the end: ***"),
        ("cut s3cr3t-on… here, and more", "cut ***… here, and more"),
        ("s3cr3t-o in the middle", "s3cr3t-o in the middle"),
        ("too little of it: s3cr3", "too little of it: s3cr3"),
    ],
)
def test_texts(text: str, masked: str):
    """Secrets become `***`, the longest first; a begin of one counts where the text was cut; short ones are ordinary words."""
    assert masked == MASK.text(text)


def test_bytes():
    """What is raw is masked before it is decoded."""
    assert b"\xff *** \xff" == MASK.raw(b"\xff s3cr3t-one \xff")


def test_values():
    """A JSON value is masked in its texts and keys, however the secret is escaped, and is the same one where there is none."""
    mask = Mask(['quo"ted\n'])
    clean = {"a": [1, "b"]}

    assert clean is mask.value(clean)
    assert {"a": ["x *** y"], "***": 1.5} == mask.value({"a": ['x quo"ted\n y'], 'quo"ted\n': 1.5})
    assert mask.value(None) is None


def test_learning():
    """A server that was given another secret may still tell the one before."""
    mask = Mask(["the-first"])
    mask.learn(["the-second"])

    assert "*** ***" == mask.text("the-first the-second")
