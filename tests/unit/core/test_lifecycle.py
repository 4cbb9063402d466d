"""The two transition tables, pair by pair, and the agreement of ledger and state."""

import itertools

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.core import ledger
from holdfast.core.ledger import SEED, conclude_leg1, enter_leg1, enter_leg2, exit_leg2
from holdfast.core.lifecycle import (
    ATTEMPT_FINAL,
    INSTANCE_FINAL,
    AttemptEvent,
    AttemptState,
    InstanceEvent,
    InstanceState,
    disagreement,
    next_attempt_state,
    next_instance_state,
    next_state,
)
from holdfast.errors import IllegalTransition, UnknownWord

# The table of the rule, as it is printed there. Columns: cancel ready queue prepare run release fail complete
# stopped expire.
A1 = """
REQUESTED          CANCELLED          READY QUEUED -         -       -     -      -         -         TIMED_OUT
READY              CANCELLED          -     QUEUED PREPARING RUNNING -     -      -         -         TIMED_OUT
QUEUED             CANCELLED          -     -      PREPARING RUNNING READY FAILED -         -         TIMED_OUT
PREPARING          CANCELLED          -     -      -         RUNNING READY FAILED -         -         TIMED_OUT
RUNNING            CANCELLED_RUNNING  -     -      -         -       -     FAILED COMPLETED -         TIMED_OUT
CANCELLED_RUNNING  CANCELLED_RUNNING  -     -      -         -       -     FAILED COMPLETED CANCELLED TIMED_OUT
CANCELLED          -                  -     -      -         -       -     -      -         -         -
TIMED_OUT          -                  -     -      -         -       -     -      -         -         -
FAILED             -                  -     -      -         -       -     -      -         -         -
COMPLETED          -                  -     -      -         -       -     -      -         -         -
"""
COLUMNS = ["cancel", "ready", "queue", "prepare", "run", "release", "fail", "complete", "stopped", "expire"]
EXPECTED = {
    (row.split()[0], column): cell
    for row in A1.strip().splitlines()
    for column, cell in zip(COLUMNS, row.split()[1:], strict=True)
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(AttemptState, AttemptEvent)))
def test_A1_every_pair_of_attempt_state_and_event_is_as_the_table_says(
    state: AttemptState, event: AttemptEvent
) -> None:
    expected = EXPECTED[str(state), str(event)]
    if expected == "-":
        with pytest.raises(IllegalTransition, match=f"{state} has no transition '{event}'"):
            next_state(state, event)
    else:
        assert next_state(state, event) is AttemptState(expected)


def test_A1_final_attempts_have_no_way_out() -> None:
    assert {"CANCELLED", "TIMED_OUT", "FAILED", "COMPLETED"} == ATTEMPT_FINAL


# A9 as it is printed: from -> the states that may follow, with the event that leads there.
A9 = {
    "REQUESTED": "start:RUNNING pause:PAUSED block:BLOCKED cancel:CANCELLED terminate:TERMINATED",
    "RUNNING": "pause:PAUSED block:BLOCKED request_cancel:CANCEL_REQUESTED complete:COMPLETED fail:FAILED "
    "terminate:TERMINATED continue_as_new:RUNNING",
    "PAUSED": "resume:RUNNING resume_requested:REQUESTED request_cancel:CANCEL_REQUESTED terminate:TERMINATED",
    "BLOCKED": "unblock:RUNNING cancel:CANCELLED terminate:TERMINATED fail:FAILED",
    "CANCEL_REQUESTED": "block:BLOCKED cancel:CANCELLED complete:COMPLETED fail:FAILED terminate:TERMINATED",
    "COMPLETED": "",
    "FAILED": "",
    "CANCELLED": "",
    "TERMINATED": "",
}
EDGES = {state: dict(edge.split(":") for edge in edges.split()) for state, edges in A9.items()}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(InstanceState, InstanceEvent)))
def test_A9_every_pair_of_instance_state_and_event_is_as_the_rule_says(
    state: InstanceState, event: InstanceEvent
) -> None:
    expected = EDGES[str(state)].get(str(event))
    if expected is None:
        with pytest.raises(IllegalTransition, match=f"an instance that is {state} has no transition '{event}'"):
            next_state(state, event)
    else:
        assert next_state(state, event) is InstanceState(expected)
        assert next_instance_state(str(state), str(event)) is InstanceState(expected)


