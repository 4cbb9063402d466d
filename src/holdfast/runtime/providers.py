"""Clock, randomness and ids: the only module that makes them. Everything else takes them as parameters.

A simulation passes its own `Providers`, and the same seed gives the same run.
"""

import random
import secrets
import time
from typing import Final, Protocol

MILLISECONDS: Final = 1000
NANOSECONDS_IN_MS: Final = 1_000_000
COMMIT_ID_BITS: Final = 62
SEED_BITS: Final = 53
"""A seed stays exact in JSON and JavaScript."""


class ClockAndIds(Protocol):
    """What a run of Holdfast takes from the outside world besides its store."""

    def now_ms(self) -> int:
        """The wall clock."""
        ...

    def elapsed_ms(self) -> int:
        """A clock that never goes back and goes on while the machine sleeps (W7)."""
        ...

    def elapsed_precise_ms(self) -> float:
        """The same, with fractions: for measuring."""
        ...

    def random_number(self) -> float:
        """In [0, 1)."""
        ...

    def seed(self) -> int:
        """What everything random in one execution grows from."""
        ...

    def commit_id(self) -> int:
        """A number that no other commit has."""
        ...

    def unique_text(self) -> str:
        """A text that nothing else is called: for worker keys and instance ids."""
        ...


class SystemClockAndIds:
    """The real world."""

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
