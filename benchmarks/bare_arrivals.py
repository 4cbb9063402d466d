"""The bare limit of what arrives at workflows: the rows of raised events and of streamed values, and nothing else."""

import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from benchmarks.arrivals import ROUNDS
from benchmarks.bare import FENCE, OWNER, RUNNING_LEDGER, WARM_UP, BareLoop
from benchmarks.measure import Sample
from benchmarks.programs import EVENT, WORD, reader, tokens, waiter
from benchmarks.workloads import IN_FLIGHT
from holdfast.authoring.workflow import Workflow
from holdfast.core.history import (
    ActivityCompleted,
    ActivityScheduled,
    ActivityYielded,
    EventAwaited,
    EventReceived,
    ExecutionCompleted,
    HistoryEvent,
    Payload,
    Started,
    encode_event,
    encode_events,
)
from holdfast.core.ledger import RESPONSE_ENTRY, enter_leg2, exit_leg2
from holdfast.core.streams import pass_pending
from holdfast.payloads.limits import PAYLOAD_LIMIT_BYTES
from holdfast.payloads.signature import input_hash
from holdfast.runtime.attempts.streams import MAX_TOGETHER, NO_VALUE
from holdfast.storage.sqlite.connection import statements

sql = statements()

ENCODED_WORD: Final = msgspec.json.encode(WORD)


class Stored(NamedTuple):
    """An event in the inbox of an instance."""

    number: int
    row: int
    event: EventReceived


class BareFlows(BareLoop):
    """Writes instances that wait for an event, and instances that read a stream."""

    def _create(self, workflow: Workflow[..., Any], given: bytes) -> tuple[int, Started]:
        self._ids += 1
        now = self._now_ms
        row = (f"bare-{self._ids}", workflow.name, "", "RUNNING", 1, FENCE, OWNER, None, now, given)
        [[number]] = self._cursor.execute(sql.start_instance, (*row, input_hash(given), now, None, None)).fetchall()
        seed, data = 2**52 + number, Payload(msgspec.Raw(given))
        return number, Started(
            time_ms=now,
            workflow=workflow.name,
            version="",
            seed=seed,
            input=data,
            payload_limit=PAYLOAD_LIMIT_BYTES,
        )

    def _turn(self, number: int, turn: int, events: list[HistoryEvent]) -> None:
        self._write(sql.commit_turn, [(turn + 1, self._now_ms, number, FENCE, OWNER, turn)])
        self._write(sql.append_history, [(number, 1, turn, encode_events(events))])

    def _close(self, number: int, result: int) -> None:
        self._write(sql.close_instance, [("COMPLETED", b'{"data":%d}' % result, self._now_ms, number)])

    # ------------------------------------------------------------ events

    def start_waiting(self, count: int) -> list[int]:
        """New instances that wait for one event each."""
        numbers: list[int] = []
        for _ in range(count):
            number, started = self._create(waiter, b"{}")
            numbers.append(number)
            self._write(
                sql.append_history, [(number, 1, 0, encode_events([started, EventAwaited(wait=0, name=EVENT)]))]
            )
            self._write(sql.set_awaited_events, [(json.dumps([EVENT]), 0, number)])
        return numbers

    def take_events(self, numbers: Sequence[int]) -> None:
        """One event for each, with its number for a value, and the turn that takes it and ends its instance."""
        for number in numbers:
            self._take(number, self._event(number))

    def store_events(self, numbers: Sequence[int]) -> list[Stored]:
        """The same events into the inbox, for turns that come later. The answer names the rows."""
        stored: list[Stored] = []
        for number in numbers:
            event = self._event(number)
            self._write(sql.count_event, [(True, number)])
            self._write(sql.insert_message, [(number, 1, self._now_ms, encode_event(event), EVENT)])
            stored.append(Stored(number, self._connection.last_insert_rowid(), event))
        return stored

    def take_stored(self, stored: Sequence[Stored]) -> None:
        """The turns of events that are in the inbox."""
        for number, row, event in stored:
            self._write(sql.delete_inbox, [(row, number)])
            self._take(number, event, mail=1)

    def _event(self, number: int) -> EventReceived:
        return EventReceived(time_ms=self._now_ms, name=EVENT, value=Payload(msgspec.Raw(b"%d" % number)))

    def _take(self, number: int, event: EventReceived, mail: int = 0) -> None:
        self._turn(number, 1, [event, ExecutionCompleted(result=event.value)])
        self._write(sql.set_awaited_events, [("[]", mail, number)])
        self._close(number, number)

    # ------------------------------------------------------------ streams

    def read_stream(self, count: int) -> None:
        """One instance that reads so many values: they come as many at a time as may be ready together."""
        given = b'{"count":%d}' % count
        with self.group():
            number, started = self._create(reader, given)
            scheduled = ActivityScheduled(activity=0, name=tokens.name)
            self._write(sql.append_history, [(number, 1, 0, encode_events([started, scheduled]))])
            now = self._now_ms
            head = (number, 1, 0, 1, tokens.name, "default", "RUNNING", RUNNING_LEDGER, OWNER, given)
            self._write(sql.insert_attempt, [(*head, tokens.encoded_options, now, now, now, None, 0, 0, None)])
        ledger, turn = RUNNING_LEDGER, 1
        for first in range(0, count, MAX_TOGETHER):
            ledger = self._values(number, turn, ledger, first, min(MAX_TOGETHER, count - first))
            turn += 1
        with self.group():
            entered = enter_leg2(ledger)[0]
            after = ("COMPLETED", exit_leg2(entered, final=True), None, self._now_ms)
            self._write(sql.move_attempt, [(*after, number, 1, 0, "", 1, OWNER, "RUNNING", ledger, None)])
            ended = ActivityCompleted(time_ms=self._now_ms, activity=0, result=Payload(msgspec.Raw(NO_VALUE)))
            done = ExecutionCompleted(result=Payload(msgspec.Raw(b"%d" % count)))
            self._turn(number, turn, [ended, done])
            self._close(number, count)

    def _values(self, number: int, turn: int, ledger: int, first: int, count: int) -> int:
        """Values that are ready together, with the turn that takes them."""
        with self.group():
            now = self._now_ms
            value, *more = [Payload(msgspec.Raw(ENCODED_WORD)) for _ in range(count)]
            event = ActivityYielded(time_ms=now, activity=0, number=first, value=value, more=tuple(more))
            after, before = pass_pending(ledger, count), ledger // RESPONSE_ENTRY
            self._write(sql.enter_responses, [(after - ledger, now, None, number, 1, 0, "", 1, OWNER, before)])
            self._turn(number, turn, [event])
        return after


