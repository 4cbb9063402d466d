"""Gates: delivery, starts, events and order (G3, G5, G6, G7, G10)."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.admission import (
    Arrival,
    DeliveryVerdict,
    EventPolicy,
    EventVerdict,
    ExistingInstance,
    IdPolicy,
    MessageKind,
    OrderedItem,
    PendingTimer,
    StartIdentity,
    StartVerdict,
    apply_order,
    decide_delivery,
    decide_event,
    decide_start,
    stamp_ms,
)
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceState
from holdfast.errors import UnknownWord

S = InstanceState
ORDERS = StartIdentity("checkout", b"input")
OTHER_INPUT = StartIdentity("checkout", b"other")
OTHER_WORKFLOW = StartIdentity("refund", b"input")
OPEN = [state for state in InstanceState if state not in INSTANCE_FINAL]
CLOSED = sorted(INSTANCE_FINAL)


@pytest.mark.parametrize("policy", list(IdPolicy))
def test_G3_an_id_that_is_free_is_created(policy: IdPolicy) -> None:
    assert decide_start(ORDERS, None, policy) is StartVerdict.CREATE


@pytest.mark.parametrize("state", list(InstanceState))
def test_G3_the_same_workflow_and_input_is_the_same_instance_and_anything_else_a_conflict(state: InstanceState) -> None:
    assert decide_start(ORDERS, ExistingInstance(ORDERS, state)) is StartVerdict.SAME
    assert decide_start(OTHER_INPUT, ExistingInstance(ORDERS, state)) is StartVerdict.CONFLICT
    assert decide_start(OTHER_WORKFLOW, ExistingInstance(ORDERS, state)) is StartVerdict.CONFLICT


def test_G3_reuse_makes_a_new_instance_once_the_old_one_is_closed() -> None:
    for state in CLOSED:
        assert decide_start(ORDERS, ExistingInstance(ORDERS, state), IdPolicy.REUSE) is StartVerdict.CREATE
    for state in OPEN:
        assert decide_start(ORDERS, ExistingInstance(ORDERS, state), IdPolicy.REUSE) is StartVerdict.SAME
        assert decide_start(OTHER_INPUT, ExistingInstance(ORDERS, state), IdPolicy.REUSE) is StartVerdict.CONFLICT


def test_G3_terminate_existing_replaces_what_is_open() -> None:
    for request in (ORDERS, OTHER_INPUT, OTHER_WORKFLOW):
        for state in CLOSED:
            assert (
                decide_start(request, ExistingInstance(ORDERS, state), IdPolicy.TERMINATE_EXISTING)
                is StartVerdict.CREATE
            )
        for state in OPEN:
            assert (
                decide_start(request, ExistingInstance(ORDERS, state), IdPolicy.TERMINATE_EXISTING)
                is StartVerdict.REPLACE
            )


TO_ONE_EXECUTION = {MessageKind.COMPLETION, MessageKind.TIMER, MessageKind.CHILD_RESULT}
CASES = list(itertools.product(MessageKind, InstanceState, [True, False], [1, 2, 3]))


@pytest.mark.parametrize(("kind", "state", "loop", "addressed_to"), CASES)
def test_G5_every_message_state_and_execution(
    kind: MessageKind, state: InstanceState, loop: bool, addressed_to: int
) -> None:
    verdict = decide_delivery(kind, state=state, loop_is_active=loop, addressed_to=addressed_to, execution=2)
    if state in INSTANCE_FINAL or (kind in TO_ONE_EXECUTION and addressed_to != 2):
        assert verdict is DeliveryVerdict.DROP
    elif state in (S.BLOCKED, S.PAUSED):
        assert verdict is DeliveryVerdict.KEEP
    elif loop:
        assert verdict is DeliveryVerdict.DELIVER
    else:
        assert verdict is DeliveryVerdict.KEEP_AND_WAKE


def event(state: InstanceState | None = S.RUNNING, **given: bool | int | EventPolicy) -> EventVerdict:
    seen = bool(given.get("seen", False))
    waits = bool(given.get("waits", False))
    policy = EventPolicy.DROP_UNSUBSCRIBED if given.get("drop") else EventPolicy.MAILBOX
    return decide_event(
        state, seen_before=seen, is_awaited=waits, kept=int(given.get("kept", 0)), policy=policy, limit=3
    )


def test_G6_an_event_nobody_waits_for_is_kept_up_to_the_bound() -> None:
    assert event() is EventVerdict.KEEP
    assert event(kept=2) is EventVerdict.KEEP
    assert event(kept=3) is EventVerdict.MAILBOX_FULL
    assert event(kept=3, waits=True) is EventVerdict.DELIVER


def test_G6_drop_unsubscribed_drops_the_early_event_and_delivers_the_later_one() -> None:
    assert event(drop=True) is EventVerdict.DROP_UNSUBSCRIBED
    assert event(drop=True, waits=True) is EventVerdict.DELIVER


@pytest.mark.parametrize("state", list(InstanceState))
def test_G6_the_same_id_is_delivered_once(state: InstanceState) -> None:
    assert event(state, seen=True, waits=True) is EventVerdict.DUPLICATE


def test_G7_finished_and_unknown_instances_refuse_events() -> None:
    for state in CLOSED:
        assert event(InstanceState(state), waits=True) is EventVerdict.CLOSED
    assert event(None, seen=True, waits=True) is EventVerdict.UNKNOWN


def test_G6_a_paused_or_blocked_instance_keeps_an_event_that_it_awaits() -> None:
    for state in (S.PAUSED, S.BLOCKED):
        assert event(state, waits=True) is EventVerdict.KEEP
        assert event(state, waits=True, drop=True) is EventVerdict.KEEP


def test_G6_the_documents_scenario_an_early_event_is_dropped_and_its_retry_after_subscribing_delivered() -> None:
    assert event(drop=True, waits=False) is EventVerdict.DROP_UNSUBSCRIBED
    assert event(drop=True, waits=True, seen=False) is EventVerdict.DELIVER, "a dropped id was not seen"


def test_G6_the_documents_scenario_after_continue_as_new_the_new_execution_must_subscribe_again() -> None:
    """The wait of the old execution does not count: `is_awaited` is about the latest one."""
    assert event(drop=True, waits=False) is EventVerdict.DROP_UNSUBSCRIBED
    assert event(drop=True, waits=True) is EventVerdict.DELIVER
    assert event(drop=False, waits=False) is EventVerdict.KEEP


def test_G6_by_default_events_are_kept_and_the_bound_is_generous() -> None:
    assert decide_event(S.RUNNING, seen_before=False, is_awaited=False, kept=99_999) is EventVerdict.KEEP
    assert decide_event(S.RUNNING, seen_before=False, is_awaited=False, kept=100_000) is EventVerdict.MAILBOX_FULL


def test_words_from_outside_decide_like_our_own_and_unknown_ones_are_refused() -> None:
    assert decide_start(ORDERS, ExistingInstance(ORDERS, "COMPLETED"), "reuse") is StartVerdict.CREATE
    assert (
        decide_delivery("event", state="PAUSED", loop_is_active=True, addressed_to=1, execution=1)
        is DeliveryVerdict.KEEP
    )
    dropped = decide_event("RUNNING", seen_before=False, is_awaited=False, kept=0, policy="drop_unsubscribed")
    assert dropped is EventVerdict.DROP_UNSUBSCRIBED
    with pytest.raises(UnknownWord, match="'bogus' is not a valid policy for ids; use one of idempotent, reuse"):
        decide_start(ORDERS, ExistingInstance(ORDERS, "RUNNING"), "bogus")
    with pytest.raises(UnknownWord, match="'ASLEEP' is not a valid state of an instance"):
        decide_event("ASLEEP", seen_before=False, is_awaited=False, kept=0)


def test_G10_stamps_never_go_back() -> None:
    assert stamp_ms(100, 90) == 100
    assert stamp_ms(100, 110) == 110


def test_G10_after_a_downtime_a_timer_goes_before_the_message_that_came_after_it_was_due() -> None:
    early, late = Arrival(1, 1_000), Arrival(2, 3_000)
    timer = PendingTimer(7, 2_000)
    assert apply_order([early, late], [timer], previous_ms=0, now_ms=9_000) == (
        OrderedItem(early, 1_000),
        OrderedItem(timer, 2_000),
        OrderedItem(late, 3_000),
    )


def test_G10_a_timer_goes_before_a_message_stamped_at_its_very_due_time() -> None:
    timer, message = PendingTimer(1, 2_000), Arrival(1, 2_000)
    assert [applied.item for applied in apply_order([message], [timer], previous_ms=0, now_ms=2_000)] == [
        timer,
        message,
    ]


def test_G10_a_timer_is_never_early_and_due_ones_fire_in_order_of_time_then_number() -> None:
    timers = [PendingTimer(3, 100), PendingTimer(2, 100), PendingTimer(1, 200), PendingTimer(0, 201)]
    order = apply_order([], timers, previous_ms=150, now_ms=200)
    assert [(applied.item, applied.time_ms) for applied in order] == [
        (timers[1], 150),
        (timers[0], 150),
        (timers[2], 200),
    ]


arrivals = st.lists(st.integers(0, 50), max_size=8).map(
    lambda stamps: [Arrival(row, stamp) for row, stamp in enumerate(sorted(stamps))]
)
timers = st.lists(st.integers(0, 60), max_size=8).map(
    lambda dues: [PendingTimer(number, due) for number, due in enumerate(dues)]
)


@given(arrivals, timers, st.integers(0, 60), st.integers(0, 60))
def test_G10_the_merged_order_keeps_every_promise(
    messages: list[Arrival], pending: list[PendingTimer], previous_ms: int, now_ms: int
) -> None:
    order = apply_order(messages, pending, previous_ms=previous_ms, now_ms=now_ms)
    items = [applied.item for applied in order]
    times = [applied.time_ms for applied in order]
    assert [item for item in items if isinstance(item, Arrival)] == messages, "arrival order, nothing lost"
    fired = [item for item in items if isinstance(item, PendingTimer)]
    assert sorted(fired, key=lambda t: t.number) == [timer for timer in pending if timer.due_at_ms <= now_ms]
    assert times == sorted(times), "the loop's time never goes back"
    assert all(time >= previous_ms for time in times)
    for at, item in enumerate(items):
        if isinstance(item, PendingTimer):
            assert times[at] >= item.due_at_ms
            before = [other for other in items[:at] if isinstance(other, Arrival)]
            after = [other for other in items[at:] if isinstance(other, Arrival)]
            assert all(message.stamp_ms < item.due_at_ms for message in before)
            assert all(message.stamp_ms >= item.due_at_ms for message in after)
