"""A worker that was stopped beyond its lease and goes on: nothing that this ghost says changes a row (W7)."""

import asyncio
import signal

import msgspec
import pytest
from tests.forking.freezing import await_stop, freeze
from tests.forking.processes import Process
from tests.scenarios.support import together
from tests.support.inside import take_over, worker_of
from tests.workers import app
from tests.workers.processes import await_note, folder_of, notes, open_gate, worker
from tests.workers.support import by_leases, instance, sound, told

import holdfast as hf
from holdfast.core.leases import WorkerKey, WorkerState
from holdfast.storage.records import AttemptRecord

pytestmark = pytest.mark.slow
LEASE = "1"
GHOST_LEASE = "4"
"""It never runs out in a test: another worker takes over. A heartbeat is sent every second."""
LONG_LEASE = "60"
"""Of a worker that must not lose its lease on a busy machine."""


def ghost(store: str) -> Process:
    """The program `ghost`; it is killed on the way out if it still runs."""
    return Process("tests.workers.stale_worker:main", store, GHOST_LEASE, env={app.FOLDER: str(folder_of(store))})


async def noted(store: str, *words: object) -> None:
    await asyncio.to_thread(await_note, store, *words)


async def snapshot(client: hf.Client, *ids: str) -> list[object]:
    """Everything of these instances, but for the heartbeats of second attempts, whose workers are alive."""
    found: list[object] = []
    for instance_id in ids:
        record = await instance(client, instance_id)
        loaded = await client._session.store.load(record.number, record.execution)
        found += [record, loaded.history, loaded.inbox, loaded.timers]
        found += [without_beats(each) if each.key.attempt > 1 else each for each in loaded.attempts]
    return found


def without_beats(attempt: AttemptRecord) -> AttemptRecord:
    return msgspec.structs.replace(attempt, heartbeat_at_ms=None, details=None)


async def takes_another_key(client: hf.Client, store: str, process: Process, old: str) -> None:
    async def is_there_again() -> bool:
        states = {view.key: view.state for view in await client.workers()}
        new = {line[1] for line in notes(store) if line[0] == "key"} - {old}
        return (
            states[old] is WorkerState.INACTIVE
            and all(states.get(key) is WorkerState.ACTIVE for key in new)
            and bool(new)
        )

    await told(is_there_again)
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, 30) == 0


@pytest.mark.parametrize("others", ["have started", "have finished"])
def test_W7_the_store_rejects_the_turn_the_completion_and_the_heartbeats_of_a_stale_worker(
    store: str, others: str
) -> None:
    """Having started is where others listen to a zombie again: its activity is RUNNING, in another attempt."""

    async def scenario() -> None:
        engine = hf.Engine(store, workflows=[app.lends], queues=["nothing"], lease=60, _platform=by_leases())
        async with engine as lender:
            await lender.start(app.lends, "c", id="lender")
            await lender.start("haunted", id="haunted")
            with ghost(store) as process:
                for name in ("a", "b", "c"):
                    await noted(store, "began", name, 1)
                (old,) = {line[1] for line in notes(store) if line[0] == "key"}
                open_gate(store, "b 1")
                await asyncio.to_thread(await_stop, process)
                # Before the healthy worker looks for work: it then claims the instance no later than the attempts.
                await take_over(worker_of(engine), WorkerKey(old))
                with worker(store, "--lease", LONG_LEASE, "--no-same-host", "--queues", "default,lent") as healthy:
                    for name in ("a", "b", "c"):
                        await noted(store, "began", name, 2)
                    if others == "have finished":
                        await finish(lender)
                    await haunt(lender, process)
                    if others == "have started":
                        await finish(lender)
                    await takes_another_key(lender, store, process, old)
                    healthy.send_signal(signal.SIGTERM)
                    assert healthy.left()[0] == 0
        sound(store)

    async def finish(client: hf.Client) -> None:
        for name in ("a 2", "b 2", "c 2"):
            open_gate(store, name)
        assert await client.get("haunted").result(timeout=30) == ["a 2 after a 1", "b 2"]
        assert await client.get("lender").result(timeout=30) == "c 2"

    async def haunt(client: hf.Client, process: Process) -> None:
        before = await snapshot(client, "haunted", "lender")
        open_gate(store, "c 1")
        process.send_signal(signal.SIGCONT)
        await noted(store, "store", "Heartbeat", "WorkerInactive")
        outcomes = {tuple(line[1:]) for line in notes(store) if line[0] == "store"}
        assert outcomes >= {(kind, "Rejected") for kind in ("Turn", "Completion", "HeartbeatAttempt")}
        assert not [line for line in outcomes if "Applied" in line]
        assert await snapshot(client, "haunted", "lender") == before, "it changed nothing"

    together(scenario(), seconds=90)


def test_W7_a_worker_that_was_stopped_beyond_its_lease_works_on_under_another_key(store: str) -> None:
    async def scenario() -> None:
        async with await hf.connect(store) as client:
            await client.start("waits", "a", id="a")
            options = ("--lease", LEASE, "--no-same-host")
            with worker(store, *options) as zombie:
                await noted(store, "began", "a", 1)
                (old,) = [view.key for view in await client.workers()]
                await asyncio.to_thread(freeze, zombie, store)
                with worker(store, *options) as healthy:
                    open_gate(store, "a 2")
                    assert await client.get("a").result(timeout=30) == "a 2"
                    before = await snapshot(client, "a")
                    healthy.send_signal(signal.SIGTERM)
                    assert healthy.left()[0] == 0
                open_gate(store, "a 1")
                zombie.send_signal(signal.SIGCONT)
                assert await client.run("rests", "b", id="b") == zombie.pid
                assert await snapshot(client, "a") == before
                (new,) = [view.key for view in await client.workers() if view.state is WorkerState.ACTIVE]
                assert new != old
                zombie.send_signal(signal.SIGTERM)
                code, logged = zombie.left()
                assert code == 0
                assert (
                    f"worker {old} lost its lease; its work was released for other workers, and it takes a new key"
                    in logged
                )
        sound(store)

    together(scenario(), seconds=60)
