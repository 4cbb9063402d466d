"""The scheduler of a flow: the digits of its nodes, the states of its edges, and the nodes that start or are skipped.

`FlowScheduler.finish` takes the outcome of one node and follows its consequences: the edges that it decides (K3), the
joins that they satisfy, and skips, which spread; each node moves once. The cost grows with the decided edges, not with
the flow. The caller commits all of it in one turn or none of it.

`take_changes` returns the changes since its last call, and `restore` applies recorded changes. A scheduler is therefore
rebuilt from its history without a decision.

An edge is undecided until its source finishes (`EdgeStates`). A failure that an error edge takes to a node is caught
once that node starts (K4, `FailureRouting`). While the node is pending, the failure is offered to it. If no node to
which it was offered runs, because of a condition or because another parent failed, the failure has escaped, as without
an error edge.

Conditions are evaluated outside of the core, through the protocol `Conditions`. Cycles reset nodes (K8).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, TypeAlias, assert_never

import msgspec

from holdfast.core.checks import parse_enum
from holdfast.core.collation import FINISHED, LEGAL_MOVES, MEANING, OPEN, ActivityOrder, Digit, Move
from holdfast.core.flow.definition import FailurePolicy
from holdfast.core.flow.graph import Graph, GraphEdge, Join
from holdfast.core.history import FlowAdvanced
from holdfast.errors import IllegalMove

TIMED_OUT_TYPES: Final = ("TimeoutError", "OSError", "Exception")


class EdgeState(Enum):
    """K3: an edge is decided once its source is."""

    UNDECIDED = "undecided"
    TAKEN = "taken"
    DEAD = "dead"
    FAILED = "failed"


class JoinVerdict(Enum):
    """Whether a node runs, waits or is skipped, by its incoming edges."""

    WAIT = "wait"
    RUN = "run"
    SKIP = "skip"


class FlowOutcome(Enum):
    """K5: the outcome of the whole flow."""

    ACTIVE = "active"
    COMPLETED = "completed"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Completed:
    """The activity completed (8 -> 6)."""


@dataclass(frozen=True, slots=True)
class Released:
    """The wait received its event, or a held node was released (5 -> 4)."""


@dataclass(frozen=True, slots=True)
class Errored:
    """The activity failed (8 -> 7). `error_types`: the names of its type and of those it derives from."""

    error_types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The wait, or the hold of a node, timed out or failed (5 -> 7)."""

    error_types: tuple[str, ...] = TIMED_OUT_TYPES


COMPLETED: Final = Completed()
RELEASED: Final = Released()
NodeOutcome: TypeAlias = Completed | Released | Errored | TimedOut

MOVE_OF: Final[Mapping[type[NodeOutcome], Move]] = {
    Completed: Move.COMPLETE,
    Released: Move.RELEASE,
    Errored: Move.FAIL,
    TimedOut: Move.TIME_OUT,
}
"""The move of the digit for each outcome."""


def undecided_edge(edge: GraphEdge, outcome: NodeOutcome) -> EdgeState:
    """K3, K4: the state of an edge after the outcome of its source. Its condition is evaluated only if it is TAKEN."""
    match outcome:
        case Completed() | Released():
            return EdgeState.DEAD if edge.is_error_edge else EdgeState.TAKEN
        case Errored(error_types) | TimedOut(error_types):
            if edge.catches is None:
                return EdgeState.FAILED
            return EdgeState.TAKEN if any(name in edge.catches for name in error_types) else EdgeState.DEAD
        case _:
            assert_never(outcome)


def join_verdict(join: Join, *, undecided: int, taken: int, failed: int) -> JoinVerdict:
    """K3: run, wait, or skip because no edge can enable the node any more, by the counts of edges in each state."""
    if join is Join.ANY:
        if taken:
            return JoinVerdict.RUN
        return JoinVerdict.WAIT if undecided else JoinVerdict.SKIP
    if failed:
        return JoinVerdict.SKIP
    if undecided:
        return JoinVerdict.WAIT
    return JoinVerdict.RUN if taken else JoinVerdict.SKIP