def events(folder: Path, *, instances: int, stored_first: bool = False) -> Sample:
    """B5: so many instances that wait, then all their events and turns."""
    loop = BareFlows(folder / "bare.db", batched=False)
    with loop.group():
        loop.take_events(loop.start_waiting(WARM_UP))
    took: list[float] = []
    for _ in range(ROUNDS):
        with loop.group():
            numbers = loop.start_waiting(instances)
        before = time.perf_counter()
        (store_and_deliver if stored_first else deliver)(loop, numbers)
        took.append(time.perf_counter() - before)
    seconds = statistics.median(took)
    loop.close()
    return {"events_per_s": instances / seconds, "seconds": seconds}


def deliver(loop: BareFlows, numbers: Sequence[int], in_flight: int = IN_FLIGHT) -> None:
    """So many events at a time, each with the turn that takes it: their sender has the instances, too."""
    for first in range(0, len(numbers), in_flight):
        with loop.group():
            loop.take_events(numbers[first : first + in_flight])


def store_and_deliver(loop: BareFlows, numbers: Sequence[int], in_flight: int = IN_FLIGHT) -> None:
    """So many events at a time, of senders that do not have the instances: while some are stored, the turns of those
    before them are taken.
    """
    stored: list[Stored] = []
    for first in range(0, len(numbers), in_flight):
        with loop.group():
            loop.take_stored(stored)
            stored = loop.store_events(numbers[first : first + in_flight])
    with loop.group():
        loop.take_stored(stored)


def stream(folder: Path, *, count: int) -> Sample:
    """TOKENS: one instance that reads so many values."""
    loop = BareFlows(folder / "bare.db", batched=False)
    loop.read_stream(WARM_UP)
    before = time.perf_counter()
    loop.read_stream(count)
    seconds = time.perf_counter() - before
    loop.close()
    return {"tokens_per_s": count / seconds, "seconds": seconds}
