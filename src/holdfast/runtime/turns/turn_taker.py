"""Takes the turns of live instances, commits them, and acts on their outcomes.

Turns run on the worker's event loop, one after the other, without I/O. Each turn becomes one member of the next group
commit, and takes effect when it is on disk: only then do activities start, results appear and log lines get written.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from holdfast.authoring.log import write_line
from holdfast.core.history import Started
from holdfast.errors import HoldfastError, StoreError, WorkerFenced
from holdfast.replay.loop.loop_swap import LoopSwapBatch
from holdfast.runtime.attempts.runner import AttemptRunner
from holdfast.runtime.attempts.slots import ActivitySlots
from holdfast.runtime.committer import Done
from holdfast.runtime.run_factory import RunFactory
from holdfast.runtime.signals import log_failed_instance
from holdfast.runtime.turns.live_instance import NO_NUMBER, LiveInstance, Message, UnstoredValues
from holdfast.runtime.turns.owned_instances import OwnedInstances
from holdfast.runtime.turns.timers import TimerHeap
from holdfast.runtime.turns.turn_builder import BuiltTurn, build_turn, running_record, with_started
from holdfast.runtime.worker_context import WorkerContext
from holdfast.storage.members.attempts import Completion, OpenNextAttempt
from holdfast.storage.members.instances import Start
from holdfast.storage.members.outcomes import Applied, Failed, Outcome, Rejected, StartedInstance
from holdfast.storage.members.turns import StreamValues, TurnEffects
from holdfast.storage.records import InstanceNumber

logger = logging.getLogger("holdfast")

MAX_REFUSED_ENDS: Final = 10
"""G14: how often the last turn is taken again for messages that came before it, so that no sender can prevent it."""
MAX_ENDING: Final = 1_000
"""Instances whose rejected ends are counted."""
TURN_OUTCOMES: Final = frozenset({Applied, Rejected, Failed})


class TurnTaker:
    """Takes the turns of one worker. Implements the protocol `AttemptSink` of the runner."""

    def __init__(
        self,
        context: WorkerContext,
        instances: OwnedInstances,
        runs: RunFactory,
        attempts: AttemptRunner,
        slots: ActivitySlots,
    ) -> None:
        self._context = context
        self._session = context.session
        self._committer = context.committer
        self._now_ms = context.session.store.now_ms
        self._instances = instances
        self._live = instances.live
        self._runs = runs
        self._marker = runs.marker
        self._attempts = attempts
        self._slots = slots
        self._timers = TimerHeap(self._now_ms, self._timer_due)
        self._ready: list[LiveInstance] = []
        self._starting: set[LiveInstance] = set()
        """Instances whose start is being committed."""
        self._refused_ends: dict[InstanceNumber, int] = {}
        """How often the last turns of instances were rejected."""
        self._is_stopped = False
        self.turns = 0
        """How many turns were built."""

    def stop(self) -> None:
        """The worker drains or stops: start nothing, fire no timers, and commit the ends of attempts alone."""
        self._is_stopped = True
        self._timers.close()

    def evict_all(self, *, starting: bool = False) -> None:
        """The lease is lost, or the worker is gone: evict every instance, with `starting` also uncommitted ones."""
        self._instances.evict_all()
        self._timers.clear()
        if starting:
            for live in self._starting:
                live.run.evict()

    # ------------------------------------------------------------ starts

    def start_instance(self, start: Start, started: Started, done: Done) -> bool:
        """Create an instance together with its first turn; False if this worker cannot run it now.

        `PayloadError` if the value of its event does not fit: the sender is refused, and nothing is stored (G6).
        If the turn fails, the instance is created without it and blocked by its next claim (G12).
        """
        registry, runs = self._context.registry, self._runs
        if self._is_stopped or not self._context.lease.is_valid or not self._live.has_room:
            return False
        code = registry.find(start.workflow, start.version)
        if code is None or not runs.flows.has(start.workflow, started.flow):
            return False
        run = runs.new_run(start.id, start.workflow, 1, {}, version=start.version, flow=started.flow)
        live = LiveInstance.new(start, started.time_ms, run)
        messages: list[Message] = []
        try:
            built = self._take_first(live, start, started, messages)
        except BaseException:
            run.evict()
            raise
        if isinstance(built, str):
            run.evict()
            self._committer.submit(with_started(start, started), partial(self._on_start_alone, built, done))
            return True
        self._starting.add(live)
        start = msgspec.structs.replace(start, version=run.version, first=built.turn, mail_taken=len(messages) > 1)
        self._committer.submit(start, partial(self._on_start, live, built, done))
        return True

    def _take_first(
        self, live: LiveInstance, start: Start, started: Started, applied: list[Message]
    ) -> BuiltTurn | str:
        """The first turn, with the event of the start if the code waits for it; a string: why the turn failed."""
        observer = self._session.observer
        began = 0.0 if observer is None else observer.clock()
        try:
            live.apply(Message(started), applied, has_more=start.mail is not None)
            misfit = None if start.mail is None else live.apply_sent(start.mail, applied)
            if misfit is None:
                live.run.end()
        except HoldfastError as error:
            return f"{type(error).__name__}: {error}"
        if misfit is not None:
            raise misfit
        return self._build(live, applied, began)

    def _on_start(self, live: LiveInstance, built: BuiltTurn, done: Done, outcome: Outcome) -> None:
        self._starting.discard(live)
        if isinstance(outcome, StartedInstance) and outcome.created:
            live.number = outcome.instance.number
            self._live.add(live)
            self._on_committed(live, built, [])
        else:
            self._slots.release(len(built.eager))
            live.run.evict()
        done(outcome)

    def _on_start_alone(self, failure: str, done: Done, outcome: Outcome) -> None:
        """The start of an instance whose first turn failed was decided."""
        if isinstance(outcome, StartedInstance) and outcome.created:
            self._instances.first_turn_failed(outcome.instance.number, failure)
        done(outcome)
        self._context.work.set()

    # ------------------------------------------------------------ ends of attempts

    def attempt_ended(self, ended: Completion | OpenNextAttempt) -> None:
        """Queue the end of an attempt for the next turn of its instance, or commit it alone if that is not live.

        The turn is taken when all attempts that ended together are queued, see `take_turns`.
        """
        if self._is_stopped:
            self._committer.commit_eventually(ended)
            return
        if isinstance(ended, Completion) and ended.event is not None:
            live = self._live.ready_for(ended.key, ended.values)
            if live is not None:
                live.queue.append(Message(ended.event, ended))
                self._ready.append(live)
                return
        self._context.commit_then_poll(ended)

    def values_yielded(self, values: StreamValues, done: Done) -> None:
        """Take values into the next turn, if their instance is live and has all values before them (L15)."""
        event = values.event
        live = None if self._is_stopped else self._live.ready_for(values.key, event.number)
        if live is None:
            self._store_values(values, done)
            return
        live.queue.append(Message(event, response=UnstoredValues(values, done, self._store_values)))
        self.take(live)

    def _store_values(self, values: StreamValues, done: Done) -> None:
        def decided(outcome: Outcome) -> None:
            done(outcome)
            self._context.work.set()  # the values wait in the inbox of an instance that may be live here

        self._committer.commit_eventually(values, decided)

    # ------------------------------------------------------------ turns

    def take_turns(self, others: Sequence[LiveInstance] = ()) -> None:
        """Take the turns of all instances whose attempts ended, and of `others`."""
        ready = [*self._ready, *others]
        self._ready = []
        with LoopSwapBatch():
            for live in ready:
                if self._live.get(live.number) is not live:
                    continue  # it was evicted meanwhile, and its completions were committed alone
                try:
                    self.take(live)
                except Exception:  # an error of the engine must not cost the other instances their turns
                    logger.exception("a turn of %s was not taken", live.id)

    def take(self, live: LiveInstance) -> None:
        """Apply the messages of a live instance and submit the turn, unless one is being committed already."""
        if live.has_uncommitted_turn:
            return
        messages = live.take_messages(self._now_ms)
        if not messages:
            self._idle(live)
            return
        live.has_uncommitted_turn = True
        applied: list[Message] = []
        observer = self._session.observer
        began = 0.0 if observer is None else observer.clock()
        self._marker.slot[0] = live.number
        try:
            live.apply_all(messages, applied)
        except Exception as error:  # noqa: BLE001 - an error of the engine blocks the instance (G12)
            live.queue.extendleft(reversed(messages))
            self._instances.block_for(live, error)
            return
        finally:
            self._marker.slot[0] = NO_NUMBER
        if live.leftover_events:
            live.send_alone()
        if not applied:  # events that no code waits for yet
            live.has_uncommitted_turn = False
            if live.waiting_queries and not live.run_waiting_queries():
                self._instances.release(live)
            else:
                self._idle(live)
            return
        try:
            built = self._build(live, applied, began)
        except Exception as error:  # noqa: BLE001 - a turn that cannot be stored blocks it, too
            live.queue.extendleft(reversed(applied))
            self._instances.block_for(live, error)
            return
        self._committer.submit(built.turn, partial(self._on_outcome, live, built, applied))

    def _build(self, live: LiveInstance, applied: list[Message], began: float) -> BuiltTurn:
        self.turns += 1
        output = live.run.take_output()
        observer = self._session.observer
        took_seconds = 0.0
        if observer is not None:
            took_seconds = observer.clock() - began
            observer.turn_taken(live, output)
        return build_turn(
            live,
            applied,
            output,
            owner=self._context.lease.key,
            now_ms=self._now_ms(),
            reserve=self._slots.reserve_for,
            stand_in=self._slots.stand_in_of,
            release=self._live.size == 0,
            may_close_unread=self._refused_ends.get(live.number, 0) >= MAX_REFUSED_ENDS,
            took_seconds=took_seconds,
        )

    # ------------------------------------------------------------ outcomes

    def _on_outcome(self, live: LiveInstance, built: BuiltTurn, applied: list[Message], outcome: Outcome) -> None:
        if type(outcome) not in TURN_OUTCOMES:
            outcome = Failed(error=StoreError(f"a turn of {live.id} had the outcome {outcome!r}"))
        for message in built.unstored:
            message.settle(outcome)
        match outcome:
            case Applied():
                self._on_committed(live, built, applied)
            case Rejected():
                # The store recorded the completions of this turn. If only a completion was stale, the instance is
                # still ours: released, it does not stay owned without being live (G2).
                if built.turn.effects is not None and built.turn.effects.close is not None:
                    self._note_refused_end(live.number)
                self._slots.release(len(built.eager))
                self._instances.release(live, built.turn.owner)
            case Failed():
                self._slots.release(len(built.eager))
                live.queue.extendleft(message for message in reversed(applied) if message.completion)
                self._on_failed(live, outcome.error)
            case _:
                raise AssertionError

    def _on_failed(self, live: LiveInstance, error: Exception) -> None:
        if isinstance(error, WorkerFenced):
            self._instances.evict(live, lease_lost=True)
        elif isinstance(error, StoreError):
            self._context.session.trouble.log("turns could not be stored and are taken again", error)
            self._instances.release(live)
        else:
            self._instances.block_for(live, error)

    def _note_refused_end(self, number: InstanceNumber) -> None:
        """An event or an update came before the end (G14): the instance is claimed again, and its inbox is read."""
        self._refused_ends[number] = self._refused_ends.pop(number, 0) + 1
        while len(self._refused_ends) > MAX_ENDING:  # of instances that other workers have closed
            del self._refused_ends[next(iter(self._refused_ends))]

    def _on_committed(self, live: LiveInstance, built: BuiltTurn, applied: list[Message]) -> None:
        turn, eager = built.turn, built.eager
        observer = self._session.observer
        if observer is not None:
            observer.turn_committed(live, turn, built.took_seconds)
        for line in built.logs:
            write_line(line, live.run.identity)
        if self._live.get(live.number) is not live:  # evicted while its turn was being committed
            self._slots.release(len(eager))
            return
        live.has_uncommitted_turn = False
        if turn.events:
            live.turn += 1
        for attempt in eager:
            self._attempts.start(running_record(live, attempt))
        if len(eager) < len(turn.attempts):
            self._context.work.set()
            if offered := {attempt.queue for attempt in turn.attempts if attempt.is_external}:
                self._context.session.offered(offered)
        if turn.effects is not None and self._after_effects(live, turn.effects):
            return
        if applied:
            self._live.move_to_end(live.number)
        if live.waiting_queries and not live.run_waiting_queries():
            self._instances.release(live)
        elif live.queue:
            self.take(live)
        else:
            self._idle(live)  # a timer that is due already fires from there

    def _after_effects(self, live: LiveInstance, effects: TurnEffects) -> bool:
        """Act on the effects of a committed turn. Returns whether the instance is no longer live."""
        if effects.abandoned:
            self._attempts.cancel_activities(live.number, live.execution, set(effects.abandoned))
        if effects.activities_asked:
            asked = set(effects.activities_asked)
            self._attempts.cancel_activities(live.number, live.execution, asked, is_awaited=True)
        if effects.sent or effects.has_relatives or effects.activities_asked:
            self._context.work.set()
        if effects.close is not None or effects.next is not None:
            self._end(live, effects)
            return True
        if effects.release:
            self._instances.evict(live)
            self._context.work.set()
        return effects.release

    def _end(self, live: LiveInstance, effects: TurnEffects) -> None:
        """The execution is closed, durably: the next one begins (G4), or waiters for the result are notified."""
        if effects.next is not None and not effects.release:
            self._live.will_continue(live.number)
        self._instances.close(live.number, has_bodies=live.run.has_open_activities)
        if effects.close is not None:
            self._refused_ends.pop(live.number, None)
            self._context.session.results.ended(live.id, live.number, effects.close)
            log_failed_instance(live.id, effects.close, self._context.lease.key)
        else:
            self._context.work.set()

    # ------------------------------------------------------------ idle instances

    def _idle(self, live: LiveInstance) -> None:
        """No message is left to apply: arm the timer. The instances that are idle longest make room for others."""
        if live.timers:
            due = live.next_due_ms()
            if due is not None and due != live.timer_armed_ms:
                live.timer_armed_ms = due
                self._timers.add(due, live.number)
        instances = self._instances
        if len(self._live) > self._live.size:
            instances.make_room(self._live.size)
        if self._live.room_wanted:
            instances.signal_room()

    def _timer_due(self, number: InstanceNumber) -> None:
        if (live := self._live.get(number)) is not None:
            live.timer_armed_ms = None
            self.take(live)
