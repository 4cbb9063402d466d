"""Makes the runs of code and flows, and the watchdog and the guard that observe them."""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Final

from holdfast.authoring.log import records
from holdfast.authoring.registry import Registry
from holdfast.authoring.workflow import Workflow
from holdfast.core.history import decode_events
from holdfast.core.leases import MAX_LOST_OWNERS, TOOK_DOWN_ITS_OWNERS
from holdfast.core.run import ExecutionId, Run
from holdfast.errors import StoreError, WorkflowBlocked
from holdfast.payloads.limits import PayloadLimit
from holdfast.replay.guard import Guard, Guarded, GuardSampler
from holdfast.replay.run import WorkflowRun
from holdfast.runtime.crash_detection import NOBODY, CrashMarker
from holdfast.runtime.flow_versions import FlowVersions
from holdfast.runtime.loop_watch import LoopRules
from holdfast.runtime.platform import Platform
from holdfast.runtime.watchdog import POLLS_PER_LIMIT, POLLS_TO_INTERRUPT, Watchdog
from holdfast.runtime.worker_lease import WorkerLease
from holdfast.storage.contract import Store
from holdfast.storage.records import HistoryRow, InstanceNumber, InstanceRecord, LoadedInstance

STRICT_TURNS: Final = 20
"""The first turns of every version of a workflow in this process, in which the guard also looks for clocks and
randomness."""


class RunFactory:
    """One for each worker, made on the thread that runs its turns. Log records have the key of `lease`."""

    def __init__(
        self,
        registry: Registry,
        platform: Platform,
        marker: CrashMarker,
        limit: PayloadLimit | None = None,
        lease: WorkerLease | None = None,
    ) -> None:
        self.marker = marker
        self._lease = lease
        self._is_stopped = False
        records.install()
        self._registry = registry
        self._limit = limit or PayloadLimit()
        self._elapsed_ms = platform.providers.elapsed_ms
        self._limit_ms = limit_ms = platform.turn_limit_ms
        self._guard = Guard()
        self._watchdog: Watchdog | None = None
        if platform.watch_turns:
            self._watchdog = Watchdog(limit_ms, culprit_frame=self._guard.culprit_frame)
        self._samples: dict[Workflow[..., Any], Callable[[], Guarded]] = {}
        self.flows = FlowVersions(registry)

    def new_run(
        self,
        instance_id: str,
        workflow: str,
        execution: int,
        payloads: dict[str, bytes],
        *,
        version: str | None,
        flow: str = "",
    ) -> Run:
        """One execution, before any input is applied, on a version or, if none is chosen yet, on the newest (R6).

        `flow`: the hash of the definition of a flow.
        """
        code = self._registry.workflow(workflow, version)
        key = "" if self._lease is None else self._lease.key
        identity = ExecutionId(instance_id, workflow, execution, key)
        resolve = self._registry.resolve
        watchdog = self._watchdog
        watch = None if watchdog is None else watchdog.watch(workflow)
        if code.is_flow:
            from holdfast.flows.run import FlowRun  # noqa: PLC0415 - most programs have no flows

            compiled = self.flows.compiled(code, flow)
            return FlowRun(compiled, identity, resolve, payloads, limit=self._limit, watch=watch)
        return WorkflowRun(
            code,
            identity,
            resolve,
            self._samples.get(code) or self._new_sample(code),
            payloads,
            new_deadline=self._new_deadline if watchdog is None else None,
            watch=watch,
            limit=self._limit,
            watch_teardown=None if watchdog is None else watchdog.watch_teardown(workflow),
        )

    async def load(
        self, store: Store, record: InstanceRecord, loaded: LoadedInstance | None = None
    ) -> tuple[Run, LoadedInstance]:
        """A run of a claimed instance, and its rows in the store. `WorkflowBlocked`: it must not run here (G12).

        `loaded`: the rows, if they were read already.
        """
        if record.losses >= MAX_LOST_OWNERS:
            raise WorkflowBlocked(TOOK_DOWN_ITS_OWNERS)
        if loaded is None:
            loaded = await store.load(record.number, record.execution)
        try:
            flow = await self.flows.fetch(store, record.workflow, loaded.history, loaded.inbox)
        except StoreError:
            raise
        except Exception as error:  # this build cannot read its version of the flow, or its history
            raise WorkflowBlocked(f"{type(error).__name__}: {error}") from error
        run = self.new_run(
            record.id, record.workflow, record.execution, loaded.payloads, version=record.version, flow=flow
        )
        return run, loaded

    def replay(self, number: InstanceNumber, run: Run, history: Iterable[HistoryRow]) -> None:
        """Rebuild a run from its history. Its code may crash the worker, as in a turn (G12)."""
        with self.marked(number):
            run.replay(event for row in history for event in decode_events(row.events))

    @contextmanager
    def marked(self, number: InstanceNumber) -> Generator[None]:
        """Run code of an instance: a crash of the process during that time counts against that instance (G12)."""
        self.marker.slot[0] = number
        try:
            yield
        finally:
            self.marker.slot[0] = NOBODY

    def stop(self, *, is_clean: bool = True) -> None:
        """Stop the watchdog, and close the crash marker, or leave it if the worker is lost."""
        if not self._is_stopped:
            self._is_stopped = True
            records.uninstall()
        if is_clean:
            self.marker.close()
        else:
            self.marker.detach()
        if self._watchdog is not None:
            self._watchdog.stop()

    def loop_rules(self, lease_ms: int, timeout_ms: int | None) -> LoopRules:
        """W1: when the event loop that runs the code counts as blocked.

        The watchdog, which knows the instance that blocks the loop, comes first.
        """
        enforced_ms = self._limit_ms * POLLS_TO_INTERRUPT // POLLS_PER_LIMIT
        watchdog = self._watchdog
        return LoopRules(
            release_after_ms=max(lease_ms // 2, enforced_ms),
            end_after_ms=timeout_ms,
            slices=lambda: 0 if watchdog is None else watchdog.slices,
            culprit=lambda: InstanceNumber(self.marker.slot[0]),
            culprit_frame=self._guard.culprit_frame,
        )

    def _new_deadline(self) -> Callable[[], bool]:
        """G12, without a watchdog: whether a message keeps the code busy too long. Called every few hundred steps."""
        ends_at_ms = self._elapsed_ms() + self._limit_ms
        return lambda: self._elapsed_ms() > ends_at_ms

    def _new_sample(self, code: Workflow[..., Any]) -> Callable[[], Guarded]:
        sample = self._samples[code] = GuardSampler(self._guard, STRICT_TURNS).turn
        return sample
