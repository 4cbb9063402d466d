"""Random rows of executors get the same answers from a store as from a plain model (A1, A2, A5, A7, C8, C9, C10, L10).

The model judges all open rows of an attempt from the first one after each change, which takes quadratic time; the store
does it in linear time, for the rows that a worker has read. The model ends with the first offer of an attempt.
"""

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from holdfast.core.activity_events import ReportKind
from holdfast.core.activity_options import StreamOptions
from holdfast.storage.members.row_handling import HandleReports
from holdfast.storage.records import AttemptKey
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.testing.conformance.activity_events import CLAIM_TIMEOUT_MS, HEARTBEAT_MS, Executor, checked
from holdfast.testing.conformance.bench import ANNA, Bench, ManualClock

_K = ReportKind
BAD: Final = '"bad"'
"""A payload that does not fit the type of the activity."""
CLAIMED: Final = ("QUEUED", "PREPARING")
BEFORE_RUNNING: Final = ("READY", *CLAIMED)
CELLS: Final[dict[str, dict[ReportKind, str]]] = {
    "READY": {_K.QUEUED: "QUEUED", _K.PREPARING: "PREPARING", _K.RUNNING: "RUNNING", _K.CANCEL: "CANCELLED"},
    "QUEUED": {
        _K.PREPARING: "PREPARING",
        _K.RUNNING: "RUNNING",
        _K.RELEASE: "READY",
        _K.FAILED: "FAILED",
        _K.CANCEL: "CANCELLED",
    },
    "PREPARING": {_K.RUNNING: "RUNNING", _K.RELEASE: "READY", _K.FAILED: "FAILED", _K.CANCEL: "CANCELLED"},
    "RUNNING": {_K.CANCEL: "CANCELLED_RUNNING", _K.FAILED: "FAILED", _K.COMPLETED: "COMPLETED"},
    "CANCELLED_RUNNING": {
        _K.CANCEL: "CANCELLED_RUNNING",
        _K.FAILED: "FAILED",
        _K.COMPLETED: "COMPLETED",
        _K.STOPPED: "CANCELLED",
    },
}
"""The table of the rules, by the reports of executors."""


class Row(msgspec.Struct):
    """A row of `activity_events`."""

    kind: ReportKind
    claim: str | None
    sequence: int | None
    is_bad: bool
    at_ms: int
    state: str = "NEW"
    is_early: bool = False
    """It waits for RUNNING."""
    is_judged: bool = False
    """It waits for RUNNING, and was judged since the state of the attempt changed. A worker judges it again with each
    page of rows."""


class Model:
    """One attempt under one exec id, as the contract describes it."""

    def __init__(self, now_ms: int) -> None:
        self.rows: list[Row] = []
        self.state = "READY"
        self._is_over = False
        self._claim: str | None = None
        self._heard_ms = self._available_ms = now_ms
        self._silent_until_ms = 0
        self._handled_at_end: dict[str | None, int] = {}

    def handle(self, now_ms: int, most_new: int | None) -> None:
        """Handle the first NEW rows, or all, with those that wait; then a deadline, unless NEW rows are left."""
        new = [row for row in self.rows if row.state == "NEW"]
        left = [] if most_new is None else new[most_new:]
        known = [row for row in self.rows if not any(row is one for one in left)]
        self._judge_early_rows_again()
        self._settle(known, now_ms)
        deadline = self._deadline()
        if not left and deadline is not None and deadline[0] <= now_ms:
            self._end(deadline[1])
            self._settle(known, now_ms)

    def _settle(self, rows: list[Row], now_ms: int) -> None:
        while any(self._judge(place, rows, now_ms) for place in range(len(rows))):
            pass

    def _judge_early_rows_again(self) -> None:
        for row in self.rows:
            row.is_judged = False

    def _judge(self, place: int, rows: list[Row], now_ms: int) -> bool:
        """Judge a row. Returns whether it is handled: then the rows before it are judged again."""
        row = rows[place]
        if row.state not in ("NEW", "WAITING") or row.is_judged:
            return False
        held_back = any(one.is_early and one.state == "WAITING" for one in rows[:place])
        row.is_early = False
        before = self.state
        row.state = self._verdict(row, now_ms, held_back=held_back)
        row.is_judged = row.is_early
        if self.state != before:
            self._judge_early_rows_again()
        return row.state != "WAITING"

    def _verdict(self, row: Row, now_ms: int, *, held_back: bool) -> str:
        kind = row.kind
        if self._is_over:
            if kind is not _K.NOTE or (row.is_bad and not self._is_repeated(row)):
                return "REFUSED"
            return "DUPLICATE" if self._is_repeated(row) else "APPLIED"
        is_mine = self._claim is None or row.claim == self._claim or kind in (_K.NOTE, _K.CANCEL)
        deadline = self._deadline()
        is_late = kind is not _K.NOTE and deadline is not None and row.at_ms > deadline[0]
        if not is_mine or is_late:
            return "REFUSED"
        if row.sequence is not None:
            handled = self._handled(row.claim)
            if row.sequence <= handled:
                return "REFUSED" if row.sequence < 1 else "DUPLICATE"
            if row.sequence > handled + 1:
                return "WAITING"
        if row.is_bad and kind in (_K.RESPONSE, _K.COMPLETED, _K.NOTE, _K.HEARTBEAT):
            return "REFUSED"
        is_result = kind in (_K.RESPONSE, _K.COMPLETED)
        if (is_result and self.state in BEFORE_RUNNING) or (held_back and (is_result or kind is _K.FAILED)):
            row.is_early = True
            return "WAITING"
        return "APPLIED" if self._applies(row, now_ms) else "REFUSED"

    def _is_repeated(self, row: Row) -> bool:
        return row.sequence is not None and 1 <= row.sequence <= self._handled_at_end.get(row.claim, 0)

    def _handled(self, claim: str | None) -> int:
        """The sequences of a series from 1 on that were applied or refused."""
        settled = {row.sequence for row in self.rows if row.claim == claim and row.state in ("APPLIED", "REFUSED")}
        return next(number for number in count() if number + 1 not in settled)

    def _applies(self, row: Row, now_ms: int) -> bool:
        kind = row.kind
        heard_ms = min(max(row.at_ms, self._heard_ms), now_ms)
        if kind is _K.NOTE:
            return True
        if kind in (_K.HEARTBEAT, _K.RESPONSE):
            if self.state == "READY" or (kind is _K.RESPONSE and self.state != "RUNNING"):
                return False
            self._heard_ms, self._silent_until_ms = heard_ms, 0
            return True
        state = CELLS[self.state].get(kind)
        if state is None:
            return False
        if self.state == "READY" and kind is not _K.CANCEL:
            self._claim = row.claim
        if state == "CANCELLED_RUNNING" and self.state == "RUNNING":
            self._silent_until_ms = now_ms + HEARTBEAT_MS
        if kind in (_K.QUEUED, _K.PREPARING, _K.RUNNING):
            self._heard_ms = heard_ms
        if state in ("READY", "FAILED", "COMPLETED", "CANCELLED"):
            self._end(state)
        self.state = state
        return True

    def _end(self, state: str) -> None:
        self._handled_at_end = {row.claim: self._handled(row.claim) for row in self.rows}
        self._is_over = True
        self.state = state
        self._judge_early_rows_again()

    def _deadline(self) -> tuple[int, str] | None:
        if self._is_over or self.state == "READY":
            return None
        if self.state in CLAIMED:
            return self._heard_ms + CLAIM_TIMEOUT_MS, "READY"
        if self.state == "RUNNING":
            return self._heard_ms + HEARTBEAT_MS, "TIMED_OUT"
        return max(self._heard_ms + HEARTBEAT_MS, self._silent_until_ms), "CANCELLED"


