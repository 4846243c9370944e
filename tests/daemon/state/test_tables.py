"""How values become rows, and rows values again."""

from __future__ import annotations

import pytest

from mcpvisor.daemon.state.kept import KnownServer
from mcpvisor.daemon.state.tables import SERVERS
from mcpvisor.supervisor.offer import MAX_OFFER, NOTHING, Offer
from mcpvisor.supervisor.spec import Era
from mcpvisor.supervisor.store import Remembered

TOOLS = (
    {"name": "echo", "inputSchema": {"type": "object"}, "x-vendor": [1.5, None, "\u00e9"]},
    {"name": "other", "inputSchema": {}},
)
WHOLE = Offer(tools=TOOLS, resources=({"uri": "x://1"},), capabilities={"tools": {}}, instructions='a "quoted" text')


def kept(offer: Offer) -> Offer | None:
    """An offer after it was written and read."""
    known = KnownServer(target="t", what=Remembered(era=Era.LEGACY, offer=offer), seen_at=1.0)
    return SERVERS.from_row(SERVERS.to_row("files", known)).what.offer


@pytest.mark.parametrize("offer", [NOTHING, WHOLE])
def test_an_offer_comes_back_as_it_was(offer: Offer):
    """Every list, entry and field of it."""
    assert offer == kept(offer)


def test_an_offer_that_is_too_large_is_not_kept():
    """What else is known of its server is."""
    entry = {"name": "x" * 1024 * 1024}
    huge = Offer(tools=(entry,) * (MAX_OFFER // 1024 // 1024 + 1))

    assert kept(huge) is None
