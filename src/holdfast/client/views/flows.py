"""A flow for people: its nodes with what they did, what they wait for, and the keys of its children inside its own.

Read from the store as of one moment. `describe`, `holdfast show` and `holdfast flow draw` share it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from holdfast.client.views.instances import (
    EPOCH,
    LONGEST_PAGE,
    NEWEST,
    AttemptView,
    Description,
    Values,
    attempt_view,
    moment,
    step_view,
    waits_for,
)
from holdfast.core.collation import MAX_DEPTH, PADDING, Digit, compose
from holdfast.core.flow.definition import ChildAction, RunAction, decode_definition
from holdfast.core.flow.snapshot import FlowSnapshot, NodeSnapshot, version_of
from holdfast.core.history import ChildCompleted, ChildFailed, ChildRefused, ChildStopped, HistoryEvent, decode_events
from holdfast.core.ledger import SEED
from holdfast.core.lifecycle import AttemptState
from holdfast.core.steps import RecordedStep, derived_key, read_steps
from holdfast.errors import StoreError
from holdfast.storage.contract import Store
from holdfast.storage.records import AttemptRecord, InstanceNumber, InstanceRecord

MOST_IN_COMPOSITE: Final = 1_000
"""Children, with theirs, whose keys are read for one composite."""
NOT_SCHEDULED: Final = -1
"""The number of an activity that waits for its dependencies."""
_TOLD: Final = (ChildCompleted, ChildFailed, ChildStopped)
"""Ends that only a child tells that was there."""


async def add_nodes(
    store: Store,
    described: Description,
    record: InstanceRecord,
    reading: FlowSnapshot | None,
    *,
    attempts: list[AttemptRecord],
    values: Values,
) -> Description:
    """A description with what belongs to a flow. Code stays as it is."""
    key = await store.read_key(record.number)
    if key is None:
        return described
    if reading is None:  # before its first turn, or its history cannot be read
        return msgspec.structs.replace(described, collation_key=key, composite_key=key.rstrip(PADDING))
    return msgspec.structs.replace(
        described,
        collation_key=key,
        composite_key=await read_composite(store, record, reading, key),
        waiting_for=node_waits(reading) if record.closed_at_ms is None else [],
        attempts=node_attempts(reading, record, attempts, values),
        steps=[step_view(step, values) for step in reading.steps],
    )


async def read_flow(store: Store, record: InstanceRecord, events: list[HistoryEvent]) -> FlowSnapshot | None:
    """The flow of an instance as its history tells it; None for code, and before its first turn."""
    digest = version_of(events)
    if not digest:
        return None
    stored = await store.read_flow(digest)
    if stored is None:
        raise StoreError(
            f"the flow {record.workflow!r} of version {digest}, which {record.id!r} stays with, is not in the store; "
            "run holdfast verify"
        )
    return FlowSnapshot(decode_definition(stored), events)


def node_attempts(
    reading: FlowSnapshot, record: InstanceRecord, attempts: Iterable[AttemptRecord], values: Values
) -> list[AttemptView]:
    """The attempts with their nodes; behind them what waits for its dependencies (A3), which is nowhere stored."""
    places = {step.number: step for step in reading.steps if step.kind == "activity"}
    views: list[AttemptView] = []
    for attempt in attempts:
        view, step = attempt_view(attempt, values), places.get(attempt.key.activity)
        if step is not None:
            view = msgspec.structs.replace(view, node=step.node, dimension=step.dimension)
        views.append(view)
    if record.closed_at_ms is None:
        views += [requested for node in reading.in_order() if (requested := _requested(node, record)) is not None]
    return views


def _requested(node: NodeSnapshot, record: InstanceRecord) -> AttemptView | None:
    action = node.node.action
    if node.digit is not Digit.PENDING or not isinstance(action, RunAction):
        return None
    return AttemptView(
        activity=action.activity,
        number=NOT_SCHEDULED,
        attempt=1,
        state=AttemptState.REQUESTED,
        ledger=SEED,
        queue=action.rules.queue or "",
        worker=None,
        scheduled_at=moment(record.created_at_ms) or EPOCH,
        started_at=None,
        closed_at=None,
        failure=None,
        node=node.node.id,
        dimension=node.dimension,
    )


def node_waits(reading: FlowSnapshot) -> list[str]:
    """What its nodes wait for."""
    steps = (step for step in reading.steps if step.is_open and not _is_detached(reading, step))
    return [f"{waits_for(step)} ({place_of(step)})" for step in steps]


def place_of(step: RecordedStep) -> str:
    """Where in a flow a step belongs."""
    return f"node {step.node}" if step.item < 0 else f"node {step.node}, item {step.item}"


def _is_detached(reading: FlowSnapshot, step: RecordedStep) -> bool:
    action = reading.nodes[step.node].node.action
    return isinstance(action, ChildAction) and action.detached


# ---------------------------------------------------------------- the composite


async def read_composite(store: Store, record: InstanceRecord, reading: FlowSnapshot | None, key: str) -> str | None:
    """K6: the key with those of the children that its nodes await in their present round, and of theirs.

    A child that is code has its derived key (K9). None if there are more than `MOST_IN_COMPOSITE`.
    """
    return await _Composites(store).of(record.number, reading, key, depth=0)


async def read_child_keys(store: Store, record: InstanceRecord, reading: FlowSnapshot) -> Mapping[str, Sequence[str]]:
    """By node, the composites of the children that it awaits; none if there are more than `MOST_IN_COMPOSITE`."""
    return await _Composites(store).by_node(record.number, reading, depth=0) or {}


class _Composites:
    """Reads one composite. `_left`: how many children may still be read for it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._left = MOST_IN_COMPOSITE

    async def of(self, number: InstanceNumber, reading: FlowSnapshot | None, key: str, *, depth: int) -> str | None:
        plain = key.rstrip(PADDING)
        if reading is None or depth >= MAX_DEPTH:
            return plain
        children = await self.by_node(number, reading, depth=depth)
        if children is None:
            return None
        positions = reading.state.scheduler.roster.positions
        return compose(plain, {positions[node]: several for node, several in children.items()}) if children else plain

    async def by_node(
        self, number: InstanceNumber, reading: FlowSnapshot, *, depth: int
    ) -> dict[str, list[str]] | None:
        """The composites of the children of each node; None if these are too many."""
        awaited = [*awaited_children(reading)]
        texts = await self._of_children(number, reading.steps, awaited, depth)
        if texts is None:
            return None
        children: dict[str, list[str]] = {}
        for step in awaited:
            if text := texts.get(step.number):
                children.setdefault(step.node, []).append(text)
        return children

    async def _of_children(
        self, number: InstanceNumber, steps: Sequence[RecordedStep], awaited: Sequence[RecordedStep], depth: int
    ) -> dict[int, str] | None:
        """By the number of the step, the composites of children that are there; None if these are too many."""
        self._left -= len(awaited)
        if self._left < 0:
            return None
        texts: dict[int, str] = {}
        if not awaited:
            return texts
        records = await read_children(self._store, number, steps)
        for step in awaited:
            child = records.get(step.number)
            text = "" if child is None else await self._of_child(child, depth)
            if text is None:
                return None
            texts[step.number] = text
        return texts

    async def _of_child(self, child: InstanceRecord, depth: int) -> str | None:
        """Empty for one that has not begun."""
        events = await read_events(self._store, child)
        key = await self._store.read_key(child.number)
        if key is None:
            return await self._of_code(child.number, read_steps(events), depth=depth + 1)
        return await self.of(child.number, await read_flow(self._store, child, events), key, depth=depth + 1)

    async def _of_code(self, number: InstanceNumber, steps: Sequence[RecordedStep], *, depth: int) -> str | None:
        """K9 with K6: the derived key of code, and in it those of its children."""
        places = {step.number: place for place, step in enumerate(steps) if step.kind == "child"}
        if not places or depth >= MAX_DEPTH:
            return derived_key(steps)
        texts = await self._of_children(number, steps, [step for step in steps if step.kind == "child"], depth)
        if texts is None:
            return None
        return compose(derived_key(steps), {places[step]: [text] for step, text in texts.items() if text})


