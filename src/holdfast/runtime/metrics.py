"""The counters of one process, from committed outcomes only (M1).

They are plain numbers, written on the event loop of the worker and read by a thread that serves them. An increment is a
dictionary write, because a step of a workflow has several.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from holdfast.core.deadlines import MILLISECONDS, DeadlineVerdict
from holdfast.core.history import CancelRequested
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.core.run import TurnOutput
from holdfast.runtime.observing import ObservedInstance
from holdfast.storage.members.attempts import ClaimAttempts, Completion, OpenNextAttempt
from holdfast.storage.members.instances import Expire, Resume, Start, Terminate
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import (
    APPLIED,
    Applied,
    ClaimedAttempts,
    Delivered,
    Expired,
    HandledRows,
    Outcome,
    Rejected,
    ResumedInstance,
    StartedInstance,
    TerminatedInstance,
)
from holdfast.storage.members.turns import Turn
from holdfast.storage.records import AttemptRecord, HistoryRow, InstanceRecord

RUNNING: Final = AttemptState.RUNNING
COMPLETED: Final = AttemptState.COMPLETED
BEGUN: Final = frozenset({AttemptState.RUNNING, AttemptState.CANCELLED_RUNNING})
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the durations of turns, commits and replays."""
LONG_SECONDS: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0)
"""Those of bodies of activities, and of the time that activities wait for a worker."""
MEMBERS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)


