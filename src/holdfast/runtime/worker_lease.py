"""The lease that a worker acts under (W1, W5, W7).

`WorkerLease` holds one key after the other. It registers a key, fences the worker by its own clock when the lease has
run out, and replaces a lost key.

`LeaseThread` renews the lease of one key from a thread of its own, so that a blocked event loop does not lose it. A
lease whose event loop does not run would keep the worker's instances from every other worker. So the thread also
watches the loop (`loop_watch`), releases the instances of a loop that is blocked, and ends the lease of one that is
closed or blocked for very long. It does so on the store's connection for heartbeats, because no other part of the
worker can act then.
"""

import asyncio
import logging
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from holdfast.background import BackgroundTask, BackgroundThread, Duty
from holdfast.core.deadlines import MILLISECONDS
from holdfast.core.leases import (
    HeartbeatReply,
    LeaseAction,
    LeaseState,
    TokenMismatch,
    WorkerKey,
    apply_reply,
    next_heartbeat,
    note_lost_reply,
)
from holdfast.errors import StoreReplaced
from holdfast.runtime.loop_watch import LoopRules, LoopState, LoopWatch
from holdfast.runtime.platform import ClockAndIds, LeaseLike
from holdfast.runtime.session import StoreSession
from holdfast.runtime.signals import RepeatedTrouble
from holdfast.storage.contract import Store
from holdfast.storage.members.outcomes import Applied
from holdfast.storage.members.workers import MarkWorkerLost, Registration, ReplyLost
from holdfast.storage.records import CommitId, InstanceNumber

logger = logging.getLogger("holdfast")
BEATS_PER_LEASE: Final = 4
REGISTER_AGAIN_SECONDS: Final = 1.0
"""The pause after a registration that the store refused."""
JOIN_SECONDS: Final = 1.0
"""How long a cancelled start waits for the heartbeat that its thread is sending."""
POLL_SECONDS: Final = 0.5
"""The longest interval between two checks of the event loop."""
BATCH: Final = 200
"""Rows that one commit moves, so that no other worker waits long for it."""


class LeaseEvents(Protocol):
    """The owner of the parts that act under a lease. All calls come from the event loop."""

    def lease_lost(self) -> None:
        """W5, W7: the key is no longer valid. Nothing that was begun under it may continue."""
        ...

    async def lease_replaced(self, old: WorkerKey) -> None:
        """A new key is registered. Other workers may take over what the old one owns. Called again after an error."""
        ...

    def instances_released(self) -> None:
        """W1: the event loop was blocked, and the lease thread released the instances. The key stays valid."""
        ...


