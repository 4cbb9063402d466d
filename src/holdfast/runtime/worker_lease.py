"""Keeps the worker's lease from a thread of its own, so that a blocking activity does not kill the worker (W1, W7).

The thread sends one heartbeat at a time. It also knows when the worker must stop by itself: `may_act` is asked before
every commit, and says no as soon as the lease, counted from the sending of the last accepted heartbeat, has run out.

A lease without an event loop that runs would keep the worker's instances from everyone. So the thread watches the loop
(`loop_watch`), releases the instances of a loop that is blocked, and ends the lease of one that is closed, or blocked
for very long. It does so on the store's connection for heartbeats, because nothing else of the worker can act.
"""

import asyncio
import logging
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from holdfast.background import BackgroundThread, Duty
from holdfast.core.leases import (
    HeartbeatReply,
    LeaseAction,
    LeaseState,
    TokenMismatch,
    WorkerKey,
    apply_reply,
    may_act,
    next_heartbeat,
    note_lost_reply,
)
from holdfast.errors import StoreReplaced
from holdfast.runtime.loop_watch import LoopRules, LoopState, LoopWatch
from holdfast.runtime.platform import ClockAndIds
from holdfast.runtime.signals import RepeatedTrouble
from holdfast.storage.contract import Store
from holdfast.storage.members.outcomes import Applied
from holdfast.storage.members.workers import MarkWorkerLost, Registration, ReplyLost
from holdfast.storage.records import CommitId, InstanceNumber

logger = logging.getLogger("holdfast")
BEATS_PER_LEASE: Final = 4
MILLISECONDS: Final = 1000
LEAVING_SECONDS: Final = 1.0
"""How long a start that is cancelled waits for a heartbeat on its way."""
POLL_SECONDS: Final = 0.5
"""How often the thread looks at the event loop, at least."""
BATCH: Final = 200
"""What is moved in one commit, so that no other worker waits long for it."""