async def read_children(
    store: Store, number: InstanceNumber, steps: Iterable[RecordedStep]
) -> Mapping[int, InstanceRecord]:
    """By the number of the step, the children that steps of an instance started. Of more than a page the newest.

    A child whose id was taken is not there, though an earlier round may have started one with the same id.
    """
    owners: dict[str, RecordedStep] = {}
    for step in steps:
        if step.kind != "child" or step.ended_by is ChildRefused:
            continue
        if step.id not in owners or step.ended_by in _TOLD:  # else it will be refused: the id is taken
            owners[step.id] = step
    found = await store.list_instances(before=NEWEST, limit=LONGEST_PAGE, parent=number) if owners else []
    return {owners[child.id].number: child for child in reversed(found) if child.id in owners}


def awaited_children(reading: FlowSnapshot) -> Iterable[RecordedStep]:
    """The children that nodes wait for, or have waited for, in the round in which they are."""
    for node in reading.nodes.values():
        if isinstance(node.node.action, ChildAction) and not node.node.action.detached:
            yield from (step for step in node.current if step.kind == "child")


async def read_events(store: Store, record: InstanceRecord) -> list[HistoryEvent]:
    """The history of the current execution. One that cannot be decoded is a `StoreError`."""
    events: list[HistoryEvent] = []
    for row in await store.read_history(record.number, record.execution):
        try:
            events += decode_events(row.events)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StoreError(
                f"turn {row.turn} of {record.id!r} cannot be decoded: {error}; run holdfast verify"
            ) from error
    return events
