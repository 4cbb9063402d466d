"""What a worker takes from its surroundings, in one value: the real world, or a simulated one.

A simulation replaces clocks and randomness, the thread that keeps the lease, and the wake-ups between processes. All
else runs as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from holdfast.core.liveness import WorkerKey
from holdfast.runtime.faults import FaultHook
from holdfast.runtime.loop_watch import LoopRules
from holdfast.runtime.providers import ClockAndIds, SystemClockAndIds
from holdfast.runtime.telling import RepeatedTrouble
from holdfast.runtime.watchdog import TURN_LIMIT_MS
from holdfast.storage.contract import Registration, Store
from holdfast.storage.places import Notifier, OpenableStore


class LeaseLike(Protocol):
    """One key of a worker, from its registration to its end."""

    @property
    def key(self) -> WorkerKey: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def give_up(self) -> None: ...
    def may_act(self) -> bool: ...
    @property
    def fenced_at_ms(self) -> int: ...


class LeaseMaker(Protocol):
    """Makes the keeper of a lease."""

    def __call__(
        self,
        store: Store,
        providers: ClockAndIds,
        registration: Callable[[], Registration],
        *,
        lease_ms: int,
        lost: Callable[[], None],
        loop_rules: LoopRules | None = None,
        trouble: RepeatedTrouble | None = None,
    ) -> LeaseLike: ...


@dataclass(frozen=True, slots=True)
class Platform:
    """The world around one worker or client."""

    providers: ClockAndIds = field(default_factory=SystemClockAndIds)
    make_lease: LeaseMaker | None = None
    """Replaces the lease thread of a worker."""
    make_bell: Callable[[Path, str, Callable[[], None]], Notifier] | None = None
    """Replaces the notifier that a store makes."""
    fault_hook: FaultHook | None = None
    judge_same_host: bool = True
    turn_limit_ms: int = TURN_LIMIT_MS
    watch_turns: bool = True
    """Whether a thread ends workflow code that never awaits. A simulation has no threads, and no such code."""

    def bell(self, store: OpenableStore, name: str, heard: Callable[[], None]) -> Notifier:
        """The notifier of one process: the store's own, unless a test replaces it."""
        if self.make_bell is not None:
            return self.make_bell(store.path, name, heard)
        return store.make_bell(name, heard)
