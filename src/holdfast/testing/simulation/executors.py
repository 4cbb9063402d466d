"""Simulated clients of the open contract: executors of external activities, and clients that insert requests.

An executor claims, prepares, runs, heartbeats, responds and ends attempts, or is lost on the way. It answers late,
twice, out of order and under exec ids that were released. The seed decides all of it.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random  # noqa: TID251 - made from the seed of the simulation
from typing import Final

from holdfast.client.activity_reports import ActivityReports, OpenActivity, error_text
from holdfast.client.requests import insert_row
from holdfast.core.activity_events import ReportKind
from holdfast.storage.members.contract_rows import InsertReport, InsertRequest
from holdfast.testing.simulation.contract_checks import NEVER

_K = ReportKind
LONGEST_IDLE_SECONDS: Final = 1.5
ANSWER_SECONDS: Final = 3.0
LONGEST_STEP_SECONDS: Final = 2.0
SHARE_OF_HEARTBEAT: Final = 0.7
REPEATS: Final = 0.2
"""The probability that a row is inserted once more, under the same id."""
LOST: Final = 0.15
"""The probability that an executor never sends the rest of its reports."""
BLIND: Final = 0.3
"""The probability that an executor sends all rows before it reads an answer."""
SLOW: Final = 0.1
"""The probability that a step takes longer than any deadline."""
NOISE: Final = 0.25
"""The probability that an executor sends a row that no correct executor sends."""
SLOW_SECONDS: Final = 8.0
PAYLOADS: Final = ("{", '"x"', "null", "[1]", "1e999", "\u0000", None)
"""Payloads that are malformed, of another type, or missing."""
SEQUENCES: Final = (None, None, None, 0, -1, 1, 2, 3, 2**40)


@dataclass(slots=True)
class ExecutorLog:
    """What the executors of a run have in common."""

    offers: list[OpenActivity] = field(default_factory=list[OpenActivity])
    """Every offer that an executor has seen, released ones among them."""
    claims: list[str] = field(default_factory=list[str])
    values: int = 0
    rows: int = 0

    def value(self) -> str:
        """A payload that no other report has."""
        self.values += 1
        return str(self.values)

    def row_id(self) -> str:
        self.rows += 1
        return f"row-{self.rows}"


class SimulatedExecutor:
    """An executor: serves open activities one after the other until it is cancelled."""

    def __init__(
        self,
        reports: ActivityReports,
        random: Random,
        log: ExecutorLog,
        *,
        is_dark: Callable[[], bool],
    ) -> None:
        self._reports = reports
        self._calls = reports._calls
        self._random = random
        self._log = log
        self._is_dark = is_dark
        """No worker is there, so that an executor works on without answers."""

    async def run(self) -> None:
        while True:
            await self._pause(LONGEST_IDLE_SECONDS)
            if self._log.offers and self._random.random() < NOISE:
                await self._noise()
                continue
            found = await self._reports.open_activities(limit=50)
            if found:
                chosen = self._random.choice(sorted(found, key=lambda offer: (offer.idempotency_key, offer.attempt)))
                if all(offer.activity_exec_id != chosen.activity_exec_id for offer in self._log.offers):
                    self._log.offers.append(chosen)
                await self._serve(chosen)

    # ------------------------------------------------------------ serving an offer

    async def _serve(self, offer: OpenActivity) -> None:
        claim = self._claim()
        planned = self._plan(offer)
        if self._random.random() < LOST:
            planned = planned[: self._random.randrange(len(planned))]
        if claim is not None and self._random.random() < BLIND:
            await self._send_blindly(offer, claim, planned)
        else:
            await self._send_politely(offer, claim, planned)
        if self._random.random() < REPEATS:  # late, and perhaps under an exec id that was released
            await self._pause(SLOW_SECONDS)
            await self._insert(offer, self._random.choice(list(_K)), claim)

    def _plan(self, offer: OpenActivity) -> list[ReportKind]:
        """The reports of one execution."""
        chance = self._random.random
        planned = [kind for kind in (_K.QUEUED, _K.PREPARING) if chance() < 0.5]  # noqa: PLR2004
        if planned and chance() < LOST:
            return [*planned, _K.RELEASE]
        planned.append(_K.RUNNING)
        between = [_K.HEARTBEAT, _K.RESPONSE] if offer.responses is not None else [_K.HEARTBEAT, _K.HEARTBEAT, _K.NOTE]
        planned += [self._random.choice(between) for _ in range(self._random.randrange(5))]
        planned.append(_K.FAILED if chance() < REPEATS else _K.COMPLETED)
        return planned

    async def _send_politely(self, offer: OpenActivity, claim: str | None, planned: Sequence[ReportKind]) -> None:
        """One row after the other, each after the answer to the one before."""
        for kind in planned:
            await self._work(offer, claim, kind)
            event_id = await self._insert(offer, kind, claim)
            answer = await self._reports.answer(event_id, ANSWER_SECONDS)
            if answer.is_refused and kind not in (_K.NOTE, _K.RESPONSE):
                return
            if kind is _K.HEARTBEAT and answer.cancel_requested and self._random.random() < 0.7:  # noqa: PLR2004
                await self._insert(offer, _K.STOPPED, claim)
                return

    async def _work(self, offer: OpenActivity, claim: str | None, kind: ReportKind) -> None:
        """The time that a step takes. A long one heartbeats while no worker is there."""
        if self._random.random() < SLOW:
            await asyncio.sleep(SLOW_SECONDS)
            return
        pause = LONGEST_STEP_SECONDS
        if offer.heartbeat_ms is not None:
            pause = offer.heartbeat_ms / 1000 * SHARE_OF_HEARTBEAT
        is_long = kind is _K.COMPLETED and self._random.random() < 0.5  # noqa: PLR2004
        while is_long and self._is_dark() and offer.heartbeat_ms is not None:
            await asyncio.sleep(pause)
            await self._insert(offer, _K.HEARTBEAT, claim)
        await self._pause(min(pause, LONGEST_STEP_SECONDS))

    async def _send_blindly(self, offer: OpenActivity, claim: str, planned: Sequence[ReportKind]) -> None:
        """All rows before any answer; with sequences in any order."""
        numbered = list(enumerate(planned, start=1))
        is_sequenced = self._random.random() < 0.7  # noqa: PLR2004
        if is_sequenced:
            self._random.shuffle(numbered)
        for number, kind in numbered:
            await self._insert(offer, kind, claim, sequence=number if is_sequenced else None)
            if is_sequenced and self._random.random() < REPEATS:
                await self._insert(offer, kind, claim, sequence=number)  # another row with the same sequence
            await self._pause(LONGEST_STEP_SECONDS / 4)

    # ------------------------------------------------------------ rows

    async def _insert(
        self, offer: OpenActivity, kind: ReportKind, claim: str | None, *, sequence: int | None = None
    ) -> str:
        payload: str | None = None
        error: str | None = None
        if kind is _K.RESPONSE or (kind is _K.COMPLETED and offer.responses is None) or kind is _K.NOTE:
            payload = self._log.value()
        elif kind is _K.FAILED:
            error = error_text(f"failure {self._log.value()}.", retryable=self._random.random() < 0.8)  # noqa: PLR2004
        row = InsertReport(
            event_id=self._log.row_id(),
            activity_exec_id=offer.activity_exec_id,
            transition=kind.value,
            claim=claim,
            sequence=sequence,
            payload=payload,
            error=error,
        )
        await self._insert_row(row)
        return row.event_id

    async def _insert_row(self, row: InsertReport) -> None:
        await insert_row(self._calls, row)
        while self._random.random() < REPEATS:  # the same row again: the reply was lost
            await insert_row(self._calls, row)

    async def _noise(self) -> None:
        """A row that an executor with a bug, or another program, sends."""
        choose = self._random.choice
        exec_id = choose(self._log.offers).activity_exec_id if self._random.random() < 0.9 else "unknown"  # noqa: PLR2004
        kind = choose([*(each.value for each in _K), "EXPLODED", ""])
        claim = choose([None, *self._log.claims[-5:]])
        row = InsertReport(
            event_id=self._log.row_id(),
            activity_exec_id=exec_id,
            transition=kind,
            claim=claim,
            sequence=choose(SEQUENCES),
            payload=choose((self._log.value(), *PAYLOADS)),
            error=choose((None, "it broke", '{"type": 3}', '{"message": "m", "type": "E", "retryable": true}')),
        )
        await self._insert_row(row)

    def _claim(self) -> str | None:
        if self._random.random() < 0.3:  # noqa: PLR2004
            return None
        claim = f"claim-{len(self._log.claims)}"
        self._log.claims.append(claim)
        return claim

    async def _pause(self, longest: float) -> None:
        await asyncio.sleep(self._random.random() * longest)


def bad_requests(random: Random, count: int, workflow: str) -> list[InsertRequest]:
    """Requests that are refused, are traces, or wait for a worker that has their workflow."""
    every: list[InsertRequest] = [
        InsertRequest(request_id="malformed", workflow=workflow, instance_id=f"{NEVER}-1", input="{"),
        InsertRequest(request_id="arguments", workflow=workflow, instance_id=f"{NEVER}-2", input='[1, 2, "x"]'),
        InsertRequest(request_id="no-workflow", instance_id=f"{NEVER}-3"),
        InsertRequest(request_id="kind", kind="explode", workflow=workflow, instance_id=f"{NEVER}-4"),
        InsertRequest(request_id="policy", workflow=workflow, instance_id=f"{NEVER}-5", policy="whatever"),
        InsertRequest(request_id="deadline", workflow=workflow, instance_id=f"{NEVER}-6", deadline_after_ms=-1),
        InsertRequest(request_id="no-target", kind="event", event_name="go"),
        InsertRequest(request_id="target", kind="event", event_name="go", instance_id=f"{NEVER}-7", input="1"),
        InsertRequest(request_id="no-name", kind="event", instance_id=f"{NEVER}-8", input="1"),
        InsertRequest(request_id="cancel", kind="cancel", instance_id=f"{NEVER}-9"),
        InsertRequest(request_id="trace", workflow=workflow, instance_id=f"{NEVER}-10", manual=True),
        InsertRequest(request_id="unserved", workflow="not registered", instance_id=f"{NEVER}-11"),
    ]
    return random.sample(every, min(count, len(every)))
