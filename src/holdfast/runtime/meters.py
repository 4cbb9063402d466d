"""The counts of a process as instruments of OpenTelemetry, under the names of M1. Imported only where it is asked for.

Counters and gauges are observable: they cost nothing until they are read. The API has no observable histogram, so each
duration is recorded when it is counted.
"""

from collections.abc import Callable, Iterable, Sequence

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation

from holdfast.core.deadlines import MILLISECONDS
from holdfast.core.lifecycle import AttemptState
from holdfast.runtime.metrics import BEGUN, LONG_SECONDS, MEMBERS, SECONDS, WorkerMetrics, sorted_items
from holdfast.runtime.observing import ObservedInstance
from holdfast.storage.members.attempts import ClaimAttempts
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import ClaimedAttempts, Outcome
from holdfast.storage.members.turns import Turn
from holdfast.storage.records import AttemptRecord, HistoryRow

Values = Iterable[tuple[float, dict[str, str]]]


class MeteredCounts(WorkerMetrics):
    """Counts that are also instruments of a meter."""

    def __init__(self, meter: Meter, clock: Callable[[], float], now_ms: Callable[[], int]) -> None:
        super().__init__(clock, now_ms)
        self._meter = meter
        self._counter("holdfast_instances_started", "First turns committed.", self._started)
        self._counter("holdfast_instances_closed", "Instances closed.", self._closed)
        self._counter("holdfast_activity_attempts", "Attempts with a body that ended.", self._attempts)
        self._ran = self._histogram("holdfast_activity_seconds", "From the begin of a body to its end.", LONG_SECONDS)
        self._waited = self._histogram("holdfast_activity_wait_seconds", "From available to claimed.", LONG_SECONDS)
        self._turns = self._histogram("holdfast_turn_seconds", "Code of one turn.", SECONDS)
        self._commits = self._histogram("holdfast_commit_seconds", "One group commit.", SECONDS)
        self._members = self._histogram("holdfast_commit_members", "Members of a group commit.", MEMBERS, unit="1")
        self._replays = self._histogram("holdfast_replay_seconds", "Rebuilding of an instance.", SECONDS)

    # ------------------------------------------------------------ instruments

    def gauge(self, name: str, text: str, read: Callable[[], Values]) -> None:
        """An observable gauge."""
        self._meter.create_observable_gauge(name, [_observing(read)], description=text)

    def _counter(self, name: str, text: str, read: Callable[[], Values]) -> None:
        self._meter.create_observable_counter(name, [_observing(read)], unit="1", description=text)

    def _histogram(self, name: str, text: str, bounds: Sequence[float], unit: str = "s") -> Histogram:
        return self._meter.create_histogram(
            name, unit=unit, description=text, explicit_bucket_boundaries_advisory=list(bounds)
        )

    def _started(self) -> Values:
        return [(count, {"workflow": name}) for name, count in sorted_items(self.instances_started)]

    def _closed(self) -> Values:
        counts = sorted_items(self.instances_closed)
        return [(count, {"workflow": name, "outcome": str(state)}) for (name, state), count in counts]

    def _attempts(self) -> Values:
        return [
            (count, {"activity": name, "outcome": state})
            for name, counts in sorted_items(self.activities)
            for state, count in sorted_items(counts.ended())
        ]

    # ------------------------------------------------------------ durations

    def committed(self, members: Sequence[Member], outcomes: Sequence[Outcome], took_seconds: float) -> None:
        super().committed(members, outcomes, took_seconds)
        self._commits.record(took_seconds)
        self._members.record(len(members))

    def turn_committed(self, live: ObservedInstance, turn: Turn, took_seconds: float) -> None:
        super().turn_committed(live, turn, took_seconds)
        self._turns.record(took_seconds)
        for completion in turn.completions:
            attempt = completion.attempt
            event = completion.event
            if attempt is not None and event is not None and completion.from_state in BEGUN:
                self._record_body(attempt, event.time_ms)
        for new in turn.attempts:
            if new.owner is not None:
                self._waited.record(0.0, {"activity": new.name})

    def replayed(self, live: ObservedInstance, history: Sequence[HistoryRow], took_seconds: float) -> None:
        super().replayed(live, history, took_seconds)
        self._replays.record(took_seconds)

    def count_claims(self, member: ClaimAttempts, outcome: Outcome) -> None:
        super().count_claims(member, outcome)
        if isinstance(outcome, ClaimedAttempts):
            now_ms = self._now_ms()
            for attempt in outcome.attempts:
                waited_ms = max(0, now_ms - attempt.available_at_ms)
                self._waited.record(waited_ms / MILLISECONDS, {"activity": attempt.name})

    def _count_attempt(self, attempt: AttemptRecord, state: AttemptState, closed_at_ms: int) -> None:
        super()._count_attempt(attempt, state, closed_at_ms)
        self._record_body(attempt, closed_at_ms)

    def _record_body(self, attempt: AttemptRecord, closed_at_ms: int) -> None:
        if attempt.started_at_ms is not None:
            ran_ms = max(0, closed_at_ms - attempt.started_at_ms)
            self._ran.record(ran_ms / MILLISECONDS, {"activity": attempt.name})


def _observing(read: Callable[[], Values]) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(value, attributes) for value, attributes in read()]

    return observe
