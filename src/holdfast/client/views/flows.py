"""The instance of a flow: the attempts and waits of its nodes, its children, and its composite key (K6).

`Handle.describe`, `holdfast show` and `holdfast flow draw` use it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from holdfast.client.views.instances import EPOCH, LONGEST_PAGE, NEWEST, AttemptView, Values, attempt_view, moment
from holdfast.client.views.steps import waits_for
from holdfast.core.collation import MAX_DEPTH, PADDING, Digit, compose
from holdfast.core.flow.definition import ChildAction, RunAction, decode_definition
from holdfast.core.flow.snapshot import FlowSnapshot, NodeSnapshot, version_of
from holdfast.core.history import ChildCompleted, ChildFailed, ChildRefused, ChildStopped, HistoryEvent, decode_events
from holdfast.core.ledger import SEED
from holdfast.core.lifecycle import AttemptState
from holdfast.core.steps import RecordedStep, derived_key, read_steps
from holdfast.errors import StoreError
from holdfast.storage.contract import Store
from holdfast.storage.records import AttemptKey, AttemptRecord, InstanceNumber, InstanceRecord, NoteRow

MOST_IN_COMPOSITE: Final = 1_000
"""Descendants whose keys are read for one composite."""
NOT_SCHEDULED: Final = -1
"""The number of the attempt of a node that waits for its dependencies."""
_ENDS_OF_EXISTING: Final = (ChildCompleted, ChildFailed, ChildStopped)
"""Answers of a child that exists; `ChildRefused` is that of one whose id was taken."""


async def read_flow(store: Store, record: InstanceRecord, events: list[HistoryEvent]) -> FlowSnapshot | None:
    """The state of a flow according to its history; None for code, and before the first turn."""
    digest = version_of(events)
    if not digest:
        return None
    stored = await store.read_flow(digest)
    if stored is None:
        raise StoreError(
            f"version {digest} of the flow {record.workflow!r}, on which {record.id!r} runs, is not in the store; "
            "run holdfast verify"
        )
    return FlowSnapshot(decode_definition(stored), events)


def node_attempts(
    flow: FlowSnapshot,
    record: InstanceRecord,
    attempts: Iterable[AttemptRecord],
    values: Values,
    notes: Mapping[AttemptKey, Sequence[NoteRow]],
) -> list[AttemptView]:
    """The attempts with their nodes, then one for each node that waits for its dependencies (A3)."""
    places = {step.number: step for step in flow.steps if step.kind == "activity"}
    views: list[AttemptView] = []
    for attempt in attempts:
        view = attempt_view(attempt, values, notes.get(attempt.key, ()))
        step = places.get(attempt.key.activity)
        if step is not None:
            view = msgspec.structs.replace(view, node=step.node, dimension=step.dimension)
        views.append(view)
    if record.closed_at_ms is None:
        views += [requested for node in flow.in_order() if (requested := _requested(node, record)) is not None]
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


def node_waits(flow: FlowSnapshot) -> list[str]:
    """The open steps of the nodes, in words, without those of detached children; and the nodes that are held."""
    steps = (step for step in flow.steps if step.is_open and not _is_detached(flow, step))
    held = (node.node.id for node in flow.nodes.values() if node.held is not None)
    return [*(f"{waits_for(step)} ({place_of(step)})" for step in steps), *(f"release (node {node})" for node in held)]


def place_of(step: RecordedStep) -> str:
    """The node of a step, with the item of a fan-out."""
    return f"node {step.node}" if step.item < 0 else f"node {step.node}, item {step.item}"


def _is_detached(flow: FlowSnapshot, step: RecordedStep) -> bool:
    action = flow.nodes[step.node].node.action
    return isinstance(action, ChildAction) and action.detached


# ---------------------------------------------------------------- the composite


async def read_composite(store: Store, record: InstanceRecord, flow: FlowSnapshot | None, key: str) -> str | None:
    """K6: the key, containing the composites of the children that its nodes await in their current round.

    A child that is code has its derived key (K9). None for more than `MOST_IN_COMPOSITE` descendants.
    """
    return await _Composites(store).of(record.number, flow, key, depth=0)


async def read_code_composite(store: Store, record: InstanceRecord, steps: Sequence[RecordedStep]) -> str | None:
    """K6, K9: the derived key of code, containing the composite of each child after the digit of its call."""
    return await _Composites(store).of_code(record.number, steps, depth=0)


async def read_child_keys(store: Store, record: InstanceRecord, flow: FlowSnapshot) -> Mapping[str, Sequence[str]]:
    """By node, the composites of the children that it awaits; empty for more than `MOST_IN_COMPOSITE` descendants."""
    return await _Composites(store).by_node(record.number, flow, depth=0) or {}


class _Composites:
    """Reads one composite. `_left` is the number of descendants that may still be read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._left = MOST_IN_COMPOSITE

    async def of(self, number: InstanceNumber, flow: FlowSnapshot | None, key: str, *, depth: int) -> str | None:
        plain = key.rstrip(PADDING)
        if flow is None or depth >= MAX_DEPTH:
            return plain
        children = await self.by_node(number, flow, depth=depth)
        if children is None:
            return None
        positions = flow.state.scheduler.roster.positions
        return compose(plain, {positions[node]: several for node, several in children.items()}) if children else plain

    async def by_node(self, number: InstanceNumber, flow: FlowSnapshot, *, depth: int) -> dict[str, list[str]] | None:
        """The composites of the children of each node; None for too many descendants."""
        awaited = [*awaited_children(flow)]
        texts = await self._of_children(number, flow.steps, awaited, depth)
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
        """By the number of the step, the composites of children that exist; None for too many descendants."""
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
        """Empty for a child before its first turn; None for too many descendants."""
        events = await read_events(self._store, child)
        key = await self._store.read_key(child.number)
        if key is None:
            return await self.of_code(child.number, read_steps(events), depth=depth + 1)
        return await self.of(child.number, await read_flow(self._store, child, events), key, depth=depth + 1)

    async def of_code(self, number: InstanceNumber, steps: Sequence[RecordedStep], *, depth: int) -> str | None:
        """The derived key of code (K9), containing the keys of its children (K6)."""
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
    """By the number of the step, the children that the steps started; the newest `LONGEST_PAGE` of them.

    A step whose child was refused has none, even if an earlier round of its node started a child with the same id.
    """
    owners: dict[str, RecordedStep] = {}
    for step in steps:
        if step.kind != "child" or step.ended_by is ChildRefused:
            continue
        # a step whose id is taken will be refused
        if step.id not in owners or step.ended_by in _ENDS_OF_EXISTING:
            owners[step.id] = step
    found = await store.list_instances(before=NEWEST, limit=LONGEST_PAGE, parent=number) if owners else []
    return {owners[child.id].number: child for child in reversed(found) if child.id in owners}


def awaited_children(flow: FlowSnapshot) -> Iterable[RecordedStep]:
    """The children that nodes await, or have awaited, in their current round."""
    for node in flow.nodes.values():
        if isinstance(node.node.action, ChildAction) and not node.node.action.detached:
            yield from (step for step in node.current if step.kind == "child")


async def read_events(store: Store, record: InstanceRecord) -> list[HistoryEvent]:
    """The history of the current execution; `StoreError` if a turn cannot be decoded."""
    events: list[HistoryEvent] = []
    for row in await store.read_history(record.number, record.execution):
        try:
            events += decode_events(row.events)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StoreError(
                f"turn {row.turn} of {record.id!r} cannot be decoded: {error}; run holdfast verify"
            ) from error
    return events
