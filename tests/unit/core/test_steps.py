"""The key of a workflow written as code, read off its history (K9)."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import history as ev
from holdfast.core.history import HistoryEvent, Payload
from holdfast.core.steps import derived_key, read_steps

VALUE = Payload(msgspec.Raw(b"1"))


def received(name: str) -> HistoryEvent:
    return ev.EventReceived(time_ms=5, name=name, value=VALUE)


@given(st.lists(st.sampled_from(["a", "b"]), max_size=30), st.data())
def test_G6_each_event_ends_the_oldest_open_wait_of_its_name(names: list[str], data: st.DataObject) -> None:
    """Against a plain model: a list of open waits for each name."""
    history: list[HistoryEvent] = []
    digits: list[str] = []
    waits: dict[str, list[int]] = {"a": [], "b": []}
    for number, name in enumerate(names):
        history.append(ev.EventAwaited(wait=number, name=name))
        digits.append("5")
        waits[name].append(number)
        ended = data.draw(st.sampled_from(["a", "b"]))
        if not waits[ended]:
            continue
        if data.draw(st.booleans()):
            history.append(received(ended))
            digits[waits[ended].pop(0)] = "4"
        else:
            given_up = data.draw(st.sampled_from(waits[ended]))
            history.append(ev.EventWaitEnded(wait=given_up))
            waits[ended].remove(given_up)
            digits[given_up] = "3"
    assert derived_key(read_steps(history)) == "".join(digits)


def test_K9_a_digit_for_each_step_in_the_order_of_scheduling() -> None:
    history: list[HistoryEvent] = [
        ev.ActivityScheduled(activity=0, name="charge"),
        ev.TimerStarted(timer=1, due_at_ms=9),
        ev.EventAwaited(wait=0, name="ping"),
        ev.ActivityScheduled(activity=2, name="pack"),
        ev.ActivityCompleted(time_ms=1, activity=0, result=VALUE),
        ev.TimerCancelled(timer=1),
        received("ping"),
        ev.ActivityFailed(time_ms=6, activity=2, failure=VALUE),
    ]
    steps = read_steps(history)
    assert [(step.kind, step.number) for step in steps] == [
        ("activity", 0),
        ("timer", 1),
        ("event", 0),
        ("activity", 2),
    ]
    assert derived_key(steps) == "6347"
    assert derived_key(read_steps(history[:4])) == "8558"


def test_K2_what_is_open_when_an_instance_is_ended_from_outside_is_cancelled() -> None:
    history: list[HistoryEvent] = [
        ev.ActivityScheduled(activity=0, name="charge"),
        ev.ActivityScheduled(activity=1, name="pack"),
        ev.ActivityCompleted(time_ms=1, activity=0, result=VALUE),
    ]
    ends: list[HistoryEvent] = [
        ev.InstanceTerminated(time_ms=2),
        ev.InstanceCancelled(time_ms=2),
        ev.DeadlinePassed(time_ms=2, failure=VALUE),
    ]
    assert {type(end) for end in ends} == set(ev.FROM_OUTSIDE)
    for end in ends:
        assert derived_key(read_steps([*history, end])) == "67"
