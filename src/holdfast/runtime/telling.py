"""How the runtime reports trouble in the log.

A store that cannot be used is one line, an unforeseen error a traceback. A failed attempt is one WARNING, a failed or
blocked instance one ERROR; their records carry the attributes `holdfast_instance`, `holdfast_activity` and so on.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from holdfast.core.events import Payload
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import HoldfastError, StoreError, StoreReplaced
from holdfast.payloads.failures import Failure
from holdfast.storage.contract import AttemptRecord, Completion, InstanceEnd, InstanceId, OpenNextAttempt

logger = logging.getLogger("holdfast")

PERIOD_MS: Final = 60_000
QUIET_MS: Final = 5_000
"""An outage of the store is over when it has not failed for so long and writes."""
MILLISECONDS: Final = 1_000
LONGEST_MESSAGE: Final = 1_000
"""Characters of a failure's message that are logged."""


def tell_trouble(what: str, error: Exception) -> None:
    """Log what could not be done, and why. The loss of the store's files was logged by the store, once."""
    if not isinstance(error, StoreReplaced):
        logger.error("%s: %s", what, error, exc_info=None if isinstance(error, HoldfastError) else error)


class RepeatedTrouble:
    """Errors that repeat with every row and every retry, of one store in this process.

    The first error is logged at once, further ones once a minute with their number. All errors of the store share one
    line, whichever loop meets them; any other error has a line for each thing that failed. The end of an outage of
    the store is logged once. Called from any thread.
    """

    def __init__(self, now_ms: Callable[[], float] | None = None) -> None:
        self._now_ms = now_ms or _loop_ms
        self._lock = threading.Lock()
        self._series: dict[str, _Series] = {}
        """By what failed; errors of the store by the empty text."""

    def tell(self, what: str, error: Exception) -> None:
        """Log an error, or count it for the next line."""
        if isinstance(error, StoreReplaced):
            return
        now_ms = self._now_ms()
        with self._lock:
            series = self._series.setdefault("" if isinstance(error, StoreError) else what, _Series(now_ms))
            unlogged = series.add(now_ms)
        if unlogged:
            times = "" if unlogged == 1 else f" ({unlogged:,} errors since the last such line)"
            tell_trouble(f"{what}{times}", error)

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
        logger.info("the store can be used again: it failed %s times within %.1f s", f"{series.count:,}", seconds)


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
        unlogged, self._unlogged, self._logged_at_ms = self._unlogged, 0, now_ms
        return unlogged


_troubles: Final[WeakValueDictionary[str, RepeatedTrouble]] = WeakValueDictionary()
"""By the paths of stores."""


def trouble_of(path: Path, now_ms: Callable[[], float]) -> RepeatedTrouble:
    """The errors of a store, which all clients and workers of this process that use it share."""
    return _troubles.setdefault(str(path), RepeatedTrouble(now_ms))


def _loop_ms() -> float:
    return asyncio.get_running_loop().time() * MILLISECONDS


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
        },
    )


def log_failed_instance(instance_id: InstanceId, close: InstanceEnd | None, worker: str) -> None:
    """One line for an instance that failed, with the cause. How any other one ended is no trouble."""
    if close is not None and close.state is InstanceState.FAILED:
        extra = {"holdfast_instance": instance_id, "holdfast_worker": worker}
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
