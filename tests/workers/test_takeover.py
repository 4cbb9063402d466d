"""What a killed worker had goes on elsewhere: within its lease and a second, and within ten seconds by default (W6).

Same-host detection is off: this is how it is between machines. The times are those of real processes.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from tests.scenarios.support import together
from tests.workers.processes import await_note, open_gate, worker
from tests.workers.support import attempts, sound, stored

import holdfast as hf
from holdfast.core.leases import WORKER_LEASE_MS
from holdfast.runtime.duties.claimer import POLL_SECONDS
from holdfast.runtime.worker_lease import BEATS_PER_LEASE

DEFAULT_BOUND_SECONDS = 10.0
BOUND_SECONDS = 3.0
MOST_TRIES = 2


async def takeover(store: str, name: str, *options: str) -> float:
    """Kill a worker in the middle of a body; the seconds until the body runs elsewhere."""
    async with await hf.connect(store) as client:
        with ExitStack() as workers:
            victim = workers.enter_context(worker(store, "--no-same-host", *options))
            await client.start("waits", name, id=name)
            await client.start("rests", name, id=f"{name} rests")
            await asyncio.to_thread(await_note, store, "began", name, 1, victim.pid)
            workers.enter_context(worker(store, "--no-same-host", *options))
            victim.kill()
            before = time.monotonic()  # noqa: TID251 - real processes
            await asyncio.to_thread(await_note, store, "began", name, 2)
            took = time.monotonic() - before  # noqa: TID251
            open_gate(store, f"{name} 2")
            assert await client.get(name).result(timeout=30) == f"{name} 2"
            await client.get(f"{name} rests").result(timeout=30)
            assert await stored(client, name) == [("TIMED_OUT", 0, 0), ("COMPLETED", 0, 1)]
    return took


@pytest.mark.slow
def test_W6_a_lease_of_two_seconds_is_taken_over_within_three(
    store: str, record_property: Callable[[str, object], None]
) -> None:
    """In most of three tries: a machine that has too much to do may be late once."""
    took: list[float] = []
    for name in ("a", "b", "c"):
        took.append(together(takeover(store, name, "--lease", "2"), seconds=60))
        if sum(seconds <= BOUND_SECONDS for seconds in took) == MOST_TRIES:
            break
    record_property("seconds", took)
    assert sum(seconds <= BOUND_SECONDS for seconds in took) == MOST_TRIES, took
    sound(store)


@pytest.mark.slow
def test_W6_the_default_lease_is_taken_over_within_ten_seconds(
    store: str, record_property: Callable[[str, object], None]
) -> None:
    took = together(takeover(store, "a"), seconds=60)
    record_property("seconds", took)
    assert took <= DEFAULT_BOUND_SECONDS
    sound(store)


@pytest.mark.slow
def test_W6_a_worker_that_is_killed_while_it_prepares_releases_the_attempt_for_a_rerun(store: str) -> None:
    """The activity may run at most once: no body began, so the attempt is prepared again and runs."""

    async def scenario() -> None:
        async with await hf.connect(store) as client:
            with worker(store) as victim:
                await client.start("prepares", "a", id="a")
                await asyncio.to_thread(await_note, store, "prepares", "a", victim.pid)
                assert [(each.state, each.ledger) for each in await attempts(client, "a")] == [
                    ("PREPARING", 899_000_000_000_000)
                ]
                victim.kill()
            with worker(store) as heir:
                await asyncio.to_thread(await_note, store, "prepares", "a", heir.pid)
                assert [(each.state, each.ledger) for each in await attempts(client, "a")] == [
                    ("PREPARING", 799_000_000_000_000)
                ]
                open_gate(store, "a is ready")
                assert await client.get("a").result(timeout=30) == heir.pid
                assert await stored(client, "a") == [("COMPLETED", 0, 0)]
        sound(store)

    together(scenario(), seconds=60)


def test_W1_the_defaults_add_up() -> None:
    """A heartbeat may be late by as much as two, a takeover comes with the next look, and there is time to spare."""
    assert WORKER_LEASE_MS / BEATS_PER_LEASE == 2_000
    assert WORKER_LEASE_MS / 1000 + POLL_SECONDS < DEFAULT_BOUND_SECONDS
