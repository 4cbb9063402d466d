"""Stored instances against registered code: their histories are replayed, and their stored inputs decoded (R16).

Nothing is written: neither to the store nor beside it. Replays use the guard and the watchdog of a worker, so that what
passes here passes there. Memory is bounded by the largest instance and eight bytes for each open one.
"""

from array import array
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from holdfast.authoring.registry import Registry
from holdfast.authoring.workflow import Workflow
from holdfast.compose import search_store_of
from holdfast.core.filters import And, Comparison, Field, In, Operator
from holdfast.core.history import HistoryEvent, Payload, Started, decode_event, decode_events
from holdfast.core.lifecycle import ATTEMPT_FINAL, INSTANCE_FINAL
from holdfast.errors import HistoryMismatch, PayloadError, StoreError
from holdfast.replay.run import WorkflowRun
from holdfast.runtime.crash_detection import CrashMarker
from holdfast.runtime.platform import Platform
from holdfast.runtime.run_factory import RunFactory
from holdfast.storage.contract import CheckableStore
from holdfast.storage.large_payloads import inline, reference_of
from holdfast.storage.records import InstanceNumber, InstanceRecord, LoadedInstance
from holdfast.storage.search import Position, SearchQuery

NUMBERS_PAGE: Final = 50_000
RECORDS_PAGE: Final = 500
MOST_TURNS: Final = 1_000
"""Turns of instances that are loaded together; a longer history is loaded alone."""
Progress = Callable[[int, int], None]
"""Receives the number of instances that were checked, and of those that there are."""


class Outcome(NamedTuple):
    """The result of one replay."""

    problem: str = ""
    """The first difference, or why stored data cannot be read; empty if the instance fits the code."""
    patches: Mapping[str, bool] = {}
    """The decisions of `hf.patched` by name, as far as the code got."""


