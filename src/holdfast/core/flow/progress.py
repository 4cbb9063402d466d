"""How far a flow is, and which activities start and which are skipped after one has finished (K2-K5, K8).

A `Progress` has the digits, the state of every edge, and the failures that an error edge caught. `finish` takes the
outcome of one activity and follows everything that comes from it: the edges it decides, the joins they satisfy, and
the skips that spread, each node once. What it costs grows with the edges it decides, not with the flow. The caller
commits all of it together or not at all.

What changed since the last look is told by `take_changes`, and `restore` puts such changes back: so a progress is
read from its history without deciding anything again.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.core.collation.digits import FINISHED, LEGAL_MOVES, MEANING, OPEN, Digit, Move, padded
from holdfast.core.collation.graph import Edge, Graph, Join
from holdfast.core.collation.key import Roster
from holdfast.core.flow.outcomes import (
    MOVE_OF,
    Completed,
    EdgeState,
    Failed,
    FlowOutcome,
    JoinVerdict,
    Outcome,
    Policy,
    TimedOut,
    join_verdict,
    undecided_edge,
)
from holdfast.core.words import word
from holdfast.errors import CycleLimitExceeded, IllegalMove

DEFAULT_CYCLE_LIMIT: Final = 1_000
"""K8: how often a cycle goes round before it is taken for a runaway."""

Condition = Callable[[Edge], bool]
"""Evaluates the condition of an edge that its source would otherwise take. Asked only of edges that have one."""
Admits = Callable[[str], bool]
"""Evaluates the condition of a node whose join is satisfied."""

_CODE: Final = {digit: ord(digit.character) for digit in Digit}
_DIGIT: Final = {code: digit for digit, code in _CODE.items()}
_AFTER: Final = {(_CODE[before], move): _CODE[after] for (before, move), after in LEGAL_MOVES.items()}
_PENDING: Final = _CODE[Digit.PENDING]
_OPEN: Final = frozenset(_CODE[digit] for digit in OPEN)
_UNDECIDED, _TAKEN, _DEAD, _FAILED = EdgeState.UNDECIDED, EdgeState.TAKEN, EdgeState.DEAD, EdgeState.FAILED


@dataclass(frozen=True, slots=True)
class Settlement:
    """What one decision led to, in the order it was reached. Belongs into one commit."""

    started: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Changes:
    """What became of a progress between two looks: digits by activity, and edges whose target still waits."""

    digits: Mapping[str, str]
    taken: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()
    caught: tuple[str, ...] = ()


def always(_: object) -> bool:
    """The condition of what has none."""
    return True


class Progress:
    """How far one flow is. `rounds` has, for each activity that a cycle ran again, how often that was."""

    __slots__ = (
        "_caught_now",
        "_changed",
        "_digits",
        "_edges",
        "_failed",
        "_open",
        "_positions",
        "_settled",
        "_taken",
        "_undecided",
        "caught",
        "graph",
        "roster",
        "rounds",
    )

    def __init__(self, graph: Graph, roster: Roster | None = None) -> None:
        self.graph = graph
        self.roster = roster = Roster.of(graph.joins) if roster is None else roster
        self._positions = roster.positions
        self._digits = bytearray([_PENDING]) * len(roster.activities)
        self._open = len(self._digits)
        self._edges = [_UNDECIDED] * len(graph.edges)
        self._undecided = {activity: len(edges) for activity, edges in graph.incoming.items()}
        self._taken: dict[str, int] = {}
        self._failed: dict[str, int] = {}
        self._changed: dict[str, str] = {}
        self._settled: list[int] = []
        self._caught_now: list[str] = []
        self.caught: set[str] = set()
        self.rounds: dict[str, int] = {}

    # ------------------------------------------------------------ what there is

    @property
    def key(self) -> str:
        """The collation key, with its padding (K1)."""
        return padded(self._digits.decode("ascii"))

    def digit(self, activity: str) -> Digit:
        """The status of one activity."""
        return _DIGIT[self._digits[self.roster.position(activity)]]

    def edge(self, at: int) -> EdgeState:
        """The state of one edge of the graph."""
        return self._edges[at]

    @property
    def is_complete(self) -> bool:
        """K5: nothing is pending, started or paused."""
        return not self._open

    @property
    def outcome(self) -> FlowOutcome:
        """K5: complete when no digit is 9, 8 or 5; an error if a failure was not caught."""
        if self._open:
            return FlowOutcome.ACTIVE
        errored = _CODE[Digit.ERRORED]
        positions = self._positions
        if self._digits.count(errored) > sum(self._digits[positions[each]] == errored for each in self.caught):
            return FlowOutcome.ERROR
        return FlowOutcome.COMPLETED

    # ------------------------------------------------------------ what happens

    def trigger(self, condition: Condition = always, admits: Admits = always) -> Settlement:
        """The flow begins: the trigger passes through (9 -> 6) and what it leads to starts."""
        self.move(self.graph.trigger, Move.PASS_THROUGH)
        return self._follow(self.graph.trigger, Completed(), condition, admits)

    def pause(self, activity: str) -> None:
        """A node that has started waits for something from outside (8 -> 5)."""
        self.move(activity, Move.PAUSE)

    def finish(
        self,
        activity: str,
        outcome: Outcome,
        *,
        condition: Condition = always,
        admits: Admits = always,
        policy: Policy | str = Policy.DRAIN,
    ) -> Settlement:
        """One activity is decided: move its digit, decide its edges, and follow what they lead to."""
        policy = word(Policy, policy, "policy of a flow")
        self.move(activity, MOVE_OF[type(outcome)])
        if policy is Policy.DRAIN or not isinstance(outcome, Failed | TimedOut):
            return self._follow(activity, outcome, condition, admits)
        self._decide_edges(activity, outcome, condition)
        return self._settle(self._targets(activity), admits) if activity in self.caught else self.cancel()

    def cancel(self) -> Settlement:
        """Cancel whatever is not decided yet (9 -> 3, 8 -> 7, 5 -> 7)."""
        cancelled: list[str] = []
        for activity, at in self._positions.items():
            if self._digits[at] in _OPEN:
                self.move(activity, Move.CANCEL)
                cancelled.append(activity)
        for at, state in enumerate(self._edges):
            if state is _UNDECIDED:
                self._decide(at, _DEAD)
        return Settlement(cancelled=tuple(cancelled))

    def is_active_behind(self, target: str, *, besides: Collection[str] = ()) -> bool:
        """K8: whether anything that a cycle to `target` would run again is started or paused."""
        active = (Digit.STARTED, Digit.PAUSED)
        return any(self.digit(each) in active for each in self.graph.reachable(target) if each not in besides)

    def restart(
        self, target: str, *, rounds: int, limit: int = DEFAULT_CYCLE_LIMIT, admits: Admits = always
    ) -> Settlement:
        """K8: run `target` and everything behind it again, in the next dimension.

        `rounds` says how often the cycle went round before.
        """
        if rounds >= limit:
            raise CycleLimitExceeded(f"the cycle to {target!r} went round {rounds} times, which is its limit")
        if target == self.graph.trigger or self.digit(target) is Digit.PENDING:
            raise IllegalMove(f"{target!r} has not run yet, so a cycle cannot run it again")
        members = self.reset(target)
        self.move(target, Move.START)
        settled = self._settle(sorted(members - {target}), admits)
        return Settlement((target, *settled.started), settled.skipped)

    def reset(self, target: str) -> frozenset[str]:
        """K8: the digits of `target` and everything behind it go back to 9, in the next dimension, which all share.

        Edges that come from outside keep what they say, except that a taken one into an `any` join was spent by the run
        it enabled: left taken, it would start that node ahead of the target.
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
            self.caught.discard(activity)
        for at, edge in enumerate(self.graph.edges):
            if edge.source in members:
                self._decide(at, _UNDECIDED)
            elif self._edges[at] is _TAKEN and edge.target in members and self.graph.joins[edge.target] is Join.ANY:
                self._decide(at, _DEAD)
        return members

    # ------------------------------------------------------------ the record of it

    def take_changes(self) -> Changes | None:
        """What changed since the last call; None if nothing did. Edges count while their target still waits."""
        if not self._changed and not self._settled:
            return None
        digits, positions, edges = self._digits, self._positions, self.graph.edges
        taken: list[int] = []
        dead: list[int] = []
        for at in self._settled:
            if digits[positions[edges[at].target]] == _PENDING and self._edges[at] is not _UNDECIDED:
                (taken if self._edges[at] is _TAKEN else dead).append(at)
        changes = Changes(self._changed, tuple(taken), tuple(dead), tuple(self._caught_now))
        self._changed, self._settled, self._caught_now = {}, [], []
        return changes

    def restore(self, changes: Changes) -> None:
        """Put changes back that were recorded. Nothing is decided and nothing follows."""
        for activity, digit in changes.digits.items():
            self._set(activity, ord(digit))
        for states, now in ((changes.taken, _TAKEN), (changes.dead, _DEAD)):
            for at in states:
                self._decide(at, now)
        self.caught.update(changes.caught)
        self._changed, self._settled, self._caught_now = {}, [], []

    # ------------------------------------------------------------ inside

    def move(self, activity: str, move: Move) -> None:
        """Move a digit; on one that does not allow it, an `IllegalMove` (K2)."""
        before = self._digits[self.roster.position(activity)]
        after = _AFTER.get((before, move))
        if after is None:
            digit = _DIGIT[before]
            raise IllegalMove(f"{activity!r} is {MEANING[digit]} ({int(digit)}), so it cannot {move.replace('_', ' ')}")
        self._set(activity, after)

    def _set(self, activity: str, code: int) -> None:
        at = self._positions[activity]
        self._open += (code in _OPEN) - (self._digits[at] in _OPEN)
        self._digits[at] = code
        self._changed[activity] = chr(code)

    def _follow(self, activity: str, outcome: Outcome, condition: Condition, admits: Admits) -> Settlement:
        self._decide_edges(activity, outcome, condition)
        return self._settle(self._targets(activity), admits)

    def _targets(self, activity: str) -> list[str]:
        edges = self.graph.edges
        return [edges[at].target for at in self.graph.outgoing[activity]]

    def _decide_edges(self, activity: str, outcome: Outcome, condition: Condition) -> None:
        """Decide what leaves an activity that has finished; a default branch last, by what became of the others."""
        chosen = False
        defaults: list[int] = []
        for at in self.graph.outgoing[activity]:
            edge = self.graph.edges[at]
            state = undecided_edge(edge, outcome)
            if state is _TAKEN:
                if edge.otherwise:
                    defaults.append(at)
                    continue
                if edge.has_condition:
                    if not condition(edge):
                        state = _DEAD
                    else:
                        chosen = True
                if state is _TAKEN and edge.is_error_edge:
                    self.caught.add(activity)
                    self._caught_now.append(activity)
            self._decide(at, state)
        for at in defaults:
            self._decide(at, _DEAD if chosen else _TAKEN)

    def _decide(self, at: int, state: EdgeState) -> None:
        before = self._edges[at]
        if before is state:
            return
        self._edges[at] = state
        self._settled.append(at)
        target = self.graph.edges[at].target
        self._undecided[target] += (state is _UNDECIDED) - (before is _UNDECIDED)
        if _TAKEN in (before, state):
            self._taken[target] = self._taken.get(target, 0) + (1 if state is _TAKEN else -1)
        if _FAILED in (before, state):
            self._failed[target] = self._failed.get(target, 0) + (1 if state is _FAILED else -1)

    def _verdict(self, activity: str) -> JoinVerdict:
        return join_verdict(
            self.graph.joins[activity],
            undecided=self._undecided[activity],
            taken=self._taken.get(activity, 0),
            failed=self._failed.get(activity, 0),
        )

    def _settle(self, candidates: Iterable[str], admits: Admits) -> Settlement:
        """Follow decided edges to the nodes they start or skip, until nothing more follows. Each node moves once."""
        started: list[str] = []
        skipped: list[str] = []
        waiting = deque(candidates)
        while waiting:
            activity = waiting.popleft()
            if self._digits[self._positions[activity]] != _PENDING:
                continue
            verdict = self._verdict(activity)
            if verdict is JoinVerdict.RUN and not admits(activity):
                verdict = self._turn_away(activity)
            if verdict is JoinVerdict.RUN:
                self.move(activity, Move.START)
                started.append(activity)
            elif verdict is JoinVerdict.SKIP:
                self.move(activity, Move.SKIP)
                skipped.append(activity)
                for at in self.graph.outgoing[activity]:
                    self._decide(at, _DEAD)
                    waiting.append(self.graph.edges[at].target)
        return Settlement(tuple(started), tuple(skipped))

    def _turn_away(self, activity: str) -> JoinVerdict:
        """The condition of a node does not hold: the edges that led to it are dead, and another may still come."""
        for at in self.graph.incoming[activity]:
            if self._edges[at] is _TAKEN:
                self._decide(at, _DEAD)
        return self._verdict(activity)
