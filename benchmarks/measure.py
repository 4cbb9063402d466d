"""Small tools for measuring: percentiles, memory, processor time, and running many things with a bound."""

import asyncio
import os
import resource
import statistics
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

Sample = dict[str, float]
"""The figures of one run of one workload, by name."""
Value = TypeVar("Value")
MEGABYTE: Final = 1024 * 1024
PERCENT: Final = 100


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the values are."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(percent / PERCENT * (len(ordered) - 1)))]


def medians(samples: Sequence[Sample]) -> Sample:
    """The median of every figure over the rounds."""
    names = dict.fromkeys(name for sample in samples for name in sample)
    return {name: statistics.median(sample[name] for sample in samples if name in sample) for name in names}


def resident_megabytes() -> float:
    """The resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MEGABYTE


def processor_seconds() -> float:
    """The processor time of this process, user and system."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def gather_bounded(
    work: Callable[[int], Awaitable[Value]], count: int, in_flight: int, *, first: int = 0
) -> list[Value]:
    """Call `work` with `count` numbers from `first` on, with at most `in_flight` calls at a time."""
    numbers = iter(range(first, first + count))
    results: list[Value] = []

    async def place() -> None:
        for number in numbers:
            results.append(await work(number))  # noqa: PERF401 - many places share the list

    await asyncio.gather(*(place() for _ in range(min(in_flight, count))))
    return results
