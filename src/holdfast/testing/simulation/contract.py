"""A simulated run of the open contract: executors and clients that only insert rows, beside workers that crash.

Jobs are started by requests, by a client, or by both. External activities are served by several executors. After the
run every row of a client is answered, and every result agrees with the reports that were applied (C2-C4).
"""

import asyncio
import logging
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.authoring.activity import AnyActivity
from holdfast.authoring.registry import Registry
from holdfast.client.activity_reports import ActivityReports
from holdfast.client.client import Client
from holdfast.client.requests import insert_row, wait_for_request
from holdfast.errors import ActivityClosed, ActivityNotFound, InstanceClosed, InstanceNotFound
from holdfast.runtime.session import StoreSession
from holdfast.storage.members.contract_rows import InsertRequest
from holdfast.testing.simulation.contract_checks import ContractTables
from holdfast.testing.simulation.executors import ExecutorLog, SimulatedExecutor, bad_requests
from holdfast.testing.simulation.simulation import Job, Simulation, SimulationReport

EXECUTORS: Final = 3
SETTLE_SECONDS: Final = 30.0
"""In simulated time: every row must be answered by then, after the end of the jobs."""
MOST_READS: Final = 3_000
"""Reads of two workers in one simulated second. More is a loop that polls without a pause."""
START_SECONDS: Final = 3_500.0
CANCELS: Final = 0.15
"""The probability that a client cancels one activity of a job."""


class ContractSimulation(Simulation):
    """Workers, clients and executors around one store, driven by one seed."""

    def __init__(self, seed: int, jobs: Sequence[Job], activities: Sequence[AnyActivity], **options: Any) -> None:
        super().__init__(seed, jobs, activities, **options)
        self._log = ExecutorLog()
        self._executors: list[asyncio.Future[None]] = []
        self._others: list[asyncio.Future[None]] = []

    def run(self, folder: Path) -> SimulationReport:
        """Run all jobs to their end, check the tables, and return the report."""
        report = super().run(folder)
        tables = ContractTables(report.store)
        try:
            report.violations += tables.violations()
            report.violations += tables.unsettled([workflow.name for workflow in self._workflows])
            report.rows = tables.counts()
            for job in self._jobs:
                result = report.results.get(job.id)
                outcomes = tables.outcomes(job.id)
                if job.agrees is not None and not job.agrees(result, outcomes):
                    report.violations.append(f"{job.id} gave {result!r}, and its activities ended as {outcomes!r}")
        finally:
            tables.close()
        if report.busiest > MOST_READS:
            report.violations.append(f"the workers read {report.busiest} times in one second")
        return report

    # ------------------------------------------------------------ clients

    async def _start_and_collect(self) -> None:
        session = StoreSession(self._store("executors"), self._platform("executors"))
        client = Client(session, Registry((), self._workflows, ()))
        await session.open()
        reports = ActivityReports(client._calls)
        self._executors = [asyncio.ensure_future(self._executor(reports).run()) for _ in range(EXECUTORS)]
        self._others = [asyncio.ensure_future(self._insert_bad_requests(client))]
        self._others += [asyncio.ensure_future(self._cancel_activities(client, job)) for job in self._jobs]
        try:
            await super()._start_and_collect()
        finally:
            await self._stop_clients()
            await client.close()

    async def _stop_clients(self) -> None:
        """Stop the executors where they are. A second call does nothing."""
        for task in self._executors:
            task.cancel()
        for ended in await asyncio.gather(*self._executors, *self._others, return_exceptions=True):
            if isinstance(ended, Exception):
                self.report.violations.append(f"a client failed: {ended!r}")
        self._executors = []
        self._others = []

    def _executor(self, reports: ActivityReports) -> SimulatedExecutor:
        return SimulatedExecutor(
            reports,
            self._random,
            self._log,
            is_dark=lambda: self._is_dark,
        )

    async def _start(self, client: Client, job: Job) -> None:
        """Start a job by a request, by a call, or by both; rows are inserted more than once."""
        asked = InsertRequest(
            request_id=f"start-{job.id}",
            workflow=job.workflow.name,
            instance_id=job.id,
            input=msgspec.json.encode(job.arguments).decode(),
        )
        by_row = self._random.random() < 0.7  # noqa: PLR2004
        for _ in range(self._random.choice((1, 1, 2))):
            if by_row:
                await insert_row(client._calls, asked)
                other = msgspec.structs.replace(asked, workflow="other", input="{")  # the first row counts
                await insert_row(client._calls, other)
        if by_row:
            found = await wait_for_request(client._calls, asked.request_id, START_SECONDS + self._blackout_seconds)
            if found.state != "ACCEPTED":
                self.report.violations.append(f"the start of {job.id} is {found.state}: {found.refusal}")
        if not by_row or self._random.random() < 0.3:  # noqa: PLR2004
            await super()._start(client, job)
        await self._raise_by_rows(client, job)

    async def _raise_by_rows(self, client: Client, job: Job) -> None:
        """Raise the event that the job waits for, by one or two requests, each inserted more than once."""
        for number in range(self._random.choice((1, 1, 2))):
            event = InsertRequest(
                request_id=f"go-{job.id}-{number}", kind="event", instance_id=job.id, event_name="go", input=str(number)
            )
            for _ in range(self._random.choice((1, 2))):
                await insert_row(client._calls, event)

    async def _insert_bad_requests(self, client: Client) -> None:
        for request in bad_requests(self._random, self._random.randrange(13), self._workflows[0].name):
            await asyncio.sleep(self._random.random() * 2)
            await insert_row(client._calls, request)

    async def _cancel_activities(self, client: Client, job: Job) -> None:
        """Cancel activities of a job from outside of it."""
        while self._random.random() < CANCELS:
            await asyncio.sleep(self._random.random() * 10)
            name = f"{self._random.choice(list(self._activities)).name}#{self._random.randrange(1, 3)}"
            with suppress(ActivityClosed, ActivityNotFound, InstanceClosed, InstanceNotFound):
                await client.get(job.id).cancel_activity(name)

    async def _settle(self, client: Client) -> None:
        """Wait until every row is answered that a live worker can answer."""
        del client
        await self._stop_clients()
        names = [workflow.name for workflow in self._workflows]
        self._max_crashes = self.report.crashes
        if self._is_dark:
            await asyncio.sleep(self._blackout_seconds)
        for _ in range(round(SETTLE_SECONDS)):
            await asyncio.sleep(1.0)
            tables = ContractTables(self.report.store)
            left = tables.unsettled(names)
            tables.close()
            if not left and self._random.random() < 0.5:  # noqa: PLR2004 - sometimes later rows come
                return


def simulate_contract(
    seed: int, jobs: Sequence[Job], activities: Sequence[AnyActivity], **options: Any
) -> SimulationReport:
    """Run one seed in a temporary folder and return the report."""
    logger = logging.getLogger("holdfast")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-simulation-") as folder:
            return ContractSimulation(seed, jobs, activities, **options).run(Path(folder))
    finally:
        logger.setLevel(level)
