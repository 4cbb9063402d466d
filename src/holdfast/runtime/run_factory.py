"""Makes the runs of workflow code, and watches the first turns of every workflow more closely."""

from collections.abc import Callable, Iterable
from typing import Final

from holdfast.authoring.log import records
from holdfast.authoring.registry import Registry
from holdfast.core.history import decode_events
from holdfast.core.leases import MAX_LOST_OWNERS, TOOK_DOWN_ITS_OWNERS
from holdfast.core.run import ExecutionId
from holdfast.errors import StoreError, WorkflowBlocked
from holdfast.payloads.limits import PayloadLimit
from holdfast.replay.guard import Guard, Guarded, GuardSampler
from holdfast.replay.run import WorkflowRun
from holdfast.runtime.crash_detection import NOBODY, CrashMarker
from holdfast.runtime.flow_run_factory import AnyRun, FlowRunFactory
from holdfast.runtime.loop_watch import LoopRules
from holdfast.runtime.platform import Platform
from holdfast.runtime.watchdog import POLLS_PER_LIMIT, POLLS_TO_INTERRUPT, Watchdog
from holdfast.storage.contract import Store
from holdfast.storage.records import HistoryRow, InstanceNumber, InstanceRecord, LoadedInstance

STRICT_TURNS: Final = 20
"""Of every workflow the first so many turns in this process are watched for clocks and randomness, too."""


class RunFactory:
    """One for each worker, made on the thread that runs its turns. `key` gives that of the worker, for log records."""

    def __init__(
        self,
        registry: Registry,
        platform: Platform,
        words: CrashMarker,
        limit: PayloadLimit | None = None,
        key: Callable[[], str] = str,
    ) -> None:
        self.marker = words
        self._key = key
        self._is_stopped = False
        records.install()
        self._registry = registry
        self._limit = limit or PayloadLimit()
        self._elapsed_ms = platform.providers.elapsed_ms
        self._limit_ms = limit_ms = platform.turn_limit_ms
        self._guard = Guard()
        self._watchdog: Watchdog | None = None
        if platform.watch_turns:
            self._watchdog = Watchdog(limit_ms, guilty=self._guard.guilty_frame)
        self._samples: dict[str, Callable[[], Guarded]] = {}
        self.flows = FlowRunFactory(registry, self._limit)

    def new_run(
        self, instance_id: str, workflow: str, execution: int, payloads: dict[str, bytes], flow: str = ""
    ) -> AnyRun:
        """One execution, before anything was applied to it. `flow`: the version of a flow that it stays with."""
        code, identity = self._registry.workflow(workflow), ExecutionId(instance_id, workflow, execution, self._key())
        dog = self._watchdog
        watch = None if dog is None else dog.watch(workflow)
        if code.is_flow:
            return self.flows.new_run(code, identity, payloads, flow, watch)
        return WorkflowRun(
            code,
            identity,
            self._registry.resolve,
            self._samples.get(workflow) or self._new_sample(workflow),
            payloads,
            new_deadline=self._new_deadline if self._watchdog is None else None,
            watch=watch,
            limit=self._limit,
            watch_teardown=None if dog is None else dog.watch_teardown(workflow),
        )

    async def load(self, store: Store, record: InstanceRecord) -> tuple[AnyRun, LoadedInstance]:
        """A run of a claimed instance, and what it has in the store. `WorkflowBlocked`: it is not to run here (G12)."""
        if record.losses >= MAX_LOST_OWNERS:
            raise WorkflowBlocked(TOOK_DOWN_ITS_OWNERS)
        loaded = await store.load(record.number, record.execution)
        try:
            flow = await self.flows.fetch(store, record.workflow, loaded.history, loaded.inbox)
        except StoreError:
            raise
        except Exception as error:  # its version of the flow, or its history, is nothing for this build
            raise WorkflowBlocked(f"{type(error).__name__}: {error}") from error
        return self.new_run(record.id, record.workflow, record.execution, loaded.payloads, flow), loaded

    def replay(self, number: InstanceNumber, run: AnyRun, history: Iterable[HistoryRow]) -> None:
        """Rebuild a run from its history. Its code runs, and may take the worker down, as in a turn (G12)."""
        self.marker.slot[0] = number
        try:
            run.replay(event for row in history for event in decode_events(row.events))
        finally:
            self.marker.slot[0] = NOBODY

    def stop(self, *, is_clean: bool = True) -> None:
        """Make no more runs, and watch none."""
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
        """W1: when the event loop that runs the code counts as blocked. The watchdog, which can say which instance is
        at fault, comes before that.
        """
        enforced_ms = self._limit_ms * POLLS_TO_INTERRUPT // POLLS_PER_LIMIT
        watchdog = self._watchdog
        return LoopRules(
            release_after_ms=max(lease_ms // 2, enforced_ms),
            end_after_ms=timeout_ms,
            slices=lambda: 0 if watchdog is None else watchdog.slices,
            culprit=lambda: InstanceNumber(self.marker.slot[0]),
            blamed=self._guard.guilty_frame,
        )

    def _new_deadline(self) -> Callable[[], bool]:
        """G12, where nobody watches: a message may keep the code busy only so long. Asked every few hundred steps."""
        ends_at_ms = self._elapsed_ms() + self._limit_ms
        return lambda: self._elapsed_ms() > ends_at_ms

    def _new_sample(self, workflow: str) -> Callable[[], Guarded]:
        sample = self._samples[workflow] = GuardSampler(self._guard, STRICT_TURNS).turn
        return sample
