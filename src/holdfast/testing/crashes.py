"""A worker that dies at commits which a test names, and is followed by another on the same store.

The worker dies inside this process as SIGKILL would end it: nothing more of it reaches the store, and nothing that ran
goes on. Whoever starts instances, raises events or waits for results is another process, as it were: its calls go on
with the next worker. No time passes: a death on the same host is seen at once (W11).

Commits as a test names them: by an activity, by a name, by their number, or all of them.

A commit belongs to an activity when it records how an attempt of it ended. It belongs to a name when that is the name
of such an activity, of an event that reaches the code in it, or the kind of anything that it adds to the history
(``handle.history()`` has the kinds: ``started``, ``timer_fired``, ``workflow_completed``, ...).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from holdfast.authoring.activity import Activity, AnyActivity
from holdfast.core.admission import EventVerdict
from holdfast.core.history import ActivityCompleted, ActivityFailed, EventReceived, HistoryEvent, decode_events
from holdfast.errors import InvalidOption, UsageError
from holdfast.runtime.committer import Committer
from holdfast.runtime.platform import FaultHook, FaultPoint, SimulatedCrash
from holdfast.runtime.session import StoreSession
from holdfast.runtime.worker import WorkerRuntime
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
"""Which commits: an activity, a name, the number of one, counted from now, or ``...`` for every one."""
NameOf = Callable[[InstanceNumber, int, int], str]
"""The name of an activity, by its instance, execution and number."""
NO_NUMBER: Final = 0
"""Of an instance that is created in the very commit."""


def checked(where: object) -> Where:
    """What a test may say."""
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
    """Which step a member is, however often it is tried; None for what is no step (claims, leases)."""
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
    """What `Environment.crash` gives back: where the worker dies, and how often it has."""

    def __init__(self, point: FaultPoint, where: Where) -> None:
        self._point = point
        self._where = where
        self._seen: set[tuple[object, ...]] = set()
        self._commits = 0
        self.deaths = 0

    def __repr__(self) -> str:
        return f"<crash {self._point} {self._where!r}: {self.deaths} so far>"

    def is_due(self, point: FaultPoint, members: Sequence[Member], name_of: NameOf) -> bool:
        """Whether the worker dies now. At one step it dies once, however often the step is tried."""
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
        told = [member for member in members if not isinstance(member, Deliver)]  # a message has not reached the code
        return any(wanted in names_in(member, name_of) for member in told)


T = TypeVar("T")


class CrashingHost(Protocol):
    """The environment in which workers live and die."""

    def next_worker(self) -> WorkerRuntime:
        """Make the next one. It is not started yet."""
        ...

    def goes_on(self) -> None:
        """It has taken over."""
        ...

    def real_time(self) -> AbstractContextManager[None]:
        """Skip no time inside."""
        ...

    def name_of(self, number: InstanceNumber, execution: int, activity: int) -> str:
        """The name of an activity."""
        ...


class CrashingWorkers:
    """The workers of one environment, one after the other."""

    def __init__(self, home: CrashingHost, fault_hook: FaultHook | None) -> None:
        self._home = home
        self._fault_hook = fault_hook
        self._worker: WorkerRuntime | None = None
        self._crashes: list[Crash] = []
        self._died: asyncio.Future[None] | None = None
        self._reviving: asyncio.Task[None] | None = None
        self._left_behind: set[WorkerKey] = set()
        self.deaths = 0

    def __call__(self, point: FaultPoint, members: Sequence[Member]) -> None:
        """The fault hook of the environment's workers. What they store before they begin to work is no step."""
        if members and all(isinstance(member, SaveFlow) for member in members):
            return
        if self._fault_hook is not None:
            self._fault_hook(point, members)
        worker = self._worker
        due = [crash for crash in self._crashes if crash.is_due(point, members, self._home.name_of)]
        if due and worker is not None:
            self._die(worker)
            raise SimulatedCrash

    @property
    def worker(self) -> WorkerRuntime | None:
        """The one that lives, or is being born."""
        return self._worker

    def begin(self, worker: WorkerRuntime) -> None:
        """The first life, or the next."""
        self._worker = worker
        self._died = asyncio.get_running_loop().create_future()

    def add(self, crash: Crash) -> None:
        self._crashes.append(crash)

    async def settle(self) -> None:
        """Wait until somebody lives, if somebody is about to."""
        while (reviving := self._reviving) is not None:
            await asyncio.wait([reviving])
            if self._reviving is reviving:
                self._reviving = None
                reviving.result()

    async def outlive(self, attempt: Callable[[WorkerRuntime], Awaitable[T]]) -> tuple[T, bool]:
        """Make a call with the worker that lives, and again with the next if it dies over it. Whether it was again."""
        is_again = False
        while True:
            await self.settle()
            worker, died = self._worker, self._died
            if worker is None or died is None:
                raise SimulatedCrash
            trying = asyncio.ensure_future(attempt(worker))
            await asyncio.wait((trying, died), return_when=asyncio.FIRST_COMPLETED)
            if trying.done():
                return trying.result(), is_again
            trying.cancel()
            is_again = True

    def _die(self, worker: WorkerRuntime) -> None:
        self.deaths += 1
        worker.committer.kill()
        self._left_behind.add(worker.lease.key)
        if self._died is not None and not self._died.done():
            self._died.set_result(None)
        loop = asyncio.get_running_loop()
        self._reviving = loop.create_task(self._live_again(worker, self._reviving), name="holdfast-reviving")

    async def _live_again(self, dead: WorkerRuntime, before: asyncio.Task[None] | None) -> None:
        if before is not None:  # it died before it had taken over
            before.cancel()
            await asyncio.wait([before])
        with self._home.real_time():
            await dead.kill()
            worker = self._home.next_worker()
            await worker.start()
            for key in sorted(self._left_behind):
                await worker.take_over(key)
                self._left_behind.discard(key)
        self._reviving = None
        self._home.goes_on()


class RetryingCommitter(Committer):
    """What the environment itself commits through: calls that a worker dies over are made again with the next."""

    def __init__(self, session: StoreSession, lives: CrashingWorkers) -> None:
        super().__init__(session)
        self._lives = lives

    async def commit(self, member: Member) -> Outcome:
        outcome, is_again = await self._lives.outlive(lambda worker: worker.committer.commit(member))
        return as_the_first(outcome) if is_again else outcome

    async def drain(self) -> None:
        await self._lives.settle()
        if self._lives.worker is not None:
            await self._lives.worker.committer.drain()


def as_the_first(outcome: Outcome) -> Outcome:
    """The first try may have ended the instance: that it has ended is no news then."""
    match outcome:
        case TerminatedInstance():
            return TerminatedInstance(instance=outcome.instance, was_open=True)
        case Delivered(verdict=EventVerdict.CLOSED):
            return Delivered(instance=outcome.instance, verdict=EventVerdict.DUPLICATE)
        case _:
            return outcome


def quiet_crashes(loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    """From now on deaths are no news for the loop. What is given back ends it."""
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
    """A simulated crash is not news; anything else that nobody took is."""
    if not isinstance(context.get("exception"), SimulatedCrash):
        loop.default_exception_handler(dict(context))
