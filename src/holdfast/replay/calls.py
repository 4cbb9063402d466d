"""What workflow code calls: activities, events, side effects, its own state. Each call becomes a command of the turn.

A run of workflow code (`run.WorkflowRun`) is one of these; it also applies the inputs that answer the calls.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from random import Random  # noqa: TID251 - seeded from the history: the same numbers in every replay
from typing import Any, Final, NoReturn, Protocol

import msgspec

from holdfast.core import history as ev
from holdfast.core.activity_options import ActivityOptions
from holdfast.core.admission import EventPolicy, Mailbox
from holdfast.core.history import Payload
from holdfast.core.queries import Reply
from holdfast.core.run import ExecutionId, LogLine, ScheduledActivity, SentEvent, SliceRunner, TurnOutput
from holdfast.errors import NotInWorkflow, PayloadError
from holdfast.payloads.limits import PayloadLimit
from holdfast.payloads.signature import Signature
from holdfast.replay.continue_as_new import continue_as_new
from holdfast.replay.events import EventWaits
from holdfast.replay.guard import Guarded
from holdfast.replay.loop.event_loop import WorkflowLoop
from holdfast.replay.loop.restricted_loops import ReadOnlyLoop, is_untouched
from holdfast.replay.loop.tasks import Evicted
from holdfast.replay.queries import Handlers
from holdfast.replay.state import WorkflowState
from holdfast.replay.streams import Streams
from holdfast.replay.updates import Updates

MILLISECONDS: Final = 1000
LIMIT_IS_FIXED: Final = (
    "raise payload_limit of the worker: an execution keeps the limit that it began with, so a new instance, or the "
    "next execution after hf.continue_as_new, has the new limit"
)


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


class CallableActivity(Protocol):
    """What a run needs to know of an activity."""

    @property
    def name(self) -> str: ...
    @property
    def signature(self) -> Signature: ...
    @property
    def options(self) -> ActivityOptions: ...
    @property
    def encoded_options(self) -> bytes: ...


class WorkflowCalls:
    """The calls of one execution, and what they need to be the same in every replay."""

    __slots__ = (
        "_code",
        "_guarded",
        "_handlers",
        "_length",
        "_limit",
        "_loop",
        "_main",
        "_next_activity",
        "_next_sent",
        "_next_side_effect",
        "_output",
        "_payloads",
        "_random",
        "_seed",
        "_shown",
        "_side_effects",
        "_streams",
        "_updates",
        "_waiting",
        "_waits",
        "_watch",
        "depth",
        "failed_with",
        "identity",
        "is_preview",
        "is_set_aside",
        "is_spoiled",
        "needs_turn",
        "parent",
        "replaying",
        "winds_up",
    )

    _loop: WorkflowLoop
    _guarded: Callable[[], Guarded]
    _watch: SliceRunner

    def __init__(
        self, code: WorkflowCode, identity: ExecutionId, payloads: dict[str, bytes] | None, limit: PayloadLimit
    ) -> None:
        self._limit = limit
        self.identity = identity
        self.replaying = False
        self.is_preview = False
        """Inputs are applied that no turn has committed, and none of the effects is kept. In contrast to a replay, the
        history does not have these inputs: what the code does with them is decided now, as in a turn."""
        self.parent = ""
        self.depth = 0
        self._code = code
        self._payloads = dict(payloads or {})
        self._main: asyncio.Task[Any] | None = None
        self._seed: int | None = None
        self._length = 0
        self._random: Random | None = None
        self._waiting: dict[int, tuple[asyncio.Future[Any], Signature]] = {}
        self._next_activity = 0
        self._next_side_effect = 0
        self._next_sent = 0
        self._side_effects: dict[int, Payload] = {}
        self._output = TurnOutput()
        self._shown: WorkflowState | None = None
        self._waits: EventWaits | None = None
        self._streams: Streams | None = None
        self._handlers: Handlers | None = None
        self._updates: Updates | None = None
        self.winds_up = False
        """The main function has ended, and what it left over cleans up and waits for something."""
        self.is_set_aside = False
        """The history that is being replayed has the event that is being applied as set aside."""
        self.is_spoiled = False
        """Code that may only look has changed something: this run is not what a replay would give."""
        self.failed_with: tuple[BaseException, ...] = ()
        """What the code, and updates of it, failed with since the last input."""
        self.needs_turn: bool | None = None
        """None until a preview begins. True: it met a side effect, whose value only a committed turn decides."""

    def _data(self, payload: Payload) -> bytes:
        return self._payloads[payload.reference] if payload.reference else bytes(payload.data)

    def data_of(self, payload: Payload) -> bytes:
        """What a payload holds, wherever it is kept."""
        return self._data(payload)

    async def run_activity(self, activity: CallableActivity, signature: Signature, encoded: bytes) -> Any:
        """Schedule an activity and wait for its answer. Cancelling the wait cancels the activity."""
        loop = self._loop
        loop.check_evicted()
        number = self._schedule(activity, encoded)
        future = loop.create_own_future()
        self._waiting[number] = (future, signature)
        try:
            return await future
        except asyncio.CancelledError:
            if self._waiting.pop(number, None) is not None:
                self._abandon(number)
            raise

    def checked(self, data: bytes, what: str, value: object = None) -> bytes:
        """`data`, a payload that the code made of `value`, unless it is above the limit of this execution."""
        limit = self._limit
        if (self.replaying or self.is_preview) and limit.size_of(data, value) <= limit.largest_bytes:
            return data  # the turn that stores it logs the warning
        return limit.checked(data, what, LIMIT_IS_FIXED, value=value)

    def _schedule(self, activity: CallableActivity, encoded: bytes) -> int:
        if len(encoded) > self._limit.quiet_bytes:
            self.checked(encoded, f"{activity.name}(): the payload of the arguments")
        number, output = self._next_activity, self._output
        self._next_activity = number + 1
        name = activity.name
        output.events.append(ev.ActivityScheduled(activity=number, name=name))
        output.scheduled.append(ScheduledActivity(number, name, encoded, activity.options, activity.encoded_options))
        return number

    def _abandon(self, number: int) -> None:
        self._output.events.append(ev.ActivityCancelled(activity=number))
        effects = self._output.ensure_effects()
        effects.abandoned.append(number)

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
    def waits(self) -> EventWaits:
        """The waits for events, made when the first one begins."""
        if self._waits is None:
            self._waits = EventWaits(self._loop, self._emit_wait, self._is_set_aside)
        return self._waits

    @property
    def waited_for(self) -> tuple[str, ...]:
        """The names of the events that are waited for; an empty one says that no update is taken any more (G4)."""
        names = () if self._waits is None else self._waits.names
        return ("", *names) if self.winds_up else names

    def waits_for_event(self, name: str) -> bool:
        """Whether an event of this name would reach somebody."""
        return self._waits is not None and self._waits.has(name)

    def _emit_wait(self, command: ev.Command) -> None:
        self._output.ensure_effects().waits_changed = True
        self._output.events.append(command)
        if isinstance(command, ev.EventSetAside):
            self.log(
                logging.WARNING,
                "the event %r was set aside, and the workflow waits for another one: %s",
                command.name,
                command.reason,
            )

    def _is_set_aside(self) -> bool | None:
        """In replay: whether the history has the event that is being applied as set aside."""
        return self.is_set_aside if self.replaying else None

    async def next_event(self, name: str, read: Callable[[bytes], Any]) -> Any:
        """Wait for an event whose data `read` can read, and give what it read."""
        self._loop.check_evicted()
        return await self.waits.wait(name, lambda payload: read(self._data(payload)))

    def misfit(self, event: ev.EventReceived) -> PayloadError | None:
        """Why an event that is waited for does not fit. None, too, if its type can be read in workflow code only."""
        error = self.waits.misfit(event)
        return None if error is None or isinstance(error.__cause__, NotInWorkflow) else error

    def raise_event(self, target: str, name: str, data: bytes, value: object) -> None:
        """Raise an event to another instance, with this turn's commit."""
        self._loop.check_evicted()
        self.checked(data, f"the value of event {name!r}", value)
        number = self._next_sent
        self._next_sent = number + 1
        self._output.events.append(ev.EventRaised(number=number, target=target, name=name))
        effects = self._output.ensure_effects()
        effects.sent.append(SentEvent(number, target, name, data))

    @property
    def streams(self) -> Streams:
        """What activities yield, made when the first one is called."""
        self._loop.check_evicted()
        if self._streams is None:
            self._streams = Streams(self._loop, self._schedule, self._abandon, self._data)
        return self._streams

    @property
    def has_open_activities(self) -> bool:
        """Whether the code still waited for an activity when it came to its end."""
        return bool(self._waiting) or self._streams is not None

    def values_of(self, activity: int) -> int:
        """How many values of an activity the code was given; -1 if it waits for none of it."""
        return -1 if self._streams is None else self._streams.given(activity)

    def side_effect(
        self, compute: Callable[[], Any], encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]
    ) -> Any:
        """Compute a value once; every replay gets the recorded one."""
        self._loop.check_evicted()
        number = self._next_side_effect
        self._next_side_effect = number + 1
        recorded = self._side_effects.get(number) if self.replaying else None
        if recorded is None and self.needs_turn is not None:
            self.needs_turn = True
            raise Evicted
        if recorded is None:
            value = compute()
            recorded = Payload(msgspec.Raw(self.checked(encode(value), "the side effect", value)))
        self._output.events.append(ev.SideEffectRecorded(number=number, value=recorded))
        return decode(self._data(recorded))

    @contextmanager
    def previewing(self) -> Generator[None]:
        """Apply inputs without a commit (see `needs_turn`). What the code logs is dropped, as in a replay."""
        self.is_preview = True
        self.needs_turn = False
        try:
            yield
        finally:
            self.is_preview = False

    def continue_as_new(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
        """End this execution and ask for the next, with these arguments (G4)."""
        self._loop.check_evicted()
        continue_as_new(self._code, self._main, args, kwargs, self.checked)

    @property
    def length(self) -> tuple[int, bool]:
        """How many events the history has so far, the same in every replay, and whether that is long (G4)."""
        length = self._length + len(self._output.events)
        return length, length >= self._code.continue_after

    @property
    def handlers(self) -> Handlers:
        """Who answers queries, made when the first handler is registered or asked for."""
        if self._handlers is None:
            self._handlers = Handlers()
        return self._handlers

    def answer_read_only(self, what: str, work: Callable[[], Any]) -> tuple[Any, Sequence[LogLine]]:
        """Call code that may only look at the workflow, between two of its steps. What it logged comes with the result.

        What it can change, in spite of what it is given, is found out: then nobody may use this run any more.
        """
        self._loop.check_evicted()
        before = self._output
        self._output = TurnOutput()
        loop = ReadOnlyLoop(what, self)
        turn = self._guarded()
        turn.begin()
        try:
            value = loop.run(self._watch, work)
            if turn.findings:
                raise turn.findings[0]  # the code caught it
            effects = self._output.effects
            return value, () if effects is None else effects.logs
        finally:
            turn.end()
            output = self._output
            self._output = before
            self.is_spoiled |= not is_untouched(self._loop, output)
            if self.is_spoiled:
                loop.refuse()

    def keep_logs(self, logs: Sequence[LogLine]) -> None:
        """Lines of code that only looked, to be written with this turn."""
        for line in logs:
            effects = self._output.ensure_effects()
            effects.logs.append(line)

    @property
    def updates(self) -> Updates:
        """The updates that were sent to this run, made with the first one."""
        if self._updates is None:
            self._updates = Updates(self, self._loop)
        return self._updates

    @property
    def has_open_updates(self) -> bool:
        """Whether the handler of an update is at work."""
        return self._updates is not None and bool(self._updates.open)

    def answer(self, update_id: str, answer: Reply | None) -> None:
        """Tell the sender of an update how far it has come; None: it was accepted."""
        effects = self._output.ensure_effects()
        if effects.answers is None:
            effects.answers = {}
        effects.answers[update_id] = answer

    def finish_update(self, command: ev.UpdateHandlerCompleted | ev.UpdateHandlerFailed, answer: Reply) -> None:
        """The handler of an update has come to its end."""
        self._output.events.append(command)
        self.answer(command.id, answer)

    @property
    def shown(self) -> WorkflowState:
        """What the code shows of itself, and the conditions that it waits for."""
        if self._shown is None:
            self._shown = WorkflowState(self._loop, self._note)
        return self._shown

    @property
    def kept(self) -> dict[str, bytes]:
        """The status and the key-values as they are now."""
        return {} if self._shown is None else self._shown.kept

    def _note(self, key: str, value: bytes | None) -> None:
        effects = self._output.ensure_effects()
        if effects.kept is None:
            effects.kept = {}
        effects.kept[key] = value

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

    @property
    def is_silent(self) -> bool:
        """Whether what the code logs is dropped: another turn writes it, or the code is being torn down."""
        return self.replaying or self.is_preview or self._loop.is_closed()

    def log(self, level: int, message: str, *arguments: Any, **extra: Any) -> None:
        """Log a line of the engine about this run (see `add_line`)."""
        self.add_line(LogLine(level, message, arguments, extra))

    def add_line(self, line: LogLine) -> None:
        """Log a line, once: not in a replay or a preview, and not before the turn is committed."""
        if self._loop.is_closed():
            raise Evicted
        if not self.is_silent:
            effects = self._output.ensure_effects()
            effects.logs.append(line)
