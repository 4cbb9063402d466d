"""Seeded runs of two workers and a client: crashes before and after commits, duplicates, lost wake-ups."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.simulation.leaves import STREAMS
from tests.simulation.programs import Node, jobs_of, named
from tests.simulation.sample import ACTIVITIES, add, jobs

import holdfast as hf
from holdfast.testing.simulation.simulation import CANCELLED, Job, PauseInstance, SimulationReport, simulate

SEEDS = 200
PAUSING_SEEDS = 60
BLOCKS = 10
REPLACING_SEEDS = 50
DRAINING_SEEDS = 100
STORY_SEEDS = 60
STORIES: list[list[Node]] = [
    [["gather", ["event", 3], ["patient", 4], ["talk", 5]], ["sequence", ["event", 6], ["add", 1]]],
    [
        ["group", ["stream", 9], ["collect", 0], ["abandon", 2]],
        ["collect", 0],
        ["sequence", ["note", 1], ["collect", 0]],
    ],
    [
        ["late", ["restart", 6]],
        ["sequence", ["note", 1], ["gather", ["talk", 1], ["talk", 2], ["event", 7]], ["sleep", 20]],
    ],
    [
        ["gather", ["child", "", ["event", 2], ["stream", 4]], ["orphan", "", ["collect", 0], ["talk", 3]]],
        ["child", "", ["orphan", "", ["patient", 5]], ["group", ["child", "", ["note", 1]], ["sleep", 9]]],
    ],
]
"""Events, streams, abandoned tasks, kept values and families, over several executions."""


def run(seed: int, **options: Any) -> SimulationReport:
    return simulate(
        seed,
        jobs(seed),
        ACTIVITIES,
        crash_rate=0.03 if seed % 4 else 0.0,
        max_crashes=seed % 7,
        cache_size=(1_000, 2, 0)[seed % 3],
        **options,
    )


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_promise_holds_in_simulated_runs(block: int) -> None:
    crashes = 0
    for seed in range(block * SEEDS // BLOCKS, (block + 1) * SEEDS // BLOCKS):
        report = run(seed)
        assert not report.violations, f"seed {seed}: {report.violations}"
        crashes += report.crashes
    assert crashes, "a run in which a fault never happened is void"


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_R20_every_promise_holds_when_instances_are_paused_and_resumed(block: int) -> None:
    crashes = pauses = 0
    for seed in range(block * PAUSING_SEEDS // BLOCKS, (block + 1) * PAUSING_SEEDS // BLOCKS):
        pausing = [replace(job, actions=(*job.actions, PauseInstance())) for job in jobs(seed)]
        report = simulate(
            seed,
            pausing,
            ACTIVITIES,
            crash_rate=0.03 if seed % 4 else 0.0,
            max_crashes=seed % 7,
            cache_size=(1_000, 2, 0)[seed % 3],
            lost_replies=0.05 if seed % 2 else 0.0,
        )
        assert not report.violations, f"seed {seed}: {report.violations}"
        crashes += report.crashes
        pauses += report.pauses
    assert crashes, "a run in which a fault never happened is void"
    assert pauses, "a run in which a fault never happened is void"


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_W3_every_promise_holds_when_replies_to_commits_are_lost(block: int) -> None:
    lost = 0
    for seed in range(block * SEEDS // BLOCKS, (block + 1) * SEEDS // BLOCKS):
        report = run(seed, lost_replies=0.05)
        assert not report.violations, f"seed {seed}: {report.violations}"
        lost += report.replies_lost
    assert lost, "a run in which a fault never happened is void"


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_W10_every_promise_holds_when_workers_drain_and_come_back(block: int) -> None:
    drains = crashes = 0
    for seed in range(block * DRAINING_SEEDS // BLOCKS, (block + 1) * DRAINING_SEEDS // BLOCKS):
        report = run(seed, drain_rate=0.3, lost_replies=0.02 if seed % 2 else 0.0)
        assert not report.violations, f"seed {seed}: {report.violations}"
        drains += report.drains
        crashes += report.crashes
    assert drains, "a run in which a fault never happened is void"
    assert crashes, "a run in which a fault never happened is void"


@pytest.mark.slow
@pytest.mark.parametrize("lost_replies", [0.0, 0.05])
def test_G4_every_promise_holds_for_stories_of_several_executions(lost_replies: float) -> None:
    crashes = cancelled = 0
    for seed in range(STORY_SEEDS):
        told = [
            job
            for number, story in enumerate(STORIES)
            for job in jobs_of(named(story), cancel=seed % 3 == 0, id=f"story-{number}")
        ]
        report = simulate(
            seed,
            told,
            [*ACTIVITIES, *STREAMS],
            crash_rate=0.05,
            max_crashes=seed % 6,
            cache_size=(1_000, 2, 0)[seed % 3],
            lost_replies=lost_replies,
        )
        assert not report.violations, f"seed {seed}: {report.violations}"
        crashes += report.crashes
        cancelled += sum(result == CANCELLED for result in report.results.values())
    assert crashes, "a run in which a fault never happened is void"
    assert cancelled, "a run in which nothing was cancelled is void"


@pytest.mark.slow
def test_G3_every_promise_holds_when_ids_are_started_anew_at_any_moment() -> None:
    crashes = replaced = 0
    for seed in range(REPLACING_SEEDS):
        report = run(seed, replace_rate=0.5)
        assert not report.violations, f"seed {seed}: {report.violations}"
        crashes += report.crashes
        replaced += report.replaced
    assert crashes, "a run in which a fault never happened is void"
    assert replaced > REPLACING_SEEDS


@pytest.mark.parametrize("seed", [5, 6, 29])
def test_the_same_seed_takes_the_same_steps(seed: int) -> None:
    first, second = run(seed), run(seed)
    assert first.trace == second.trace
    assert first.digest == second.digest


def test_different_seeds_take_different_steps() -> None:
    assert len({run(seed).digest for seed in (1, 2, 3)}) == 3


@hf.activity
async def multiply(left: int, right: int) -> int:
    return left * right


def test_invariant_14_a_history_that_is_not_what_its_code_does_is_a_violation() -> None:
    chosen = iter((add, multiply))

    @hf.workflow
    async def fickle() -> int:
        """Takes another step each time that it is run from nothing, which workflow code must not."""
        return await next(chosen)(1, 1)

    report = simulate(1, [Job("fickle", fickle, (), 2)], [add, multiply], crash_rate=0.0, max_crashes=0)
    assert ["does not match its code" in violation for violation in report.violations] == [True]


def test_invariant_23_what_escapes_from_an_engine_is_a_violation() -> None:
    def escapes() -> None:
        raise LookupError("of nobody")

    @hf.activity
    async def leaves_something_behind() -> int:
        asyncio.get_running_loop().call_soon(escapes)
        await asyncio.sleep(0.1)
        return 2

    @hf.workflow
    async def calls() -> int:
        return await leaves_something_behind()

    report = simulate(1, [Job("calls", calls, (), 2)], [leaves_something_behind], crash_rate=0.0, max_crashes=0)
    assert ["LookupError('of nobody')" in violation for violation in report.violations] == [True]
