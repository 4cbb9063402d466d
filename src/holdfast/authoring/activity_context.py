"""What the body of an activity may ask: which attempt it is, whether it should stop, and how to report progress."""

import asyncio
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, Protocol

from holdfast.errors import UsageError


class Cancelled(asyncio.CancelledError):
    """Raised by `hf.heartbeat()` in the body of an activity that should stop. ``except Exception`` does not catch it.

    The attempt was cancelled, is beyond a time-out, or belongs to another worker. Clean up, and let it through.
    """


class ActivityInfo(NamedTuple):
    """Which attempt of which activity this is. `details`: what the attempt before reported by its last heartbeat.
    `delivered`: how many values the attempts before delivered, if it yields. `is_cancelled`: whether the body should
    stop, as of this call: the attempt was cancelled, is beyond a time-out, or belongs to another worker by now."""

    instance_id: str
    workflow: str
    activity: str
    number: int
    attempt: int
    queue: str
    details: Any
    delivered: int = 0
    is_cancelled: bool = False
    execution: int = 1
    worker: str = ""


class AttemptIdentity(NamedTuple):
    """Which attempt of which instance this is, and which worker runs it: what its log records say."""

    instance_id: str
    workflow: str
    execution: int
    activity: str
    attempt: int
    worker: str | None


class ActivityContext(Protocol):
    """The running attempt, as its body sees it."""

    @property
    def identity(self) -> AttemptIdentity: ...
    @property
    def info(self) -> ActivityInfo: ...
    @property
    def idempotency_key(self) -> str: ...
    def heartbeat(self, details: Any) -> None: ...


current_activity: Final[ContextVar[ActivityContext | None]] = ContextVar("holdfast_activity", default=None)


def activity_info() -> ActivityInfo:
    """Which attempt this is."""
    return _context("hf.activity_info").info


def idempotency_key() -> str:
    """The same for every attempt of this activity, and for no other: hand it to whoever must not act twice."""
    return _context("hf.idempotency_key").idempotency_key


def heartbeat(details: Any = None) -> None:
    """Report that the body lives. `details` reach the next attempt if this one is lost.

    Raises `hf.Cancelled` if the body should stop. A coroutine gets `asyncio.CancelledError` at its `await` instead, and
    can send heartbeats while it cleans up.
    """
    _context("hf.heartbeat").heartbeat(details)


def _context(called: str) -> ActivityContext:
    context = current_activity.get()
    if context is None:
        raise UsageError(f"{called} works in the body of an activity only")
    return context
