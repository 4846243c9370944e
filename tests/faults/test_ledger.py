"""What a run writes down is what its oracles read."""

from __future__ import annotations

from pathlib import Path

from tests.faults.ledger import Ledger
from tests.faults.oracles import Called, Moved, Recovery, Span, Updated, false_states

from mcpvisor.supervisor.states import State


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    """Of each kind, in their order, and such that an oracle sees in them what it sees in the originals."""
    ledger = Ledger(tmp_path / "ledger")
    records = [
        Called("s", "c1", 0.0, 1.0, 1.0, "ok", "c1"),
        Moved("s", 5.0, State.READY),
        Span(10.0, 14.0, "s", "stop"),
        Updated("s", 2.0, exact=True),
        Recovery("s", "kill", 1.0, None, "backoff"),
        Moved("s", 13.0, State.DEGRADED),
    ]
    for record in records:
        ledger.add(record)
    read = {kind: ledger.all(kind) for kind in (Called, Moved, Span, Updated, Recovery)}
    ledger.close()

    assert read == {kind: [record for record in records if isinstance(record, kind)] for kind in read}
    assert 1 == len(false_states(ledger.all(Moved), ledger.all(Span), 1.0, []))