_UNDECIDED = EdgeState.UNDECIDED
_TAKEN = EdgeState.TAKEN
_DEAD = EdgeState.DEAD
_FAILED = EdgeState.FAILED
_OF_ONE: Final = {
    state: join_verdict(Join.ALL, undecided=state is _UNDECIDED, taken=state is _TAKEN, failed=state is _FAILED)
    for state in EdgeState
}


class EdgeStates:
    """The states of the edges of one flow, with counts for each node, so that a join needs no scan of them."""

    __slots__ = ("_edges", "_failed", "_graph", "_taken", "_undecided", "settled", "states")

    def __init__(self, graph: Graph) -> None:
        self._edges = graph.edges
        self._graph = graph
        self.states = [_UNDECIDED] * len(graph.edges)
        self.settled: list[int] = []
        """Edges that changed since `take_changes`."""
        self._undecided = graph.indegrees.copy()
        self._taken: dict[str, int] = {}
        self._failed: dict[str, int] = {}

    def decide(self, at: int, state: EdgeState) -> None:
        """Set the state of an edge."""
        before = self.states[at]
        if before is state:
            return
        self.states[at] = state
        self.settled.append(at)
        target = self._edges[at].target
        if self._graph.indegrees[target] > 1:
            self._count(target, before, state)

    def _count(self, target: str, before: EdgeState, state: EdgeState) -> None:
        self._undecided[target] += (state is _UNDECIDED) - (before is _UNDECIDED)
        if state is _TAKEN or before is _TAKEN:
            self._taken[target] = self._taken.get(target, 0) + (1 if state is _TAKEN else -1)
        if state is _FAILED or before is _FAILED:
            self._failed[target] = self._failed.get(target, 0) + (1 if state is _FAILED else -1)

    def verdict(self, activity: str) -> JoinVerdict:
        """Whether an activity runs, is skipped, or waits."""
        graph = self._graph
        if graph.indegrees[activity] == 1:  # most nodes; with one edge both joins are the same
            return _OF_ONE[self.states[graph.incoming[activity][0]]]
        return join_verdict(
            graph.joins[activity],
            undecided=self._undecided[activity],
            taken=self._taken.get(activity, 0),
            failed=self._failed.get(activity, 0),
        )


_PENDING: Final = ord(Digit.PENDING.character)
_SKIPPED: Final = ord(Digit.SKIPPED.character)


class FailureFate(Enum):
    """The fate of a failure."""

    OFFERED = "offered"
    CAUGHT = "caught"
    ESCAPED = "escaped"


class FailureRouting:
    """The failures of one flow, by the activity that failed. `digits` are those of the scheduler."""

    __slots__ = ("_digits", "_edges", "_graph", "_positions", "caught", "now", "offered")

    def __init__(self, graph: Graph, edges: EdgeStates, digits: Sequence[int], positions: Mapping[str, int]) -> None:
        self._graph = graph
        self._edges = edges
        self._digits = digits
        self._positions = positions
        self.caught: set[str] = set()
        self.offered: set[str] = set()
        self.now: dict[str, FailureFate] = {}
        """The fates that changed since `take_changes`."""

    def offer(self, activity: str, target: str) -> None:
        """An error edge takes a failure to a node, which catches it now, may catch it later, or never will."""
        digit = self._digits[self._positions[target]]
        if digit == _PENDING:
            if activity not in self.caught:
                self.note(activity, FailureFate.OFFERED)
        elif digit != _SKIPPED:
            self.note(activity, FailureFate.CAUGHT)

    def catch(self, activity: str) -> None:
        """A node starts and catches the failures that were offered to it."""
        for source in self._offered_to(activity):
            self.note(source, FailureFate.CAUGHT)

    def escape(self, activity: str) -> None:
        """A node does not run. A failure that was offered to it, and to no pending node, has escaped."""
        for source in self._offered_to(activity):
            waiting = (self._graph.edges[at].target for at in self._graph.outgoing[source] if self._is_offer(at))
            if all(target == activity for target in waiting):
                self.note(source, FailureFate.ESCAPED)

    def note(self, activity: str, fate: FailureFate) -> None:
        """Record the fate of a failure."""
        self.now[activity] = fate
        (self.offered.add if fate is FailureFate.OFFERED else self.offered.discard)(activity)
        if fate is FailureFate.CAUGHT:
            self.caught.add(activity)

    def reset(self, activity: str) -> None:
        """An activity runs again (K8): its earlier failure no longer counts."""
        self.caught.discard(activity)
        self.offered.discard(activity)

    def _offered_to(self, activity: str) -> list[str]:
        """The activities whose failures a taken error edge leads to this one."""
        edges = self._graph.edges
        states = self._edges.states
        incoming = (at for at in self._graph.incoming[activity] if edges[at].is_error_edge)
        return [edges[at].source for at in incoming if edges[at].source in self.offered and states[at] is _TAKEN]

    def _is_offer(self, at: int) -> bool:
        """Whether an error edge was taken to a node that is pending."""
        edge = self._graph.edges[at]
        is_taken = edge.is_error_edge and self._edges.states[at] is EdgeState.TAKEN
        return is_taken and self._digits[self._positions[edge.target]] == _PENDING


