"""Checks the key of a flow against its history, its definition and the steps of its nodes (K1-K5, K8).

The key is computed again from the moves in the history. Then each digit is compared with the attempts, children, waits
and timers of its node in its last round, which are recorded independently of digits.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast.audit.attempts import OPEN as OPEN_ATTEMPTS
from holdfast.audit.attempts import shown
from holdfast.audit.histories import HistoryReading
from holdfast.audit.problems import Finding, Rule
from holdfast.core import history as ev
from holdfast.core.collation import FIRST, MEANING, OPEN, Digit
from holdfast.core.flow.definition import (
    Action,
    After,
    ChildAction,
    CycleAction,
    FailurePolicy,
    FlowDefinition,
    InterruptAction,
    Node,
    RaiseAction,
    RunAction,
    TriggerAction,
    WaitAction,
    decode_definition,
    definition_hash,
    first_key,
)
from holdfast.core.flow.graph import Join
from holdfast.core.flow.scheduler import FlowOutcome
from holdfast.core.flow.snapshot import FlowSnapshot, NodeSnapshot
from holdfast.core.history import HistoryEvent
from holdfast.core.ledger import read_ledger
from holdfast.core.lifecycle import INSTANCE_FINAL, AttemptState
from holdfast.core.steps import RecordedStep
from holdfast.errors import HoldfastError, LedgerError
from holdfast.storage.relational.raw_tables import RawAttempt, RawInstance

_D: Final = Digit
_WORKS: Final = frozenset({_D.PENDING, _D.STARTED, _D.ERRORED, _D.COMPLETED, _D.SKIPPED})
POSSIBLE: Final[Mapping[type[Action], frozenset[Digit]]] = {
    TriggerAction: frozenset({_D.COMPLETED, _D.SKIPPED}),
    RunAction: _WORKS,
    ChildAction: _WORKS,
    CycleAction: _WORKS,
    WaitAction: frozenset({_D.PENDING, _D.PAUSED, _D.ERRORED, _D.RELEASED, _D.SKIPPED}),
    RaiseAction: frozenset({_D.PENDING, _D.ERRORED, _D.COMPLETED, _D.SKIPPED}),
    InterruptAction: frozenset({_D.PENDING, _D.ERRORED, _D.COMPLETED, _D.SKIPPED}),
}
"""The digits that a node of each kind can have between two turns."""
DONE: Final = (_D.COMPLETED, _D.RELEASED)
RESULTS: Final = (ev.ActivityCompleted, ev.ChildCompleted, ev.EventReceived)


@dataclass(frozen=True, slots=True)
class Facts:
    """The rows and events with which the key of an instance is compared."""

    flow: FlowSnapshot
    history: HistoryReading
    attempts: Mapping[int, RawAttempt]
    """The last attempt of each activity."""
    answered: frozenset[int]
    """Activities with an answer in the inbox."""
    is_open: bool
    restarted: frozenset[str]
    """Nodes with which a cycle began its round, so that none of their sources need have entered them (K8)."""

    @property
    def was_cancelled(self) -> bool:
        """Whether nodes may have been cancelled: by a request, by the end of the flow, or by `fail_fast` (K4)."""
        if any(isinstance(event, ev.CancelRequested) for event in self.history.events):
            return True
        terminal = self.history.terminal
        if isinstance(terminal, ev.ExecutionFailed):
            return self.flow.definition.policy is FailurePolicy.FAIL_FAST or not self.has_run
        return isinstance(terminal, ev.ExecutionCancelled)

    @property
    def nodes(self) -> Iterable[NodeSnapshot]:
        return self.flow.nodes.values()

    @property
    def has_run(self) -> bool:
        """Whether the flow accepted its input."""
        return self.flow.nodes[self.flow.graph.trigger].digit is _D.COMPLETED


def check_flow(
    row: RawInstance,
    reading: HistoryReading,
    attempts: Sequence[RawAttempt],
    inbox: Sequence[HistoryEvent],
    definition_of: Callable[[str], FlowDefinition | Finding],
) -> Iterator[Finding]:
    """Checks the key of one instance, if its history can be read. Code has no stored key."""
    started = reading.started
    if started is None or not reading.is_complete:
        return
    if not started.flow:
        if row.collation_key is not None:
            yield Rule.KEY_AGREES, "it is code, and has a stored key"
        return
    definition = definition_of(started.flow)
    if not isinstance(definition, FlowDefinition):
        yield definition
        return
    if all(isinstance(event, ev.Started | ev.ExternalEnd) for event in reading.events):
        first = first_key(definition)
        if row.collation_key not in (None, first):  # older releases stored no key before the first turn
            text = f"its key is {row.collation_key}, and it ended before its first turn, with {first}"
            yield Rule.KEY_AGREES, text
        return
    try:
        flow = FlowSnapshot(definition, reading.events)
    except (HoldfastError, LookupError, ValueError) as error:
        yield Rule.KEY_AGREES, f"its history does not fit the flow {started.flow}: {error}"
        return
    if row.collation_key != flow.key:
        yield Rule.KEY_AGREES, f"its key is {row.collation_key}, and that of its history is {flow.key}"
    facts = Facts(
        flow,
        reading,
        {attempt.activity: attempt for attempt in attempts},
        frozenset(event.activity for event in inbox if isinstance(event, ev.ActivityCompleted | ev.ActivityFailed)),
        row.state not in INSTANCE_FINAL,
        _restarted(flow, reading.events),
    )
    yield from _check_completeness(facts)
    for node in facts.nodes:
        digit = f"{node.node.id!r} is {MEANING[node.digit]} ({int(node.digit)})"
        for why in _disagreements(node, facts):
            yield Rule.KEY_AGREES, f"{digit}, and {why}"


def read_definition(digest: str, stored: bytes | None) -> FlowDefinition | Finding:
    """The flow with a hash, or the finding that it is missing or damaged."""
    if stored is None:
        return Rule.FLOW_KEPT, f"the flow {digest}, on which it runs, is not there"
    try:
        definition = decode_definition(stored)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Rule.FLOW_KEPT, f"the flow {digest}, on which it runs, cannot be decoded: {error}"
    found = definition_hash(definition)
    return definition if found == digest else (Rule.FLOW_KEPT, f"the flow under {digest} has the hash {found}")


def _restarted(flow: FlowSnapshot, events: Iterable[HistoryEvent]) -> frozenset[str]:
    """The targets of cycles, without those that a later cycle reset from an earlier node."""
    targets = [event.target for event in events if isinstance(event, ev.CycleRestarted)]
    found: set[str] = set()
    behind: set[str] = set()
    for target in dict.fromkeys(reversed(targets)):
        if target not in behind:
            found.add(target)
        behind |= flow.graph.reachable(target)
    return frozenset(found)


def _check_completeness(facts: Facts) -> Iterator[Finding]:
    """K5: the key is complete exactly if the flow ended by itself; an uncaught failure is the failure of the flow."""
    progress = facts.flow.state.scheduler
    terminal = facts.history.terminal
    if facts.is_open or terminal is None:
        if progress.is_complete:
            yield Rule.KEY_COMPLETE, "no node is pending, started or paused, and it has not ended"
    elif isinstance(terminal, ev.FROM_OUTSIDE):
        return
    elif not progress.is_complete:
        yield Rule.KEY_COMPLETE, f"it has ended by itself, and its key is {progress.key.rstrip('0')}"
    elif isinstance(terminal, ev.ExecutionCompleted) and progress.outcome is FlowOutcome.ERROR:
        yield Rule.KEY_COMPLETE, "it completed with an uncaught failure"


# ---------------------------------------------------------------- node by node


def _disagreements(node: NodeSnapshot, facts: Facts) -> Iterator[str]:
    """The facts that contradict a digit."""
    digit = node.digit
    action = node.node.action
    if digit not in _possible(node.node):
        yield f"a {type(action).__name__.lower()} cannot be that"
        return
    yield from _against_sources(node, facts)
    steps = node.current
    if digit in (_D.PENDING, _D.SKIPPED):
        if steps or node.own_events:
            yield "it has begun"
    elif digit is _D.ERRORED:
        if not _has_failed(node, facts):
            yield "nothing of it failed or was cancelled"
        has_result = ev.NodeCompleted in node.own_events or _has_all_results(node, steps)
        if has_result and node.node.hold is None:  # a node that is held has its result, and can still fail
            yield "it completed"
    elif node.node.hold is not None and digit in (_D.PAUSED, _D.RELEASED) and not _still_waits(node):
        yield from _against_hold(node, steps, facts)
    else:
        yield from _against_kind(node, steps, facts)


def _against_kind(node: NodeSnapshot, steps: list[RecordedStep], facts: Facts) -> Iterator[str]:
    """The facts that contradict the digit of a node that has begun and neither failed nor is held."""
    digit = node.digit
    action = node.node.action
    if isinstance(action, RunAction | ChildAction):
        yield from _against_work(node, steps, facts)
    elif isinstance(action, WaitAction):
        yield from _against_wait(node, steps)
    elif isinstance(action, CycleAction):
        if digit is _D.COMPLETED and node.node.id in facts.flow.graph.reachable(action.target):
            yield "it would have repeated its cycle and be pending again"
    elif (
        isinstance(action, RaiseAction | InterruptAction)
        and ev.NodeCompleted not in node.own_events
        and facts.history.terminal is None
    ):
        yield "it has done nothing"


def _possible(node: Node) -> frozenset[Digit]:
    """The digits that a node can have between two turns. One with a hold is never completed without it (K11)."""
    possible = POSSIBLE[type(node.action)]
    ends_instance = isinstance(node.action, InterruptAction) and not node.action.target
    if node.hold is None or ends_instance:
        return possible
    return (possible - {_D.COMPLETED}) | {_D.PAUSED, _D.RELEASED}


def _still_waits(node: NodeSnapshot) -> bool:
    """Whether a wait with a hold has not received its event, or has not come to the end of its timer."""
    return isinstance(node.node.action, WaitAction) and node.digit is _D.PAUSED and node.held is None


def _against_hold(node: NodeSnapshot, steps: list[RecordedStep], facts: Facts) -> Iterator[str]:
    """K11: a node is held once its work is complete, and leaves 5 by a release or by its timeout."""
    is_held = node.digit is _D.PAUSED
    action = node.node.action
    timers = [step for step in steps if step.kind == "timer"]
    is_timer = isinstance(action, WaitAction) and not action.event
    waiting = [step for step in timers[1 if is_timer else 0 :] if _is_open(step)]
    if is_held == (ev.NodeReleased in node.own_events):
        yield "it was released" if is_held else "no release is recorded"
    if is_held and node.held is None:
        yield "it has no output to be released"
    needs_timer = is_held and node.node.hold is not None and node.node.hold.timeout is not None
    if bool(waiting) != needs_timer:
        yield "its hold has a timeout and no open timer" if needs_timer else "a timer of it is still open"
    if isinstance(action, RunAction | ChildAction):
        yield from _against_results(node, [step for step in steps if step.kind != "timer"], facts)
    elif isinstance(action, WaitAction):
        yield from _against_answer(node, steps)
    elif ev.NodeCompleted not in node.own_events:
        yield "it has done nothing"


def _against_sources(node: NodeSnapshot, facts: Facts) -> Iterator[str]:
    """K3: a node is pending while a source may still enter it; a node that has begun was entered by one."""
    if isinstance(node.node.action, TriggerAction):
        if node.digit is _D.SKIPPED and not (facts.was_cancelled and all(_is_skipped(each) for each in facts.nodes)):
            yield "the flow has begun"
        return
    if node.node.id in facts.restarted:
        if node.digit in (_D.PENDING, _D.SKIPPED):
            yield "a cycle ran it again"
        return
    sources = [facts.flow.nodes[after.source].digit for after in node.node.after]
    entered = [_enters(node.node, after, digit) for after, digit in zip(node.node.after, sources, strict=True)]
    if node.digit is _D.PENDING and not any(source in OPEN for source in sources):
        yield "all its sources are decided: it would wait for ever"
    if node.digit is _D.SKIPPED and not facts.was_cancelled:
        yield from _against_skip(node, sources)
    if node.digit not in (_D.PENDING, _D.SKIPPED) and not any(entered):
        yield "no source entered it"


def _enters(node: Node, after: After, source: Digit) -> bool:
    """Whether a source with this digit can have entered the node by this edge (K4).

    A response enters it while the source still runs, and the source may fail after that (K10).
    """
    if after.catch is not None:
        return source is _D.ERRORED
    return source in DONE or (after.source == node.stream and source in (_D.STARTED, _D.ERRORED))


def _is_skipped(node: NodeSnapshot) -> bool:
    return node.digit is _D.SKIPPED


def _against_skip(node: NodeSnapshot, sources: Sequence[Digit]) -> Iterator[str]:
    """K3: a node is skipped once nothing can enable it. Conditions are not evaluated again."""
    edges = list(zip(node.node.after, sources, strict=True))
    is_any = node.node.join is Join.ANY
    has_failed = any(digit is _D.ERRORED and after.catch is None for after, digit in edges)
    if any(digit in OPEN for digit in sources) and (is_any or not has_failed):
        yield "a source may still enter it"
    entering = [digit in DONE and not (after.when or after.catch or after.otherwise) for after, digit in edges]
    if node.node.when:
        return
    if all(entering) or (is_any and any(entering) and node.dimension == FIRST):  # a cycle uses up earlier entries
        yield "it was entered"


def _has_failed(node: NodeSnapshot, facts: Facts) -> bool:
    """Whether the node or one of its steps failed, or the node may have been cancelled."""
    if facts.was_cancelled or ev.NodeFailed in node.own_events:
        return True
    return any(step.ended_by is ev.ActivityFailed for step in node.current)


def _has_all_results(node: NodeSnapshot, steps: Sequence[RecordedStep]) -> bool:
    """Whether each step has a result.

    A fan-out may fail on its own: by the input of an item, or by too long a list. So may a stream, by its list.
    """
    can_fail_alone = ev.FanOutStarted in node.own_events or isinstance(node.node.action, RunAction)
    if can_fail_alone and ev.NodeFailed in node.own_events:
        return False
    expected = _expected(node)
    return bool(steps) and len(steps) == expected and all(step.ended_by in RESULTS for step in steps)


def _expected(node: NodeSnapshot) -> int | None:
    """The number of results of a complete node; None for a fan-out that has not begun.

    The items of a stream are the responses in its history (K10).
    """
    action = node.node.action
    return node.count if isinstance(action, RunAction | ChildAction) and action.each is not None else 1


def _against_work(node: NodeSnapshot, steps: list[RecordedStep], facts: Facts) -> Iterator[str]:
    """An activity or a child is started while a step is open, and completed when every item has its result."""
    action = node.node.action
    if node.digit is _D.STARTED:
        waiting = [step for step in steps if _is_open(step) and step.kind != "timer"]  # the timer of a hold
        # A detached child with an id of its own is started until the store has confirmed that the id was free.
        may_wait = not _is_detached(node) or (isinstance(action, ChildAction) and action.id)
        awaits_stream = bool(node.node.stream) and facts.flow.nodes[node.node.stream].digit is _D.STARTED
        if not (waiting and may_wait) and not awaits_stream:
            yield "nothing of it is open"
        if facts.is_open:
            yield from _against_open(waiting, facts)
        return
    yield from _against_results(node, steps, facts)


def _is_detached(node: NodeSnapshot) -> bool:
    return isinstance(node.node.action, ChildAction) and node.node.action.detached


def _against_results(node: NodeSnapshot, steps: list[RecordedStep], facts: Facts) -> Iterator[str]:
    """A node has completed when every item has its result."""
    expected = _expected(node)
    done = [step for step in steps if _is_detached(node) or step.ended_by in RESULTS]
    if node.node.stream and facts.flow.nodes[node.node.stream].digit not in DONE:
        yield f"the stream of {node.node.stream!r} is not closed"
    if expected is None or len(done) != expected:
        yield f"{len(done)} of {'its items' if expected is None else expected} completed"
    for step in done:
        yield from _against_result(step, facts)


def _against_open(steps: list[RecordedStep], facts: Facts) -> Iterator[str]:
    for step in steps:
        attempt = facts.attempts.get(step.number)
        if step.kind != "activity" or step.number in facts.answered:
            continue
        if attempt is None or attempt.state not in OPEN_ATTEMPTS:
            state = "not there" if attempt is None else attempt.state
            yield f"the last attempt of its activity {step.number} is {state}"


def _against_result(step: RecordedStep, facts: Facts) -> Iterator[str]:
    """L6: a result counts once its response is applied and its ledger closed."""
    attempt = facts.attempts.get(step.number)
    if step.kind != "activity" or attempt is None:
        return
    if attempt.state != AttemptState.COMPLETED:
        yield f"{shown(attempt)} is {attempt.state}"
        return
    try:
        if not read_ledger(attempt.ledger).leg2_closed:
            yield f"the ledger of {shown(attempt)} is not closed"
    except LedgerError:
        return  # reported by `check_attempts`


def _against_wait(node: NodeSnapshot, steps: list[RecordedStep]) -> Iterator[str]:
    action = node.node.action
    kind = "event" if isinstance(action, WaitAction) and action.event else "timer"
    if node.digit is _D.PAUSED:
        if not any(step.kind == kind and _is_open(step) for step in steps):
            yield f"it has no open wait for its {kind}"
        return
    yield from _against_answer(node, steps)


def _against_answer(node: NodeSnapshot, steps: list[RecordedStep]) -> Iterator[str]:
    """A wait that is over received its event, or came to the end of its timer."""
    action = node.node.action
    kind = "event" if isinstance(action, WaitAction) and action.event else "timer"
    released_by = ev.EventReceived if kind == "event" else ev.TimerFired
    if not any(step.ended_by is released_by for step in steps):
        yield f"its {kind} never came"
    is_held = node.digit is _D.PAUSED
    if any(step.is_open for step in steps if not (is_held and step.kind == "timer")):
        yield "it still waits"


def _is_open(step: RecordedStep) -> bool:
    """Whether a step is open, or was open at an end from outside, which leaves the digits unchanged."""
    return step.is_open or step.ended_by in ev.FROM_OUTSIDE
