"""Work finds its worker: activities by the queue, workflows by who has their code (G12). Real processes."""

import json
import signal
import subprocess

import pytest
from tests.scenarios.support import together
from tests.workers.processes import COMMAND, notes, worker
from tests.workers.support import instance, sound, told

import holdfast as hf

pytestmark = pytest.mark.slow
COUNT = 10


def queues(store: str) -> dict[str, tuple[int, bool]]:
    """How much waits in each queue, and whether anybody serves it, as the command tells it."""
    words = [*COMMAND, "queues", "--json", "--store", store]
    told_by_command = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout
    return {queue["name"]: (queue["ready"], queue["is_served"]) for queue in json.loads(told_by_command)}


def test_an_activity_runs_only_where_its_queue_is_served(store: str) -> None:
    async def scenario() -> None:
        async with await hf.connect(store) as client:
            ids = [f"order {number}" for number in range(COUNT)]
            for instance_id in ids:
                await client.start("sends", 2, id=instance_id)
            with worker(store, "--queues", "default") as home:

                async def all_wait_for_the_post() -> bool:
                    return [row.ready for row in await client._session.store.queues()] == [COUNT]

                await told(all_wait_for_the_post)
                assert queues(store) == {"default": (0, True), "parcels": (COUNT, False)}
                with worker(store, "--queues", "parcels") as post:
                    for instance_id in ids:
                        pids = await client.get(instance_id).result(timeout=30)
                        assert pids == [[home.pid, post.pid]] * 2
                    for process in (post, home):
                        process.send_signal(signal.SIGTERM)
                        assert process.left()[0] == 0
        assert len(notes(store)) == 4 * COUNT, "and each body once"
        sound(store)

    together(scenario(), seconds=60)


def test_G12_a_workflow_runs_only_where_its_code_is(store: str) -> None:
    """Both serve the same queue. An activity that only one of them knows waits for that one, too."""

    async def scenario() -> None:
        async with await hf.connect(store) as client:
            with worker(store) as home:
                for number in range(COUNT):
                    await client.start("travels", str(number), id=f"travel {number}")
                    assert await client.run("rests", str(number), id=f"rest {number}") == home.pid
                for number in range(COUNT):
                    waiting = await instance(client, f"travel {number}")
                    assert (str(waiting.state), waiting.owner) == ("REQUESTED", None), "nobody here knows it"
                with worker(store, app="tests.workers.elsewhere") as abroad:
                    for number in range(COUNT):
                        assert await client.get(f"travel {number}").result(timeout=30) == abroad.pid
                        assert await client.run("rests", str(number), id=f"rest again {number}") == home.pid
                    for process in (abroad, home):
                        process.send_signal(signal.SIGTERM)
                        code, logged = process.left()
                        assert code == 0, logged
        sound(store)

    together(scenario(), seconds=60)
