"""Bodies are counted while they are held, and nobody's keep others from sending theirs."""

from __future__ import annotations

from mcpvisor.daemon.gateway.bodies import Bodies


def test_a_flood_leaves_room():
    """Whoever sends all it can leaves half of the room, and the next one half of that."""
    bodies = Bodies(1000)
    taken = dict.fromkeys("abc", 0)
    for name in taken:
        with bodies.hold(name) as probe:
            while probe.grow(10):
                taken[name] += 10
        bodies.grow(name, taken[name])  # and this one keeps it

    assert taken == {"a": 500, "b": 250, "c": 120}


def test_what_is_released_is_free():
    """A body counts until it is let go of, and no longer than that."""
    bodies = Bodies(100)
    with bodies.hold("a") as first:
        assert first.grow(50)
        assert not first.grow(1)
        first.release()
        assert first.grow(50)
    with bodies.hold("a") as second:
        assert second.grow(50)
