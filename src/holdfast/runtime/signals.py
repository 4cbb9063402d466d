"""Waiting for instances to end: told at once by this process, and by a look when another process wakes us.

Waiting for anything to change in a store: told at once by this process and by others, and by a look now and then.

How the runtime reports trouble in the log.

A store that cannot be used is one line, an unforeseen error a traceback. A failed attempt is one WARNING, a failed or
blocked instance one ERROR; their records carry the attributes `holdfast_instance`, `holdfast_activity` and so on.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from holdfast.background import BackgroundTask, Duty
from holdfast.core.history import Payload
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import ClientClosed, HoldfastError, StoreError, StoreReplaced
from holdfast.payloads.failures import Failure
from holdfast.storage.contract import IN_MEMORY, OpenableStore
from holdfast.storage.members.attempts import Completion, OpenNextAttempt
from holdfast.storage.members.turns import InstanceEnd
from holdfast.storage.records import AttemptRecord, InstanceId, InstanceNumber

POLL_SECONDS: Final = 1.0
"""How often is looked for a change that nobody told of."""
POLL_PAUSE_SECONDS: Final = 0.005
"""Between two looks, after the first ones: a busy store must not keep those busy who only wait."""
LOOKS_WITHOUT_PAUSE: Final = 3


def give_up(future: "asyncio.Future[Any]", error: Exception | None) -> None:
    """Let whoever waits for a future have an error, or cancel it where there is none."""
    if error is None:
        future.cancel()
    elif not future.done():
        future.set_exception(error)
        future.exception()  # seen: who does not come to wait for it any more is no news


class PollSignal(asyncio.Event):
    """Wakes the one loop that polls the store. A signal that is set while the loop polls makes it poll once more."""

    async def wait_within(self, seconds: float) -> None:
        """Return when the signal is set, at most `seconds` later."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wait()


class ChangeSignal:
    """Wakes everybody who waits. What there is to see is in the store."""

    def __init__(self, store: OpenableStore) -> None:
        self._store = store
        self._waiting: set[asyncio.Future[None]] = set()
        self._looking = BackgroundTask(Duty.CHANGES, self._look_now_and_then)

    def notify(self) -> None:
        """Something was committed, here or by another process."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def stop(self, error: Exception | None = None) -> None:
        """Nobody will ring any more: who still waits gets the error, or is cancelled."""
        self._looking.stop()
        for waiting in self._waiting:
            give_up(waiting, error)

    async def rounds(self) -> AsyncGenerator[None]:
        """Comes back when it is time to look: at once, and then after every change that there may be."""
        looked = 0
        while True:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(waiting)  # before the look: what changes during it is not missed
            try:
                yield
                self._looking.start()
                await waiting
            finally:
                self._waiting.discard(waiting)
            looked += 1
            if looked >= LOOKS_WITHOUT_PAUSE:
                await asyncio.sleep(POLL_PAUSE_SECONDS)

    async def _look_now_and_then(self) -> None:
        """For changes that no wake-up told of; as long as anybody waits."""
        await asyncio.sleep(POLL_SECONDS)
        while self._waiting:
            with suppress(StoreError):  # the reads of those who wait raise it, too
                await self._store.check_files()
            self.notify()
            await asyncio.sleep(POLL_SECONDS)


logger = logging.getLogger("holdfast")

PERIOD_MS: Final = 60_000
QUIET_MS: Final = 5_000
"""An outage of the store is over when it has not failed for so long and writes."""
MILLISECONDS: Final = 1_000
FAILED: Final = "holdfast_failed"
"""The attribute of a log record about a failed attempt or instance: what failed."""
LONGEST_MESSAGE: Final = 1_000
"""Characters of a failure's message that are logged."""


def log_failure(what: str, error: Exception) -> None:
    """Log what could not be done, and why. The loss of the store's files was logged by the store, once."""
    if not isinstance(error, StoreReplaced):
        logger.error("%s: %s", what, error, exc_info=None if isinstance(error, HoldfastError) else error)