class CodeCheck:
    """Replays instances with the code of a registry."""

    def __init__(self, store: CheckableStore, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._runs = RunFactory(registry, Platform(), CrashMarker(store.crash_marker_folder))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._runs.stop()

    def code_of(self, record: InstanceRecord) -> Workflow[..., Any] | None:
        """The code that runs an instance: its version or, if none is chosen yet, the newest (R6); None without it."""
        return self._registry.find(record.workflow, record.version)

    def has_other_version_of(self, record: InstanceRecord) -> bool:
        """Whether the registry has the workflow of an instance, and not the version on which it runs."""
        return self.code_of(record) is None and record.workflow in self._registry.workflows

    async def check(self, record: InstanceRecord, loaded: LoadedInstance) -> Outcome:
        """Replay one execution, and decode the inputs that its code has not received yet."""
        outcome = await self.replay(record, loaded)
        if outcome.problem:
            return outcome
        try:
            await self._check_inputs(record, loaded)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - the input does not fit, which is the answer
            return Outcome(_described(error), outcome.patches)
        return outcome

    async def replay(self, record: InstanceRecord, loaded: LoadedInstance, assumed: Iterable[str] = ()) -> Outcome:
        """Replay one execution. `assumed`: patches whose calls are replaced by their new branches (R15)."""
        try:
            flow = await self._runs.flows.fetch(self._store, record.workflow, loaded.history, loaded.inbox)
            run = self._runs.new_run(
                record.id, record.workflow, record.execution, loaded.payloads, version=record.version, flow=flow
            )
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - this code cannot run the instance, which is the answer
            return Outcome(_described(error))
        problem = ""
        patches: Mapping[str, bool] = {}
        try:
            if isinstance(run, WorkflowRun):
                run.assume_patched(assumed)
            self._runs.replay(record.number, run, loaded.history)
        except Exception as error:  # noqa: BLE001
            problem = _described(error)
        finally:
            if isinstance(run, WorkflowRun):
                patches = dict(run.patches)
            run.evict()
        return Outcome(problem, patches)

    async def _check_inputs(self, record: InstanceRecord, loaded: LoadedInstance) -> None:
        if not loaded.history:
            for row in loaded.inbox:
                event = decode_event(row.event)
                if isinstance(event, Started):
                    code = self._registry.workflow(record.workflow, record.version)
                    code.signature.decode_arguments(_data(event.input, loaded))
        for attempt in loaded.attempts:
            activity = self._registry.activities.get(attempt.name)
            if activity is None or attempt.state in ATTEMPT_FINAL:
                continue
            data = attempt.input
            if reference := reference_of(data):
                data = (await self._store.read_payloads(record.number, {reference})).get(reference, data)
            try:
                activity.signature.decode_arguments(data)
            except PayloadError as error:
                where = f"the input of activity {attempt.name!r} (number {attempt.key.activity})"
                raise PayloadError(f"{where} does not fit: {error}") from error


def _data(payload: Payload, loaded: LoadedInstance) -> bytes:
    return loaded.payloads[payload.reference] if payload.reference else bytes(payload.data)


def _described(error: Exception) -> str:
    return str(error) if isinstance(error, HistoryMismatch) else f"{type(error).__name__}: {error}"


def turns_of(loaded: LoadedInstance) -> list[list[HistoryEvent]]:
    """The events of each turn with their large payloads in place, as an export has them."""
    return [[inline(event, loaded.payloads) for event in decode_events(row.events)] for row in loaded.history]


# ---------------------------------------------------------------- which instances


async def open_numbers(store: CheckableStore) -> "array[int]":
    """The numbers of all open instances, eight bytes each."""
    numbers = array("q")
    while True:
        page = await store.open_numbers(after=numbers[-1] if numbers else -1, limit=NUMBERS_PAGE)
        numbers.extend(page)
        if len(page) < NUMBERS_PAGE:
            return numbers


async def open_instances(
    store: CheckableStore, wanted: Callable[[InstanceRecord], bool], progress: Progress
) -> AsyncGenerator[tuple[InstanceRecord, LoadedInstance | None]]:
    """Every instance that was open at the beginning and still is, in the order of their numbers.

    The rows of one that is not `wanted` are not loaded.
    """
    numbers = await open_numbers(store)
    for start in range(0, len(numbers), RECORDS_PAGE):
        progress(start, len(numbers))
        page = [InstanceNumber(number) for number in numbers[start : start + RECORDS_PAGE]]
        records = [record for record in await store.read_instances(page) if record.closed_at_ms is None]
        for record in records:
            if not wanted(record):
                yield record, None
        async for each in _loaded(store, [record for record in records if wanted(record)]):
            yield each
    progress(len(numbers), len(numbers))


async def closed_instances(
    store: CheckableStore, workflow: str, limit: int
) -> AsyncGenerator[tuple[InstanceRecord, LoadedInstance]]:
    """The closed instances of a workflow that were started last."""
    searched = search_store_of(store)
    closed = In(Field("state"), tuple(state.value for state in sorted(INSTANCE_FINAL)))
    found = And((Comparison(Field("workflow"), Operator.EQUAL, workflow), closed))
    after: Position | None = None
    while limit > 0:
        asked = min(limit, RECORDS_PAGE)
        rows = await searched.search(SearchQuery(filter=found, after=after, limit=asked))
        async for each in _loaded(store, [row.instance for row in rows]):
            yield each
        if len(rows) < asked:
            return
        limit -= asked
        after = rows[-1].position


async def _loaded(
    store: CheckableStore, records: Sequence[InstanceRecord]
) -> AsyncGenerator[tuple[InstanceRecord, LoadedInstance]]:
    """Instances with the rows of their newest executions, a few at a time."""
    batch: list[InstanceRecord] = []
    turns = 0
    for record in records:
        if batch and turns + record.turn > MOST_TURNS:
            async for each in _load(store, batch):
                yield each
            batch = []
            turns = 0
        batch.append(record)
        turns += record.turn + 1
    async for each in _load(store, batch):
        yield each


async def _load(
    store: CheckableStore, batch: Sequence[InstanceRecord]
) -> AsyncGenerator[tuple[InstanceRecord, LoadedInstance]]:
    if batch:
        loaded = await store.load_many([(record.number, record.execution) for record in batch])
        for record, rows in zip(batch, loaded, strict=True):
            yield record, rows
