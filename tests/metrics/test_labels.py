"""Label values come from closed sets."""

from __future__ import annotations

import pytest

from mcpvisor.metrics.labels import OTHER, REQUEST_METHODS, Words, among


def test_a_word_outside_its_set_is_other():
    """A method that the protocol does not know never becomes a label value."""
    assert ["tools/call", OTHER] == [among(REQUEST_METHODS, word) for word in ("tools/call", "evil/method")]


def test_words_stop_growing_at_their_limit():
    """A set whose words are made elsewhere still has a bounded number of them."""
    words = Words({"ready"}, limit=3)

    assert ["ready", "a", "b", OTHER, "a"] == [words.fit(word) for word in ("ready", "a", "b", "c", "a")]


@pytest.mark.parametrize("text", ["", "No such file: /etc/x", "x" * 41, "a-b", "\N{SNOWMAN}"])
def test_a_text_is_no_word(text):
    """A text of people or servers is `_OTHER`, whatever the room left."""
    assert OTHER == Words().fit(text)