class Attempts:
    """Attempts of one store, one for each example."""

    def __init__(self, path: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._clock = ManualClock()
        self._store = SqliteStore(path, clock=self._clock, durability="relaxed")
        self._run(self._store.open())
        self._bench = Bench(self._store, self._clock)
        self._bench.beat(ANNA)
        self._names = count()

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        self._run(self._store.close())
        self._loop.close()

    def check(self, steps: list[Any]) -> None:
        """Take the steps with the store and with the model, and compare the answers after each."""
        self._clock.now_ms += 1
        now_ms = self._clock.now_ms
        self._bench.beat(ANNA)
        fields = {"available_at_ms": now_ms, "scheduled_at_ms": now_ms}
        executor = self._run(
            Executor.of(self._bench, self._store, f"i{next(self._names)}", fields, stream=StreamOptions())
        )
        model = Model(now_ms)
        ids: list[str] = []
        key = self._run(executor.attempt()).key
        for step in [*steps, None]:
            match step:
                case int():
                    self._clock.now_ms += step
                case (ReportKind() as kind, claim, sequence, is_bad):
                    given = {"claim": claim, "sequence": sequence, "payload": BAD if is_bad else "1"}
                    ids.append(self._run(executor.insert(kind.value, **given)))
                    model.rows.append(Row(kind, claim, sequence, is_bad, self._clock.now_ms))
                case _:
                    most_new = None if step is None else step[0]
                    self._run(self._handle(executor, key, most_new))
                    model.handle(self._clock.now_ms, most_new)
                    found = [self._run(executor.answer(one))[0] for one in ids]
                    assert found == [row.state for row in model.rows], model.state
                    assert self._run(executor.attempt()).state == model.state

    async def _handle(self, executor: Executor, key: AttemptKey, most_new: int | None) -> None:
        rows = await executor.rows()
        new = [row.row for row in rows if (await executor.answer(row.event_id))[0] == "NEW"]
        left = [] if most_new is None else new[most_new:]
        reports = tuple(
            msgspec.structs.replace(one, fault="bad" if _is_bad(one.kind, one.value) else None)
            for one in map(checked, rows)
            if one.row not in left
        )
        await self._bench.one(HandleReports(exec_id=executor.exec_id, key=key, reports=reports))


def _is_bad(kind: ReportKind | None, value: bytes) -> bool:
    return value == BAD.encode() and kind in (_K.RESPONSE, _K.COMPLETED, _K.NOTE, _K.HEARTBEAT)


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attempts]:
    made = Attempts(tmp_path_factory.mktemp("reports") / "s.db")
    yield made
    made.close()


KINDS = [*ReportKind, _K.RUNNING, _K.RUNNING, _K.QUEUED, _K.HEARTBEAT, _K.RESPONSE]
inserts = st.tuples(
    st.sampled_from(KINDS),
    st.sampled_from(["a", "a", "b", None]),
    st.one_of(st.none(), st.integers(0, 4)),
    st.sampled_from([False, False, False, True]),
)
waits = st.sampled_from(
    [1, CLAIM_TIMEOUT_MS - 1, CLAIM_TIMEOUT_MS, CLAIM_TIMEOUT_MS + 1, HEARTBEAT_MS, HEARTBEAT_MS + 1]
)
handles = st.tuples(st.one_of(st.none(), st.integers(0, 3)))
plans = st.lists(st.one_of(inserts, inserts, inserts, waits, handles), max_size=16)


@settings(max_examples=examples(dev=60, ci=100, nightly=3_000))
@given(steps=plans)
def test_C8_random_rows_are_answered_as_the_contract_says(attempts: Attempts, steps: list[Any]) -> None:
    attempts.check(steps)
