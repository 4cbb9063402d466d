"""A store under test: a manual clock, two workers, and short functions that make members."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import msgspec

from holdfast.core.activity_options import ActivityOptions, encode_options
from holdfast.core.checks import require
from holdfast.core.history import (
    ActivityCompleted,
    ActivityScheduled,
    ExecutionCompleted,
    HistoryEvent,
    Payload,
    Started,
    encode_event,
    encode_events,
)
from holdfast.core.leases import Heartbeat, HeartbeatReply, Renewed, WorkerKey
from holdfast.core.ledger import SEED, enter_leg2, exit_leg2
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.storage.contract import Store
from holdfast.storage.members.attempts import Completion
from holdfast.storage.members.instances import Start
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Applied, Outcome, StartedInstance
from holdfast.storage.members.turns import InstanceEnd, Turn, TurnEffects
from holdfast.storage.members.workers import Registration
from holdfast.storage.records import AttemptKey, CommitId, Fence, InstanceId, InstanceNumber, InstanceRecord, NewAttempt
from holdfast.storage.wakeups import Notify, ignore_wakeups

RUNNING_LEDGER = 889_000_000_000_000
FIRST_TIME_MS = 1_000_000
HERE = Registration(host=b"{}", queues="default", build="")
ANNA = WorkerKey("anna")
BERT = WorkerKey("bert")


class ManualClock:
    """A clock that a test sets. It may be set back, as clocks of machines are."""

    def __init__(self) -> None:
        self.now_ms = FIRST_TIME_MS

    def __call__(self) -> int:
        return self.now_ms


class Bench:
    """One store, with helpers to commit members and to read instances."""

    def __init__(self, store: Store, clock: ManualClock, *, first_id: int = 1) -> None:
        self.store = store
        self.clock = clock
        self._ids = count(first_id)
        self.last_id = CommitId(0)
        self.tokens: dict[WorkerKey, int] = {}

    # ------------------------------------------------------------ verbs

    async def commit(self, *members: Member, notify: Notify = ignore_wakeups) -> list[Outcome]:
        self.last_id = CommitId(next(self._ids))
        return await self.store.commit(self.last_id, members, notify)

    async def one(self, member: Member) -> Outcome:
        return (await self.commit(member))[0]

    def beat(self, key: WorkerKey, *, lease_ms: int = 10_000) -> HeartbeatReply:
        reply = self.store.heartbeat(Heartbeat(key, self.tokens.get(key), lease_ms), HERE)
        if isinstance(reply, Renewed):
            self.tokens[key] = reply.token
        return reply

    async def instance(self, instance_id: str) -> InstanceRecord:
        record = await self.store.find_instance(InstanceId(instance_id))
        require(record is not None, f"{instance_id} is not there")
        return record  # type: ignore[return-value]  # required above

    async def started(self, instance_id: str, *, owner: WorkerKey = ANNA, activities: int = 1) -> InstanceRecord:
        """An instance whose first turn scheduled some activities, running with its owner."""
        outcome = await self.one(start(instance_id, first=first_turn(owner, activities=activities)))
        require(isinstance(outcome, StartedInstance) and outcome.created, f"{instance_id} was not created: {outcome}")
        return await self.instance(instance_id)


def start(
    instance_id: str,
    *,
    first: Turn | None = None,
    given: bytes = b"{}",
    workflow: str = "flow",
    version: str | None = "",
    **more: Any,
) -> Start:
    """The start of an instance."""
    begun = Started(time_ms=0, workflow=workflow, version=version or "", seed=1, input=Payload(msgspec.Raw(given)))
    return Start(
        id=InstanceId(instance_id),
        workflow=workflow,
        version=version,
        input=given,
        input_hash=given,
        started=encode_event(begun),
        first=first,
        **more,
    )


def first_turn(owner: WorkerKey = ANNA, *, activities: int = 1, release: bool = False) -> Turn:
    """Turn 0 of an instance that is yet to be created, with activities that run at once."""
    events: list[HistoryEvent] = [ActivityScheduled(activity=number, name="step") for number in range(activities)]
    return Turn(
        number=InstanceNumber(0),
        execution=1,
        owner=owner,
        fence=Fence(1),
        turn=0,
        stamp_ms=FIRST_TIME_MS,
        events=encode_events(events),
        attempts=tuple(new_attempt(number, owner=owner) for number in range(activities)),
        effects=TurnEffects(release=True) if release else None,
    )


def turn(record: InstanceRecord, **more: Any) -> Turn:
    """The next turn of an instance, by its owner. `more` names fields of `Turn` and of `TurnEffects`."""
    effects = {name: more.pop(name) for name in TurnEffects.__struct_fields__ if name in more}
    fields: dict[str, Any] = {
        "number": record.number,
        "execution": record.execution,
        "owner": record.owner,
        "fence": record.fence,
        "turn": record.turn,
        "stamp_ms": record.stamp_ms,
        "events": encode_events([ActivityScheduled(activity=99, name="step")]),
        "effects": TurnEffects(**effects) if effects else None,
    }
    return Turn(**(fields | more))


def closing(record: InstanceRecord, **more: Any) -> Turn:
    """The last turn of an instance."""
    done = ExecutionCompleted(result=Payload(msgspec.Raw(b"1")))
    close = InstanceEnd(state=InstanceState.COMPLETED, outcome=b'{"data":1}')
    return turn(record, **({"events": encode_events([done]), "close": close} | more))


def new_attempt(
    activity: int, *, owner: WorkerKey | None = None, options: ActivityOptions | None = None, **more: Any
) -> NewAttempt:
    """A first attempt: running with its owner, or READY for anyone."""
    fields: dict[str, Any] = {
        "activity": activity,
        "attempt": 1,
        "name": "step",
        "queue": "default",
        "state": AttemptState.READY if owner is None else AttemptState.RUNNING,
        "ledger": SEED if owner is None else RUNNING_LEDGER,
        "input": b"{}",
        "options": encode_options(options or ActivityOptions()),
        "available_at_ms": FIRST_TIME_MS,
        "scheduled_at_ms": FIRST_TIME_MS,
        "owner": owner,
    }
    return NewAttempt(**(fields | more))


def completion(record: InstanceRecord, activity: int = 0, *, owner: WorkerKey = ANNA, **more: Any) -> Completion:
    """The end of a running attempt, with the result 1."""
    answer = ActivityCompleted(time_ms=0, activity=activity, result=Payload(msgspec.Raw(b"1")))
    entered, _ = enter_leg2(RUNNING_LEDGER)
    fields: dict[str, Any] = {
        "key": AttemptKey(record.number, record.execution, activity, 1),
        "owner": owner,
        "from_state": AttemptState.RUNNING,
        "from_ledger": RUNNING_LEDGER,
        "to_state": AttemptState.COMPLETED,
        "entered_ledger": entered,
        "applied_ledger": exit_leg2(entered, final=True),
        "event": answer,
    }
    return Completion(**(fields | more))


def applied(outcome: Outcome) -> bool:
    """Whether a member's change is on disk."""
    return isinstance(outcome, Applied)


class Rules(ABC):
    """The base of all rules. A derived class defines how a store is made."""

    @abstractmethod
    def make_store(self, clock: Callable[[], int]) -> Store:
        """A new, empty store that takes its time from `clock`."""

    @abstractmethod
    def make_another(self, clock: Callable[[], int]) -> Store | None:
        """Another store on the data of the last one that was made, as another process opens it; the first one may be
        open or closed. None where only one store object can have the data."""

    def on_bench(self, case: Callable[[Bench], Awaitable[None]]) -> None:
        """Run a case on a new store in which two workers are registered."""

        async def run() -> None:
            clock = ManualClock()
            store = self.make_store(clock)
            await store.open()
            try:
                bench = Bench(store, clock)
                bench.beat(ANNA)
                bench.beat(BERT)
                await case(bench)
            finally:
                await store.close()

        asyncio.run(run())


def check(condition: bool, why: str = "the store breaks the rule that this test is named after") -> None:
    """Like ``assert``, and also when Python runs with ``-O``."""
    require(condition, why)
