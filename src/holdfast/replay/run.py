"""One execution of workflow code: live, or rebuilt from its history (G8-G12, G14).

The run applies inputs one at a time, runs the code until it waits, and collects its commands. It does no I/O: the
commands become durable when the owner of the run commits the turn, and have no effect before.

Replay takes the inputs from the history and compares the commands of the code with the recorded ones. The first
difference is a `HistoryMismatch` that names both.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random  # noqa: TID251 - seeded from the history: the same numbers in every replay
from typing import Any, Final, NoReturn, Protocol

import msgspec

from holdfast.core import history as ev
from holdfast.core.activity_options import RetryLater, RetryPolicy
from holdfast.core.admission import EventPolicy, Mailbox
from holdfast.core.attributes import Attributes
from holdfast.core.deadlines import MILLISECONDS
from holdfast.core.history import HistoryEvent, Payload
from holdfast.core.queries import unknown_handler
from holdfast.core.run import (
    ExecutionEnding,
    ExecutionId,
    NextAttempt,
    ParentInfo,
    QueryAnswer,
    SliceRunner,
    TurnOutput,
)
from holdfast.errors import DeadlineExceeded, ForbiddenInWorkflow, PayloadError
from holdfast.payloads.failures import Resolver, describe_error, failure_of
from holdfast.payloads.limits import PayloadLimit
from holdfast.payloads.pydantic_models import constraints_ignored
from holdfast.payloads.signature import Signature
from holdfast.replay import recorded_steps
from holdfast.replay.activities import Activities
from holdfast.replay.children import Children
from holdfast.replay.context import RunContext
from holdfast.replay.continue_as_new import begin_later, continue_as_new, decide_retry, find_continuation
from holdfast.replay.events import EventWaits
from holdfast.replay.guard import Guarded, causes_of
from holdfast.replay.loop.event_loop import WorkflowLoop
from holdfast.replay.loop.loop_swap import swapped_loop
from holdfast.replay.loop.restricted_loops import ReadOnlyLoop
from holdfast.replay.loop.tasks import Evicted
from holdfast.replay.queries import QueryHandlers
from holdfast.replay.state import AttributeValues, WorkflowState
from holdfast.replay.streams import Streams
from holdfast.replay.undeclared import is_declared, undeclared
from holdfast.replay.updates import Updates

_encode: Final = msgspec.json.Encoder().encode
NO_INPUT: Final = Payload()


class WorkflowCode(Protocol):
    """A workflow, as a run executes it."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def fn(self) -> Callable[..., Any]: ...
    @property
    def mailbox(self) -> Mailbox | None: ...
    @property
    def signature(self) -> Signature: ...
    @property
    def continue_after(self) -> int: ...
    @property
    def retry(self) -> RetryPolicy | None: ...
    @property
    def declared_failures(self) -> tuple[type[Exception], ...] | None: ...


