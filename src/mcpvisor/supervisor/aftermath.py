"""Owns what follows the end of a generation, by its cause and its exit code, and what is reason enough to end one."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from mcpvisor.supervisor.lifecycle_messages import Ended
from mcpvisor.supervisor.spec import RestartPolicy, RestartRule


class Reaction(StrEnum):
    """What an end leads to."""

    ANOTHER_WAY = "another_way"
    """The server answered, if only by its end, that it is to be spoken to otherwise: no failure, and no reason to wait."""
    MEND = "mend"
    """Nothing but an edit or a change of the machine mends it: `failed`, with a slow try."""
    CREDENTIALS = "credentials"
    """Other credentials mend it: `auth_required`, with tries ever more slowly."""
    DONE = "done"
    """It ended well, and its policy leaves it at that: `stopped`."""
    GIVE_UP = "give_up"
    """It failed, and its policy does not start it again: `failed`, without a next try."""
    RETRY = "retry"
    """`backoff`, or `crash_loop` after too many."""


SLOW_RETRY: Final = 300.0
"""Seconds between tries of what an edit or another credential has to mend."""

COUNTED: Final = frozenset({"process_exited", "stdout_closed", "start_timeout", "protocol", "probe"})
"""Ends of processes and of handshakes count towards the window; dials, sessions and credentials do not."""

_EXITS: Final = frozenset({"process_exited", "era_probe"})
"""Causes that may come with an exit code."""

_BY_CAUSE: Final = {
    "era_probe": Reaction.ANOTHER_WAY,
    "other_transport": Reaction.ANOTHER_WAY,
    "no_such_program": Reaction.MEND,
    "permission": Reaction.MEND,
    "bad_cwd": Reaction.MEND,
    "tls": Reaction.MEND,
    "redirect": Reaction.MEND,
    "version_mismatch": Reaction.MEND,
    "auth": Reaction.CREDENTIALS,
}
"""Causes that are above every policy."""


def reaction_to(end: Ended, policy: RestartPolicy) -> Reaction:
    """What is done after an end.

    An exit on the question for the era says little of how it ended: only a code that is named in `prevent_codes` is taken at
    its word then, and every other one is judged when it comes again without that question.
    """
    known = _BY_CAUSE.get(end.cause)
    if known is not None and not _is_prevented(end, policy):
        return known
    ended_well = end.cause in _EXITS and end.exit_code is not None and end.exit_code in (0, *policy.success_codes)
    if _is_prevented(end, policy):
        return Reaction.DONE if ended_well else Reaction.GIVE_UP
    if policy.policy is RestartRule.NEVER or (policy.policy is RestartRule.ON_FAILURE and ended_well):
        return Reaction.DONE if ended_well else Reaction.GIVE_UP
    return Reaction.RETRY


def reason_of(end: Ended, reaction: Reaction, policy: RestartPolicy) -> str:
    """Why the server is where the reaction puts it, for people."""
    if reaction in (Reaction.DONE, Reaction.GIVE_UP) and _is_prevented(end, policy):
        how = f"it exited with code {end.exit_code} when asked for its era" if end.cause == "era_probe" else end.detail
        return f"{how}, after which it is not to be started again (restart.prevent_codes)"
    if reaction in (Reaction.DONE, Reaction.GIVE_UP):
        return f"{end.detail}; its restart policy is {policy.policy.value}"
    return end.detail


def over_ceiling(resident_bytes: int, policy: RestartPolicy) -> str:
    """Why a server is to be replaced for the memory that its processes use; empty where it is not."""
    if policy.max_memory is None or resident_bytes <= policy.max_memory:
        return ""
    mib = 1024 * 1024
    return f"it uses {resident_bytes / mib:.0f} MiB, over the {policy.max_memory / mib:.0f} MiB of restart.max_memory"


def _is_prevented(end: Ended, policy: RestartPolicy) -> bool:
    return end.cause in _EXITS and end.exit_code in policy.prevent_codes
