"""Pauses of instances: what a pause and a resume do in each state, and how attempts are withheld (R20-R29).

A withheld attempt is READY, and its times are moved by `WITHHELD_MS`, beyond every time of a store's clock. So claims,
which read attempts by the time from which they are available, do not find it, and no deadline of it passes. The
original times are in the row, and the resume brings them back.
"""

from enum import Enum
from typing import Final

from holdfast.core.checks import parse_enum
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceState

WITHHELD_MS: Final = 2**60
"""Added to the times of a READY attempt whose instance is PAUSED. Statements have it as a literal."""


class PauseVerdict(Enum):
    """What a request to pause an instance does."""

    PAUSE = "it is paused"
    SAME = "it was paused before"
    CLOSED = "refused: it has ended"
    NOT_RUNNING = "refused: it is BLOCKED, or was asked to cancel"


class ResumeVerdict(Enum):
    """What a request to resume an instance does."""

    RESUME = "it continues"
    NOT_PAUSED = "refused: it is not PAUSED"
    NO_DEADLINE = "refused: it has no deadline that could be extended"
    NOTHING_EXHAUSTED = "refused: none of its activities has used up its retries"


def decide_pause(state: InstanceState | str) -> PauseVerdict:
    """Decide about a request to pause, by the moves of A9."""
    state = parse_enum(InstanceState, state, "state of an instance")
    if state is InstanceState.PAUSED:
        return PauseVerdict.SAME
    if state in INSTANCE_FINAL:
        return PauseVerdict.CLOSED
    return PauseVerdict.PAUSE if may_pause(state) else PauseVerdict.NOT_RUNNING


def may_pause(state: InstanceState) -> bool:
    """Whether A9 has an edge from this state to PAUSED."""
    return state in (InstanceState.REQUESTED, InstanceState.RUNNING)


def decide_resume(
    state: InstanceState | str, *, extends: bool, has_deadline: bool, fails: bool, has_exhausted: bool
) -> ResumeVerdict:
    """Decide about a request to resume. One that is refused changes nothing."""
    if parse_enum(InstanceState, state, "state of an instance") is not InstanceState.PAUSED:
        return ResumeVerdict.NOT_PAUSED
    if extends and not has_deadline:
        return ResumeVerdict.NO_DEADLINE
    if fails and not has_exhausted:
        return ResumeVerdict.NOTHING_EXHAUSTED
    return ResumeVerdict.RESUME


def is_withheld(available_at_ms: int) -> bool:
    """Whether the time from which an attempt is available is that of a withheld one."""
    return available_at_ms >= WITHHELD_MS


def withheld_ms(at_ms: int) -> int:
    """The time of an attempt while it is withheld."""
    return at_ms if is_withheld(at_ms) else at_ms + WITHHELD_MS


def original_ms(at_ms: int) -> int:
    """The time of an attempt as it was before it was withheld."""
    return at_ms - WITHHELD_MS if is_withheld(at_ms) else at_ms


def available_after_ms(at_ms: int, *, paused_at_ms: int, now_ms: int) -> int:
    """From when an attempt with this original time is available after a pause that ends now.

    An attempt that waited moves by the length of the pause and keeps its place in the queue; a retry that fell due
    meanwhile is available now; a later one keeps its time.
    """
    if at_ms <= paused_at_ms:
        return at_ms + now_ms - paused_at_ms
    return max(at_ms, now_ms)