class Conditions(Protocol):
    """Evaluates the conditions of a flow."""

    def edge_holds(self, edge: GraphEdge) -> bool:
        """Whether the condition of an edge holds. Called only for edges that have one and would otherwise be taken."""
        ...

    def node_admitted(self, activity: str) -> bool:
        """Whether the condition of a node holds. Called only for guarded nodes whose join is satisfied."""
        ...


class AlwaysTrue:
    """Every condition holds."""

    def edge_holds(self, edge: GraphEdge) -> bool:
        del edge
        return True

    def node_admitted(self, activity: str) -> bool:
        del activity
        return True


ALWAYS: Final = AlwaysTrue()

_CODE: Final = {digit: ord(digit.character) for digit in Digit}
_DIGIT: Final = {code: digit for digit, code in _CODE.items()}
_AFTER: Final = {(_CODE[before], move): _CODE[after] for (before, move), after in LEGAL_MOVES.items()}
_FINISH: Final = {
    kind: {before: after for (before, each), after in _AFTER.items() if each is move} for kind, move in MOVE_OF.items()
}
"""By the type of an outcome: the digits on which it is legal, and the digits after it."""
_PENDING_BYTE: Final = Digit.PENDING.character.encode()
_STARTED: Final = _CODE[Digit.STARTED]
_OPEN: Final = frozenset(_CODE[digit] for digit in OPEN)
_STARTED_TEXT: Final = Digit.STARTED.character
_RUN = JoinVerdict.RUN
_SKIP = JoinVerdict.SKIP
_DRAIN: Final = FailurePolicy.DRAIN


class Settlement(msgspec.Struct, frozen=True):
    """The consequences of one decision, in their order. They belong to one commit."""

    started: Sequence[str] = ()
    skipped: Sequence[str] = ()
    cancelled: Sequence[str] = ()


