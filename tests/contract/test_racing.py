"""Two programs without Holdfast race for each attempt, and two workers handle their rows: each is taken once (C9)."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.contract.by_hand import ByHand, by_hand

import holdfast as hf

__all__ = ["by_hand"]
ROOT = Path(__file__).parents[2]
RACERS = ("first", "second")
APPLIED = (
    "SELECT activity_exec_id AS id, transition, claim FROM activity_events WHERE state = 'APPLIED' ORDER BY 1, 2, 3"
)


@hf.activity(external=True, heartbeat=600)
async def takes() -> str:  # type: ignore[empty-body]
    """The name of the program that took it."""


@hf.workflow
async def asks() -> str:
    return await takes()


def engine(by_hand: ByHand) -> hf.Engine:
    return hf.Engine(by_hand.store, workflows=[asks], activities=[takes])


async def raced(store: str, schema: str, name: str, rounds: int, ready: asyncio.Barrier) -> dict[str, int]:
    """The claims that a program has won and lost."""
    words = [sys.executable, "-m", "tests.contract.racer", store, schema, name, str(rounds)]
    program = await asyncio.create_subprocess_exec(*words, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert program.stdout is not None
        assert await program.stdout.readline() == b"ready\n"
        await ready.wait()
        printed, _ = await program.communicate()
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    counts: dict[str, int] = json.loads(printed)
    return counts


async def race(by_hand: ByHand, place: tuple[str, str], rounds: int, seconds: float) -> None:
    async with asyncio.timeout(seconds), engine(by_hand) as it, engine(by_hand):
        ready = asyncio.Barrier(len(RACERS) + 1)
        racing = [asyncio.create_task(raced(*place, name, rounds, ready)) for name in RACERS]
        await ready.wait()  # both look for activities before there is one: else the first may take all of them
        handles = await asyncio.gather(*(it.start(asks, id=f"i{number}") for number in range(rounds)))
        winners = Counter([await handle.result(timeout=seconds) for handle in handles])
        counts = dict(zip(RACERS, await asyncio.gather(*racing), strict=True))
    assert {name: found["APPLIED"] for name, found in counts.items()} == {name: winners[name] for name in RACERS}
    assert sum(winners.values()) == rounds
    assert sum(found["REFUSED"] for found in counts.values()) > 0, "a run without a race is void"
    applied: dict[str, list[tuple[str, str]]] = {}
    for row in by_hand.rows(APPLIED):
        applied.setdefault(row["id"], []).append((row["transition"], row["claim"]))
    assert len(applied) == rounds
    for rows in applied.values():
        assert [transition for transition, _ in rows] == ["COMPLETED", "QUEUED", "RUNNING"]
        assert len({claim for _, claim in rows}) == 1, "the loser has done nothing"


def place_of(by_hand: ByHand, request: pytest.FixtureRequest) -> tuple[str, str]:
    """The database and the schema, as other programs name them."""
    if not by_hand.is_postgres:
        return by_hand.store, ""
    place = request.getfixturevalue("postgres")
    return place.server, place.schema


@pytest.mark.slow
def test_C9_A2_two_programs_race_for_each_attempt(by_hand: ByHand, request: pytest.FixtureRequest) -> None:
    asyncio.run(race(by_hand, place_of(by_hand, request), 100, 60))


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_C9_A2_two_programs_race_a_thousand_times(by_hand: ByHand, request: pytest.FixtureRequest) -> None:
    asyncio.run(race(by_hand, place_of(by_hand, request), 1_000, 300))
