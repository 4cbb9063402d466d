"""The platform of a simulation: clock, ids, leases, notifications and event loop, all driven by one seed.

Time jumps to the next timer instead of waiting. The seed decides the order of ready callbacks, and which notifications
are late or lost. Nothing starts a thread.
"""

import asyncio
import selectors
from collections.abc import Callable
from contextvars import Context
from pathlib import Path
from random import Random  # noqa: TID251 - made from the seed of the simulation
from typing import Any, Final, TypeVar, TypeVarTuple

from holdfast.core.leases import LeaseAction, LeaseState, WorkerKey, apply_reply, next_heartbeat
from holdfast.errors import HoldfastError
from holdfast.runtime.loop_watch import LoopRules
from holdfast.runtime.platform import ClockAndIds
from holdfast.runtime.signals import RepeatedTrouble
from holdfast.storage.contract import Store
from holdfast.storage.members.workers import Registration
from holdfast.storage.wakeups import NOTHING, Heard, Wakeup, Wakeups

Value = TypeVar("Value")

EPOCH_MS: Final = 1_700_000_000_000
BEATS_PER_LEASE: Final = 4
LOST_WAKE_UPS: Final = 0.2
SLOWEST_WAKE_UP_SECONDS: Final = 0.05


class SimulatedClockAndIds:
    """Random numbers and ids from one seed; the time is that of the event loop."""

    def __init__(self, random: Random, name: str) -> None:
        self._random = random
        self._name = name
        self._count = 0

    def now_ms(self) -> int:
        return EPOCH_MS + self.elapsed_ms()

    def elapsed_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    def elapsed_precise_ms(self) -> float:
        return 0.0

    def random_number(self) -> float:
        return self._random.random()

    def seed(self) -> int:
        return self._random.getrandbits(53)

    def commit_id(self) -> int:
        return self._random.getrandbits(39)

    def unique_text(self) -> str:
        self._count += 1
        return f"{self._name}-{self._count}"


class TaskLease:
    """Renews a lease from a task instead of a thread."""

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
        del loop_rules, released, trouble  # it runs on the loop, and stops with it
        self.key = WorkerKey(providers.unique_text())
        self._store = store
        self._providers = providers
        self._registration = registration
        self._client = LeaseState(self.key, lease_ms)
        self._pause = lease_ms / BEATS_PER_LEASE / 1000
        self._lost = lost
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._beat()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop_beating(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    @property
    def fenced_at_ms(self) -> int:
        return self._client.fenced_at_ms or 0

    def _beat(self) -> bool:
        self._client, beat = next_heartbeat(self._client, now_ms=self._providers.elapsed_ms())
        self._client, action = apply_reply(self._client, self._store.heartbeat(beat, self._registration()))
        return action is LeaseAction.GO_ON

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause)
            if not self._beat():
                self._lost()
                return


class SimulatedNotifications:
    """Delivers notifications between the processes of a simulation; some are late or lost."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._listeners: dict[str, Heard] = {}

    def notifier(self, path: Path, name: str, heard: Heard) -> "SimulatedNotifier":
        del path
        return SimulatedNotifier(self, name, heard)

    def listen(self, name: str, heard: Heard) -> None:
        self._listeners[name] = heard

    def leave(self, name: str) -> None:
        self._listeners.pop(name, None)

    def notify(self, sender: str, wakeups: Wakeups) -> None:
        loop = asyncio.get_running_loop()
        for name in list(self._listeners):
            wakeup = wakeups.to_all | wakeups.to_each.get(name, NOTHING)
            if wakeup and name != sender and self._random.random() >= LOST_WAKE_UPS:
                loop.call_later(self._random.random() * SLOWEST_WAKE_UP_SECONDS, self._heard, name, wakeup)

    def _heard(self, name: str, wakeup: Wakeup) -> None:
        heard = self._listeners.get(name)
        if heard is not None:
            heard(wakeup)


class SimulatedNotifier:
    """The notifier of one process."""

    def __init__(self, notifications: SimulatedNotifications, name: str, heard: Heard) -> None:
        self._notifications = notifications
        self._name = name
        self._heard = heard

    def open(self) -> None:
        self._notifications.listen(self._name, self._heard)

    def close(self) -> None:
        self._notifications.leave(self._name)

    def notify(self, wakeups: Wakeups) -> None:
        self._notifications.notify(self._name, wakeups)


Arguments = TypeVarTuple("Arguments")

OVERTAKING: Final = 0.25
"""The probability that a callback runs before others that were ready earlier."""


class SimulationStuck(HoldfastError):
    """All tasks wait and no timer is armed: the simulated system is in a deadlock."""


class _JumpingSelector(selectors.SelectSelector):
    """A selector without I/O: where a real one waits, the simulated time advances."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise SimulationStuck("all tasks wait, and no timer is armed")
        self.now += max(timeout, 0.0)
        return []


class SimulationLoop(asyncio.SelectorEventLoop):
    """The event loop of all workers and clients of a simulation."""

    def __init__(self, random: Random) -> None:
        self._jumping = _JumpingSelector()
        self._random = random
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def call_soon(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)
        ready: Any = vars(self)["_ready"]
        if len(ready) > 1 and self._random.random() < OVERTAKING:
            ready.pop()
            ready.insert(self._random.randrange(len(ready) + 1), handle)
        return handle