def test_A1_A9_words_from_outside_are_read_by_the_right_table() -> None:
    assert next_attempt_state("RUNNING", "complete") is AttemptState.COMPLETED
    with pytest.raises(UnknownWord, match="'ASLEEP' is not a valid state of an attempt; use one of REQUESTED"):
        next_attempt_state("ASLEEP", "complete")
    with pytest.raises(UnknownWord, match="'expire' is not a valid event of an instance"):
        next_instance_state("RUNNING", "expire")
    with pytest.raises(UnknownWord, match="is not a valid event of an instance"):
        next_state(InstanceState.RUNNING, AttemptEvent.EXPIRE)  # type: ignore[call-overload]  # wrong on purpose


class InstanceThroughItsLife(RuleBasedStateMachine):
    """An instance takes any events, duplicates among them; it follows the printed edges and never leaves the end."""

    def __init__(self) -> None:
        super().__init__()
        self.state = InstanceState.REQUESTED
        self.ended: InstanceState | None = None

    @rule(event=st.sampled_from(InstanceEvent), times=st.integers(1, 2))
    def happen(self, event: InstanceEvent, times: int) -> None:
        for _ in range(times):
            expected = EDGES[str(self.state)].get(str(event))
            try:
                self.state = next_state(self.state, event)
            except IllegalTransition:
                assert expected is None
            else:
                assert self.state == expected
        if self.state in INSTANCE_FINAL:
            self.ended = self.ended or self.state

    @invariant()
    def what_has_ended_stays_ended(self) -> None:
        assert self.ended is None or self.state is self.ended


TestA9InstanceThroughItsLife = InstanceThroughItsLife.TestCase


def test_A9_final_instances_have_no_way_out() -> None:
    assert {"COMPLETED", "FAILED", "CANCELLED", "TERMINATED"} == INSTANCE_FINAL


@pytest.mark.parametrize(
    ("state", "value", "owned", "unapplied"),
    [
        ("REQUESTED", 999000000000000, False, 0),
        ("READY", 999000000000000, False, 0),
        ("READY", 899000000000000, False, 0),  # released by a lost claimer
        ("QUEUED", 899000000000000, True, 0),
        ("QUEUED", 799000000000000, True, 0),
        ("PREPARING", 899000000000000, True, 0),
        ("RUNNING", 889000000000000, True, 0),
        ("RUNNING", 889000003000001, True, 2),
        ("CANCELLED_RUNNING", 889000000000000, True, 0),
        ("COMPLETED", 889000001000000, True, 1),
        ("COMPLETED", 888000001000001, True, 0),
        ("FAILED", 499000000000000, False, 0),  # exhausted before it ran
        ("FAILED", 889000000000000, True, 0),  # failed and retried: no response went to the workflow
        ("FAILED", 888000001000001, True, 0),
        ("CANCELLED", 999000000000000, False, 0),
        ("CANCELLED", 889000000000000, True, 0),
        ("TIMED_OUT", 889000000000000, True, 0),
        ("TIMED_OUT", 999000000000000, False, 0),
    ],
)
def test_A8_states_and_ledgers_that_belong_together(state: str, value: int, owned: bool, unapplied: int) -> None:
    assert disagreement(AttemptState(state), value, owned=owned, unapplied=unapplied) is None


@pytest.mark.parametrize(
    ("state", "value", "owned", "is_sound"),
    [
        ("READY", 999000000000000, False, True),
        ("READY", 899000000000000, True, False),
        ("QUEUED", 899000000000000, False, True),  # claimed by an executor
        ("QUEUED", 899000000000000, True, True),  # claimed by a launcher
        ("PREPARING", 899000000000000, False, True),
        ("PREPARING", 899000000000000, True, False),
        ("RUNNING", 889000000000000, False, True),
        ("RUNNING", 889000000000000, True, False),
        ("CANCELLED_RUNNING", 889000000000000, False, True),
        ("CANCELLED_RUNNING", 889000000000000, True, False),
        ("COMPLETED", 888000001000001, False, True),
    ],
)
def test_A8_an_external_attempt_has_an_owner_only_while_a_launcher_has_it(
    state: str, value: int, owned: bool, is_sound: bool
) -> None:
    why = disagreement(state, value, owned=owned, unapplied=0, external=True)
    assert (why is None) == is_sound
    assert why is None or "no worker may own it" in why


