"""Signals between commits and the coroutines that wait for them, and the log lines of the runtime.

A signal is set at once by a commit of this process, and by a notification of another. A slow poll finds the commits
whose notification was lost. `PollSignal` wakes the claimer, `ChangeSignal` every reader of the store, and
`ResultWaiters` the coroutines that wait for an instance to end.

In the log an error of the store is one line, an unexpected error has a traceback. A failed attempt is one WARNING, a
failed or blocked instance one ERROR; their records have the attributes `holdfast_instance`, `holdfast_activity` and so
on.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import msgspec

from holdfast.background import BackgroundTask, Duty
from holdfast.core.deadlines import MILLISECONDS
from holdfast.core.history import Payload
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import ClientClosed, HoldfastError, StoreError, StoreReplaced
from holdfast.payloads.failures import RecordedFailure
from holdfast.storage.contract import IN_MEMORY, OpenableStore
from holdfast.storage.members.attempts import Completion, OpenNextAttempt
from holdfast.storage.members.turns import InstanceEnd
from holdfast.storage.records import AttemptRecord, InstanceId, InstanceNumber, InstanceRecord

POLL_SECONDS: Final = 1.0
"""The period of the poll for commits whose notification was lost."""
POLL_PAUSE_SECONDS: Final = 0.005
"""The pause between two polls that notifications cause, so that a busy store does not keep its readers busy."""
RESULTS_PAUSE_SECONDS: Final = 0.002
"""The least time from one read of ended instances to the next; ends that are announced meanwhile share a read."""
ROUNDS_WITHOUT_PAUSE: Final = 3
"""The first rounds of a reader, which have no pause."""
PERIOD_MS: Final = 60_000
"""The time between two lines about the same error."""
QUIET_MS: Final = 5_000
"""An outage ends with a successful write, if the store has not failed for so long."""
MOST_REMEMBERED: Final = 10_000
"""Instances that are remembered as watched. For one that was dropped another `Watch` is committed."""
READ_BATCH: Final = 500
"""Awaited instances in one read."""
FAILED: Final = "holdfast_failed"
"""The attribute of a log record about a failure: `attempt` or `instance`."""
LONGEST_MESSAGE: Final = 1_000
"""The number of characters of a failure's message that are logged."""


logger = logging.getLogger("holdfast")
Item = TypeVar("Item")