class LeaseThread:
    """One key, from its registration to its end."""

    def __init__(
        self,
        store: Store,
        providers: ClockAndIds,
        registration: Callable[[], Registration],
        *,
        lease_ms: int,
        lost: Callable[[], None],
        trouble: RepeatedTrouble,
        loop_rules: LoopRules | None = None,
    ) -> None:
        self.key = WorkerKey(providers.unique_text())
        self._store = store
        self._providers = providers
        self._registration = registration
        self._client = LeaseState(self.key, lease_ms)
        pause_seconds = lease_ms / BEATS_PER_LEASE / MILLISECONDS
        self._looks_per_beat = max(1, math.ceil(pause_seconds / POLL_SECONDS))
        self._look_seconds = pause_seconds / self._looks_per_beat
        self._loop_rules = loop_rules
        self._watch: LoopWatch | None = None
        self._is_over = False
        self._has_released = False
        self._lost = lost
        self._trouble = trouble
        self._stop = threading.Event()
        self._registered: Callable[[], None] = lambda: None
        self._refusal: BaseException | None = None
        self._is_registered = False
        self._thread = BackgroundThread(Duty.LEASE, self._run, is_stopped=self._stop.is_set)

    async def start(self) -> None:
        """Register, and beat from then on. Raises what the store raises. The store may let us wait for long."""
        loop = asyncio.get_running_loop()
        if self._loop_rules is not None:
            self._watch = LoopWatch(loop, self._loop_rules, self.key)
        registered = asyncio.Event()
        self._registered = lambda: _tell(loop, registered)
        self._thread.start()
        try:
            await registered.wait()
        except asyncio.CancelledError:
            self._stop.set()
            await asyncio.to_thread(self._thread.join, LEAVING_SECONDS)  # the caller closes the store that it uses
            raise
        if self._refusal is not None:
            raise self._refusal

    async def stop(self) -> None:
        """Beat no more. The key stays registered until it is given up or its lease ends."""
        self._stop.set()
        await asyncio.to_thread(self._thread.join)

    def stop_beating(self) -> None:
        """Beat no more, without waiting for the thread."""
        self._stop.set()

    def may_act(self) -> bool:
        """W7: by our own clock, is the lease still running?"""
        return not self._is_over and may_act(self._client, now_ms=self._providers.elapsed_ms())

    @property
    def fenced_at_ms(self) -> int:
        """W7: when the lease ends by our own clock unless it is renewed. Only a lease that was given up (W1) has an
        earlier end at a later look.
        """
        return 0 if self._is_over else self._client.fenced_at_ms or 0

    def _run(self) -> None:
        go_on = True
        if not self._is_registered:
            try:
                go_on = self._register()
            except BaseException as error:  # noqa: BLE001 - raised by `start`
                self._refusal = error
                return
            finally:
                self._is_registered = True
                self._registered()
        elif self._client.in_flight is not None:  # this thread failed in a heartbeat and was started again
            self._client = note_lost_reply(self._client)
        looks = 0
        while go_on and not self._stop.wait(self._look_seconds):
            looks += 1
            is_beat = looks % self._looks_per_beat == 0
            go_on = self._look_at_loop(is_beat=is_beat) and (not is_beat or self._beat_and_survive())
        if not go_on:
            self._lost()

    # ------------------------------------------------------------ the event loop

    def _look_at_loop(self, *, is_beat: bool) -> bool:
        """W1: whether the lease goes on."""
        watch = self._watch
        state = LoopState.RUNS if watch is None else watch.look(self._look_seconds * MILLISECONDS)
        if watch is None or state is LoopState.RUNS:
            self._has_released = False
            return True
        if state is LoopState.BLOCKED:
            if is_beat or not self._has_released:  # what it had claimed just before is found with the next beat
                self._release_instances(watch)
            return True
        self._end_lease(watch, state)
        return False

    def _release_instances(self, watch: LoopWatch) -> None:
        is_first = not self._has_released
        self._has_released = True
        moved = self._lose(watch, instances_only=True)
        if is_first:
            logger.warning(
                "the event loop of worker %s has not run for %.1f s, blocked in %s; its %d instances move on to other "
                "workers, and its activities stay",
                self.key,
                watch.silent_seconds,
                watch.where(),
                moved,
                extra={"holdfast_worker": self.key},
            )
        if moved:
            watch.rules.released()

    def _end_lease(self, watch: LoopWatch, state: LoopState) -> None:
        self._is_over = True
        if state is LoopState.CLOSED:
            why = "its event loop was closed while it ran. Close it first: async with hf.Engine(...)"
        else:
            why = f"its event loop has not run for {watch.silent_seconds:.0f} s, blocked in {watch.where()}"
        self._lose(watch, instances_only=False)
        logger.error("the lease of worker %s ends: %s", self.key, why, extra={"holdfast_worker": self.key})

    def _lose(self, watch: LoopWatch, *, instances_only: bool) -> int:
        """W6, in batches. When the store fails, the next look does it, or the lease runs out by itself."""
        moved, culprit = 0, watch.rules.culprit()
        try:
            while changed := self._lose_batch(culprit, instances_only=instances_only):
                moved += changed
                culprit = InstanceNumber(0)  # it is counted once
        except Exception as error:  # noqa: BLE001 - whatever the store raises
            self._trouble.log("what a worker has could not be moved on", error)
        return moved

    def _lose_batch(self, culprit: InstanceNumber, *, instances_only: bool) -> int:
        lose = MarkWorkerLost(
            key=self.key,
            at_deadline=False,
            limit=BATCH,
            culprit=culprit or None,
            instances_only=instances_only,
        )
        [outcome] = self._store.commit_apart(CommitId(self._providers.commit_id()), [lose])
        return outcome.changed if isinstance(outcome, Applied) else 0

    # ------------------------------------------------------------ heartbeats

    def _register(self) -> bool:
        """The first beat. Where only its reply was lost, the next one says whether we are registered."""
        try:
            return self._beat()
        except ReplyLost:
            return self._beat()

    def _beat_and_survive(self) -> bool:
        try:
            go_on = self._beat()
        except StoreReplaced:  # the store has logged it, and the worker halts
            return True
        except Exception as error:  # noqa: BLE001 - a beat without an answer is no reason to stop beating
            self._trouble.log("a heartbeat had no answer, and is repeated", error)
            return True
        self._trouble.succeeded()
        return go_on

    def _beat(self) -> bool:
        """One beat; another one at once where it told us no more than the token, whose reply had been lost (W9)."""
        reply, action = self._send()
        if isinstance(reply, TokenMismatch) and action is LeaseAction.GO_ON:
            _, action = self._send()
        return action is LeaseAction.GO_ON

    def _send(self) -> tuple[HeartbeatReply, LeaseAction]:
        self._client, beat = next_heartbeat(self._client, now_ms=self._providers.elapsed_ms())
        try:
            reply = self._store.heartbeat(beat, self._registration())
        except BaseException:
            self._client = note_lost_reply(self._client)
            raise
        self._client, action = apply_reply(self._client, reply)
        return reply, action


def _tell(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
        loop.call_soon_threadsafe(event.set)
