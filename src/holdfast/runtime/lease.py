"""Keeps the worker's lease from a thread of its own, so that a blocking activity does not kill the worker (W1, W7).

The thread sends one heartbeat at a time. It also knows when the worker must stop by itself: `may_act` is asked before
every commit, and says no as soon as the lease, counted from the sending of the last accepted heartbeat, has run out.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from holdfast.background import BackgroundThread, Duty
from holdfast.core.liveness import (
    ClientAction,
    LeaseClient,
    Reply,
    TokenMismatch,
    WorkerKey,
    lose_reply,
    may_act,
    receive,
    send,
)
from holdfast.errors import StoreReplaced
from holdfast.runtime.providers import Providers
from holdfast.runtime.telling import RepeatedTrouble
from holdfast.storage.contract import Registration, ReplyLost, Store

logger = logging.getLogger("holdfast")
BEATS_PER_LEASE: Final = 4
MILLISECONDS: Final = 1000
LEAVING_SECONDS: Final = 1.0
"""How long a start that is cancelled waits for a heartbeat on its way."""


class LeaseKeeper:
    """One key, from its registration to its end."""

    def __init__(
        self,
        store: Store,
        providers: Providers,
        registration: Callable[[], Registration],
        *,
        lease_ms: int,
        lost: Callable[[], None],
    ) -> None:
        self.key = WorkerKey(providers.unique_text())
        self._store = store
        self._providers = providers
        self._registration = registration
        self._client = LeaseClient(self.key, lease_ms)
        self._pause_seconds = lease_ms / BEATS_PER_LEASE / MILLISECONDS
        self._lost = lost
        self._trouble = RepeatedTrouble(providers.elapsed_ms)
        self._stop = threading.Event()
        self._registered: Callable[[], None] = lambda: None
        self._refusal: BaseException | None = None
        self._is_registered = False
        self._thread = BackgroundThread(Duty.LEASE, self._run, is_stopped=self._stop.is_set)

    async def start(self) -> None:
        """Register, and beat from then on. Raises what the store raises. The store may let us wait for long."""
        loop = asyncio.get_running_loop()
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

    def give_up(self) -> None:
        """Beat no more, without waiting for the thread."""
        self._stop.set()

    def may_act(self) -> bool:
        """W7: by our own clock, is the lease still running?"""
        return may_act(self._client, now_ms=self._providers.elapsed_ms())

    @property
    def fenced_at_ms(self) -> int:
        """W7: when the lease ends by our own clock unless it is renewed. It is never earlier at a later look."""
        return self._client.fenced_at_ms or 0

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
            self._client = lose_reply(self._client)
        while go_on and not self._stop.wait(self._pause_seconds):
            go_on = self._beat_and_survive()
        if not go_on:
            self._lost()

    def _register(self) -> bool:
        """The first beat. Where only its reply was lost, the next one says whether we are registered."""
        try:
            return self._beat()
        except ReplyLost:
            return self._beat()

    def _beat_and_survive(self) -> bool:
        try:
            return self._beat()
        except StoreReplaced:  # the store has logged it, and the worker halts
            return True
        except Exception as error:  # noqa: BLE001 - a beat without an answer is no reason to stop beating
            self._trouble.tell(f"a heartbeat of worker {self.key} had no answer, and is repeated", error)
            return True

    def _beat(self) -> bool:
        """One beat; another one at once where it told us no more than the token, whose reply had been lost (W9)."""
        reply, action = self._send()
        if isinstance(reply, TokenMismatch) and action is ClientAction.GO_ON:
            _, action = self._send()
        return action is ClientAction.GO_ON

    def _send(self) -> tuple[Reply, ClientAction]:
        self._client, beat = send(self._client, now_ms=self._providers.elapsed_ms())
        try:
            reply = self._store.heartbeat(beat, self._registration())
        except BaseException:
            self._client = lose_reply(self._client)
            raise
        self._client, action = receive(self._client, reply)
        return reply, action


def _tell(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
        loop.call_soon_threadsafe(event.set)
