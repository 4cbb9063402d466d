"""G12: how history events are described, and which commands replay accepts for recorded ones."""

import msgspec
import pytest

from holdfast.core.history import (
    ActivityScheduled,
    ChildScheduled,
    ExecutionFailed,
    HistoryEvent,
    Payload,
    TimerFired,
    TimerStarted,
)

LARGE = Payload(reference="0" * 64)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (ActivityScheduled(activity=2, name="charge"), "a call of activity 'charge' (number 2)"),
        (ExecutionFailed(failure=Payload(msgspec.Raw(b'{"message":"no"}'))), "the failure of the workflow (no)"),
        (ExecutionFailed(failure=LARGE), "the failure of the workflow"),
        (TimerFired(time_ms=1, timer=0), "an event 'timer_fired'"),
    ],
)
def test_G12_an_event_has_a_description(event: HistoryEvent, expected: str) -> None:
    assert event.describe() == expected


@pytest.mark.parametrize(
    ("recorded", "produced", "is_same"),
    [
        (TimerStarted(timer=1, due_at_ms=5), TimerStarted(timer=1, due_at_ms=9), True),
        (TimerStarted(timer=1, due_at_ms=5), TimerStarted(timer=2, due_at_ms=5), False),
        (TimerStarted(timer=1, due_at_ms=5), ActivityScheduled(activity=1, name="a"), False),
        (ChildScheduled(child=0, name="a", id="x"), ChildScheduled(child=0, name="a", id="y"), True),
        (
            ChildScheduled(child=0, name="a", id="x", named=True),
            ChildScheduled(child=0, name="a", id="y", named=True),
            False,
        ),
        (ChildScheduled(child=0, name="a", id="x", named=True), TimerStarted(timer=0, due_at_ms=1), False),
    ],
)
def test_G12_a_command_is_compared_by_its_identity(
    recorded: HistoryEvent, produced: HistoryEvent, is_same: bool
) -> None:
    assert recorded.is_same_step(produced) is is_same