class WorkflowRun:
    """The code of one execution, with its loop. Implements `core.run.Run`, and hosts the loop (`LoopHost`).

    `guarded` makes the guard of one slice of code. Parts that few workflows use are made on first use.
    """

    __slots__ = (
        "_attributes",
        "_began_at_end",
        "_cancel_reason",
        "_children",
        "_code",
        "_events",
        "_ignores_constraints",
        "_input",
        "_is_overdue",
        "_length",
        "_main",
        "_new_deadline",
        "_next_side_effect",
        "_patches",
        "_queries",
        "_random",
        "_side_effects",
        "_state",
        "_streams",
        "_updates",
        "activities",
        "attempt",
        "began_at_ms",
        "context",
        "depth",
        "identity",
        "is_cleaning_up",
        "is_end_deferred",
        "parent",
        "root",
        "seed",
        "trace",
        "version",
    )

    def __init__(
        self,
        code: WorkflowCode,
        identity: ExecutionId,
        resolve: Resolver,
        guarded: Callable[[], Guarded],
        payloads: dict[str, bytes] | None = None,
        *,
        new_deadline: Callable[[], Callable[[], bool]] | None = None,
        watch: SliceRunner | None = None,
        limit: PayloadLimit | None = None,
        watch_teardown: SliceRunner | None = None,
    ) -> None:
        loop = WorkflowLoop(self, watch=watch, watch_teardown=watch_teardown)
        self.context = RunContext(loop, dict(payloads or {}), resolve, limit or PayloadLimit(), guarded)
        self.identity = identity
        self.version = code.version
        self.parent = ""
        self.root = ""
        self.depth = 0
        self.seed = 0
        self.trace = ""
        self.began_at_ms = 0
        self.attempt = 1
        """With a retry policy: how many executions have had this input, in a row (G18)."""
        self._input = NO_INPUT
        self._code = code
        self._new_deadline = new_deadline
        self._main: asyncio.Task[Any] | None = None
        self._length = 0
        self._random: Random | None = None
        self._next_side_effect = 0
        self._side_effects: dict[int, Payload] = {}
        """In a replay: the recorded values by number."""
        self._patches: dict[str, bool] | None = None
        """The decisions of `patched` by name: those of this execution, and in a replay those of its history."""
        self._cancel_reason: str | None = None
        self._is_overdue = False
        self._ignores_constraints = False
        """It began in a release that did not check constraints such as ``Field(gt=0)``: each replay does the same."""
        self._began_at_end = False
        """The newest input was applied after the main function had ended."""
        self.is_end_deferred = False
        """The main function has ended, and messages that arrived before are still to be applied (see `apply`)."""
        self.is_cleaning_up = False
        """The main function has ended, and its remaining tasks clean up and wait for inputs."""
        self.activities = Activities(self.context)
        self._streams: Streams | None = None
        self._events: EventWaits | None = None
        self._children: Children | None = None
        self._state: WorkflowState | None = None
        self._attributes: AttributeValues | None = None
        self._queries: QueryHandlers | None = None
        self._updates: Updates | None = None

    # ------------------------------------------------------------ parts made on first use

    @property
    def streams(self) -> Streams:
        if self._streams is None:
            self._streams = Streams(self.context, self.activities)
        return self._streams

    @property
    def events(self) -> EventWaits:
        if self._events is None:
            self._events = EventWaits(self.context)
        return self._events

    @property
    def children(self) -> Children:
        if self._children is None:
            self._children = Children(self.context, ParentInfo(self.identity, self.seed, self.depth))
        return self._children

    @property
    def state(self) -> WorkflowState:
        if self._state is None:
            self._state = WorkflowState(self.context)
        return self._state

    @property
    def attribute_values(self) -> AttributeValues:
        if self._attributes is None:
            self._attributes = AttributeValues(self.context)
        return self._attributes

    @property
    def queries(self) -> QueryHandlers:
        if self._queries is None:
            self._queries = QueryHandlers(self.context)
        return self._queries

    @property
    def updates(self) -> Updates:
        if self._updates is None:
            self._updates = Updates(self.context)
        return self._updates

    # ------------------------------------------------------------ called by the owner: see `core.run.Run`

    @property
    def mailbox(self) -> Mailbox | None:
        return self._code.mailbox

    @property
    def drops_events(self) -> bool:
        return self._code.mailbox is not None and self._code.mailbox.policy is EventPolicy.DROP_UNSUBSCRIBED

    @property
    def is_done(self) -> bool:
        return self.context.output.outcome is not None

    @property
    def is_ending(self) -> bool:
        return self._main is not None and self._main.done()

    @property
    def is_tainted(self) -> bool:
        return self.context.is_tainted

    @property
    def needs_turn(self) -> bool | None:
        return self.context.needs_turn

    @property
    def has_relatives(self) -> bool:
        return self.depth > 0 or self._children is not None

    @property
    def has_open_activities(self) -> bool:
        return bool(self.activities.waiting) or self._streams is not None

    @property
    def awaited_events(self) -> tuple[str, ...]:
        names = () if self._events is None else self._events.names
        return ("", *names) if self.is_cleaning_up else names

    @property
    def state_values(self) -> dict[str, bytes]:
        return {} if self._state is None else self._state.values

    @property
    def attributes(self) -> Attributes:
        return {} if self._attributes is None else self._attributes.values

    def awaits_timer(self, timer: int) -> bool:
        return self.context.loop.has_timer(timer)

    def awaits_event(self, name: str) -> bool:
        return self._events is not None and self._events.has(name)

    def event_misfit(self, event: ev.EventReceived) -> PayloadError | None:
        return self.events.misfit(event)

    def values_received(self, activity: int) -> int:
        return -1 if self._streams is None else self._streams.received(activity)

    def apply(self, event: ev.Input, has_more: bool = False) -> None:
        """Apply one input and run until the code waits again (G10).

        With `has_more` events and updates follow that reach the code even if its main function ends now: the remaining
        tasks are cancelled by `end`, after them (G14). Before a continue-as-new they are left to the next execution.
        """
        if self.is_end_deferred and isinstance(event, ev.EventReceived | ev.UpdateAccepted):
            event = msgspec.structs.replace(event, at_end=True)
        self.context.output.events.append(event)
        self._feed(event, has_more)

    def end(self) -> None:
        if self.is_end_deferred:
            with constraints_ignored(self._ignores_constraints):
                self._run_code(has_more=False)

    def accepts_update(self, event: ev.UpdateAccepted) -> bool:
        return self.updates.accepts(event)

    def answer_query(self, name: str, data: bytes) -> QueryAnswer:
        return QueryAnswer(unknown_handler(())) if self._queries is None else self._queries.answer(name, data)

    def preview(self, apply: Callable[[], None]) -> None:
        context = self.context
        context.is_preview = True
        context.needs_turn = False
        try:
            apply()
        except BaseException:
            context.is_tainted = True
            raise
        finally:
            context.is_preview = False

    def add_payloads(self, payloads: dict[str, bytes]) -> None:
        self.context.payloads.update(payloads)

    def take_output(self) -> TurnOutput:
        context = self.context
        output = context.output
        context.output = TurnOutput()
        self._length += len(output.events)
        return output

    def assume_patched(self, names: Iterable[str]) -> None:
        """Replay as code without these calls of `patched` does, whose new branches are all that is left (R15)."""
        self._patches = dict.fromkeys(names, True)

    @property
    def patches(self) -> Mapping[str, bool]:
        """What `patched` has returned, and is bound to return, for each name (R14)."""
        return self._patches or {}

    def replay(self, history: Iterable[HistoryEvent]) -> None:
        """Rebuild the run from its history, and compare the commands of the code with the recorded ones (G12)."""
        context = self.context
        recorded = list(history)
        self._ignores_constraints = any(type(event) is ev.Started and not event.payload_limit for event in recorded[:1])
        self._side_effects = recorded_steps.side_effects_in(recorded)
        self.activities.recorded_waits = recorded_steps.waits_in(recorded)
        if patches := recorded_steps.patches_in(recorded):
            self._patches = (self._patches or {}) | patches
        context.replaying = True
        deferring = recorded_steps.inputs_before_the_end(recorded)
        produced: deque[HistoryEvent] = deque()
        try:
            for position, event in enumerate(recorded):
                if isinstance(event, ev.INPUTS):
                    if produced:
                        raise recorded_steps.mismatch(position, recorded=event, produced=produced[0])
                    self._length += 1
                    if type(event) is ev.EventReceived:
                        following = recorded[position + 1] if position + 1 < len(recorded) else None
                        self.events.is_set_aside = isinstance(following, ev.EventSetAside)
                    self._feed(event, position in deferring)
                    produced.extend(self.take_output().events)
                elif isinstance(event, ev.FROM_OUTSIDE):
                    continue  # no input: the code never receives it
                elif type(event) is ev.PatchApplied:
                    continue  # a decision, and no step: the code may not ask for it any more (R14)
                elif not produced or not event.is_same_step(produced[0]):
                    raise recorded_steps.mismatch(position, recorded=event, produced=produced[0] if produced else None)
                else:
                    produced.popleft()
            if produced and not recorded_steps.ended_before_it_ran(recorded):
                raise recorded_steps.mismatch(len(recorded), recorded=None, produced=produced[0])
        finally:
            context.replaying = False

    def log(self, level: int, message: str, *arguments: object) -> None:
        self.context.log(level, message, *arguments)

    def evict(self) -> list[str]:
        return self.context.loop.evict()

    def abandon(self) -> None:
        self.context.loop.abandon()

    # ------------------------------------------------------------ called by workflow code

    @property
    def length(self) -> tuple[int, bool]:
        """The number of events in the history so far, the same in every replay, and whether that is long (G4)."""
        length = self._length + len(self.context.output.events)
        return length, length >= self._code.continue_after

    @property
    def has_open_updates(self) -> bool:
        """Whether the handler of an update is running."""
        return self._updates is not None and bool(self._updates.open)

    @property
    def random(self) -> Random:
        """Random numbers that are the same in every replay."""
        self.context.loop.check_evicted()
        if self._random is None:
            self._random = Random(self.seed)  # noqa: S311 - reproducible on purpose
        return self._random

    @property
    def now_ms(self) -> int:
        """The time of the input being applied."""
        loop = self.context.loop
        loop.check_evicted()
        return round(loop.time() * MILLISECONDS)

    def side_effect(
        self, compute: Callable[[], Any], encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]
    ) -> Any:
        """Compute a value once; every replay gets the recorded one."""
        context = self.context
        context.loop.check_evicted()
        number = self._next_side_effect
        self._next_side_effect = number + 1
        recorded = self._side_effects.get(number) if context.replaying else None
        if recorded is None and context.needs_turn is not None:
            context.needs_turn = True
            raise Evicted
        if recorded is None:
            value = compute()
            recorded = Payload(msgspec.Raw(context.checked(encode(value), "the side effect", value)))
        context.output.events.append(ev.SideEffectRecorded(number=number, value=recorded))
        return decode(context.data_of(recorded))

    def patched(self, name: str) -> bool:
        """Whether the code takes the new branch. The first call of an execution decides, and a live one records (R14).

        The event does not count in `length`, which is then the same in replays of code without the call.
        """
        patches = self._patches
        if patches is None:
            patches = self._patches = {}
        decision = patches.get(name)
        if decision is None:
            context = self.context
            decision = patches[name] = not context.replaying
            if decision:
                context.output.events.append(ev.PatchApplied(name=name))
                self._length -= 1
        return decision

    def continue_as_new(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, on_newest: bool) -> NoReturn:
        """End this execution and request the next one, with these arguments (G4)."""
        self.context.loop.check_evicted()
        continue_as_new(self._code, self._main, args, kwargs, self.context.checked, on_newest=on_newest)

    # ------------------------------------------------------------ one input

    def _feed(self, event: ev.Input, has_more: bool) -> None:
        if self._ignores_constraints:
            with constraints_ignored(True):
                self._feed_checked(event, has_more)
        else:
            self._feed_checked(event, has_more)

    def _feed_checked(self, event: ev.Input, has_more: bool) -> None:
        self.context.inputs += 1
        self.context.loop.advance_to(event.time_ms / MILLISECONDS)
        _APPLY[type(event)](self, event)
        self._began_at_end = self.is_end_deferred
        self._run_code(has_more)

    def _run_code(self, has_more: bool) -> None:
        context = self.context
        loop = context.loop
        new_deadline = self._new_deadline
        if context.errors:
            context.errors = ()
        guarded = context.guarded
        turn = guarded()
        turn.begin()
        try:
            deadline = None if new_deadline is None else new_deadline()
            loop.run_until_idle(deadline=deadline)
            if self._state is not None:
                self._state.conditions.settle(deadline)
            main = self._main
            if main is not None and main.done():
                self.is_end_deferred = has_more and not self.is_cleaning_up and not self._continues(main)
                if not self.is_end_deferred:
                    if self._began_at_end:
                        loop.note_left_over()  # the handlers of updates that were applied after the main function
                    self._finish(main, deadline)
        finally:
            turn.end()
        if turn.findings and not context.replaying:
            self._refuse_swallowed(turn.findings)

    def _refuse_swallowed(self, findings: Sequence[ForbiddenInWorkflow]) -> None:
        """Raise a finding of the guard that the code caught, unless the code or an update failed because of it.

        A replay does not raise: an earlier release may have committed such a turn.
        """
        for finding in findings:
            if not any(finding is cause for error in self.context.errors for cause in causes_of(error)):
                raise finding

    def _started(self, started: ev.Started) -> None:
        context = self.context
        self._take_limit(started)
        self.seed = started.seed
        self.parent = started.parent
        self.root = started.root
        self.depth = started.depth
        self.trace = started.trace
        self.began_at_ms = started.time_ms
        if started.kept:
            self.state.restore(started.kept)
        if started.attributes:
            self.attribute_values.restore(started.attributes)
        self.attempt = started.attempt
        self._input = started.input
        args, kwargs = self._code.signature.decode_arguments(context.data_of(started.input))
        if started.begins_at_ms > started.time_ms:
            main = context.loop.run_main(begin_later(started.begins_at_ms, self._code.fn, args, kwargs))
        else:
            main = context.loop.run_main(self._code.fn(*args, **kwargs))
        self._main = context.loop.create_task(main, name=self._code.name)

    def _take_limit(self, started: ev.Started) -> None:
        """An execution keeps the version and the limit of its first turn, so that each replay does the same.

        The limit is always recorded: a history without one is of a release before (see `_ignores_constraints`).
        """
        context = self.context
        is_recorded = context.replaying and context.needs_turn is None
        if is_recorded:
            context.limit = context.limit.of_execution(started.payload_limit)
            self.version = started.version
        else:
            limit = context.limit.largest_bytes
            context.output.events[-1] = msgspec.structs.replace(started, payload_limit=limit, version=self.version)

    def _activity_completed(self, event: ev.ActivityCompleted) -> None:
        if not self.activities.completed(event) and self._streams is not None:
            self._streams.completed(event)

    def _activity_failed(self, event: ev.ActivityFailed) -> None:
        if not self.activities.failed(event) and self._streams is not None:
            self._streams.failed(event)

    def _timer_fired(self, event: ev.TimerFired) -> None:
        self.context.loop.fire_timer(event.timer)

    def _cancel_requested(self, event: ev.CancelRequested) -> None:
        """Cancel the main task, once. The code decides how it ends."""
        if self._cancel_reason is None:
            self._cancel_reason = event.reason
            self._is_overdue = event.by_deadline
            if self._main is not None and not self._main.done():
                self._main.cancel(event.reason or None)

    # ------------------------------------------------------------ the end

    def _finish(self, main: "asyncio.Task[Any]", deadline: Callable[[], bool] | None) -> None:
        context = self.context
        if self._updates is not None and not self.is_cleaning_up:
            self._updates.warn_if_unfinished()
        while context.loop.cancel_left_over(main, deadline=deadline):
            if self._state is None or not self._state.conditions.settle(deadline):
                self.is_cleaning_up = True
                context.output.ensure_effects().waits_changed = True
                return  # the remaining tasks clean up, and continue with further inputs
        if main.cancelled():
            error: BaseException | None = asyncio.CancelledError("the workflow cancelled itself")
        else:
            error = main.exception()
        if self._is_overdue and error is not None:
            self._fail(_overdue(self._cancel_reason or "", error))
            return
        continuation = None if error is None else find_continuation(error)
        if self._cancel_reason is not None and (main.cancelled() or continuation is not None):
            self._end(ev.ExecutionCancelled(reason=self._cancel_reason))  # a cancel prevents the next execution
            return
        if continuation is not None:
            given = Payload(msgspec.Raw(continuation.encoded))
            self._end(ev.ContinuedAsNew(input=given, on_newest=continuation.on_newest))
            return
        retry = None if error is None else self._retry_of(error)
        if error is None and (error := self._complete(main)) is None:
            return
        declared = self._code.declared_failures
        if declared is not None and not context.replaying and not is_declared(error, declared):
            raise undeclared(self._code.name, error)
        self._fail(error, retry)

    def _complete(self, main: "asyncio.Task[Any]") -> PayloadError | None:
        """End with the result of the code. Returns the error of one that cannot be stored; it is not retried."""
        try:
            result = main.result()
            data = self._code.signature.encode_result(result)
            self.context.checked(data, f"the result of {self._code.name}()", result)
        except PayloadError as unserialisable:
            return unserialisable
        self._end(ev.ExecutionCompleted(result=Payload(msgspec.Raw(data))))
        return None

    def _fail(self, error: BaseException, retry: RetryLater | None = None) -> None:
        context = self.context
        context.errors = (*context.errors, error)
        failure = Payload(msgspec.Raw(_encode(failure_of(error))))
        retry_at_ms: int | None = None
        if retry is not None:
            retry_at_ms = self.now_ms + retry.delay_ms
            following = NextAttempt(context.data_of(self._input), self.attempt + 1, retry_at_ms)
            context.output.ensure_effects().next_attempt = following
            what = "execution %d failed, and the next one begins after %g s: %s"
            context.log(
                logging.WARNING, what, self.identity.execution, retry.delay_ms / MILLISECONDS, describe_error(error)
            )
        self._end(ev.ExecutionFailed(failure=failure, retry_at_ms=retry_at_ms))

    def _retry_of(self, error: BaseException) -> RetryLater | None:
        """The retry of this execution, by the policy of the workflow (G18). A cancelled one is not retried."""
        policy = self._code.retry
        if policy is None or self._cancel_reason is not None:
            return None
        decision = decide_retry(policy, error, attempt=self.attempt, seed=self.seed)
        return decision if isinstance(decision, RetryLater) else None

    def _continues(self, main: "asyncio.Task[Any]") -> bool:
        """Whether another execution follows that of the main function, which has ended."""
        error = None if main.cancelled() else main.exception()
        return error is not None and (find_continuation(error) is not None or self._retry_of(error) is not None)

    def _end(self, outcome: ExecutionEnding) -> None:
        output = self.context.output
        if self.is_cleaning_up:
            self.is_cleaning_up = False
            output.ensure_effects().waits_changed = True
        output.outcome = outcome
        output.events.append(outcome)

    # ------------------------------------------------------------ called by the loop: see `LoopHost`

    def timer_started(self, number: int, due_at: float) -> None:
        """Record a timer. Its due time is rounded up, so that it is never early."""
        due_at_ms = math.ceil(round(due_at * MILLISECONDS, 3))
        output = self.context.output
        output.ensure_effects().timers_started[number] = due_at_ms
        output.events.append(ev.TimerStarted(timer=number, due_at_ms=due_at_ms))

    def timer_cancelled(self, number: int) -> None:
        output = self.context.output
        output.ensure_effects().cancel_timer(number)
        output.events.append(ev.TimerCancelled(timer=number))

    def unhandled(self, context: dict[str, Any]) -> None:
        message = context.get("message", "an unhandled exception")
        self.log(logging.ERROR, "%s: %r", message, context.get("exception"))


