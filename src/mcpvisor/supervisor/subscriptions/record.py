"""Owns one wanted URI: who wants it, how its subscription and its reads stand, and what that adds up to."""

from __future__ import annotations

from dataclasses import dataclass, field

from mcpvisor.supervisor.subscriptions.standing import SubscriptionState, Wish


@dataclass(slots=True)
class Record:
    """`push` and `why` are how the subscription stands, `is_read` and `read_failure` how polling does. Times are monotonic."""

    uri: str
    wishes: dict[str, Wish] = field(default_factory=dict[str, Wish])
    push: SubscriptionState = SubscriptionState.PENDING
    why: str = ""
    retry_at: float | None = None
    is_read: bool = False
    read_failure: str = ""
    read_at: float | None = None
    digest: bytes | None = None
    """Of the content that was read last; None where what has happened since is unknown."""
    shown: tuple[SubscriptionState, str] = (SubscriptionState.PENDING, "")
    told_at: float = float("-inf")

    @property
    def may_be_pushed(self) -> bool:
        """Whether its updates are pushed, or it is too early to say that they are not."""
        return self.push is SubscriptionState.ACTIVE or (self.push is SubscriptionState.PENDING and not self.why)

    @property
    def poll(self) -> float | None:
        """Seconds between two reads, the fewest that any holder wishes; None where nobody does."""
        return min((wish.poll for wish in self.wishes.values() if wish.poll is not None), default=None)

    @property
    def is_forced(self) -> bool:
        return any(wish.force for wish in self.wishes.values())

    @property
    def state(self) -> SubscriptionState:
        if self.push is SubscriptionState.ACTIVE:
            return SubscriptionState.ACTIVE
        if self.is_read:
            return SubscriptionState.POLLED
        return SubscriptionState.FAILED if self.read_failure else self.push

    @property
    def reason(self) -> str:
        reading = f"reading it failed: {self.read_failure}" if self.read_failure else ""
        return "; ".join(part for part in (self.why, reading) if part)

    @property
    def is_on_its_way(self) -> bool:
        """Whether it is too early to say anything of it."""
        return self.state is SubscriptionState.PENDING and not self.why

    @property
    def is_faulty(self) -> bool:
        """Whether changes do not reach us for a reason that is known."""
        state = self.state
        return state is SubscriptionState.FAILED or (state is SubscriptionState.PENDING and bool(self.why))

    def forget_reads(self) -> None:
        self.is_read, self.read_failure, self.read_at = False, "", None
