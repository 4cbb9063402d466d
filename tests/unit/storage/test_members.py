"""Every member says in whose name it acts, and whether other processes are notified of it."""

from typing import Any, get_args

import msgspec
import pytest
from tests.stores import memory

from holdfast.core.admission import EventPolicy, IdPolicy, Mailbox
from holdfast.core.children import ParentClose
from holdfast.core.history import ActivityYielded, CancelRequested, Payload
from holdfast.core.leases import WorkerKey
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.core.updates import UpdateState
from holdfast.storage.members.attempts import Completion, OpenNextAttempt, Transition
from holdfast.storage.members.base import CommitMember, WorkerMember
from holdfast.storage.members.instances import Start
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.row_handling import ContractMember
from holdfast.storage.members.turns import (
    AppliedValues,
    CancelChild,
    InstanceEnd,
    NewChild,
    NextExecution,
    StreamValues,
    Turn,
    TurnEffects,
    UpdateAnswer,
)
from holdfast.storage.records import (
    AttemptKey,
    Fence,
    InstanceId,
    InstanceNumber,
    LargePayload,
    NewAttempt,
    StateValue,
    TimerRow,
)
from holdfast.storage.relational.apply import dispatch as relational

MEMBERS = get_args(Member)
OWN_ACTORS = {Completion, OpenNextAttempt, Start}
"""Their actors depend on their fields."""
SILENT = {
    "ClaimAttempts",
    "ClaimInstances",
    "ClaimQueries",
    "DeleteQueries",
    "HeartbeatAttempt",
    "QueueAttempts",
    "RunPrepared",
}
"""They change nothing that another process waits for."""


def test_every_store_applies_every_member() -> None:
    assert set(relational.APPLY_BY_TYPE) == set(MEMBERS)
    assert set(memory.APPLY_BY_TYPE) == set(MEMBERS) - set(get_args(ContractMember))


def test_W6_a_member_with_an_owner_acts_in_its_name() -> None:
    assert all(issubclass(member, CommitMember) for member in MEMBERS)
    for member in MEMBERS:
        has_owner = "owner" in member.__struct_fields__ or member in OWN_ACTORS
        assert has_owner == (issubclass(member, WorkerMember) or "actor" in vars(member)), member


OWNER = WorkerKey("anna")
NUMBER = InstanceNumber(1)
KEY = AttemptKey(number=NUMBER, execution=1, activity=0, attempt=1)
RUNNING = AttemptState.RUNNING
RESPONSE = Transition(key=KEY, owner=OWNER, from_state=RUNNING, from_ledger=0, to_state=RUNNING, to_ledger=1)
YIELDED = ActivityYielded(time_ms=0, activity=0, number=0, value=Payload(msgspec.Raw(b"1")))
CHILD = NewChild(
    child=0,
    id=InstanceId("it/1/0"),
    workflow="w",
    version="",
    input=b"[]",
    input_hash=b"",
    started=b"",
    parent_close=ParentClose.TERMINATE,
)
ATTEMPT = NewAttempt(
    activity=0,
    attempt=1,
    name="a",
    queue="default",
    state=AttemptState.READY,
    ledger=0,
    input=b"[]",
    options=b"",
    available_at_ms=0,
    scheduled_at_ms=0,
)
VALUES_OF_EFFECTS: dict[str, tuple[Any, bool]] = {
    "close": (InstanceEnd(state=InstanceState.COMPLETED, outcome=b"null"), True),
    "next": (NextExecution(input=b"[]", started=b""), False),
    "release": (True, True),
    "read_to": (3, False),
    "consumed": ((1,), False),
    "events_taken": (1, False),
    "responses": ((RESPONSE,), False),
    "applied_values": ((AppliedValues(key=KEY, count=1),), False),
    "stream_values": (
        (StreamValues(owner=OWNER, key=KEY, from_ledger=0, event=YIELDED),),
        False,
    ),
    "abandoned": ((1,), False),
    "timers_started": ((TimerRow(timer=0, due_at_ms=1),), False),
    "timers_ended": ((1,), False),
    "payloads": ((LargePayload(reference="r", data=b"x"),), False),
    "waits": (("go",), False),
    "ids_set_aside": (("one",), False),
    "sent": ((Deliver(id=InstanceId("other"), event=CancelRequested(time_ms=0)),), True),
    "mailbox": (Mailbox(EventPolicy.MAILBOX, 1), False),
    "state_values": ((StateValue(key="key", value=b"1"),), True),
    "answers": ((UpdateAnswer(id="u", state=next(iter(UpdateState))),), True),
    "children": ((CHILD,), True),
    "children_cancelled": ((CancelChild(child=0),), True),
    "has_relatives": (True, True),
}
"""A value of each effect, and whether a turn with it alone is for other processes."""


def turn_of(effects: TurnEffects | None, **more: Any) -> Turn:
    return Turn(owner=OWNER, number=NUMBER, execution=1, fence=Fence(1), turn=0, stamp_ms=0, effects=effects, **more)


def start_of(first: Turn | None, policy: IdPolicy = IdPolicy.IDEMPOTENT) -> Start:
    return Start(id=InstanceId("it"), workflow="w", version="", input=b"[]", input_hash=b"", first=first, policy=policy)


def test_every_effect_of_a_turn_has_a_row() -> None:
    assert set(VALUES_OF_EFFECTS) == set(TurnEffects.__struct_fields__)


@pytest.mark.parametrize("field", VALUES_OF_EFFECTS)
def test_a_turn_notifies_if_an_effect_is_for_other_processes(field: str) -> None:
    value, notifies = VALUES_OF_EFFECTS[field]
    turn = turn_of(TurnEffects(**{field: value}))
    assert turn.notifies is notifies
    assert start_of(turn).notifies is (notifies and field != "release"), "a new instance that is released has no waiter"
    assert start_of(turn, IdPolicy.TERMINATE_EXISTING).notifies


def test_a_turn_without_effects_notifies_only_of_attempts() -> None:
    for turn, notifies in (
        (turn_of(None), False),
        (turn_of(TurnEffects()), False),
        (turn_of(None, attempts=(ATTEMPT,)), True),
    ):
        assert turn.notifies is notifies
        assert start_of(turn).notifies is notifies
    assert start_of(None).notifies


def test_members_notify_other_processes_unless_they_are_known_to_be_silent() -> None:
    deciding = {member.__name__ for member in MEMBERS if "notifies" in vars(member)}
    assert deciding == SILENT | {"Start", "Turn"}
