"""How much a server may say unasked."""

from __future__ import annotations

from mcpvisor.supervisor.transports.intake import UNASKED_BURST, UNASKED_PER_SECOND, Intake


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_burst_then_rate():
    """A burst passes, then what the rate allows, in stretches: a dry bucket gives again once it has half a second's worth."""
    clock, reports = Clock(), []
    intake = Intake(reports.append, clock=clock)
    burst = sum(intake.admits() for _ in range(UNASKED_BURST + 100))
    clock.now = 0.4
    too_soon = intake.admits()
    clock.now = 2.0
    later = sum(intake.admits() for _ in range(5000))

    assert (UNASKED_BURST, False, 2 * UNASKED_PER_SECOND) == (burst, too_soon, later)
    assert 100 + 1 + 4000 == intake.overruns


def test_what_must_not_be_lost_passes_and_is_counted():
    """List changes and resource updates pass a dry bucket, yet count as above the rate."""
    intake = Intake(lambda detail: None, clock=Clock())
    intake.dropped(0)
    for _ in range(UNASKED_BURST):
        intake.admits()

    assert intake.admits("notifications/tools/list_changed")
    assert not intake.admits("notifications/message")
    assert 2 == intake.overruns


def test_reports_are_rare_and_complete():
    """Drops are told once a second at most, and every one is told in the end."""
    clock, reports = Clock(), []
    intake = Intake(reports.append, clock=clock)
    for _ in range(UNASKED_BURST + 1000):
        intake.admits()
    before = list(reports)
    intake.close()

    assert ["1 messages"] == [" ".join(report.split()[:2]) for report in before]
    assert ["1 messages", "999 messages"] == [" ".join(report.split()[:2]) for report in reports]


def test_the_last_drops_of_a_flood_are_told():
    """Once a flood is over the next message that passes, a second after the last report, brings what was not told of."""
    clock, reports = Clock(), []
    intake = Intake(reports.append, clock=clock)
    for _ in range(UNASKED_BURST + 1000):
        intake.admits()
    for now in (0.6, 0.9, 1.1, 1.2):
        clock.now = now
        assert intake.admits()

    assert ["1 messages", "999 messages"] == [" ".join(report.split()[:2]) for report in reports]