class Histogram:
    """Counts of values up to each bound, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """The last one counts the values above all bounds."""
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class ActivityCounts:
    """The counts of one activity."""

    __slots__ = ("completed", "others", "seconds", "started_at_once", "waits")

    def __init__(self) -> None:
        self.completed = 0
        """Attempts whose bodies had begun. The hash of a state is a call, so most of them are counted without it."""
        self.others: dict[str, int] = defaultdict(int)
        """Those that did not complete, by their final state."""
        self.seconds = Histogram(LONG_SECONDS)
        """From the begin of a body to its end."""
        self.waits = Histogram(LONG_SECONDS)
        """Claimed attempts: from available to claimed."""
        self.started_at_once = 0
        """Attempts that the worker which scheduled them began at once: they waited for no time."""

    def ended(self) -> dict[str, int]:
        """The attempts whose bodies had begun, by final state."""
        completed = {COMPLETED.value: self.completed} if self.completed else {}
        return completed | {str(state): count for state, count in self.others.copy().items()}

    def add(self, state: AttemptState) -> None:
        """Count the end of an attempt."""
        if state is COMPLETED:
            self.completed += 1
        else:
            self.others[state] += 1

    def wait_seconds(self) -> Histogram:
        """The waits of all attempts."""
        found = Histogram(LONG_SECONDS)
        found.counts = list(self.waits.counts)
        found.counts[0] += self.started_at_once
        found.total = self.waits.total
        return found


class ActivityTable(dict[str, ActivityCounts]):
    """The counts by the names of activities, made when they are first used."""

    def __missing__(self, name: str) -> ActivityCounts:
        counts = self[name] = ActivityCounts()
        return counts


class WorkerMetrics:
    """Implements `CommitObserver`. Names of workflows and activities are the only labels besides states (M3)."""

    def __init__(self, clock: Callable[[], float], now_ms: Callable[[], int]) -> None:
        self.clock = clock
        self._now_ms = now_ms
        self.activities = ActivityTable()
        self.instances_started: dict[str, int] = defaultdict(int)
        """By workflow."""
        self.instances_closed: dict[tuple[str, str], int] = defaultdict(int)
        """By workflow and final state."""
        self.turn_seconds = Histogram(SECONDS)
        self.commit_seconds = Histogram(SECONDS)
        self.commit_members = Histogram(MEMBERS)
        self.replay_seconds = Histogram(SECONDS)

    # ------------------------------------------------------------ what was committed

    def committed(self, members: Sequence[Member], outcomes: Sequence[Outcome], took_seconds: float) -> None:
        self.commit_seconds.observe(took_seconds)
        self.commit_members.observe(len(members))
        count_by_type = COUNT_BY_TYPE
        for member, outcome in zip(members, outcomes, strict=True):
            if outcome is APPLIED and type(member) is Turn:
                continue  # nearly all of them: `turn_committed` counts it
            if isinstance(outcome, Applied | HandledRows):
                self._count_ended(outcome)
            count = count_by_type.get(type(member))
            if count is not None:
                count(self, member, outcome)

    def turn_taken(self, live: ObservedInstance, output: TurnOutput) -> None:
        """Do nothing: only committed turns count."""

    def turn_committed(self, live: ObservedInstance, turn: Turn, took_seconds: float) -> None:
        """Called for every step of a workflow, and therefore written without calls of small functions."""
        spent = self.turn_seconds
        spent.counts[bisect_left(SECONDS, took_seconds)] += 1
        spent.total += took_seconds
        activities = self.activities
        for completion in turn.completions:
            attempt = completion.attempt
            before = completion.from_state
            if attempt is None or (before is not RUNNING and before not in BEGUN):
                continue
            counts = activities[attempt.name]
            if completion.to_state is COMPLETED:
                counts.completed += 1
            else:
                counts.add(completion.to_state)
            event = completion.event
            if event is not None and attempt.started_at_ms is not None:
                seconds = (event.time_ms - attempt.started_at_ms) / MILLISECONDS
                ran = counts.seconds
                ran.counts[bisect_left(LONG_SECONDS, seconds)] += 1
                ran.total += seconds
        for new in turn.attempts:
            if new.owner is not None:
                activities[new.name].started_at_once += 1
        if turn.turn == 0 and turn.execution == 1 and turn.events:
            self.instances_started[live.workflow] += 1
        effects = turn.effects
        if effects is not None and effects.close is not None:
            self.instances_closed[live.workflow, effects.close.state] += 1

    def replayed(self, live: ObservedInstance, history: Sequence[HistoryRow], took_seconds: float) -> None:
        del live, history
        self.replay_seconds.observe(took_seconds)

    # ------------------------------------------------------------ members

    def count_start(self, start: Start, outcome: Outcome) -> None:
        """The first turn of the start is counted by `turn_committed`."""
        if isinstance(outcome, StartedInstance):
            if outcome.replaced is not None:
                self.instances_closed[start.workflow, InstanceState.TERMINATED] += 1
            self._count_children(outcome)

    def count_turn(self, turn: Turn, outcome: Outcome) -> None:
        """A turn that was rejected: its completions were recorded, except those of attempts that had ended (G5)."""
        if isinstance(outcome, Rejected) and turn.completions:
            now_ms = self._now_ms()
            for completion in turn.completions:
                if completion.key not in outcome.stale:
                    self._count_completion(completion, now_ms)

    def count_completion(self, completion: Completion, outcome: Outcome) -> None:
        if isinstance(outcome, Applied):
            self._count_completion(completion, self._now_ms())

    def count_next_attempt(self, member: OpenNextAttempt, outcome: Outcome) -> None:
        ended = member.ended
        if isinstance(outcome, Applied) and member.attempt is not None and ended.from_state in BEGUN:
            self._count_attempt(member.attempt, ended.to_state, self._now_ms())

    def count_claims(self, member: ClaimAttempts, outcome: Outcome) -> None:
        del member
        if isinstance(outcome, ClaimedAttempts):
            now_ms = self._now_ms()
            for attempt in outcome.attempts:
                waited_ms = max(0, now_ms - attempt.available_at_ms)
                self.activities[attempt.name].waits.observe(waited_ms / MILLISECONDS)

    def count_termination(self, member: Terminate, outcome: Outcome) -> None:
        del member
        if isinstance(outcome, TerminatedInstance) and outcome.was_open:
            self.instances_closed[outcome.instance.workflow, InstanceState.TERMINATED] += 1
            self._count_children(outcome)

    def count_expiry(self, member: Expire, outcome: Outcome) -> None:
        del member
        if isinstance(outcome, Expired):
            if outcome.verdict is DeadlineVerdict.END:
                self.instances_closed[outcome.instance.workflow, InstanceState.FAILED] += 1
            self._count_children(outcome)

    def count_resume(self, member: Resume, outcome: Outcome) -> None:
        """The deadline of an instance that had not begun may have passed during the pause (R25)."""
        del member
        if isinstance(outcome, ResumedInstance):
            if outcome.has_ended:
                self.instances_closed[outcome.instance.workflow, InstanceState.FAILED] += 1
            self._count_children(outcome)

    def count_delivery(self, message: Deliver, outcome: Outcome) -> None:
        """A cancel ends an instance at once that has not begun (A9)."""
        if isinstance(outcome, Delivered):
            found = outcome.instance
            if isinstance(message.event, CancelRequested) and isinstance(found, InstanceRecord) and not found.has_begun:
                self.instances_closed[found.workflow, InstanceState.CANCELLED] += 1
            self._count_children(outcome)

    # ------------------------------------------------------------ parts

    def _count_completion(self, completion: Completion, now_ms: int) -> None:
        attempt = completion.attempt
        event = completion.event
        if attempt is not None and completion.from_state in BEGUN:
            self._count_attempt(attempt, completion.to_state, now_ms if event is None else event.time_ms)

    def _count_attempt(self, attempt: AttemptRecord, state: AttemptState, closed_at_ms: int) -> None:
        counts = self.activities[attempt.name]
        counts.add(state)
        if attempt.started_at_ms is not None:
            ran_ms = max(0, closed_at_ms - attempt.started_at_ms)
            counts.seconds.observe(ran_ms / MILLISECONDS)

    def _count_ended(self, outcome: Applied | HandledRows) -> None:
        """Attempts that ended inside of the store, and children that ended with their parent."""
        for attempt in outcome.attempts_ended:
            if attempt.started_at_ms is not None:
                self._count_attempt(attempt, attempt.state, attempt.closed_at_ms or self._now_ms())
        self._count_children(outcome)

    def _count_children(
        self,
        outcome: Applied | HandledRows | StartedInstance | TerminatedInstance | Expired | Delivered | ResumedInstance,
    ) -> None:
        for child in outcome.ended:
            if child.state is not None:
                self.instances_closed[child.workflow, child.state] += 1


COUNT_BY_TYPE: Final[dict[type[Any], Callable[[WorkerMetrics, Any, Outcome], None]]] = {
    Start: WorkerMetrics.count_start,
    Turn: WorkerMetrics.count_turn,
    Completion: WorkerMetrics.count_completion,
    OpenNextAttempt: WorkerMetrics.count_next_attempt,
    ClaimAttempts: lambda metrics, member, outcome: metrics.count_claims(member, outcome),  # `MeteredCounts` adds to it
    Terminate: WorkerMetrics.count_termination,
    Expire: WorkerMetrics.count_expiry,
    Resume: WorkerMetrics.count_resume,
    Deliver: WorkerMetrics.count_delivery,
}
"""The members that change a counter, apart from what their outcomes say about others."""


def sorted_items(counts: dict[Any, Any]) -> Iterable[tuple[Any, Any]]:
    """The items of a dictionary that another thread changes, in order."""
    return sorted(counts.copy().items())