def batched(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """The items in batches of at most `size`."""
    return (items[at : at + size] for at in range(0, len(items), size))


def give_up(future: "asyncio.Future[Any]", error: Exception | None) -> None:
    """Raise `error` in the coroutine that waits for a future, or cancel it if there is no error."""
    if error is None:
        future.cancel()
    elif not future.done():
        future.set_exception(error)
        future.exception()  # marks it as retrieved, in case the coroutine is gone


class PollSignal(asyncio.Event):
    """Wakes the one loop that polls the store. A signal that is set while the loop polls makes it poll once more."""

    def __init__(self) -> None:
        super().__init__()
        self.is_for_messages = False
        """It was set only because instances of this worker have messages: nothing is to be claimed."""
        self._later: asyncio.TimerHandle | None = None

    def begin_poll(self) -> None:
        """A poll begins, which sees all that was committed before the signals so far."""
        self.clear()
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def set_later(self, seconds: float) -> None:
        """Wake the loop after some time, unless it polls before."""
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(seconds, self._set_now)

    def _set_now(self) -> None:
        self._later = None
        self.set()

    def set(self) -> None:
        self.is_for_messages = False
        super().set()

    def set_for_messages(self) -> None:
        """Wake the loop for messages in the inboxes of live instances."""
        if not self.is_set():
            self.is_for_messages = True
            super().set()

    async def wait_within(self, seconds: float) -> None:
        """Return when the signal is set, at most `seconds` later."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wait()


class ChangeSignal:
    """Wakes every coroutine that waits for a change in the store. It carries no data: the coroutine reads the store."""

    def __init__(self, store: OpenableStore) -> None:
        self._store = store
        self._waiting: dict[asyncio.Future[None], float] = {}
        """With the seconds between two polls that each asks for, in the order of their arrival: a simulation wakes them
        in the same order in every run."""
        self._polling = BackgroundTask(Duty.CHANGES, self._poll)

    def notify(self) -> None:
        """A group was committed, by this process or another."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def stop(self, error: Exception | None = None) -> None:
        """Send no more signals. Coroutines that still wait raise `error`, or are cancelled if it is None."""
        self._polling.stop()
        for waiting in self._waiting:
            give_up(waiting, error)

    async def rounds(self, poll_seconds: float = POLL_SECONDS) -> AsyncGenerator[None]:
        """Yield when the caller is to read the store: at once, after every change, and at every poll."""
        rounds = 0
        while True:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[waiting] = poll_seconds  # before the caller reads, so that no change is missed
            try:
                yield
                self._polling.start()
                await waiting
            finally:
                self._waiting.pop(waiting, None)
            rounds += 1
            if rounds >= ROUNDS_WITHOUT_PAUSE:
                await asyncio.sleep(POLL_PAUSE_SECONDS)

    async def _poll(self) -> None:
        """Wake all readers at the shortest interval that one of them asks for, as long as there are any."""
        while self._waiting:
            await asyncio.sleep(min(self._waiting.values()))
            with suppress(StoreError):  # the readers raise it as well
                await self._store.check_files()
            self.notify()


def _remember(numbers: dict[InstanceNumber, None], number: InstanceNumber, most: int = MOST_REMEMBERED) -> None:
    """Add a number, and drop the oldest ones above the limit."""
    numbers[number] = None
    while len(numbers) > most:
        del numbers[next(iter(numbers))]


def ignore_instance(_: InstanceNumber) -> None:
    """Receive an instance that the caller does not watch."""


class ResultWaiter:
    """A coroutine that waits for an instance to end. `number` is None until the start is committed."""

    __slots__ = ("_future", "ended_number", "number")

    def __init__(self, number: InstanceNumber | None) -> None:
        self.number = number
        self.ended_number: InstanceNumber | None = None
        """The instance that ended. A waiter without a number may receive the end of an earlier instance of the id."""
        self._future: asyncio.Future[InstanceEnd | None] = asyncio.get_running_loop().create_future()

    async def ended(self) -> InstanceEnd | None:
        """Wait. Returns how the instance ended, or None if the caller has to read it from the store."""
        return await self._future

    def set_result(self, number: InstanceNumber, close: InstanceEnd | None) -> None:
        if not self._future.done():
            self.ended_number = number
            self._future.set_result(close)

    def give_up(self, error: Exception | None) -> None:
        """End the wait with an error, or cancel it."""
        give_up(self._future, error)


class ResultWaiters:
    """The waiters of this process, by id and number: several instances may have had one id (G3)."""

    def __init__(self, store: OpenableStore, trouble: "RepeatedTrouble") -> None:
        self._store = store
        self._trouble = trouble
        self._waiting: dict[InstanceId, list[ResultWaiter]] = {}
        self._polling = BackgroundTask(Duty.RESULTS, self._run)
        self._wake = asyncio.Event()
        self._woken: set[InstanceNumber] | None = set()
        """The instances to read in the next round; None: all that are waited for."""
        self._early: dict[InstanceNumber, None] = {}
        """Instances that ended before a waiter had their number, the newest last."""
        self._watched: dict[InstanceNumber, None] = {}
        """Instances whose row has the name of this process, so that their end wakes it, the newest last."""
        self.watch: Callable[[InstanceNumber], None] = ignore_instance
        """Writes the name of this process into the row of an instance that is waited for and runs elsewhere."""

    def ended(self, instance_id: InstanceId, number: InstanceNumber, close: InstanceEnd | None = None) -> None:
        """An instance ended or was blocked. `close` is given if it ended by a turn of this process."""
        for waiter in self._waiting.get(instance_id, ()):
            if waiter.number == number or (waiter.number is None and close is not None):
                waiter.set_result(number, close)

    def poll(self, numbers: Collection[InstanceNumber] | None = None) -> None:
        """Read awaited instances soon, all or these: another process may have ended one."""
        if numbers is None:
            self._woken = None
        elif self._woken is not None:
            self._woken.update(numbers)
        self._wake.set()

    def woken(self, numbers: Collection[InstanceNumber]) -> None:
        """Another process has ended these instances. A waiter may get its number later (`assign`)."""
        for number in numbers:
            _remember(self._early, number)
        self.poll(numbers)

    def is_watched(self, number: InstanceNumber) -> bool:
        """Whether the end of an instance wakes this process."""
        return number in self._watched

    def set_watched(self, number: InstanceNumber, *, is_watched: bool = True) -> None:
        """Note whether the row of an instance has the name of this process."""
        if is_watched:
            _remember(self._watched, number, max(MOST_REMEMBERED, 2 * len(self._waiting)))
        else:
            self._watched.pop(number, None)

    def assign(self, waiter: ResultWaiter, number: InstanceNumber) -> None:
        """Set the number of a waiter whose instance was started. The end may have been announced before."""
        waiter.number = number
        if number in self._early:
            self.poll([number])

    async def wait(self, instance_id: InstanceId, number: InstanceNumber) -> InstanceEnd | None:
        """Wait until the instance may have ended. Returns how it ended; if None, the caller reads the store.

        An instance that runs elsewhere may have ended before: it is read at once, together with others.
        """
        waiter = self.expect(instance_id, number)
        if number in self._watched:
            self.poll([number])
        try:
            return await waiter.ended()
        finally:
            self.remove(instance_id, waiter)

    def expect(self, instance_id: InstanceId, number: InstanceNumber | None = None) -> ResultWaiter:
        """Add a waiter, also for an instance that is about to be started. The caller removes it."""
        waiter = ResultWaiter(number)
        self._waiting.setdefault(instance_id, []).append(waiter)
        self._polling.start()
        if number is not None and number in self._early:  # announced while the caller read the instance
            self.poll([number])
        return waiter

    def remove(self, instance_id: InstanceId, waiter: ResultWaiter) -> None:
        """Remove a waiter."""
        waiters = self._waiting.get(instance_id, [])
        if waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiting[instance_id]

    def stop(self, error: Exception | None = None) -> None:
        """Poll no more. Coroutines that still wait raise `error`, or are cancelled if it is None."""
        self._polling.stop()
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.give_up(error)
        self._waiting.clear()

    async def _run(self) -> None:
        """Read the instances that wake-ups name, and once a second all: a wake-up may be lost."""
        loop = asyncio.get_running_loop()
        all_at = loop.time() + POLL_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(all_at):
                    await self._wake.wait()
            began = loop.time()
            woken = self._woken
            if began >= all_at or woken is None:
                woken = None
                all_at = began + POLL_SECONDS
            self._woken = set()
            self._wake.clear()  # before the reads: a later signal starts another round
            try:
                await self._poll_waiting(woken)
            except StoreReplaced as error:
                self.stop(error)
                return
            except Exception as error:  # noqa: BLE001 - the waiters wait for the next round
                self._trouble.log("polling for results failed and is retried", error)
            await asyncio.sleep(max(0.0, began + RESULTS_PAUSE_SECONDS - loop.time()))

    async def _poll_waiting(self, woken: Collection[InstanceNumber] | None) -> None:
        """Read the instances that are waited for in batches, all or those of `woken`."""
        await self._store.check_files()
        wanted = {
            waiter.number: instance_id
            for instance_id, each in self._waiting.items()
            for waiter in each
            if waiter.number is not None and (woken is None or waiter.number in woken)
        }
        for numbers in batched(sorted(wanted), READ_BATCH):
            found = {record.number: record for record in await self._store.read_instances(numbers)}
            for number in numbers:
                self._found(wanted[number], number, found.get(number))

    def _found(self, instance_id: InstanceId, number: InstanceNumber, record: InstanceRecord | None) -> None:
        if record is None or record.blocked is not None:
            self.ended(instance_id, number)
        elif record.closed_at_ms is not None:
            end = None if record.outcome is None else InstanceEnd(state=record.state, outcome=record.outcome)
            self.ended(instance_id, number, end)
        elif number not in self._watched:
            self.watch(number)


# ---------------------------------------------------------------- the log


def log_failure(what: str, error: Exception) -> None:
    """Log an error of a background loop, except `StoreReplaced`, which the store has logged."""
    if not isinstance(error, StoreReplaced):
        logger.error("%s: %s", what, error, exc_info=None if isinstance(error, HoldfastError) else error)


class RepeatedTrouble:
    """Rate limit for the log lines about errors of one store, which repeat with every row and every retry.

    The first error is logged at once, further ones once a minute with their number. All errors of the store share one
    line, whichever loop reports them; any other error has a line for each operation. The end of an outage is logged
    once. `StoreReplaced` (the store logs it) and `ClientClosed` are not logged. `now_ms` is called on the thread that
    reports an error.
    """

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._series: dict[str, _Series] = {}
        """By operation; errors of the store by the empty string."""

    def log(self, what: str, error: Exception) -> None:
        """Log an error, or count it for the next line."""
        if isinstance(error, StoreReplaced | ClientClosed):
            return
        now_ms = self._now_ms()
        with self._lock:
            series = self._series.setdefault("" if isinstance(error, StoreError) else what, _Series(now_ms))
            unlogged = series.add(now_ms)
        if unlogged:
            times = "" if unlogged == 1 else f" ({unlogged:,} errors since the last such line)"
            log_failure(f"{what}{times}", error)

    def succeeded(self) -> None:
        """Note a successful write, which ends an outage if the store has not failed for a while.

        One success is not enough: a nearly full disk accepts small writes during an outage.
        """
        if not self._series:
            return
        now_ms = self._now_ms()
        with self._lock:
            series = self._series.get("")
            if series is None or now_ms - series.failed_at_ms < QUIET_MS:
                return
            del self._series[""]
        seconds = (series.failed_at_ms - series.began_at_ms) / MILLISECONDS
        times = "once" if series.count == 1 else f"{series.count:,} times within {seconds:.1f} s"
        logger.info("the store can be used again: it failed %s", times)


class _Series:
    """Errors with one key, from the first to the last."""

    __slots__ = ("_logged_at_ms", "_unlogged", "began_at_ms", "count", "failed_at_ms")

    def __init__(self, now_ms: float) -> None:
        self.began_at_ms = now_ms
        self.failed_at_ms = now_ms
        self.count = 0
        self._unlogged = 0
        self._logged_at_ms: float | None = None

    def add(self, now_ms: float) -> int:
        """Count an error. Returns the number of errors to log now, or 0 if no line is due."""
        self.failed_at_ms = now_ms
        self.count += 1
        self._unlogged += 1
        if self._logged_at_ms is not None and now_ms - self._logged_at_ms < PERIOD_MS:
            return 0
        unlogged = self._unlogged
        self._unlogged = 0
        self._logged_at_ms = now_ms
        return unlogged


_troubles: Final[WeakValueDictionary[str, RepeatedTrouble]] = WeakValueDictionary()
"""By the path of the store."""


def trouble_of(path: Path, now_ms: Callable[[], float]) -> RepeatedTrouble:
    """The rate limit of a store, shared by all clients and workers of this process that use it."""
    if str(path) == IN_MEMORY:
        return RepeatedTrouble(now_ms)  # every store in memory is its own
    return _troubles.setdefault(str(path), RepeatedTrouble(now_ms))


def log_failed_attempt(
    attempt: AttemptRecord, failure: RecordedFailure, ended: Completion | OpenNextAttempt, *, now_ms: int
) -> None:
    """Log an attempt that failed or timed out, with the time of the next attempt."""
    if isinstance(ended, OpenNextAttempt) and ended.exhausted is not None:
        what_next = "its retries are used up, and the instance is paused: holdfast resume"
    elif isinstance(ended, OpenNextAttempt):
        seconds = max(0, ended.next.available_at_ms - now_ms) / MILLISECONDS
        what_next = f"attempt {ended.next.attempt} begins in {seconds:g} s"
    else:
        what_next = "there is no further attempt"
    logger.warning(
        "attempt %d of activity %s of instance %s failed: %s; %s",
        attempt.key.attempt,
        attempt.name,
        attempt.instance_id,
        in_short(failure),
        what_next,
        extra={
            "holdfast_instance": attempt.instance_id,
            "holdfast_workflow": attempt.workflow,
            "holdfast_execution": attempt.key.execution,
            "holdfast_activity": attempt.name,
            "holdfast_attempt": attempt.key.attempt,
            "holdfast_worker": attempt.owner,
            FAILED: "attempt",
        },
    )


def log_failed_instance(instance_id: InstanceId, close: InstanceEnd | None, worker: str) -> None:
    """Log the cause of an instance that failed. Other ends are not logged."""
    if close is not None and close.state is InstanceState.FAILED:
        extra = {"holdfast_instance": instance_id, "holdfast_worker": worker, FAILED: "instance"}
        logger.error("instance %s failed: %s", instance_id, _cause_of(close), extra=extra)


def _cause_of(close: InstanceEnd) -> str:
    try:
        payload = msgspec.json.decode(close.outcome, type=Payload)
        if payload.reference:
            return "the failure is stored apart, because it is long; `holdfast show` has it"
        return in_short(msgspec.json.decode(payload.data, type=RecordedFailure))
    except msgspec.MsgspecError as error:
        return f"its failure cannot be read: {error}"


def in_short(failure: RecordedFailure) -> str:
    """The name of the type and the beginning of the message."""
    name = failure.type.rpartition(".")[2]
    message = failure.message if len(failure.message) <= LONGEST_MESSAGE else f"{failure.message[:LONGEST_MESSAGE]}..."
    return f"{name}: {message}" if message else name
