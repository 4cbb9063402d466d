"""The instances that this worker owns: their code is live here, and only here their turns are taken (G1, G2).

Turns run on the worker's event loop, one after the other, without I/O; each becomes one member of the next commit. What
a turn did counts when it is on disk: only then do activities start, results appear and logs get written.

The times at which something is due, and one timer of the event loop for the nearest of them.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from holdfast.authoring.log import write_line
from holdfast.authoring.registry import Registry
from holdfast.core.history import Started
from holdfast.core.leases import WorkerKey
from holdfast.core.run import ScheduledActivity, TurnOutput
from holdfast.errors import HoldfastError, StoreError, WorkerFenced, WorkflowBlocked
from holdfast.replay.loop.loop_swap import LoopSwapBatch
from holdfast.runtime.attempts.runner import AttemptRunner
from holdfast.runtime.committer import Committer
from holdfast.runtime.run_factory import RunFactory
from holdfast.runtime.turns.live_instance import NO_NUMBER, LiveInstance, LiveInstances, Message, take_in
from holdfast.runtime.turns.owned_instances import Ended, Keeper
from holdfast.runtime.turns.turn_builder import BuiltTurn, build_turn, running_record
from holdfast.storage.contract import Store
from holdfast.storage.members.attempts import Completion, OpenNextAttempt
from holdfast.storage.members.instances import Start
from holdfast.storage.members.outcomes import Applied, Failed, Outcome, Rejected, StartedInstance
from holdfast.storage.members.turns import TurnEffects
from holdfast.storage.records import AttemptKey, AttemptRecord, InboxRow, InstanceNumber, InstanceRecord

logger = logging.getLogger("holdfast")

AGAIN_MS: Final = 1_000
LONGEST_WAIT_SECONDS: Final = 3600.0
"""The store's clock and the loop's may drift apart; so far apart they are compared again."""


class TimerHeap:
    """Calls back once for each time added, never before it. Adding a time twice costs a needless call, no more."""

    def __init__(self, now_ms: Callable[[], int], due: Callable[[InstanceNumber], None]) -> None:
        self._now_ms = now_ms
        self._due = due
        self._heap: list[tuple[int, InstanceNumber]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0

    def add(self, at_ms: int, number: InstanceNumber) -> None:
        """Something of this instance is due then."""
        heapq.heappush(self._heap, (at_ms, number))
        if self._timer is None or at_ms < self._timer_at_ms:
            self._arm()

    @property
    def next_ms(self) -> int | None:
        """The nearest time, if there is any."""
        return self._heap[0][0] if self._heap else None

    def stop(self) -> None:
        """Forget everything."""
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            self._timer_at_ms = self._heap[0][0]
            wait = max(0.0, (self._timer_at_ms - self._now_ms()) / 1000)
            self._timer = asyncio.get_running_loop().call_later(min(wait, LONGEST_WAIT_SECONDS), self._fire)

    def _fire(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        numbers: dict[InstanceNumber, None] = {}
        while self._heap and self._heap[0][0] <= now_ms:
            numbers[heapq.heappop(self._heap)[1]] = None
        try:
            for number in numbers:
                self._notify(number)
        finally:
            self._arm()

    def _notify(self, number: InstanceNumber) -> None:
        try:
            self._due(number)
        except Exception:  # an error about one instance must not stop the timers of the others
            logger.exception("what is due of instance number %d could not be done; the worker looks again", number)
            self.add(self._now_ms() + AGAIN_MS, number)


MAX_FIRST_FAILURES: Final = 1_000
MAX_REFUSED_ENDS: Final = 10
"""G14: how often an end is taken again for messages that came before it. A sender without pause cannot prevent it."""
MAX_ENDING: Final = 1_000
"""Instances whose rejected ends are counted."""
SLOW_TEARDOWN_SECONDS: Final = 0.05
SLOW_TEARDOWNS_SECONDS: Final = 1.0
"""How long all slow teardowns of one close may take together. After that no more workflow code is run to end it."""


class TurnTaker:
    """Takes turns of live instances and bounds how many there are."""

    def __init__(
        self,
        registry: Registry,
        store: Store,
        committer: Committer,
        runner: AttemptRunner,
        key: Callable[[], WorkerKey],
        *,
        runs: RunFactory,
        cache_size: int,
        reserve: Callable[[ScheduledActivity], bool],
        ended: Ended,
        work_is_waiting: Callable[[], None],
    ) -> None:
        self._registry = registry
        self._store = store
        self._runs = runs
        self._committer = committer
        self._runner = runner
        self._key = key
        self._reserve = reserve
        self._ended = ended
        self._work_is_waiting = work_is_waiting
        self._now_ms = store.now_ms
        self._told = self._on_outcome  # methods, looked up once for all turns
        self._live = LiveInstances(cache_size)
        self._size = cache_size
        self._keeper = Keeper(committer, key, registry, ended=ended, work_is_waiting=work_is_waiting)
        self._due = TimerHeap(store.now_ms, self._timer_due)
        self._ready: list[LiveInstance] = []
        self._first_failures: dict[InstanceNumber, str] = {}
        """Why first turns failed, of instances that were created without them: this worker does not run them again."""
        self._refused_ends: dict[InstanceNumber, int] = {}
        """How often the last turns of instances were rejected."""
        self.turns = 0

    # ------------------------------------------------------------ what is live

    def __len__(self) -> int:
        return len(self._live)

    @property
    def live(self) -> LiveInstances:
        """The instances whose code is live here."""
        return self._live

    def _room_was_made(self) -> None:
        if self._live.room_wanted:
            self._live.room_wanted = False
            self._work_is_waiting()

    # ------------------------------------------------------------ starting

    def start_instance(self, start: Start, started: Started) -> tuple[LiveInstance, BuiltTurn, Start] | str | None:
        """Run the first turn of an instance that is yet to be created; None if its code cannot be run here.

        The event of the start is applied with it, if the code waits for it. The start that is returned says so.
        `PayloadError` if its value does not fit: the sender is refused, and nothing is stored (G6).
        A text is the reason why the turn failed: see `first_turn_failed`.
        """
        if start.workflow not in self._registry.workflows or not self._runs.flows.has(start.workflow, started.flow):
            return None
        run = self._runs.new_run(start.id, start.workflow, 1, {}, started.flow)
        live = LiveInstance.new(start, started.time_ms, run)
        done: list[Message] = []
        try:
            built = self._take_first(live, start, started, done)
        except BaseException:
            run.evict()
            raise
        if isinstance(built, str):
            run.evict()
            return built
        return live, built, msgspec.structs.replace(start, first=built.turn, mail_taken=len(done) > 1)

    def _take_first(self, live: LiveInstance, start: Start, started: Started, done: list[Message]) -> BuiltTurn | str:
        try:
            live.apply(Message(started), done, has_more=start.mail is not None)
            misfit = None if start.mail is None else live.apply_sent(start.mail, done)
            if misfit is None:
                live.run.end()
        except HoldfastError as error:
            return f"{type(error).__name__}: {error}"
        if misfit is not None:
            raise misfit
        return self._build(live, done, live.run.take_output())

    def on_start_outcome(self, live: LiveInstance, built: BuiltTurn, outcome: Outcome) -> None:
        """The start of an instance was decided: go on with it, or forget it."""
        if isinstance(outcome, StartedInstance) and outcome.created:
            live.number = outcome.instance.number
            self._live.add(live)
            self._on_committed(live, built, [])
        else:
            self._runner.release(len(built.eager))
            live.run.evict()

    def first_turn_failed(self, failure: str, outcome: Outcome) -> None:
        """The start of an instance whose first turn failed was decided. If it was created, its claim blocks it."""
        if isinstance(outcome, StartedInstance) and outcome.created:
            self._first_failures[outcome.instance.number] = failure
            while len(self._first_failures) > MAX_FIRST_FAILURES:
                del self._first_failures[next(iter(self._first_failures))]

    @property
    def first_failures(self) -> tuple[InstanceNumber, ...]:
        """The instances whose first turns failed here, and which were not claimed here since."""
        return tuple(self._first_failures)

    def claimed_elsewhere(self, numbers: Iterable[InstanceNumber]) -> None:
        """Another worker has claimed these instances: how their first turns went here matters no more."""
        for number in numbers:
            self._first_failures.pop(number, None)

    # ------------------------------------------------------------ waking

    async def wake(self, record: InstanceRecord) -> None:
        """Bring a claimed instance to life: replay its history, then take in what waits for it (G8)."""
        failure = self._first_failures.pop(record.number, None)
        if failure is not None and (record.execution, record.turn) == (1, 0):
            self._keeper.park(record, failure)
            return
        try:
            run, loaded = await self._runs.load(self._store, record)
        except WorkflowBlocked as blocked:
            if await self._keeper.still_owns(record, self._store):
                self._keeper.park(record, str(blocked))
            return
        live = LiveInstance.of(record, run)
        self._make_room(max(self._size, 1) - 1)
        self._live.add(live)
        try:
            self._runs.replay(live.number, live.run, loaded.history)
        except Exception as error:  # noqa: BLE001 - whatever it is, this build cannot go on with it
            if await self._keeper.still_owns(record, self._store):
                self._block(live, error)
            else:
                self.forget(live)
            return
        live.timers = {timer.timer: timer.due_at_ms for timer in loaded.timers}
        if self._take_in(live, loaded.inbox, loaded.attempts):
            self._take(live)

    async def take_in(self, rows: Sequence[InboxRow], attempts: dict[InstanceNumber, list[AttemptRecord]]) -> None:
        """Messages that others left for instances that are live here."""
        await self._live.fetch_payloads(self._store, rows)
        touched: dict[InstanceNumber, bool] = {}
        for row in rows:
            if row.number in self._live:
                touched[row.number] = self._take_in(self._live[row.number], [row], attempts.get(row.number, []))
        for number, is_fine in touched.items():
            if is_fine and number in self._live:
                self._take(self._live[number])

    def _take_in(self, live: LiveInstance, rows: Iterable[InboxRow], attempts: Iterable[AttemptRecord]) -> bool:
        try:
            take_in(live, rows, attempts)
        except Exception as error:  # noqa: BLE001 - undecodable: it stays in the inbox, and nobody else suffers (G12)
            self._block(live, error)
            return False
        return True

    # ------------------------------------------------------------ answers of activities

    def attempt_ended(self, ended: Completion | OpenNextAttempt) -> None:
        """An attempt that ran here came to its end: with the next turn if its instance is live, else alone.

        The turn is taken when all that ended with it is known, see `take_turns`.
        """
        if isinstance(ended, Completion) and ended.event is not None:
            live = self._live.ready_for(ended.key, ended.values)
            if live is not None:
                live.queue.append(Message(ended.event, ended))
                self._ready.append(live)
                return
        self._keeper.keep(ended)

    def values_yielded(self, key: AttemptKey, values: int | None, message: Message) -> bool:
        """Take a message into the next turn, if its instance is live and has all values that go before it (L15)."""
        live = self._live.ready_for(key, values)
        if live is not None:
            live.queue.append(message)
            self._take(live)
        return live is not None

    # ------------------------------------------------------------ turns

    def take_turns(self, told: Sequence[LiveInstance] = ()) -> None:
        """Take the turns of all instances to which something was answered, and of those that were told something."""
        ready = [*self._ready, *told]
        self._ready = []
        with LoopSwapBatch():
            for live in ready:
                if self._live.get(live.number) is not live:
                    continue  # let go of meanwhile, and its answers were kept
                try:
                    self._take(live)
                except Exception:  # an error of the engine's own must not cost the others their turns
                    logger.exception("a turn of %s was not taken", live.id)

    def _take(self, live: LiveInstance) -> None:
        """Take a turn, unless one is on its way to disk already."""
        if live.has_uncommitted_turn:
            return
        messages = live.take_messages(self._now_ms)
        if not messages:
            self._idle(live)
            return
        live.has_uncommitted_turn = True
        done: list[Message] = []
        self._runs.marker.slot[0] = live.number
        try:
            live.apply_all(messages, done)
        except Exception as error:  # noqa: BLE001 - an engine reason parks the instance (G12)
            live.queue.extendleft(reversed(messages))
            self._block(live, error)
            return
        finally:
            self._runs.marker.slot[0] = NO_NUMBER
        if live.leftover_events:
            live.send_alone()
        if not done:  # events that no code waits for yet
            live.has_uncommitted_turn = False
            if live.waiting_queries and not live.run_waiting_queries():
                self.let_go(live)
            else:
                self._idle(live)
            return
        try:
            built = self._build(live, done, live.run.take_output())
        except Exception as error:  # noqa: BLE001 - what cannot be stored parks it, too
            live.queue.extendleft(reversed(done))
            self._block(live, error)
            return
        self._committer.submit(built.turn, partial(self._told, live, built, done))

    def _build(self, live: LiveInstance, messages: list[Message], output: TurnOutput) -> BuiltTurn:
        self.turns += 1
        key, now_ms = self._key, self._now_ms
        return build_turn(
            live,
            messages,
            output,
            owner=key(),
            now_ms=now_ms(),
            reserve=self._reserve,
            release=self._size == 0,
            may_close_unread=self._refused_ends.get(live.number, 0) >= MAX_REFUSED_ENDS,
        )

    def _on_outcome(self, live: LiveInstance, built: BuiltTurn, messages: list[Message], outcome: Outcome) -> None:
        for rider in built.riders:
            rider.settle(outcome)
        match outcome:
            case Applied():
                self._on_committed(live, built, messages)
            case Rejected():
                # The store kept the completions of this turn; what waits behind it has to be kept, too. If only a
                # completion was stale, the instance is still ours and must not stay so without being live (G2).
                if built.turn.effects is not None and built.turn.effects.close is not None:
                    self._note_refused_end(live.number)
                self._runner.release(len(built.eager))
                self.forget(live)
                self._keeper.release(live, built.turn.owner)
            case Failed():
                self._runner.release(len(built.eager))
                live.queue.extendleft(message for message in reversed(messages) if message.completion)
                self._failed(live, outcome.error)
            case _:
                logger.error("a turn of %s had the outcome %r", live.id, outcome)

    def _note_refused_end(self, number: InstanceNumber) -> None:
        """An event or an update came before the end (G14): the instance is claimed again, and its inbox is read."""
        self._refused_ends[number] = self._refused_ends.pop(number, 0) + 1
        while len(self._refused_ends) > MAX_ENDING:  # of those that other workers have ended
            del self._refused_ends[next(iter(self._refused_ends))]

    def _on_committed(self, live: LiveInstance, built: BuiltTurn, messages: list[Message]) -> None:
        turn, eager = built.turn, built.eager
        for line in built.logs:
            write_line(line, live.run.identity)
        if self._live.get(live.number) is not live:  # let go of while its turn was on its way: the worker stops
            self._runner.release(len(eager))
            return
        live.has_uncommitted_turn = False
        if turn.events:
            live.turn += 1
        for attempt in eager:
            self._runner.start(running_record(live, attempt))
        if len(eager) < len(turn.attempts):
            self._work_is_waiting()
        if turn.effects is not None and self._after_effects(live, turn.effects):
            return
        if messages:
            self._live.move_to_end(live.number)
        if live.waiting_queries and not live.run_waiting_queries():
            self.let_go(live)
        elif live.queue:
            self._take(live)
        else:
            self._idle(live)  # a timer that is due already fires from there

    def _after_effects(self, live: LiveInstance, effects: TurnEffects) -> bool:
        """Do what follows from an unusual turn. Whether the instance is live no longer."""
        if effects.abandoned:
            self._runner.cancel_activities(live.number, live.execution, set(effects.abandoned))
        if effects.sent or effects.has_relatives:
            self._work_is_waiting()
        if effects.close is not None or effects.next is not None:
            self._end(live, effects)
            return True
        if effects.release:
            self.forget(live)
            self._work_is_waiting()
        return effects.release

    def _end(self, live: LiveInstance, effects: TurnEffects) -> None:
        """The execution has come to its end, durably: the next begins (G4), or whoever waits for the last may know."""
        if effects.next is not None and not effects.release:
            self._live.continued.add(live.number)
        if live.run.has_open_activities:
            self._runner.cancel_instance(live.number)
        self.forget(live)
        self._room_was_made()
        if effects.close is not None:
            self._refused_ends.pop(live.number, None)
            self._ended(live.id, live.number, effects.close)
        else:
            self._work_is_waiting()

    def drop(self, number: InstanceNumber) -> None:
        """An instance is closed, here or from outside (A9): none of its code runs, its bodies are told to stop."""
        self._runner.cancel_instance(number)
        if (live := self._live.get(number)) is not None:
            self.forget(live)
            self._room_was_made()

    def _idle(self, live: LiveInstance) -> None:
        """Nothing to do until something comes. What rests longest makes room for others."""
        if live.timers:
            due = live.next_due_ms()
            if due is not None and due != live.timer_armed_ms:
                live.timer_armed_ms = due
                self._due.add(due, live.number)
        if len(self._live) > self._size:
            self._make_room(self._size)
        if self._live.room_wanted:
            self._room_was_made()

    def _make_room(self, most: int) -> None:
        while len(self._live) > most and (oldest := self._live.longest_idle()) is not None:
            self._release(oldest)

    def _release(self, live: LiveInstance) -> None:
        self._live.remove(live)
        live.evict()
        self._keeper.release(live)

    def _timer_due(self, number: InstanceNumber) -> None:
        if (live := self._live.get(number)) is not None:
            live.timer_armed_ms = None
            self._take(live)

    # ------------------------------------------------------------ letting go

    def forget(self, live: LiveInstance) -> None:
        """Tear the live code down; completions that it had not applied yet commit alone."""
        self._live.remove(live)
        live.evict()
        for message in live.queue:
            if message.completion is not None:
                self._keeper.keep(message.completion)

    def let_go(self, live: LiveInstance) -> None:
        """Somebody claims it anew; answers that came and were not applied yet are kept."""
        self._release(live)
        self.forget(live)

    def forget_all(self) -> None:
        """This worker's lease is gone: somebody else has its instances."""
        while self._live:
            live = next(iter(self._live.values()))
            self._live.remove(live)
            live.evict()
        self._due.stop()

    async def release_all(self) -> None:
        """Stop cleanly: everything becomes claimable by others.

        Code that does not end quickly has `SLOW_TEARDOWNS_SECONDS` in all. The code of the instances after that is
        left suspended.
        """
        loop = asyncio.get_running_loop()
        slow_seconds = 0.0
        for live in list(self._live.values()):
            if self._live.get(live.number) is live:
                if slow_seconds >= SLOW_TEARDOWNS_SECONDS:
                    live.run.abandon()
                began = loop.time()
                self.let_go(live)
                took_seconds = loop.time() - began
                if took_seconds > SLOW_TEARDOWN_SECONDS:
                    slow_seconds += took_seconds
                    await asyncio.sleep(0)  # others on this event loop go on before the next one
        self._due.stop()
        await self._committer.drain()

    def _failed(self, live: LiveInstance, error: Exception) -> None:
        if isinstance(error, WorkerFenced):
            self._live.remove(live)
            live.evict()
        elif isinstance(error, StoreError):
            self._committer.trouble.log("turns could not be stored and are taken again", error)
            self.forget(live)
            self._keeper.release(live)
        else:
            self._block(live, error)

    def _block(self, live: LiveInstance, error: Exception) -> None:
        """G12: park the instance with the reason. Its history and messages stay."""
        self.forget(live)
        self._keeper.park(live, f"{type(error).__name__}: {error}")
