"""Bodies in processes of their own: what they return, how they end, and that the worker lives."""

import asyncio
import os
from typing import cast

import pytest
from tests.unit.runtime import bodies

import holdfast as hf

pytestmark = pytest.mark.slow


def test_a_body_in_a_process_is_reused_gets_its_input_and_its_heartbeat_details() -> None:
    async def run() -> dict[str, object]:
        async with hf.Engine(":memory:", modules=[bodies]) as engine:
            return await engine.run(bodies.work, id="w")

    result = asyncio.run(run())
    pids = cast(list[int], result["pids"])
    assert len(set(pids)) == 1
    assert os.getpid() not in pids
    assert result["doubled"] == [2, 4]
    assert (result["details"], result["attempt"], result["key"]) == ({"done": 41}, 2, "w/1/1/3")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("refuses", "LookupError: nothing here"),
        ("exits", "RemoteError: 3"),
        ("dies", "ProcessDied: the process of dies ended with code 7 before its body did"),
        ("gives_what_cannot_be_stored", "PayloadError: "),
        ("never_ends", "ActivityTimedOut: never_ends did not answer in time: start_to_close is 0.3 s"),
    ],
)
def test_however_a_body_ends_the_worker_lives(name: str, said: str) -> None:
    async def run() -> tuple[str, dict[str, object]]:
        async with hf.Engine(":memory:", modules=[bodies]) as engine:
            ended = await engine.run(bodies.call, name)
            return ended, await engine.run(bodies.work)

    ended, afterwards = asyncio.run(run())
    assert ended.startswith(said)
    assert afterwards["doubled"] == [2, 4]
