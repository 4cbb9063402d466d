"""G10: what a live instance applies in a turn, in which order and with which times."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from holdfast.core.history import ActivityCompleted, ActivityYielded, Payload, TimerFired
from holdfast.core.leases import WorkerKey
from holdfast.runtime.turns.live_instance import LiveInstance, Message, UnstoredValues
from holdfast.storage.members.outcomes import Outcome
from holdfast.storage.members.turns import StreamValues
from holdfast.storage.records import AttemptKey, Fence, InstanceId, InstanceNumber


def live_at(stamp_ms: int) -> LiveInstance:
    return LiveInstance(
        number=InstanceNumber(1),
        instance_id=InstanceId("a"),
        workflow="flow",
        execution=1,
        fence=Fence(1),
        turn=1,
        stamp_ms=stamp_ms,
        run=cast("Any", None),
    )


def answer(activity: int, time_ms: int) -> Message:
    return Message(ActivityCompleted(time_ms=time_ms, activity=activity, result=Payload(msgspec.Raw(b"1"))))


def taken(live: LiveInstance, now_ms: int) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    for message in live.take_messages(lambda: now_ms):
        event = message.event
        if isinstance(event, TimerFired):
            found.append(("timer", event.timer, event.time_ms))
        elif isinstance(event, ActivityCompleted):
            found.append(("answer", event.activity, event.time_ms))
    return found


def test_L11_values_that_wait_for_a_turn_are_committed_alone_once_if_none_comes() -> None:
    live = live_at(0)
    live.run = cast("Any", SimpleNamespace(evict=lambda: None))
    key = AttemptKey(live.number, 1, 0, 1)
    event = ActivityYielded(time_ms=1, activity=0, number=0, value=Payload())
    responses = StreamValues(key=key, owner=WorkerKey("anna"), from_ledger=889_000_000_000_000, event=event)
    sent: list[StreamValues] = []

    def done(_: Outcome) -> None:
        raise AssertionError("nobody has decided anything")

    def alone(values: StreamValues, _: Callable[[Outcome], None]) -> None:
        sent.append(values)

    live.queue.append(answer(1, 10))
    live.queue.append(Message(event, response=UnstoredValues(responses, done, alone)))
    live.evict()
    live.evict()
    assert sent == [responses]
    assert taken(live, 60) == [("answer", 1, 10)]


def test_G10_stamps_never_go_back() -> None:
    live = live_at(30)
    live.queue.extend([answer(0, 20), answer(1, 50), answer(2, 40)])
    assert taken(live, 60) == [("answer", 0, 30), ("answer", 1, 50), ("answer", 2, 50)]
    live.queue.append(answer(3, 10))
    assert taken(live, 60) == [("answer", 3, 50)]


def test_G10_a_timer_fires_at_its_due_time_and_not_a_millisecond_before() -> None:
    live = live_at(0)
    live.timers = {1: 100}
    assert taken(live, 99) == []
    assert taken(live, 100) == [("timer", 1, 100)]


def test_G10_a_timer_goes_before_the_first_message_stamped_at_or_after_its_due_time() -> None:
    live = live_at(0)
    live.timers = {1: 100, 2: 50, 3: 200}
    live.queue.extend([answer(0, 40), answer(1, 100), answer(2, 110)])
    assert taken(live, 150) == [
        ("answer", 0, 40),
        ("timer", 2, 50),
        ("timer", 1, 100),
        ("answer", 1, 100),
        ("answer", 2, 110),
    ]