class FlowScheduler:
    """The progress of one flow. `rounds` counts, for each activity in a cycle, how often the cycle ran it again."""

    __slots__ = (
        "_changed",
        "_digits",
        "_edges",
        "_padding",
        "_positions",
        "failures",
        "graph",
        "lasting",
        "open",
        "roster",
        "rounds",
    )

    def __init__(self, graph: Graph, roster: ActivityOrder | None = None) -> None:
        self.graph = graph
        self.roster = roster = ActivityOrder.of(graph.joins) if roster is None else roster
        self._positions = roster.positions
        self._padding = roster.padding
        self.open = count = len(roster.activities)
        """How many activities are pending, started or paused."""
        self._digits = bytearray(_PENDING_BYTE * count)
        self._edges = EdgeStates(graph)
        self._changed: dict[str, str] = {}
        self.failures = FailureRouting(graph, self._edges, self._digits, self._positions)
        self.rounds: dict[str, int] = {}
        self.lasting: frozenset[int] = frozenset()
        """Edges into the reach of a cycle from outside (K8): their state counts again in every round."""

    # ------------------------------------------------------------ state

    @property
    def key(self) -> str:
        """The collation key, with its padding (K1)."""
        return self.write_key()

    def write_key(self) -> str:
        """The same as `key`, for every turn: Python calls a method faster than it reads a property."""
        return self._digits.decode("ascii") + self._padding

    def digit(self, activity: str) -> Digit:
        """The digit of one activity."""
        return _DIGIT[self._digits[self.roster.position(activity)]]

    def edge(self, at: int) -> EdgeState:
        """The state of one edge of the graph."""
        return self._edges.states[at]

    @property
    def is_complete(self) -> bool:
        """K5: nothing is pending, started or paused."""
        return not self.open

    @property
    def outcome(self) -> FlowOutcome:
        """K5: complete when no digit is 9, 8 or 5; an error if a failure was not caught."""
        if self.open:
            return FlowOutcome.ACTIVE
        errored = _CODE[Digit.ERRORED]
        positions = self._positions
        if self._digits.count(errored) > sum(self._digits[positions[each]] == errored for each in self.failures.caught):
            return FlowOutcome.ERROR
        return FlowOutcome.COMPLETED

    # ------------------------------------------------------------ decisions

    def trigger(self, conditions: Conditions = ALWAYS) -> Settlement:
        """The flow begins: the trigger passes through (9 -> 6), and the nodes after it start."""
        self.move(self.graph.trigger, Move.PASS_THROUGH)
        return self._follow(self.graph.trigger, Completed(), conditions)

    def pause(self, activity: str) -> None:
        """A node that has started waits for an event or a timer, or has run and is held (8 -> 5)."""
        self.move(activity, Move.PAUSE)

    def respond(self, activity: str, *, conditions: Conditions = ALWAYS) -> Settlement:
        """K10: a started activity has sent a response. The nodes that run once for each response may start."""
        if self.digit(activity) is not Digit.STARTED:
            raise IllegalMove(f"{activity!r} is {MEANING[self.digit(activity)]}, so it cannot send a response")
        targets: list[str] = []
        for at in self.graph.outgoing[activity]:
            edge = self.graph.edges[at]
            if edge.carries_responses and self._edges.states[at] is _UNDECIDED:
                self._edges.decide(at, _TAKEN)
                targets.append(edge.target)
        return self._settle(targets, conditions)

    def finish(
        self,
        activity: str,
        outcome: NodeOutcome,
        *,
        conditions: Conditions = ALWAYS,
        policy: FailurePolicy | str = FailurePolicy.DRAIN,
        waiting: Collection[str] = (),
    ) -> Settlement:
        """Move the digit of one activity, decide its edges, and settle the nodes after them.

        `waiting` are the activities that have started and done nothing yet: an uncaught failure can cancel them.
        """
        kind = type(outcome)
        at = self._positions.get(activity)
        before = self._digits[self.roster.position(activity) if at is None else at]
        after = _FINISH[kind].get(before)
        if after is None:
            raise _illegal(activity, before, MOVE_OF[kind])
        self._set(activity, after)
        if type(policy) is not FailurePolicy:
            policy = parse_enum(FailurePolicy, policy, "policy of a flow")
        targets = self._decide_edges(activity, outcome, conditions)
        if policy is _DRAIN:
            return self._settle(targets, conditions)
        if kind is not Completed and kind is not Released and activity not in self.failures.now:
            return self.cancel(waiting)
        settled = self._settle(targets, conditions)
        has_escaped = FailureFate.ESCAPED in self.failures.now.values()
        return self.cancel((*waiting, *settled.started)) if has_escaped else settled

    def cancel(self, waiting: Collection[str] = ()) -> Settlement:
        """Cancel every open activity (9 -> 3, 8 -> 7, 5 -> 7), those of `waiting` as if they had not started."""
        for activity in waiting:
            self._set(activity, _PENDING)
        cancelled: list[str] = []
        for activity, at in self._positions.items():
            if self._digits[at] in _OPEN:
                self.move(activity, Move.CANCEL)
                cancelled.append(activity)
        for at, state in enumerate(self._edges.states):
            if state is _UNDECIDED:
                self._edges.decide(at, _DEAD)
        return Settlement(cancelled=cancelled)

    def is_active_behind(self, target: str, *, besides: Collection[str] = ()) -> bool:
        """K8: whether an activity that a cycle to `target` would run again is started or paused."""
        active = (Digit.STARTED, Digit.PAUSED)
        return any(self.digit(each) in active for each in self.graph.reachable(target) if each not in besides)

    def restart(self, target: str, *, conditions: Conditions = ALWAYS) -> Settlement:
        """K8: run `target` and everything behind it again, in the next dimension."""
        if target == self.graph.trigger or self.digit(target) is Digit.PENDING:
            raise IllegalMove(f"{target!r} has not run yet, so a cycle cannot run it again")
        members = self.reset(target)
        self.move(target, Move.START)
        settled = self._settle(sorted(members - {target}), conditions)
        return Settlement([target, *settled.started], settled.skipped)

    def reset(self, target: str) -> frozenset[str]:
        """K8: the digits of `target` and everything behind it go back to 9, in the next dimension, which all share.

        Edges from outside keep their state, except a taken edge into an `any` join: the run that it enabled has spent
        it, and left taken it would start that node ahead of the target.
        """
        members = self.graph.reachable(target)
        for activity in sorted(members):
            digit = self.digit(activity)
            if digit not in FINISHED and digit is not Digit.PENDING:
                raise IllegalMove(
                    f"{activity!r} is {MEANING[digit]} ({int(digit)}), so a cycle cannot run it again yet"
                )
        number = 1 + max(self.rounds.get(activity, 0) for activity in members)
        for activity in members:
            self._set(activity, _PENDING)
            self.rounds[activity] = number
            self.failures.reset(activity)
        edges, joins = self._edges, self.graph.joins
        for at, edge in enumerate(self.graph.edges):
            if edge.source in members:
                edges.decide(at, _UNDECIDED)
            elif edges.states[at] is _TAKEN and edge.target in members:
                if joins[edge.target] is Join.ANY:
                    edges.decide(at, _DEAD)
                elif edge.is_error_edge:
                    self.failures.offer(edge.source, edge.target)  # a handler that was skipped can catch it this time
        return members

    # ------------------------------------------------------------ recorded changes

    def take_changes(self) -> FlowAdvanced | None:
        """The changes since the last call, or None.

        An edge is recorded while its target is pending, and where a cycle can make the target pending again.
        """
        settled, states = self._edges.settled, self._edges.states
        if not self._changed and not settled:
            return None
        digits, positions, edges = self._digits, self._positions, self.graph.edges
        taken: list[int] = []
        dead: list[int] = []
        failed: list[int] = []
        for at in settled:
            state = states[at]
            if state is not _UNDECIDED and (digits[positions[edges[at].target]] == _PENDING or at in self.lasting):
                (taken if state is _TAKEN else dead if state is _DEAD else failed).append(at)
        changed, handled = self._changed, self.failures.now
        self._changed = {}
        self._edges.settled = []
        if not taken and not dead and not failed and not handled:
            return FlowAdvanced(digits=changed)  # every turn of a chain
        self.failures.now = {}
        return FlowAdvanced(
            digits=changed,
            taken=_once(taken),
            dead=_once(dead),
            failed=_once(failed),
            offered=tuple(each for each, fate in handled.items() if fate is FailureFate.OFFERED),
            caught=tuple(each for each, fate in handled.items() if fate is FailureFate.CAUGHT),
            escaped=tuple(each for each, fate in handled.items() if fate is FailureFate.ESCAPED),
        )

    def restore(self, changes: FlowAdvanced) -> None:
        """Apply recorded changes, without decisions."""
        for activity, digit in changes.digits.items():
            self._set(activity, ord(digit))
        for states, now in ((changes.taken, _TAKEN), (changes.dead, _DEAD), (changes.failed, _FAILED)):
            for at in states:
                self._edges.decide(at, now)
        for activities, fate in (
            (changes.offered, FailureFate.OFFERED),
            (changes.caught, FailureFate.CAUGHT),
            (changes.escaped, FailureFate.ESCAPED),
        ):
            for activity in activities:
                self.failures.note(activity, fate)
        self._changed = {}
        self._edges.settled = []
        self.failures.now = {}

    # ------------------------------------------------------------ internal

    def move(self, activity: str, move: Move) -> None:
        """Move a digit; `IllegalMove` if the digit does not allow the move (K2)."""
        before = self._digits[self.roster.position(activity)]
        after = _AFTER.get((before, move))
        if after is None:
            raise _illegal(activity, before, move)
        self._set(activity, after)

    def _set(self, activity: str, code: int) -> None:
        at = self._positions[activity]
        self.open += (code in _OPEN) - (self._digits[at] in _OPEN)
        self._digits[at] = code
        self._changed[activity] = chr(code)

    def _follow(self, activity: str, outcome: NodeOutcome, conditions: Conditions) -> Settlement:
        return self._settle(self._decide_edges(activity, outcome, conditions), conditions)

    def _decide_edges(self, activity: str, outcome: NodeOutcome, conditions: Conditions) -> list[str]:
        """Decide the edges of an activity that has finished, a default branch last, by the states of the others.

        Returns their targets, in the order of the edges.
        """
        edges = self.graph.edges
        targets: list[str] = []
        went_well = type(outcome) is Completed or type(outcome) is Released
        chosen = False
        defaults: list[int] = []
        for at in self.graph.outgoing[activity]:
            edge = edges[at]
            targets.append(edge.target)
            if went_well and edge.is_plain:
                self._edges.decide(at, _TAKEN)
                continue
            state = undecided_edge(edge, outcome)
            if state is _TAKEN:
                if edge.otherwise:
                    defaults.append(at)
                    continue
                if edge.has_condition:
                    if not conditions.edge_holds(edge):
                        state = _DEAD
                    else:
                        chosen = True
                if state is _TAKEN and edge.is_error_edge:
                    self.failures.offer(activity, edge.target)
            elif edge.carries_responses and self._has_begun(edge.target):
                continue  # K10: a response has entered the target, which fails on its own
            self._edges.decide(at, state)
        for at in defaults:
            self._edges.decide(at, _DEAD if chosen else _TAKEN)
        return targets

    def _has_begun(self, activity: str) -> bool:
        return self._digits[self._positions[activity]] not in (_PENDING, _SKIPPED)

    def _settle(self, candidates: list[str], conditions: Conditions) -> Settlement:
        """Start or skip the candidates and the nodes behind skipped ones. Each node moves once."""
        started: list[str] = []
        skipped: list[str] = []
        digits, positions, guarded, failures = self._digits, self._positions, self.graph.guarded, self.failures
        for activity in candidates:  # the list grows in the loop
            at = positions[activity]
            if digits[at] != _PENDING:
                continue
            verdict = self._edges.verdict(activity)
            if verdict is _RUN and activity in guarded and not conditions.node_admitted(activity):
                verdict = self._turn_away(activity)
            if verdict is _RUN:
                digits[at] = _STARTED  # legal, because it is pending; the count of open nodes stays
                self._changed[activity] = _STARTED_TEXT
                started.append(activity)
                if failures.offered:
                    failures.catch(activity)
            elif verdict is _SKIP:
                self.move(activity, Move.SKIP)
                skipped.append(activity)
                if failures.offered:
                    failures.escape(activity)
                for leaving in self.graph.outgoing[activity]:
                    self._edges.decide(leaving, _DEAD)
                    candidates.append(self.graph.edges[leaving].target)
        return Settlement(started, skipped)

    def _turn_away(self, activity: str) -> JoinVerdict:
        """The condition of a node does not hold: the node is skipped, or waits for another edge of an `any` join.

        The edges of an `all` join keep their state: in a cycle, the condition is evaluated again (K8).
        """
        if self.graph.joins[activity] is Join.ALL:
            return _SKIP
        self.failures.escape(activity)
        for at in self.graph.incoming[activity]:
            if self._edges.states[at] is _TAKEN:
                self._edges.decide(at, _DEAD)
        return self._edges.verdict(activity)


def _once(edges: list[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(edges))


def _illegal(activity: str, before: int, move: Move) -> IllegalMove:
    digit = _DIGIT[before]
    return IllegalMove(f"{activity!r} is {MEANING[digit]} ({int(digit)}), so it cannot {move.replace('_', ' ')}")
