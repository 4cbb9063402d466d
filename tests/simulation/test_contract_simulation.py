"""Seeded runs of workers, clients and executors that only insert rows: every promise of the open contract holds."""

import os
from collections import Counter
from typing import Any

import pytest
from tests.simulation.external import EXTERNAL, contract_jobs

from holdfast.testing.simulation.contract import simulate_contract
from holdfast.testing.simulation.simulation import SimulationReport

BLOCKS = 40 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 2
SEEDS = 12 * BLOCKS
DARK_SEEDS = 4 * BLOCKS
HOUR_SECONDS = 3_600.0
FEW = range(1, 24, 2)


def run(seed: int, **options: Any) -> SimulationReport:
    return simulate_contract(
        seed,
        contract_jobs(seed),
        EXTERNAL,
        crash_rate=0.03 if seed % 4 else 0.0,
        max_crashes=seed % 7,
        cache_size=(1_000, 2, 0)[seed % 3],
        **options,
    )


def checked(seed: int, **options: Any) -> SimulationReport:
    report = run(seed, **options)
    assert not report.violations, f"seed {seed}: {report.violations}"
    return report


def test_C2_every_row_is_handled_once_in_simulated_runs() -> None:
    """A few seeds for every run of the tests; the others are slow."""
    rows: Counter[str] = Counter()
    for seed in FEW:
        rows.update(checked(seed).rows)
    for kind in ("QUEUED", "PREPARING", "RUNNING", "HEARTBEAT", "COMPLETED", "FAILED", "RELEASE", "NOTE"):
        assert rows[f"{kind} APPLIED"], f"a run in which no {kind} is applied is void: {rows}"
        assert rows[f"{kind} REFUSED"], f"a run in which no {kind} is refused is void: {rows}"
    for kind in ("start ACCEPTED", "start REFUSED", "start TRACE", "event ACCEPTED", "event REFUSED"):
        assert rows[kind], f"a run without {kind} is void: {rows}"


@pytest.mark.slow
@pytest.mark.parametrize("lost_replies", [0.0, 0.05])
@pytest.mark.parametrize("block", range(BLOCKS))
def test_C4_every_promise_holds_with_external_executors(block: int, lost_replies: float) -> None:
    crashes = lost = 0
    for seed in range(block * SEEDS // BLOCKS, (block + 1) * SEEDS // BLOCKS):
        report = checked(seed, lost_replies=lost_replies, drain_rate=0.1 if seed % 5 == 0 else 0.0)
        crashes += report.crashes
        lost += report.replies_lost
    assert crashes, "a run in which a fault never happened is void"
    assert bool(lost) == bool(lost_replies)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_A5_no_report_is_overtaken_while_all_workers_are_down_for_an_hour(block: int) -> None:
    dark = late = 0
    for seed in range(block * DARK_SEEDS // BLOCKS, (block + 1) * DARK_SEEDS // BLOCKS):
        report = checked(seed, blackout_seconds=HOUR_SECONDS)
        dark += report.blackouts
        late += report.rows.get("HEARTBEAT APPLIED", 0)
    assert dark, "a run in which the workers were never down is void"
    assert late, "a run without heartbeats is void"


@pytest.mark.parametrize("seed", [3, 10])
def test_the_same_seed_takes_the_same_steps_with_executors(seed: int) -> None:
    first, second = run(seed), run(seed)
    assert first.trace == second.trace
    assert first.rows == second.rows
    assert first.digest == second.digest


def test_C2_idle_workers_do_not_poll_without_a_pause() -> None:
    assert 0 < checked(8).busiest < 1_000
