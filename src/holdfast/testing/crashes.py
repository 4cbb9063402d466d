"""Workers that crash at commits which a test names. Another worker takes over the store each time.

A crash has the effect of SIGKILL inside this process: nothing more of the worker reaches the store, and its bodies do
not continue. Calls of the test (starts, events, results) are those of another process: they continue with the next
worker. No time passes, because a crash on the same host is detected at once (W11).

A test names commits by an activity, by a name, by their number, or all of them. A commit belongs to an activity if it
records the end of an attempt of that activity. It belongs to a name if that is the name of such an activity, of an
event that reaches the code in it, or the kind of an event that it adds to the history (``handle.history()`` has the
kinds: ``started``, ``timer_fired``, ``workflow_completed``, ...).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from holdfast.authoring.activity import Activity, AnyActivity
from holdfast.authoring.registry import Registry
from holdfast.client.embedded_worker import EmbeddedWorker
from holdfast.core.admission import EventVerdict
from holdfast.core.history import (
    ActivityCompleted,
    ActivityFailed,
    EventReceived,
    HistoryEvent,
    Started,
    decode_events,
)
from holdfast.errors import InvalidOption, UsageError
from holdfast.runtime.committer import Committer
from holdfast.runtime.platform import FaultHook, FaultPoint, SimulatedCrash
from holdfast.runtime.session import StoreSession
from holdfast.runtime.worker import WorkerRuntime
from holdfast.runtime.worker_context import WorkerOptions
from holdfast.storage.members.attempts import Completion, OpenNextAttempt
from holdfast.storage.members.instances import Expire, SaveFlow, Start, Terminate
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import Delivered, Outcome, TerminatedInstance
from holdfast.storage.members.turns import StreamValues, Turn
from holdfast.storage.records import InstanceNumber

if TYPE_CHECKING:
    from holdfast.core.leases import WorkerKey


Where = AnyActivity | str | int | EllipsisType
"""Names commits: an activity, a name, the number of a commit, counted from now, or ``...`` for every commit."""
NameOf = Callable[[InstanceNumber, int, int], str]
"""The name of an activity, by its instance, execution and number."""
HeldTime = Callable[[], AbstractContextManager[None]]
"""A context in which no time is skipped."""
NO_NUMBER: Final = 0
"""The number of an instance that is created in the same commit."""


def checked(where: object) -> Where:
    """`where`, if it names commits."""
    if isinstance(where, Activity):
        activity: Activity[..., Any] = cast("Any", where)
        return activity
    if isinstance(where, bool) or not isinstance(where, str | int | EllipsisType):
        raise UsageError(f"name an activity, a step, the number of a commit or ... for every one, not {where!r}")
    if isinstance(where, int) and where < 1:
        raise InvalidOption(f"commits are numbered from 1, not {where}")
    return where


def names_in(member: Member, name_of: NameOf) -> Iterator[str]:
    """The names of the steps that a member records."""
    match member:
        case Start():
            yield "started"
            if member.first is not None:
                yield from names_in(member.first, name_of)
        case Turn():
            for event in decode_events(member.events) if member.events else []:
                yield from _names_of_event(event, member, name_of)
        case Completion():
            yield name_of(member.key.number, member.key.execution, member.key.activity)
        case OpenNextAttempt():
            key = member.ended.key
            yield name_of(key.number, key.execution, key.activity)
        case Deliver():
            if isinstance(member.event, EventReceived):
                yield member.event.name
        case _:
            return


def _names_of_event(event: HistoryEvent, turn: Turn, name_of: NameOf) -> Iterator[str]:
    yield str(event.__struct_config__.tag)
    if isinstance(event, ActivityCompleted | ActivityFailed) and turn.number != NO_NUMBER:
        yield name_of(turn.number, turn.execution, event.activity)
    elif isinstance(event, EventReceived):
        yield event.name


def identity_of(member: Member) -> tuple[object, ...] | None:
    """The step of a member, the same for every retry; None for a member that is not a step (claims, leases)."""
    match member:
        case Start():
            return ("start", member.id)
        case Turn():
            return ("turn", member.number, member.execution, member.turn)
        case Completion():
            return ("end", member.key.number, member.key.execution, member.key.activity)
        case OpenNextAttempt():
            return ("end", member.ended.key.number, member.ended.key.execution, member.ended.key.activity)
        case StreamValues():
            return ("yield", member.key.number, member.key.activity, member.event.number)
        case Deliver():
            return ("message", member.id, member.message_id)
        case Terminate():
            return ("terminate", member.id)
        case Expire():
            return ("expire", member.number)
        case _:
            return None


class Crash:
    """The result of `Environment.crash`: `deaths` is the number of crashes at these commits so far."""

    def __init__(self, point: FaultPoint, where: Where) -> None:
        self._point = point
        self._where = where
        self._seen: set[tuple[object, ...]] = set()
        self._commits = 0
        self.deaths = 0

    def __repr__(self) -> str:
        return f"<crash {self._point} {self._where!r}: {self.deaths} so far>"

    def is_due(self, point: FaultPoint, members: Sequence[Member], name_of: NameOf) -> bool:
        """Whether the worker crashes now: once for each step, however often the step is retried."""
        if point is not self._point:
            return False
        self._commits += 1
        if not self._is_here(members, name_of):
            return False
        self.deaths += 1
        return True

    def _is_here(self, members: Sequence[Member], name_of: NameOf) -> bool:
        where = self._where
        if isinstance(where, EllipsisType):
            steps = {identity for member in members if (identity := identity_of(member)) is not None}
            is_new = bool(steps - self._seen)
            self._seen |= steps
            return is_new
        if self.deaths:
            return False
        if isinstance(where, int):
            return self._commits == where
        wanted = where if isinstance(where, str) else where.name
        # A message in an inbox has not reached the code.
        applied = [member for member in members if not isinstance(member, Deliver)]
        return any(wanted in names_in(member, name_of) for member in applied)


T = TypeVar("T")


class CrashingWorkers(EmbeddedWorker):
    """The workers of an environment: when one crashes, the next takes over its work at once.

    Calls of the environment survive a crash: a call during which the worker crashes is repeated with the next worker.
    """

    def __init__(self, session: StoreSession, held_time: HeldTime, fault_hook: FaultHook | None) -> None:
        super().__init__(session)
        self._held_time = held_time
        self._fault_hook = fault_hook
        self._make_next: Callable[[], WorkerRuntime] | None = None
        self._crashes: list[Crash] = []
        self._crashed: asyncio.Future[None] | None = None
        """Done when the current worker has crashed."""
        self._replacing: asyncio.Task[None] | None = None
        self._to_take_over: set[WorkerKey] = set()
        self.deaths = 0

    # ------------------------------------------------------------ crashes

    def add(self, crash: Crash) -> None:
        """Crash at these commits from now on."""
        self._crashes.append(crash)
        if self.worker is not None:
            self.committer = RetryingCommitter(self._session, self)

    def at_fault_point(self, point: FaultPoint, members: Sequence[Member]) -> None:
        """The fault hook of the workers. The flows that a worker saves when it starts are not a step of a test."""
        if members and all(isinstance(member, SaveFlow) for member in members):
            return
        if self._fault_hook is not None:
            self._fault_hook(point, members)
        due = [crash for crash in self._crashes if crash.is_due(point, members, self.name_of)]
        if due and self.worker is not None:
            self._crash(self.worker)
            raise SimulatedCrash

    def name_of(self, number: InstanceNumber, execution: int, activity: int) -> str:
        """The name of an activity, from the rows of its attempts."""
        attempts = read_at_once(self._session.store.read_attempts(number, execution))
        return next((attempt.name for attempt in attempts if attempt.key.activity == activity), "")

    def _crash(self, worker: WorkerRuntime) -> None:
        self.deaths += 1
        worker.committer.kill()
        self._to_take_over.add(worker.lease.key)
        if self._crashed is not None and not self._crashed.done():
            self._crashed.set_result(None)
        replacing = self._replace(worker, self._replacing)
        self._replacing = asyncio.get_running_loop().create_task(replacing, name="holdfast-reviving")

    async def _replace(self, crashed: WorkerRuntime, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:  # the worker crashed before it had taken over
            earlier.cancel()
            await asyncio.wait([earlier])
        assert self._make_next is not None  # noqa: S101 - a worker was made before it crashed
        with self._held_time():
            await crashed.kill()
            worker = self._make_next()
            self._attach(worker)
            await worker.start()
            for key in sorted(self._to_take_over):
                await worker.take_over(key)
                self._to_take_over.discard(key)
        self._replacing = None
        self._session.results.poll()  # an instance may have ended with the crashed worker's last commit

    # ------------------------------------------------------------ EmbeddedWorker

    def make(self, registry: Registry, options: WorkerOptions) -> WorkerRuntime:
        self._make_next = partial(WorkerRuntime, self._session, registry, options)
        return super().make(registry, options)

    def _attach(self, worker: WorkerRuntime) -> None:
        super()._attach(worker)
        self._crashed = asyncio.get_running_loop().create_future()
        if self._crashes:
            self.committer = RetryingCommitter(self._session, self)

    async def commit_start(self, start: Start, started: Started, *, is_named: bool) -> Outcome:
        commit_start = super().commit_start
        if not self._crashes:
            return await commit_start(start, started, is_named=is_named)
        outcome, _ = await self.survive(lambda _: commit_start(start, started, is_named=is_named))
        return outcome

    async def send(self, message: Deliver) -> Outcome:
        send = super().send
        if not self._crashes:
            return await send(message)
        outcome, is_repeated = await self.survive(lambda _: send(message))
        return as_the_first(outcome) if is_repeated else outcome

    # ------------------------------------------------------------ calls that survive a crash

    async def settle(self) -> None:
        """Wait until the next worker has taken over, if one is about to."""
        while (replacing := self._replacing) is not None:
            await asyncio.wait([replacing])
            if self._replacing is replacing:
                self._replacing = None
                replacing.result()

    async def survive(self, call: Callable[[WorkerRuntime], Awaitable[T]]) -> tuple[T, bool]:
        """Make a call, and again with the next worker if the worker crashes during it. Whether it was repeated."""
        is_repeated = False
        while True:
            await self.settle()
            worker = self.worker
            crashed = self._crashed
            if worker is None or crashed is None:
                raise SimulatedCrash
            calling = asyncio.ensure_future(call(worker))
            await asyncio.wait((calling, crashed), return_when=asyncio.FIRST_COMPLETED)
            if calling.done():
                return calling.result(), is_repeated
            calling.cancel()
            is_repeated = True

    # ------------------------------------------------------------ time

    def is_at_real_work(self, *, has_sockets: bool) -> bool:
        """Whether an activity runs that takes real time: in a thread, in a process, or with a socket."""
        worker = self.worker
        if worker is None:
            return False
        bodies = list(worker.attempts.running.values())
        in_real_time = any(body.in_process or not body.activity.is_async for body in bodies)
        return in_real_time or (has_sockets and bool(bodies))

    def next_due_ms(self) -> int | None:
        """The next time at which the store has work for the worker. Maintenance finds what has expired already."""
        worker = self.worker
        if worker is None:
            return None
        store = self._session.store
        if read_at_once(store.expired_attempts(1)):
            return store.now_ms()
        return read_at_once(worker.claimer.next_due_ms())


class RetryingCommitter(Committer):
    """The committer of the environment's own calls, which survive a crash."""

    def __init__(self, session: StoreSession, workers: CrashingWorkers) -> None:
        super().__init__(session)
        self._workers = workers

    async def commit(self, member: Member) -> Outcome:
        outcome, is_repeated = await self._workers.survive(lambda worker: worker.committer.commit(member))
        return as_the_first(outcome) if is_repeated else outcome

    async def drain(self) -> None:
        await self._workers.settle()
        if self._workers.worker is not None:
            await self._workers.worker.committer.drain()


def read_at_once(reading: Coroutine[Any, Any, T]) -> T:
    """The value of a coroutine that waits for nothing, as reads of a SQLite store do."""
    try:
        reading.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise UsageError("a read of the store waited for something")


def as_the_first(outcome: Outcome) -> Outcome:
    """The outcome of a repeated call, whose first try may have ended the instance, as the outcome of the first try."""
    match outcome:
        case TerminatedInstance():
            return TerminatedInstance(instance=outcome.instance, was_open=True)
        case Delivered(verdict=EventVerdict.CLOSED):
            return Delivered(instance=outcome.instance, verdict=EventVerdict.DUPLICATE)
        case _:
            return outcome


def quiet_crashes(loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    """Hide simulated crashes from the exception handler of the loop. Call the returned function to restore it."""
    before = loop.get_exception_handler()

    def handle(of: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), SimulatedCrash):
            return
        if before is None:
            of.default_exception_handler(context)
        else:
            before(of, context)

    loop.set_exception_handler(handle)
    return lambda: loop.set_exception_handler(before)


def ignore_crashes(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """An exception handler that hides simulated crashes."""
    if not isinstance(context.get("exception"), SimulatedCrash):
        loop.default_exception_handler(dict(context))
