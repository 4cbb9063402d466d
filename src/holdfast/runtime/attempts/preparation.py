"""Prepares attempts, and commits them as RUNNING before their bodies begin (L2, L3).

An attempt of an activity with `prepare=` is PREPARING while that function runs here. It fails, expires and is cancelled
in that state, and is released if its worker is lost or drains. The body begins only after PREPARING -> RUNNING is on
disk, so that the digits of an attempt whose worker was lost state whether its body may have begun.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from holdfast.core.activity_options import decode_options
from holdfast.core.lifecycle import AttemptState
from holdfast.runtime.attempts.executors import end_of
from holdfast.runtime.attempts.running_attempt import RunningAttempt, StopReason
from holdfast.runtime.committer import Committer
from holdfast.storage.members.attempts import RunPrepared
from holdfast.storage.members.outcomes import Applied, Outcome, Rejected
from holdfast.storage.members.workers import ReleaseUnknown
from holdfast.storage.records import AttemptKey, OwnedAttempt


class PreparingThreads(Protocol):
    """Threads for functions that block; implemented by the runner."""

    def in_thread(self, running: RunningAttempt, work: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Start `work` in a thread of this attempt."""
        ...

    async def from_thread(self, running: RunningAttempt, answer: Awaitable[Any]) -> Any:
        """The result of that thread."""
        ...


def is_preparing(running: RunningAttempt) -> bool:
    """Whether the store has the attempt as PREPARING, as far as it is known here."""
    return running.attempt.state is AttemptState.PREPARING


def prepares_in_thread(running: RunningAttempt) -> bool:
    """Whether its preparation runs in a thread, which cannot be cancelled."""
    prepare = running.activity.prepare
    return prepare is not None and not inspect.iscoroutinefunction(prepare)


class Preparer:
    """Prepares the attempts of one worker."""

    def __init__(self, committer: Committer, now_ms: Callable[[], int], threads: PreparingThreads) -> None:
        self._committer = committer
        self._now_ms = now_ms
        self._threads = threads
        self._entering: set[AttemptKey] = set()
        """Attempts whose RUNNING state is being committed."""

    async def prepare(self, running: RunningAttempt) -> None:
        """Run the function of `prepare=`, and commit the attempt as RUNNING.

        An attempt that was scheduled before the activity had `prepare=` is RUNNING already, and one that was scheduled
        while it had is PREPARING though there is nothing to do.
        """
        prepare = running.activity.prepare
        if prepare is not None:
            running.prepared = await self._call(running, prepare)
        running.begin()
        if is_preparing(running):
            await self._enter_running(running)

    async def _call(self, running: RunningAttempt, prepare: Callable[..., Any]) -> Any:
        args, kwargs = running.activity.signature.decode_arguments(running.attempt.input)
        if not prepares_in_thread(running):
            running.begin()
            return await prepare(*args, **kwargs)

        def call() -> Any:
            running.begin()
            return prepare(*args, **kwargs)

        thread = self._threads.in_thread(running, call)
        value = await self._threads.from_thread(running, end_of(thread))
        running.thread = None  # the body may run elsewhere
        return value

    async def _enter_running(self, running: RunningAttempt) -> None:
        """Commit PREPARING -> RUNNING. The outcome is awaited also if the attempt is asked to stop meanwhile: its end
        is recorded from the state that the store has. A worker that gives the attempt up needs no outcome.
        """
        decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        now_ms = self._now_ms()
        attempt = running.attempt
        expires_at_ms = decode_options(attempt.options).expires_at_running_ms(
            scheduled_at_ms=attempt.scheduled_at_ms, started_at_ms=now_ms, heard_at_ms=now_ms
        )

        def done(outcome: Outcome) -> None:
            self._entering.discard(attempt.key)
            match outcome:
                case Applied():
                    running.enter_running(now_ms, expires_at_ms)
                case Rejected():  # cancelled, expired or released meanwhile
                    running.stop_reason = running.stop_reason or StopReason.NOT_HELD
                case _:  # unknown: the reconciler compares (W3)
                    running.stop_reason = StopReason.GIVEN_UP
            if not decided.done():
                decided.set_result(None)

        if attempt.owner is not None:
            member = RunPrepared(
                owner=attempt.owner, key=attempt.key, from_ledger=attempt.ledger, expires_at_ms=expires_at_ms
            )
            self._entering.add(attempt.key)
            self._committer.commit_eventually(member, done)
        while not decided.done():
            try:
                await asyncio.shield(decided)
            except asyncio.CancelledError:
                if running.stop_reason is StopReason.GIVEN_UP:
                    raise
        if running.stop_reason is not None:
            raise running.cancelled()

    def may_be_released(self, running: RunningAttempt) -> bool:
        """W10: whether a worker that drains releases the attempt instead of running its body."""
        return is_preparing(running) and running.attempt.key not in self._entering

    def release(self, running: RunningAttempt) -> None:
        """W10: make the attempt READY for other workers. Its next entry is a rerun (L7)."""
        attempt = running.attempt
        if attempt.owner is not None:
            owned = OwnedAttempt(key=attempt.key, state=attempt.state, ledger=attempt.ledger)
            self._committer.commit_eventually(ReleaseUnknown(owner=attempt.owner, attempts=(owned,)))
