"""One execution of workflow code: live, or being rebuilt from its history (G8-G12, G14).

The run applies inputs one at a time, lets the code go on until it waits, and collects what it did as commands. It does
no I/O: what it collected becomes durable when its owner commits the turn, and nothing of it counts before.

Replay is the same with the history as the source of inputs. The commands that the code produces are compared with the
recorded ones; the first difference is a `HistoryMismatch` that names both.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from random import Random  # noqa: TID251 - seeded from the history: the same numbers in every replay
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Protocol

import msgspec

from holdfast.core import events as ev
from holdfast.core.events import HistoryEvent, Payload
from holdfast.core.gates import EventPolicy, Mailbox
from holdfast.core.options import ActivityOptions
from holdfast.errors import PayloadError
from holdfast.payloads.failures import Failure, Resolver, failure_of, to_exception
from holdfast.payloads.signature import Signature
from holdfast.replay.continuing import asked_to_continue, continue_as_new
from holdfast.replay.evicted import Evicted
from holdfast.replay.loop import WorkflowLoop
from holdfast.replay.mailbox import Waits
from holdfast.replay.matching import is_same, mismatch
from holdfast.replay.output import Ending, LogLine, Output, ScheduledActivity, SentEvent, with_one_more
from holdfast.replay.running import Watch
from holdfast.replay.shown import Shown
from holdfast.replay.streams import Streams

if TYPE_CHECKING:
    from holdfast.replay.futures import WorkflowFuture

_encode: Final = msgspec.json.Encoder().encode
_decode_failure: Final = msgspec.json.Decoder(Failure)
MILLISECONDS: Final = 1000


class WorkflowCode(Protocol):
    """What a run needs to know of a workflow."""

    @property
    def name(self) -> str: ...
    @property
    def fn(self) -> Callable[..., Any]: ...
    @property
    def mailbox(self) -> Mailbox | None: ...
    @property
    def signature(self) -> Signature: ...
    @property
    def continue_after(self) -> int: ...


class ActivityCode(Protocol):
    """What a run needs to know of an activity."""

    @property
    def name(self) -> str: ...
    @property
    def signature(self) -> Signature: ...
    @property
    def options(self) -> ActivityOptions: ...
    @property
    def encoded_options(self) -> bytes: ...


class Identity(NamedTuple):
    """Which execution of which instance this is."""

    instance_id: str
    workflow: str
    execution: int


class WorkflowRun:
    """The code of one execution, with its loop. `guarded` makes a context manager that finds mistakes in it."""

    def __init__(
        self,
        code: WorkflowCode,
        identity: Identity,
        resolve: Resolver,
        guarded: Callable[[], AbstractContextManager[Any]],
        payloads: dict[str, bytes] | None = None,
        *,
        new_deadline: Callable[[], Callable[[], bool]] | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.identity = identity
        self.replaying = False
        self._code = code
        self._resolve = resolve
        self._guarded = guarded
        self._payloads = dict(payloads or {})
        self._loop = WorkflowLoop(self, watch=watch)
        self._main: asyncio.Task[Any] | None = None
        self._seed: int | None = None
        self.version = ""
        self._length = 0
        self._random: Random | None = None
        self._waiting: dict[int, tuple[WorkflowFuture, Signature]] = {}
        self._next_activity = 0
        self._next_side_effect = 0
        self._side_effects: dict[int, Payload] = {}
        self._shown: Shown | None = None
        self._output = Output()
        self._new_deadline = new_deadline
        self._waits: Waits | None = None
        self._next_sent = 0
        self._cancel_reason: str | None = None
        self._streams: Streams | None = None

    # ------------------------------------------------------------ driven by the owner

    @property
    def is_done(self) -> bool:
        """Whether the code has come to its end and left nothing over."""
        return self._output.outcome is not None

    def apply(self, event: ev.Input) -> None:
        """Apply one input and run until the code waits again (G10)."""
        self._output.events.append(event)
        self._feed(event)

    def add_payloads(self, payloads: dict[str, bytes]) -> None:
        """Large payloads that messages still to be applied name by reference."""
        self._payloads.update(payloads)

    def waits_for(self, timer: int) -> bool:
        """Whether a timer is still waited for: another message of the same turn may have ended the wait."""
        return self._loop.has_timer(timer)

    def take_output(self) -> Output:
        """What was done since the last call."""
        output, self._output = self._output, Output()
        self._length += len(output.events)
        return output

    def replay(self, history: Iterable[HistoryEvent]) -> None:
        """Rebuild the run from its history, and compare what the code does with what it did (G12)."""
        recorded = list(history)
        self._side_effects = {
            event.number: event.value for event in recorded if isinstance(event, ev.SideEffectRecorded)
        }
        self.replaying = True
        produced: deque[HistoryEvent] = deque()
        try:
            for position, event in enumerate(recorded):
                if isinstance(event, ev.INPUTS):
                    if produced:
                        raise mismatch(position, recorded=event, produced=produced[0])
                    self._length += 1
                    self._feed(event)
                    produced.extend(self._output.events)
                    self._length += len(self._output.events)
                    self._output = Output()
                elif isinstance(event, ev.FROM_OUTSIDE):
                    continue  # the code never learnt of it
                elif not produced or not is_same(event, produced[0]):
                    raise mismatch(position, recorded=event, produced=produced[0] if produced else None)
                else:
                    produced.popleft()
            if produced:
                raise mismatch(len(recorded), recorded=None, produced=produced[0])
        finally:
            self.replaying = False

    def evict(self) -> list[str]:
        """Tear the coroutines down without any effect."""
        return self._loop.evict()

    def _feed(self, event: ev.Input) -> None:
        self._loop.advance_to(event.time_ms / MILLISECONDS)
        _HOW[type(event)](self, event)
        with self._guarded():
            deadline = self._new_deadline() if self._new_deadline else None
            self._loop.run_until_idle(deadline=deadline)
            if self._shown is not None:
                self._shown.conditions.settle(deadline)
            if self._main is not None and self._main.done():
                self._finish(self._main, deadline)

    def _started(self, started: ev.Started) -> None:
        self._seed, self.version = started.seed, started.version
        if started.kept:
            self.shown.carry_over(started.kept)
        args, kwargs = self._code.signature.decode_arguments(self._data(started.input))
        self._main = self._loop.create_task(self._loop.run_main(self._code.fn(*args, **kwargs)), name=self._code.name)

    def _activity_completed(self, event: ev.ActivityCompleted) -> None:
        waiting = self._waiting.pop(event.activity, None)
        if waiting is None:
            if self._streams is not None:
                self._streams.completed(event)
        elif not waiting[0].done():
            future, signature = waiting
            try:
                future.set_result(signature.decode_result(self._data(event.result)))
            except PayloadError as error:
                future.set_exception(error)

    def _activity_failed(self, event: ev.ActivityFailed) -> None:
        waiting = self._waiting.pop(event.activity, None)
        if waiting is None and self._streams is None:
            return
        error = to_exception(_decode_failure.decode(self._data(event.failure)), self._resolve)
        if waiting is not None and not waiting[0].done():
            waiting[0].set_exception(error)
        elif self._streams is not None:
            self._streams.failed(event, error)

    def _timer_fired(self, event: ev.TimerFired) -> None:
        self._loop.fire_timer(event.timer)

    def _event_received(self, event: ev.EventReceived) -> None:
        self._output.waits_changed = True
        self.waits.received(event)

    def _cancel_requested(self, event: ev.CancelRequested) -> None:
        """The main task is cancelled, once; what it makes of it is its own."""
        if self._cancel_reason is None:
            self._cancel_reason = event.reason
            if self._main is not None and not self._main.done():
                self._main.cancel(event.reason or None)

    def _data(self, payload: Payload) -> bytes:
        return self._payloads[payload.reference] if payload.reference else bytes(payload.data)

    def _finish(self, main: "asyncio.Task[Any]", deadline: Callable[[], bool] | None) -> None:
        while self._loop.cancel_left_over(main, deadline=deadline):
            if self._shown is None or not self._shown.conditions.settle(deadline):
                return  # what is left over cleans up and waits for something; its answers come as further inputs
        if main.cancelled() and self._cancel_reason is not None:
            self._end(ev.WorkflowCancelled(reason=self._cancel_reason))
            return
        if main.cancelled():
            error: BaseException | None = asyncio.CancelledError("the workflow cancelled itself")
        else:
            error = main.exception()
        asked = None if error is None else asked_to_continue(error)
        if asked is not None:
            self._end(ev.ContinuedAsNew(input=Payload(msgspec.Raw(asked.encoded))))
            return
        if error is None:
            try:
                data = self._code.signature.encode_result(main.result())
            except PayloadError as unserialisable:
                error = unserialisable
            else:
                self._end(ev.WorkflowCompleted(result=Payload(msgspec.Raw(data))))
                return
        self._end(ev.WorkflowFailed(failure=Payload(msgspec.Raw(_encode(failure_of(error))))))

    def _end(self, outcome: Ending) -> None:
        self._output.outcome = outcome
        self._output.events.append(outcome)

    # ------------------------------------------------------------ told by the loop

    def timer_started(self, number: int, due_at: float) -> None:
        """Rounded up, so that a timer is never early."""
        due_at_ms = math.ceil(round(due_at * MILLISECONDS, 3))
        self._output.timers_started[number] = due_at_ms
        self._output.events.append(ev.TimerStarted(timer=number, due_at_ms=due_at_ms))

    def timer_cancelled(self, number: int) -> None:
        if self._output.timers_started.pop(number, None) is None:
            self._output.timers_ended = with_one_more(self._output.timers_ended, number)
        self._output.events.append(ev.TimerCancelled(timer=number))

    def unhandled(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.log(40, "%s: %r", context.get("message", "an exception nobody took"), error)

    # ------------------------------------------------------------ called by workflow code

    async def run_activity(self, activity: ActivityCode, encoded: bytes) -> Any:
        """Schedule an activity and wait for its answer. Cancelling the wait cancels the activity."""
        self._loop.check_evicted()
        number = self._schedule(activity, encoded)
        future = self._loop.create_future()
        self._waiting[number] = (future, activity.signature)
        try:
            return await future
        except asyncio.CancelledError:
            if self._waiting.pop(number, None) is not None:
                self._abandon(number)
            raise

    def _schedule(self, activity: ActivityCode, encoded: bytes) -> int:
        number, output = self._next_activity, self._output
        self._next_activity = number + 1
        output.events.append(ev.ActivityScheduled(activity=number, name=activity.name))
        call = ScheduledActivity(number, activity.name, encoded, activity.options, activity.encoded_options)
        output.scheduled.append(call)
        return number

    def _abandon(self, number: int) -> None:
        self._output.events.append(ev.ActivityAbandoned(activity=number))
        self._output.abandoned = with_one_more(self._output.abandoned, number)

    @property
    def seed(self) -> int:
        """What everything random in this execution grows from; no other execution has it."""
        return self._seed or 0

    @property
    def mailbox(self) -> Mailbox | None:
        """The rules for events that nobody waits for, where they are not the usual ones (G6)."""
        return self._code.mailbox

    @property
    def drops_events(self) -> bool:
        """Whether events that nobody waits for are dropped."""
        return self._code.mailbox is not None and self._code.mailbox.policy is EventPolicy.DROP_UNSUBSCRIBED

    @property
    def waits(self) -> Waits:
        """The waits for events, made when the first one begins."""
        if self._waits is None:
            self._waits = Waits(self._loop, self._emit_wait)
        return self._waits

    @property
    def waited_for(self) -> tuple[str, ...]:
        """The names of the events that are waited for."""
        return () if self._waits is None else self._waits.names

    def waits_for_event(self, name: str) -> bool:
        """Whether an event of this name would reach somebody."""
        return self._waits is not None and self._waits.has(name)

    def _emit_wait(self, command: ev.Command) -> None:
        self._output.waits_changed = True
        self._output.events.append(command)

    async def next_event(self, name: str) -> bytes:
        """Wait for an event, and give its data."""
        self._loop.check_evicted()
        return self._data(await self.waits.wait(name))

    def raise_event(self, target: str, name: str, data: bytes) -> None:
        """Raise an event to another instance, with this turn's commit."""
        self._loop.check_evicted()
        number = self._next_sent
        self._next_sent = number + 1
        self._output.events.append(ev.EventRaised(number=number, target=target, name=name))
        self._output.sent = with_one_more(self._output.sent, SentEvent(number, target, name, data))

    @property
    def streams(self) -> Streams:
        """What activities yield, made when the first one is called."""
        self._loop.check_evicted()
        if self._streams is None:
            self._streams = Streams(self._loop, self._schedule, self._abandon, self._data)
        return self._streams

    def side_effect(
        self, compute: Callable[[], Any], encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]
    ) -> Any:
        """Compute a value once; every replay gets the recorded one."""
        self._loop.check_evicted()
        number = self._next_side_effect
        self._next_side_effect = number + 1
        recorded = self._side_effects.get(number) if self.replaying else None
        payload = Payload(msgspec.Raw(encode(compute()))) if recorded is None else recorded
        self._output.events.append(ev.SideEffectRecorded(number=number, value=payload))
        return decode(self._data(payload))

    def continue_as_new(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
        """End this execution and ask for the next, with these arguments (G4)."""
        self._loop.check_evicted()
        continue_as_new(self._code, self._main, args, kwargs)

    @property
    def length(self) -> tuple[int, bool]:
        """How many events the history has so far, the same in every replay, and whether that is long (G4)."""
        length = self._length + len(self._output.events)
        return length, length >= self._code.continue_after

    @property
    def shown(self) -> Shown:
        """What the code shows of itself, and the conditions that it waits for."""
        if self._shown is None:
            self._shown = Shown(self._loop, self._note)
        return self._shown

    def _note(self, key: str, value: bytes | None) -> None:
        if self._output.kept is None:
            self._output.kept = {}
        self._output.kept[key] = value

    @property
    def random(self) -> Random:
        """Random numbers that are the same in every replay."""
        self._loop.check_evicted()
        if self._random is None:
            self._random = Random(self.seed)  # noqa: S311 - reproducible on purpose
        return self._random

    @property
    def now_ms(self) -> int:
        """The time of the input being applied."""
        self._loop.check_evicted()
        return round(self._loop.time() * MILLISECONDS)

    def log(self, level: int, message: str, *arguments: Any, **extra: Any) -> None:
        """Log a line, once: not in replay, and not before the turn is committed."""
        if self._loop.evicting:
            raise Evicted
        if not self.replaying:
            self._output.logs = with_one_more(self._output.logs, LogLine(level, message, arguments, extra))


def current_run() -> WorkflowRun | None:
    """The run whose code is being executed, or None outside of workflow code."""
    loop = asyncio._get_running_loop()  # noqa: SLF001 - the documented way raises where there is none
    if isinstance(loop, WorkflowLoop):
        loop.check_evicted()
        if isinstance(loop.host, WorkflowRun):
            return loop.host
    return None


_HOW: Final[dict[type[ev.Input], Callable[[WorkflowRun, Any], None]]] = {
    ev.ActivityCompleted: WorkflowRun._activity_completed,  # noqa: SLF001 - the table of its own methods
    ev.ActivityFailed: WorkflowRun._activity_failed,  # noqa: SLF001
    ev.TimerFired: WorkflowRun._timer_fired,  # noqa: SLF001
    ev.Started: WorkflowRun._started,  # noqa: SLF001
    ev.EventReceived: WorkflowRun._event_received,  # noqa: SLF001
    ev.CancelRequested: WorkflowRun._cancel_requested,  # noqa: SLF001
    ev.ActivityYielded: lambda run, event: run.streams.yielded(event),
}
"""How each input is applied."""
