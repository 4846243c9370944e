"""Connections have their places by listener, and strangers leave theirs to newcomers."""

from __future__ import annotations

from mcpvisor.daemon.gateway.places import Places, Standing


def test_a_listener_has_its_own_places():
    """A listener whose places are all taken takes none of another's."""
    places = Places(1)

    def stay() -> None:
        raise AssertionError

    tcp, unix, late = Standing(is_admitted=True), Standing(is_admitted=True), Standing()
    assert places.take(("127.0.0.1", 1), tcp, stay)
    assert not places.take(("127.0.0.1", 1), late, stay)
    assert places.take(None, unix, stay)
    places.give_back(("127.0.0.1", 1), tcp)
    assert places.take(("127.0.0.1", 1), late, stay)


def test_the_oldest_stranger_leaves():
    """Where all places are taken, the oldest connection that was never admitted makes room; one that was never does."""
    places, left = Places(3), []
    standings = [Standing() for _ in range(5)]
    for number, standing in enumerate(standings[:3]):
        assert places.take(None, standing, lambda number=number: left.append(number))
    standings[0].is_admitted = True
    assert places.take(None, standings[3], lambda: left.append(3))
    places.give_back(None, standings[2])
    assert places.take(None, standings[4], lambda: left.append(4))

    assert left == [1]