def _overdue(reason: str, error: BaseException) -> DeadlineExceeded:
    """The failure of an overdue workflow. An error of its code is the cause; its cancellation is not."""
    exceeded = DeadlineExceeded(reason)
    if not isinstance(error, asyncio.CancelledError) and find_continuation(error) is None:
        exceeded.__cause__ = error
    return exceeded


def current_run() -> WorkflowRun | None:
    """The run whose code calls this, or None outside of workflow code. Refuses read-only and evicted code."""
    loop = swapped_loop()
    if type(loop) is WorkflowLoop:
        loop.check_evicted()
        host = loop.host
        if isinstance(host, WorkflowRun):
            return host
    elif isinstance(loop, ReadOnlyLoop):
        loop.refuse()
    return None


def observed_run() -> WorkflowRun | None:
    """The run whose code calls this, also where that code is read-only or is being torn down."""
    loop = swapped_loop()
    host = loop.host if isinstance(loop, ReadOnlyLoop | WorkflowLoop) else None
    return host if isinstance(host, WorkflowRun) else None


_APPLY: Final[dict[type[ev.Input], Callable[[WorkflowRun, Any], None]]] = {
    ev.ActivityCompleted: WorkflowRun._activity_completed,  # noqa: SLF001 - the table of its own methods
    ev.ActivityFailed: WorkflowRun._activity_failed,  # noqa: SLF001
    ev.TimerFired: WorkflowRun._timer_fired,  # noqa: SLF001
    ev.Started: WorkflowRun._started,  # noqa: SLF001
    ev.CancelRequested: WorkflowRun._cancel_requested,  # noqa: SLF001
    ev.EventReceived: lambda run, event: run.events.received(event),
    ev.AttributesChanged: lambda run, event: run.attribute_values.receive(event.values),
    ev.ActivityYielded: lambda run, event: run.streams.yielded(event),
    ev.ChildStarted: lambda run, event: run.children.apply_reply(event),
    ev.ChildRefused: lambda run, event: run.children.apply_reply(event),
    ev.ChildCompleted: lambda run, event: run.children.apply_reply(event),
    ev.ChildFailed: lambda run, event: run.children.apply_reply(event),
    ev.ChildStopped: lambda run, event: run.children.apply_reply(event),
    ev.SendJudged: lambda run, event: run.events.judged(event),
    ev.UpdateAccepted: lambda run, event: run.updates.begin(event),
}
"""How each input is applied."""