class RepeatedTrouble:
    """Errors that repeat with every row and every retry, of one store in this process.

    The first error is logged at once, further ones once a minute with their number. All errors of the store share one
    line, whichever loop meets them; any other error has a line for each thing that failed. The end of an outage of
    the store is logged once. Errors are not logged if the files of the store are gone (the store logs that), and if
    the client that used the store is closed. `now_ms` is called from the thread that reports an error.
    """

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._series: dict[str, _Series] = {}
        """By what failed; errors of the store by the empty text."""

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
        """The store has written something. If it had failed before and has not failed for a while, the outage is over.

        A disk that is nearly full takes a small write now and then: one success does not end an outage.
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
    """Errors of one kind, from the first to the last."""

    __slots__ = ("_logged_at_ms", "_unlogged", "began_at_ms", "count", "failed_at_ms")

    def __init__(self, now_ms: float) -> None:
        self.began_at_ms = self.failed_at_ms = now_ms
        self.count = self._unlogged = 0
        self._logged_at_ms: float | None = None

    def add(self, now_ms: float) -> int:
        """Count an error. How many a line has to report now; 0: none is due."""
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
"""By the paths of stores."""


def trouble_of(path: Path, now_ms: Callable[[], float]) -> RepeatedTrouble:
    """The errors of a store, which all clients and workers of this process that use it share."""
    if str(path) == IN_MEMORY:
        return RepeatedTrouble(now_ms)  # each such store is another one
    return _troubles.setdefault(str(path), RepeatedTrouble(now_ms))


def log_failed_attempt(
    attempt: AttemptRecord, failure: Failure, ended: Completion | OpenNextAttempt, *, now_ms: int
) -> None:
    """One line for an attempt that failed or timed out, with the time of the next one."""
    if isinstance(ended, OpenNextAttempt):
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
    """One line for an instance that failed, with the cause. How any other one ended is no trouble."""
    if close is not None and close.state is InstanceState.FAILED:
        extra = {"holdfast_instance": instance_id, "holdfast_worker": worker, FAILED: "instance"}
        logger.error("instance %s failed: %s", instance_id, _cause_of(close), extra=extra)


def _cause_of(close: InstanceEnd) -> str:
    try:
        payload = msgspec.json.decode(close.outcome, type=Payload)
        if payload.reference:
            return "the failure is stored apart, because it is long; `holdfast show` has it"
        return in_short(msgspec.json.decode(payload.data, type=Failure))
    except msgspec.MsgspecError as error:
        return f"its failure cannot be read: {error}"


def in_short(failure: Failure) -> str:
    """The name of its type and the beginning of its message."""
    name = failure.type.rpartition(".")[2]
    message = failure.message if len(failure.message) <= LONGEST_MESSAGE else f"{failure.message[:LONGEST_MESSAGE]}..."
    return f"{name}: {message}" if message else name


class ResultWaiter:
    """Somebody who waits. While its start is on its way the number of the instance is not known yet."""

    __slots__ = ("_future", "ended_number", "number")

    def __init__(self, number: InstanceNumber | None) -> None:
        self.number = number
        self.ended_number: InstanceNumber | None = None
        """Which instance ended. Somebody whose number is not known yet may be told of an earlier one of the id."""
        self._future: asyncio.Future[InstanceEnd | None] = asyncio.get_running_loop().create_future()

    async def ended(self) -> InstanceEnd | None:
        """How it ended, if that happened in this process; None says: look."""
        return await self._future

    def set_result(self, number: InstanceNumber, close: InstanceEnd | None) -> None:
        if not self._future.done():
            self.ended_number = number
            self._future.set_result(close)

    def give_up(self, error: Exception | None) -> None:
        """No answer will come: whoever waits gets the error, or is cancelled."""
        give_up(self._future, error)


class ResultWaiters:
    """Everyone who waits for an end. An id may have had several instances (G3), so each names its number, too."""

    def __init__(self, store: OpenableStore, trouble: RepeatedTrouble) -> None:
        self._store = store
        self._trouble = trouble
        self._waiting: dict[InstanceId, list[ResultWaiter]] = {}
        self._looking = BackgroundTask(Duty.ENDS, self._look_for_ends)
        self._wake = asyncio.Event()

    def ended(self, instance_id: InstanceId, number: InstanceNumber, close: InstanceEnd | None = None) -> None:
        """An instance came to its end, or was parked. In this process one knows how, and nobody needs to look."""
        for waiting in self._waiting.get(instance_id, ()):
            if waiting.number == number or (waiting.number is None and close is not None):
                waiting.set_result(number, close)

    def poll(self) -> None:
        """Another process has written something."""
        self._wake.set()

    async def wait(self, instance_id: InstanceId, number: InstanceNumber) -> InstanceEnd | None:
        """Return when the instance may have ended: how, if one knows. Else the caller looks, and waits again if not."""
        waiting = self.expect(instance_id, number)
        try:
            return await waiting.ended()
        finally:
            self.remove(instance_id, waiting)

    def expect(self, instance_id: InstanceId, number: InstanceNumber | None = None) -> ResultWaiter:
        """Wait from here on, also for an instance that is yet to be started, until it is forgotten."""
        waiting = ResultWaiter(number)
        self._waiting.setdefault(instance_id, []).append(waiting)
        self._looking.start()
        return waiting

    def remove(self, instance_id: InstanceId, waiting: ResultWaiter) -> None:
        """Nobody waits there any more."""
        others = self._waiting.get(instance_id, [])
        if waiting in others:
            others.remove(waiting)
            if not others:
                del self._waiting[instance_id]

    def stop(self, error: Exception | None = None) -> None:
        """Nobody will tell any more: who still waits gets the error, or is cancelled."""
        self._looking.stop()
        for everyone in self._waiting.values():
            for waiting in everyone:
                waiting.give_up(error)
        self._waiting.clear()

    async def _look_for_ends(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._wake.wait()
            self._wake.clear()  # before the look: what wakes us from here on is looked for in the next round
            try:
                await self._look()
            except StoreReplaced as error:
                self.stop(error)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, whoever waits goes on waiting
                self._trouble.log("looking for the ends of instances failed, and is tried again", error)
            await asyncio.sleep(POLL_PAUSE_SECONDS)

    async def _look(self) -> None:
        await self._store.check_files()
        wanted = {
            (instance_id, waiting.number) for instance_id, everyone in self._waiting.items() for waiting in everyone
        }
        for instance_id, number in wanted:
            if number is not None:
                record = await self._store.read_instance(number)
                if record is None or record.closed_at_ms is not None or record.blocked is not None:
                    self.ended(instance_id, number)