@pytest.mark.parametrize(
    ("state", "value", "owned", "unapplied", "reason"),
    [
        ("READY", 889000000000000, False, 0, "leg 1 is concluded"),
        ("READY", 999000000000000, True, 0, "no worker may own it"),
        ("QUEUED", 999000000000000, True, 0, "entered and not concluded"),
        ("QUEUED", 889000000000000, True, 0, "entered and not concluded"),
        ("QUEUED", 899000000000000, False, 0, "a worker must own it"),
        ("RUNNING", 899000000000000, True, 0, "leg 1 must be concluded"),
        ("RUNNING", 888000001000001, True, 0, "leg 2 open"),
        ("RUNNING", 889000000000000, False, 0, "a worker must own it"),
        ("RUNNING", 889000001000000, True, 0, "count 1 unapplied responses, the inbox has 0"),
        ("COMPLETED", 889000000000000, True, 0, "neither applied nor in the inbox"),
        ("COMPLETED", 899000000000000, True, 0, "completes only after"),
        ("COMPLETED", 888000002000001, True, 1, "not applied yet"),
        ("FAILED", 888000002000001, True, 1, "not applied yet"),
        ("FAILED", 999000000000000, False, 0, "an attempt fails only after it was claimed"),
        ("TIMED_OUT", 888000001000001, True, 0, "is not closed by a response"),
        ("RUNNING", 123, True, 0, "is not a ledger"),
    ],
)
def test_A8_what_contradicts_is_named(state: str, value: int, owned: bool, unapplied: int, reason: str) -> None:
    assert reason in (disagreement(AttemptState(state), value, owned=owned, unapplied=unapplied) or "")


class AttemptThroughItsLife(RuleBasedStateMachine):
    """One attempt, driven by a shell that changes state and ledger together. They must agree after every commit."""

    def __init__(self) -> None:
        super().__init__()
        self.state = AttemptState.REQUESTED
        self.value: int = SEED
        self.owned = False
        self.inbox: list[bool] = []

    def happen(self, event: AttemptEvent) -> bool:
        legal = EXPECTED[str(self.state), str(event)] != "-"
        try:
            self.state = next_state(self.state, event)
        except IllegalTransition:
            assert not legal
        else:
            assert legal
        return legal

    @rule(event=st.sampled_from([AttemptEvent.CANCEL, AttemptEvent.EXPIRE, AttemptEvent.STOPPED, AttemptEvent.READY]))
    def change_only_the_state(self, event: AttemptEvent) -> None:
        self.happen(event)

    @rule(event=st.sampled_from([AttemptEvent.QUEUE, AttemptEvent.PREPARE, AttemptEvent.RUN]))
    def go_on(self, event: AttemptEvent) -> None:
        waiting = self.state in (AttemptState.REQUESTED, AttemptState.READY)
        if waiting and not enter_leg1(self.value)[1].runs:
            return  # exhausted: L8 ends it below
        if not self.happen(event):
            return
        self.owned = True
        if waiting:
            self.value, _ = enter_leg1(self.value)
        if event is AttemptEvent.RUN:
            self.value = conclude_leg1(self.value)

    @rule()
    def dead_letter(self) -> None:
        if self.state is AttemptState.READY and not enter_leg1(self.value)[1].runs:
            self.happen(AttemptEvent.QUEUE)
            self.happen(AttemptEvent.FAIL)

    @rule()
    def lose_the_claimer(self) -> None:
        if self.happen(AttemptEvent.RELEASE):
            self.owned = False

    @rule(final=st.booleans(), event=st.sampled_from([AttemptEvent.COMPLETE, AttemptEvent.FAIL]))
    def respond(self, final: bool, event: AttemptEvent) -> None:
        if self.state not in (AttemptState.RUNNING, AttemptState.CANCELLED_RUNNING):
            return
        self.value, verdict = enter_leg2(self.value)
        assert isinstance(verdict, ledger.Accepted)
        self.inbox.append(final)
        if final:
            self.happen(event)

    @rule()
    def take_a_turn(self) -> None:
        for final in self.inbox:
            self.value = exit_leg2(self.value, final=final)
        self.inbox.clear()

    @invariant()
    def ledger_and_state_agree(self) -> None:
        assert disagreement(self.state, self.value, owned=self.owned, unapplied=len(self.inbox)) is None


TestA8AttemptThroughItsLife = AttemptThroughItsLife.TestCase
