"""The deadline of an instance: what becomes of one that has not ended in time (A9, C1).

At its deadline the code is asked to end, as by a cancel, and has a grace for its clean-up. Where there is no code to
ask, and when the grace is over, the instance ends as FAILED without it. One table, for whoever finds the time has come.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from holdfast.core.checks import parse_enum
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceEvent, InstanceState, next_instance_state

DEFAULT_GRACE_MS: Final = 60_000
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))


class Deadline(NamedTuple):
    """How long an instance may take, counted from its start through all its executions, and its clean-up after that.

    Without a limit it says that there is none, whatever the code says.
    """

    limit_ms: int | None
    grace_ms: int = DEFAULT_GRACE_MS


class DeadlineVerdict(Enum):
    """What is done when the time has come."""

    ASK = "the code is asked to end, and its grace begins"
    WAIT = "the code was asked before; its grace begins"
    END = "it ends as failed, without its code"
    NOTHING = "it has ended"


_I = InstanceState
_D = DeadlineVerdict

AT_DEADLINE: Final[Mapping[InstanceState, DeadlineVerdict]] = MappingProxyType(
    {
        _I.REQUESTED: _D.END,
        _I.RUNNING: _D.ASK,
        _I.PAUSED: _D.ASK,
        _I.BLOCKED: _D.END,
        _I.CANCEL_REQUESTED: _D.WAIT,
        **dict.fromkeys(INSTANCE_FINAL, _D.NOTHING),
    }
)
"""The code is asked exactly where a cancel would ask it."""

_WAY_TO_FAILED: Final[Mapping[InstanceState, tuple[InstanceEvent, ...]]] = MappingProxyType(
    {
        _I.REQUESTED: (InstanceEvent.START, InstanceEvent.FAIL),
        _I.PAUSED: (InstanceEvent.RESUME, InstanceEvent.FAIL),
    }
)
"""A9 has no edge from these to FAILED: they pass through RUNNING, in one commit."""


def at_deadline(state: InstanceState | str, *, grace_ms: int, is_grace_over: bool) -> DeadlineVerdict:
    """Judge an instance whose deadline, or the grace after it, has passed. Without a grace nobody is asked."""
    verdict = AT_DEADLINE[parse_enum(InstanceState, state, "state of an instance")]
    if verdict is DeadlineVerdict.NOTHING or (grace_ms > 0 and not is_grace_over):
        return verdict
    return DeadlineVerdict.END


def failed_from(state: InstanceState | str) -> InstanceState:
    """FAILED, by the edges of the one table (A9). A final state has no way there."""
    begun = parse_enum(InstanceState, state, "state of an instance")
    for event in _WAY_TO_FAILED.get(begun, (InstanceEvent.FAIL,)):
        begun = next_instance_state(begun, event)
    return begun


def reason(limit_ms: int) -> str:
    """What the code is told when it is asked to end."""
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
