"""The key of a flow against its history, its definition, and what its nodes really did (K1-K5, K8).

The key is added up again from the moves that the history records; then each digit is held against the attempts,
children, waits and timers of its node in its last round, which know nothing of digits.
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
    """What is known about an instance besides its key."""

    flow: FlowSnapshot
    history: HistoryReading
    attempts: Mapping[int, RawAttempt]
    """By activity, the last one."""
    answered: frozenset[int]
    """Activities whose answer waits in the inbox."""
    is_open: bool
    restarted: frozenset[str]
    """Nodes with which a cycle began their round: nothing that they come after need have led to them (K8)."""

    @property
    def was_cancelled(self) -> bool:
        """Whether nodes may have been cut off: the flow was asked to end, ended itself, or fails at once (K4)."""
        if any(isinstance(event, ev.CancelRequested) for event in self.history.events):
            return True
        terminal, policy = self.history.terminal, self.flow.definition.policy
        if isinstance(terminal, ev.ExecutionFailed):
            return policy is FailurePolicy.FAIL_FAST or not self.has_run
        return isinstance(terminal, ev.ExecutionCancelled)

    @property
    def nodes(self) -> Iterable[NodeSnapshot]:
        return self.flow.nodes.values()

    @property
    def has_run(self) -> bool:
        """Whether it got beyond its input, which may be one that it does not take."""
        return self.flow.nodes[self.flow.graph.trigger].digit is _D.COMPLETED


def check_flow(
    row: RawInstance,
    reading: HistoryReading,
    attempts: Sequence[RawAttempt],
    inbox: Sequence[HistoryEvent],
    definition_of: Callable[[str], FlowDefinition | Finding],
) -> list[Finding]:
    """One instance. Code has no key; of a flow everything is checked as far as its history can be read."""
    started = reading.started
    if started is None or not reading.is_complete:
        return []
    if not started.flow:
        return [] if row.collation_key is None else [(Rule.KEY_AGREES, "it is code, and a key is stored for it")]
    definition = definition_of(started.flow)
    if not isinstance(definition, FlowDefinition):
        return [definition]
    if all(isinstance(event, ev.Started | ev.ExternalEnd) for event in reading.events):
        return _check_unbegun(row, definition)
    try:
        flow = FlowSnapshot(definition, reading.events)
    except (HoldfastError, LookupError, ValueError) as error:
        return [(Rule.KEY_AGREES, f"its history does not fit the flow {started.flow}: {error}")]
    findings: list[Finding] = []
    if row.collation_key != flow.key:
        findings.append((Rule.KEY_AGREES, f"its key is {row.collation_key}, and its history adds up to {flow.key}"))
    facts = Facts(
        flow,
        reading,
        {attempt.activity: attempt for attempt in attempts},
        frozenset(event.activity for event in inbox if isinstance(event, ev.ActivityCompleted | ev.ActivityFailed)),
        row.state not in INSTANCE_FINAL,
        _restarted(flow, reading.events),
    )
    findings += check_completeness(facts)
    for node in facts.nodes:
        digit = f"{node.node.id!r} is {MEANING[node.digit]} ({int(node.digit)})"
        findings += [(Rule.KEY_AGREES, f"{digit}, and {why}") for why in _disagreements(node, facts)]
    return findings


def _check_unbegun(row: RawInstance, definition: FlowDefinition) -> list[Finding]:
    """It was ended before its first turn. An older release did not store a key before that turn."""
    first = first_key(definition)
    if row.collation_key in (None, first):
        return []
    return [(Rule.KEY_AGREES, f"its key is {row.collation_key}, and it ended before its first turn, with {first}")]


def read_definition(digest: str, stored: bytes | None) -> FlowDefinition | Finding:
    """The flow that is stored under a hash, or why it is of no use."""
    if stored is None:
        return Rule.FLOW_KEPT, f"the flow {digest}, which it stays with, is not there"
    try:
        definition = decode_definition(stored)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Rule.FLOW_KEPT, f"the flow {digest}, which it stays with, cannot be decoded: {error}"
    found = definition_hash(definition)
    return definition if found == digest else (Rule.FLOW_KEPT, f"the flow under {digest} has the hash {found}")


def _restarted(flow: FlowSnapshot, events: Iterable[HistoryEvent]) -> frozenset[str]:
    """The targets of cycles that no later cycle ran again from further up."""
    targets = [event.target for event in events if isinstance(event, ev.CycleRestarted)]
    found: set[str] = set()
    behind: set[str] = set()
    for target in dict.fromkeys(reversed(targets)):  # the last first
        if target not in behind:
            found.add(target)
        behind |= flow.graph.reachable(target)
    return frozenset(found)


def check_completeness(facts: Facts) -> list[Finding]:
    """K5: complete and closed at once; a failure that nobody caught is the failure of the flow."""
    progress, terminal = facts.flow.state.scheduler, facts.history.terminal
    if facts.is_open or terminal is None:
        done = "nothing of it is pending, started or paused, and it has not ended"
        return [(Rule.KEY_COMPLETE, done)] if progress.is_complete else []
    if isinstance(terminal, ev.FROM_OUTSIDE):
        return []
    if not progress.is_complete:
        return [(Rule.KEY_COMPLETE, f"it has ended by itself, and its key is {progress.key.rstrip('0')}")]
    if isinstance(terminal, ev.ExecutionCompleted) and progress.outcome is FlowOutcome.ERROR:
        return [(Rule.KEY_COMPLETE, "it completed, and has a failure that nobody caught")]
    return []


# ---------------------------------------------------------------- node by node


def _disagreements(node: NodeSnapshot, facts: Facts) -> Iterator[str]:
    """What speaks against a digit."""
    digit, action = node.digit, node.node.action
    if digit not in POSSIBLE[type(action)]:
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
        if ev.NodeCompleted in node.own_events or _has_all_results(node, steps):
            yield "it completed"
    elif isinstance(action, RunAction | ChildAction):
        yield from _against_work(node, steps, facts)
    elif isinstance(action, WaitAction):
        yield from _against_wait(node, steps)
    elif isinstance(action, CycleAction):
        if digit is _D.COMPLETED and node.node.id in facts.flow.graph.reachable(action.target):
            yield "it would have gone round, and be pending again"
    elif (
        isinstance(action, RaiseAction | InterruptAction)
        and ev.NodeCompleted not in node.own_events
        and facts.history.terminal is None
    ):
        yield "it has done nothing"


def _against_sources(node: NodeSnapshot, facts: Facts) -> Iterator[str]:
    """K3: it waits as long as a source may still enter it; what has begun was entered from one."""
    if isinstance(node.node.action, TriggerAction):
        if node.digit is _D.SKIPPED and not (facts.was_cancelled and all(_is_skipped(each) for each in facts.nodes)):
            yield "the flow has begun"
        return
    if node.node.id in facts.restarted:
        if node.digit in (_D.PENDING, _D.SKIPPED):
            yield "a cycle ran it again"
        return
    sources = [facts.flow.nodes[after.source].digit for after in node.node.after]
    if node.digit is _D.PENDING and not any(source in OPEN for source in sources):
        yield "all that it comes after is decided: it would wait for ever"
    if node.digit is _D.SKIPPED and not facts.was_cancelled:
        yield from _against_skip(node, sources)
    if node.digit not in (_D.PENDING, _D.SKIPPED) and not any(map(_enters, node.node.after, sources)):
        yield "nothing that it comes after led to it"


def _enters(after: After, source: Digit) -> bool:
    """Whether a source that came to this may have led on by this edge (K4)."""
    return source in DONE if after.catch is None else source is _D.ERRORED


def _is_skipped(node: NodeSnapshot) -> bool:
    return node.digit is _D.SKIPPED


def _against_skip(node: NodeSnapshot, sources: Sequence[Digit]) -> Iterator[str]:
    """K3: skipped once nothing can enable it. What conditions said is not asked again."""
    edges = list(zip(node.node.after, sources, strict=True))
    is_any = node.node.join is Join.ANY
    has_failed = any(digit is _D.ERRORED and after.catch is None for after, digit in edges)
    if any(digit in OPEN for digit in sources) and (is_any or not has_failed):
        yield "something that it comes after may still enter it"
    entering = [digit in DONE and not (after.when or after.catch or after.otherwise) for after, digit in edges]
    if node.node.when:
        return
    if all(entering) or (is_any and any(entering) and node.dimension == FIRST):  # a cycle spends what came before
        yield "it was entered"


def _has_failed(node: NodeSnapshot, facts: Facts) -> bool:
    """It says so, something of it failed, or it was cut off."""
    if facts.was_cancelled or ev.NodeFailed in node.own_events:
        return True
    return any(step.ended_by is ev.ActivityFailed for step in node.current)


def _has_all_results(node: NodeSnapshot, steps: Sequence[RecordedStep]) -> bool:
    """Whether nothing was left to do. A fan-out may fail by itself at the input of an item, or with too long a list."""
    if ev.FanOutStarted in node.own_events and ev.NodeFailed in node.own_events:
        return False
    expected = _expected(node)
    return bool(steps) and len(steps) == expected and all(step.ended_by in RESULTS for step in steps)


def _expected(node: NodeSnapshot) -> int | None:
    """How many results it has in the end. None for a fan-out that has not begun."""
    action = node.node.action
    return node.count if isinstance(action, RunAction | ChildAction) and action.each is not None else 1


def _against_work(node: NodeSnapshot, steps: list[RecordedStep], facts: Facts) -> Iterator[str]:
    """An activity or a child: started while something of it is open, completed when every item has its result."""
    action = node.node.action
    is_detached = isinstance(action, ChildAction) and action.detached
    expected = _expected(node)
    done = [step for step in steps if is_detached or step.ended_by in RESULTS]
    if node.digit is _D.STARTED:
        waiting = [step for step in steps if _is_open(step)]
        may_wait = not is_detached or (
            isinstance(action, ChildAction) and action.id
        )  # until it is known that the id was free
        if not (waiting and may_wait):
            yield "nothing of it is open"
        if facts.is_open:
            yield from _against_open(waiting, facts)
        return
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
    """L6: a result counts once its response was applied, and its ledger closed."""
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
        return  # said elsewhere


def _against_wait(node: NodeSnapshot, steps: list[RecordedStep]) -> Iterator[str]:
    action = node.node.action
    kind = "event" if isinstance(action, WaitAction) and action.event else "timer"
    if node.digit is _D.PAUSED:
        if not any(step.kind == kind and _is_open(step) for step in steps):
            yield f"it waits for no {kind}"
        return
    released_by = ev.EventReceived if kind == "event" else ev.TimerFired
    if not any(step.ended_by is released_by for step in steps):
        yield f"its {kind} never came"
    if any(step.is_open for step in steps):
        yield "it waits still"


def _is_open(step: RecordedStep) -> bool:
    """Also what was open when the instance was ended from outside: its digit stays as it was."""
    return step.is_open or step.ended_by in ev.FROM_OUTSIDE
