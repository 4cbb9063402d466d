"""The platform of a client or worker: clocks, randomness, ids, fault points, the lease and the notifier.

This is the only module that reads clocks and makes random numbers; all other modules take them as parameters. A
simulation passes its own `ClockAndIds`, so that the same seed gives the same run, and replaces the lease thread and the
notifications between processes.

Fault points are before and after every commit. In production a point costs one attribute look-up. A test sets a
function that kills the process or raises at that point.
"""

import random
import secrets
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

import msgspec

from holdfast.core.deadlines import MILLISECONDS
from holdfast.core.leases import WorkerKey
from holdfast.runtime.loop_watch import LoopRules
from holdfast.runtime.signals import RepeatedTrouble
from holdfast.runtime.watchdog import TURN_LIMIT_MS
from holdfast.storage.contract import Notifier, OpenableStore, Store
from holdfast.storage.members.member import Member
from holdfast.storage.members.workers import Registration
from holdfast.storage.wakeups import Heard

NANOSECONDS_IN_MS: Final = 1_000_000
COMMIT_ID_BITS: Final = 62
SEED_BITS: Final = 53
"""So many bits stay exact in JSON and JavaScript."""


class ClockAndIds(Protocol):
    """The clocks, random numbers and ids of one process."""

    def now_ms(self) -> int:
        """The wall clock."""
        ...

    def elapsed_ms(self) -> int:
        """A monotonic clock that includes the time in which the machine sleeps (W7)."""
        ...

    def elapsed_precise_ms(self) -> float:
        """A monotonic clock with fractions, for measuring."""
        ...

    def random_number(self) -> float:
        """In [0, 1)."""
        ...

    def seed(self) -> int:
        """The seed of all randomness in one execution."""
        ...

    def commit_id(self) -> int:
        """A unique number of a commit."""
        ...

    def unique_text(self) -> str:
        """A unique string, for worker keys and instance ids."""
        ...


precise_seconds: Final = time.perf_counter
"""A clock for the durations of metrics, which no decision depends on. It is called twice for each turn."""


wall_ns: Final = time.time_ns
"""The wall clock of the machine, for the times of spans, which no decision depends on."""


class SystemClockAndIds:
    """The clocks and the randomness of the operating system."""

    def __init__(self) -> None:
        self._elapsed_clock: int = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 0))

    def now_ms(self) -> int:
        return time.time_ns() // NANOSECONDS_IN_MS

    def elapsed_ms(self) -> int:
        return time.clock_gettime_ns(self._elapsed_clock) // NANOSECONDS_IN_MS

    def elapsed_precise_ms(self) -> float:
        return time.perf_counter() * MILLISECONDS

    def random_number(self) -> float:
        return random.random()  # noqa: S311 - jitter, not a secret

    def seed(self) -> int:
        return secrets.randbits(SEED_BITS)

    def commit_id(self) -> int:
        return secrets.randbits(COMMIT_ID_BITS)

    def unique_text(self) -> str:
        return secrets.token_hex(8)


class FaultPoint(StrEnum):
    """The points at which a test can interfere."""

    BEFORE_COMMIT = "before_commit"
    AFTER_COMMIT = "after_commit"


class SimulatedCrash(BaseException):
    """Raised by a fault hook to simulate the death of the process. No `except Exception` catches it."""


FaultHook = Callable[[FaultPoint, Sequence[Member]], None]


class LeaseLike(Protocol):
    """One key of a worker, from its registration to its end."""

    @property
    def key(self) -> WorkerKey: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def stop_beating(self) -> None: ...
    @property
    def fenced_at_ms(self) -> int: ...


class LeaseMaker(Protocol):
    """Makes the lease of one key."""

    def __call__(
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
    ) -> LeaseLike: ...


class Platform(msgspec.Struct, frozen=True):
    """The platform of one client and its worker."""

    providers: ClockAndIds = msgspec.field(default_factory=SystemClockAndIds)
    make_lease: LeaseMaker | None = None
    """Replaces the lease thread of a worker."""
    make_notifier: Callable[[Path, str, Heard], Notifier] | None = None
    """Replaces the notifier that a store makes."""
    fault_hook: FaultHook | None = None
    detect_local_deaths: bool = True
    turn_limit_ms: int = TURN_LIMIT_MS
    watch_turns: bool = True
    """Whether the watchdog thread runs. A simulation has no threads, and no code that never awaits."""

    def notifier(self, store: OpenableStore, name: str, heard: Heard) -> Notifier:
        """The notifier of one process: the store's own, unless a test replaces it."""
        if self.make_notifier is not None:
            return self.make_notifier(store.companion_path, name, heard)
        return store.make_notifier(name, heard)
