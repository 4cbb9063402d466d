"""How the runtime reports trouble in the log.

A store that cannot be used is one line, an unforeseen error a traceback. A failed attempt is one WARNING, a failed or
blocked instance one ERROR; their records carry the attributes `holdfast_instance`, `holdfast_activity` and so on.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from holdfast.core.events import Payload
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import HoldfastError, StoreReplaced
from holdfast.payloads.failures import Failure
from holdfast.storage.contract import AttemptRecord, Close, Completion, InstanceId, Retry

logger = logging.getLogger("holdfast")

PERIOD_MS: Final = 60_000
MILLISECONDS: Final = 1_000
LONGEST_MESSAGE: Final = 1_000
"""Characters of a failure's message that are logged."""


def tell_trouble(what: str, error: Exception) -> None:
    """Log what could not be done, and why. The loss of the store's files was logged by the store, once."""
    if not isinstance(error, StoreReplaced):
        logger.error("%s: %s", what, error, exc_info=None if isinstance(error, HoldfastError) else error)


class RepeatedTrouble:
    """Trouble that comes with every row and every retry: the first is logged at once, the others once a minute.

    A thread without an event loop passes a clock in `now_ms`.
    """

    def __init__(self, now_ms: Callable[[], float] | None = None) -> None:
        self._now_ms = now_ms or _loop_ms
        self._logged_at_ms: float | None = None
        self._count = 0

    def tell(self, what: str, error: Exception) -> None:
        """Log it, or count it for the next line."""
        now_ms = self._now_ms()
        self._count += 1
        if self._logged_at_ms is not None and now_ms - self._logged_at_ms < PERIOD_MS:
            return
        times = "" if self._logged_at_ms is None else f" ({self._count:,} times since the last such line)"
        self._logged_at_ms = now_ms
        self._count = 0
        tell_trouble(f"{what}{times}", error)


def _loop_ms() -> float:
    return asyncio.get_running_loop().time() * MILLISECONDS


def log_failed_attempt(attempt: AttemptRecord, failure: Failure, ended: Completion | Retry, *, now_ms: int) -> None:
    """One line for an attempt that failed or timed out, with the time of the next one."""
    if isinstance(ended, Retry):
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


def log_failed_instance(instance_id: InstanceId, close: Close | None, worker: str) -> None:
    """One line for an instance that failed, with the cause. How any other one ended is no trouble."""
    if close is not None and close.state is InstanceState.FAILED:
        extra = {"holdfast_instance": instance_id, "holdfast_worker": worker}
        logger.error("instance %s failed: %s", instance_id, _cause_of(close), extra=extra)


def _cause_of(close: Close) -> str:
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