class WorkerLease:
    """The lease of one worker. Implements the protocol `LeaseGate` of the committer."""

    def __init__(
        self,
        session: StoreSession,
        registration: Callable[[], Registration],
        *,
        lease_ms: int,
        events: LeaseEvents,
    ) -> None:
        self._session = session
        self._registration = registration
        self._lease_ms = lease_ms
        self._events = events
        self._elapsed_ms = session.platform.providers.elapsed_ms
        self._loop_rules: LoopRules | None = None
        self._holder: LeaseLike | None = None
        self._lost: LeaseLike | None = None
        self._is_final = False
        self._replacing = BackgroundTask(Duty.NEW_KEY, self._replace_key)
        self.key = WorkerKey("")
        """The key under which the worker acts now; the last one after `close`."""

    @property
    def is_registered(self) -> bool:
        """Whether a key was registered and `close` was not called."""
        return self._holder is not None

    @property
    def is_valid(self) -> bool:
        """Whether the worker has a key that is not known to be lost."""
        return self._holder is not None and self._holder is not self._lost

    @property
    def is_beating(self) -> bool:
        """Whether the thread of the heartbeats runs. Any thread may call it."""
        return self._holder is not None and bool(getattr(self._holder, "is_alive", True))

    @property
    def fenced_at_ms(self) -> float:
        """W7: when the lease ends by this process's own clock. Without a key there is no lease to lose."""
        return math.inf if self._holder is None else self._holder.fenced_at_ms

    def remaining_ms(self, key: WorkerKey | None) -> int:
        """W7: how long the lease of `key` lasts without a renewal; 0 or less if it is over. Any thread may call it."""
        holder = self._holder
        if holder is None or holder is self._lost or holder.key != key:
            return 0
        return holder.fenced_at_ms - self._elapsed_ms()

    async def register(self, loop_rules: LoopRules) -> None:
        """Register the first key. Raises the error of the store."""
        self._loop_rules = loop_rules
        await self._register()

    def check(self) -> None:
        """Compare the lease with the clock: an idle worker commits nothing that would be fenced."""
        if self._elapsed_ms() >= self.fenced_at_ms:
            self.expired()

    def expired(self) -> None:
        """The lease has run out by this process's own clock."""
        if self._holder is not None:
            asyncio.get_running_loop().call_soon(self._on_lost, self._holder)

    def stop_replacing(self) -> None:
        """Take no other key when this one is lost."""
        self._is_final = True

    async def settle(self) -> None:
        """Cancel the registration of another key; wait for the replacement of one that is registered already."""
        if self._holder is self._lost:
            self._replacing.stop()
        await self._replacing.wait()

    def halt(self) -> None:
        """Send no more heartbeats and take no other key. `close` follows."""
        self._is_final = True
        self._replacing.stop()
        if self._holder is not None:
            self._holder.stop_beating()

    async def close(self) -> None:
        """Send no more heartbeats, and wait for the thread. The key stays registered until it is marked as lost."""
        self._replacing.stop()
        await self._replacing.wait()
        if self._holder is not None:
            await self._holder.stop()
            self._holder = None

    async def _register(self) -> None:
        session = self._session
        loop = asyncio.get_running_loop()
        make_lease = session.platform.make_lease or LeaseThread
        holder: LeaseLike = make_lease(
            session.store,
            session.platform.providers,
            self._registration,
            lease_ms=self._lease_ms,
            lost=lambda: _post(loop, self._on_lost, holder),
            released=lambda: _post(loop, self._on_released, holder),
            loop_rules=self._loop_rules,
            trouble=session.trouble,
        )
        await holder.start()
        self._holder = holder
        self.key = holder.key

    def _on_lost(self, holder: LeaseLike) -> None:
        """The store refused a heartbeat, or the lease has run out by our own clock."""
        if holder is not self._holder or holder is self._lost:
            return
        self._lost = holder
        if self._is_final:
            self._events.lease_lost()
            return
        logger.warning(
            "worker %s lost its lease; its work was released for other workers, and it takes a new key", self.key
        )
        self._events.lease_lost()
        holder.stop_beating()
        self._replacing.start()

    def _on_released(self, holder: LeaseLike) -> None:
        if holder is self._holder and holder is not self._lost:
            self._events.instances_released()

    async def _replace_key(self) -> None:
        """Register until the store accepts a key, then report the old one. The new one may be lost meanwhile, too."""
        while (lost := self._lost) is not None:
            while self._holder is lost:
                try:
                    await self._register()
                except Exception as error:  # noqa: BLE001 - whatever it is, a worker without a key has to try again
                    self._session.trouble.log("a worker could not take a new key and tries again", error)
                    await asyncio.sleep(REGISTER_AGAIN_SECONDS)
            await self._events.lease_replaced(lost.key)
            if self._lost is lost or self._is_final:
                return


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
        released: Callable[[], None],
        trouble: RepeatedTrouble,
        loop_rules: LoopRules | None = None,
    ) -> None:
        self.key = WorkerKey(providers.unique_text())
        self._store = store
        self._providers = providers
        self._registration = registration
        self._client = LeaseState(self.key, lease_ms)
        pause_seconds = lease_ms / BEATS_PER_LEASE / MILLISECONDS
        self._polls_per_beat = max(1, math.ceil(pause_seconds / POLL_SECONDS))
        self._poll_seconds = pause_seconds / self._polls_per_beat
        self._loop_rules = loop_rules
        self._watch: LoopWatch | None = None
        self._is_over = False
        self._has_released = False
        self._lost = lost
        self._released = released
        self._trouble = trouble
        self._stop = threading.Event()
        self._registered: Callable[[], None] = lambda: None
        self._refusal: BaseException | None = None
        self._is_registered = False
        self._thread = BackgroundThread(Duty.LEASE, self._run, is_stopped=self._stop.is_set)

    async def start(self) -> None:
        """Register, and send heartbeats from then on. Raises the error of the store, which may take long to reply."""
        loop = asyncio.get_running_loop()
        if self._loop_rules is not None:
            self._watch = LoopWatch(loop, self._loop_rules, self.key)
        registered = asyncio.Event()
        self._registered = lambda: _set(loop, registered)
        self._thread.start()
        try:
            await registered.wait()
        except asyncio.CancelledError:
            self._stop.set()
            await asyncio.to_thread(self._thread.join, JOIN_SECONDS)  # the caller closes the store that it uses
            raise
        if self._refusal is not None:
            raise self._refusal

    async def stop(self) -> None:
        """Send no more heartbeats, and wait for the thread."""
        self._stop.set()
        await asyncio.to_thread(self._thread.join)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive

    def stop_beating(self) -> None:
        """Send no more heartbeats, without waiting for the thread."""
        self._stop.set()

    @property
    def fenced_at_ms(self) -> int:
        """W7: when the lease ends by this process's own clock unless it is renewed; 0 once it has ended early (W1)."""
        return 0 if self._is_over else self._client.fenced_at_ms or 0

    def _run(self) -> None:
        continues = True
        if not self._is_registered:
            try:
                continues = self._register()
            except BaseException as error:  # noqa: BLE001 - raised by `start`
                self._refusal = error
                return
            finally:
                self._is_registered = True
                self._registered()
        elif self._client.in_flight is not None:  # this thread failed in a heartbeat and was restarted
            self._client = note_lost_reply(self._client)
        polls = 0
        while continues and not self._stop.wait(self._poll_seconds):
            polls += 1
            is_beat = polls % self._polls_per_beat == 0
            continues = self._check_loop(is_beat=is_beat) and (not is_beat or self._beat_safely())
        if not continues:
            self._lost()

    # ------------------------------------------------------------ the event loop

    def _check_loop(self, *, is_beat: bool) -> bool:
        """W1: check the event loop. Returns whether the lease continues."""
        watch = self._watch
        state = LoopState.RUNS if watch is None else watch.poll(self._poll_seconds * MILLISECONDS)
        if watch is None or state is LoopState.RUNS:
            self._has_released = False
            return True
        if state is LoopState.BLOCKED:
            if is_beat or not self._has_released:  # the next beat finds instances claimed just before
                self._release_instances(watch)
            return True
        self._end_lease(watch, state)
        return False

    def _release_instances(self, watch: LoopWatch) -> None:
        is_first = not self._has_released
        self._has_released = True
        moved = self._move(watch, instances_only=True)
        if is_first:
            logger.warning(
                "the event loop of worker %s has not run for %.1f s, blocked in %s; its %d instances are released "
                "for other workers, and its activities stay",
                self.key,
                watch.silent_seconds,
                watch.where(),
                moved,
                extra={"holdfast_worker": self.key},
            )
        if moved:
            self._released()

    def _end_lease(self, watch: LoopWatch, state: LoopState) -> None:
        self._is_over = True
        if state is LoopState.CLOSED:
            why = "its event loop was closed while it ran. Close it first: async with hf.Engine(...)"
        else:
            why = f"its event loop has not run for {watch.silent_seconds:.0f} s, blocked in {watch.where()}"
        self._move(watch, instances_only=False)
        logger.error("the lease of worker %s ends: %s", self.key, why, extra={"holdfast_worker": self.key})

    def _move(self, watch: LoopWatch, *, instances_only: bool) -> int:
        """W6, in batches. If the store fails, the next poll repeats it, or the lease runs out by itself."""
        moved, culprit = 0, watch.rules.culprit()
        try:
            while changed := self._move_batch(culprit, instances_only=instances_only):
                moved += changed
                culprit = InstanceNumber(0)  # counted once
        except Exception as error:  # noqa: BLE001 - whatever the store raises
            self._trouble.log("the rows of a worker could not be released for other workers", error)
        return moved

    def _move_batch(self, culprit: InstanceNumber, *, instances_only: bool) -> int:
        member = MarkWorkerLost(
            key=self.key,
            at_deadline=False,
            limit=BATCH,
            culprit=culprit or None,
            instances_only=instances_only,
        )
        [outcome] = self._store.commit_apart(CommitId(self._providers.commit_id()), [member])
        return outcome.changed if isinstance(outcome, Applied) else 0

    # ------------------------------------------------------------ heartbeats

    def _register(self) -> bool:
        """The first beat. If only its reply was lost, the next one shows whether the key is registered."""
        try:
            return self._beat()
        except ReplyLost:
            return self._beat()

    def _beat_safely(self) -> bool:
        try:
            continues = self._beat()
        except StoreReplaced:  # the store has logged it, and the worker halts
            return True
        except Exception as error:  # noqa: BLE001 - a beat without an answer is no reason to stop beating
            self._trouble.log("a heartbeat had no answer, and is repeated", error)
            return True
        self._trouble.succeeded()
        return continues

    def _beat(self) -> bool:
        """One beat; another one at once if the first only returned the token of a beat whose reply was lost (W9)."""
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


def _post(loop: asyncio.AbstractEventLoop, call: Callable[[LeaseLike], None], holder: LeaseLike) -> None:
    """Call a function on the event loop, from the lease thread. A closed loop needs no call."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, holder)


def _set(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed, and no task waits for the event
        loop.call_soon_threadsafe(event.set)
