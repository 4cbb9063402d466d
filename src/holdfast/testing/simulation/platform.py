"""Clocks, ids, leases and wake-ups of a simulated world, and a store that delivers things twice and loses replies.

An event loop whose time jumps to the next timer instead of waiting, and whose order a seed chooses.
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

Value = TypeVar("Value")

EPOCH_MS: Final = 1_700_000_000_000
BEATS_PER_LEASE: Final = 4
LOST_WAKE_UPS: Final = 0.2
SLOWEST_WAKE_UP_SECONDS: Final = 0.05


class SimulatedClockAndIds:
    """Everything random grows from one seed; time is the loop's."""

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
    """Keeps a lease from a task of the simulation instead of a thread."""

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
    """Carries wake-ups between the processes of a simulation: late, and not always."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._listeners: dict[str, Callable[[], None]] = {}

    def bell(self, path: Path, name: str, heard: Callable[[], None]) -> "SimulatedNotifier":
        del path
        return SimulatedNotifier(self, name, heard)

    def listen(self, name: str, heard: Callable[[], None]) -> None:
        self._listeners[name] = heard

    def leave(self, name: str) -> None:
        self._listeners.pop(name, None)

    def ring(self, sender: str) -> None:
        loop = asyncio.get_running_loop()
        for name in list(self._listeners):
            if name != sender and self._random.random() >= LOST_WAKE_UPS:
                loop.call_later(self._random.random() * SLOWEST_WAKE_UP_SECONDS, self._heard, name)

    def _heard(self, name: str) -> None:
        heard = self._listeners.get(name)
        if heard is not None:
            heard()


class SimulatedNotifier:
    """One process's end of the bus."""

    def __init__(self, bus: SimulatedNotifications, name: str, heard: Callable[[], None]) -> None:
        self._bus = bus
        self._name = name
        self._heard = heard

    def open(self) -> None:
        self._bus.listen(self._name, self._heard)

    def close(self) -> None:
        self._bus.leave(self._name)

    def notify(self) -> None:
        self._bus.ring(self._name)


Arguments = TypeVarTuple("Arguments")

OVERTAKING: Final = 0.25
"""How often a callback that becomes ready overtakes others that were ready before it."""


class SimulationStuck(HoldfastError):
    """Everybody waits and nothing is going to happen: the promise that everything finishes is broken."""


class _JumpingSelector(selectors.SelectSelector):
    """Nothing comes from outside; where a real selector would wait, time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise SimulationStuck("everybody waits for somebody else")
        self.now += max(timeout, 0.0)
        return []


class SimulationLoop(asyncio.SelectorEventLoop):
    """Runs everything of a simulation on one thread."""

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
