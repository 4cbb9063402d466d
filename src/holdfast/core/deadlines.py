"""Deadlines of instances: what happens to an instance that has not ended in time (A9, C1).

At its deadline an instance is cancelled and has a grace period for its clean-up. An instance whose code cannot run, and
an instance whose grace period is over, ends as FAILED without running its code. One table decides, for every worker.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from holdfast.core.checks import parse_enum
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceEvent, InstanceState, next_instance_state

DEFAULT_GRACE_MS: Final = 60_000
MILLISECONDS: Final = 1000
"""Of a second."""
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))


class Deadline(NamedTuple):
    """The time limit of an instance, from its start through all its executions, and the grace period after it.

    A limit of None overrides a deadline that the workflow sets: the instance has none.
    """

    limit_ms: int | None
    grace_ms: int = DEFAULT_GRACE_MS


class DeadlineVerdict(Enum):
    """What happens at the deadline."""

    ASK = "the code is asked to end, and its grace begins"
    WAIT = "the code was asked before; its grace begins"
    HOLD = "it is paused; the deadline is applied when it is resumed"
    END = "it ends as failed, without its code"
    NOTHING = "it has ended"


_I = InstanceState
_D = DeadlineVerdict

AT_DEADLINE: Final[Mapping[InstanceState, DeadlineVerdict]] = MappingProxyType(
    {
        _I.REQUESTED: _D.END,
        _I.RUNNING: _D.ASK,
        _I.PAUSED: _D.HOLD,
        _I.BLOCKED: _D.END,
        _I.CANCEL_REQUESTED: _D.WAIT,
        **dict.fromkeys(INSTANCE_FINAL, _D.NOTHING),
    }
)
"""The code is cancelled in exactly the states in which a cancel reaches it."""

_WAY_TO_FAILED: Final[Mapping[InstanceState, tuple[InstanceEvent, ...]]] = MappingProxyType(
    {
        _I.REQUESTED: (InstanceEvent.START, InstanceEvent.FAIL),
        _I.PAUSED: (InstanceEvent.RESUME, InstanceEvent.FAIL),
    }
)
"""A9 has no edge from these to FAILED: they pass through RUNNING, in one commit."""


def at_deadline(state: InstanceState | str, *, grace_ms: int, is_grace_over: bool) -> DeadlineVerdict:
    """Decide about an instance whose deadline or grace period has passed. Without a grace period it ends at once."""
    verdict = AT_DEADLINE[parse_enum(InstanceState, state, "state of an instance")]
    if verdict in (DeadlineVerdict.NOTHING, DeadlineVerdict.HOLD) or (grace_ms > 0 and not is_grace_over):
        return verdict
    return DeadlineVerdict.END


def failed_from(state: InstanceState | str) -> InstanceState:
    """FAILED, by the edges of the state table (A9). A final state raises `IllegalTransition`."""
    begun = parse_enum(InstanceState, state, "state of an instance")
    for event in _WAY_TO_FAILED.get(begun, (InstanceEvent.FAIL,)):
        begun = next_instance_state(begun, event)
    return begun


def reason(limit_ms: int) -> str:
    """The reason of the cancel at the deadline."""
    return f"its deadline of {_shown(limit_ms)} has passed"


def why_ended(state: InstanceState | str, *, limit_ms: int, grace_ms: int, is_grace_over: bool) -> str:
    """Why an instance was ended without its code."""
    if is_grace_over:
        return f"{reason(limit_ms)}, and it did not end within the grace of {_shown(grace_ms)} that followed"
    state = parse_enum(InstanceState, state, "state of an instance")
    when = {InstanceState.REQUESTED: " before it began", InstanceState.BLOCKED: " while it was blocked"}
    return reason(limit_ms) + when.get(state, "")


def _shown(duration_ms: int) -> str:
    parts: list[str] = []
    for unit_ms, name in _UNITS:
        count, duration_ms = divmod(duration_ms, unit_ms)
        parts += [f"{count} {name}"] if count else []
    return " ".join(parts) or "0 s"


LONGEST_DAYS: Final = 36_500
LONGEST_SECONDS: Final = LONGEST_DAYS * 86_400
