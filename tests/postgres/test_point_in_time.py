"""Point-in-time recovery with PostgreSQL's own tools (R2, R3), as the page about backups describes it."""

import asyncio
import shutil
from pathlib import Path

import psycopg
import pytest
from tests.forking.processes import run
from tests.postgres import programs
from tests.postgres.cluster import SAFE, Cluster, new_folder
from tests.scenarios.support import together

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.storage.members.restoring import NUMBERS_LIFTED
from holdfast.testing.simulation.simulation import kill_engine

pytestmark = pytest.mark.slow


@hf.activity(name="step")
async def step(number: int) -> int:
    return number + 1


@hf.activity(name="step")
async def hanging(number: int) -> int:
    await asyncio.Event().wait()
    return number


@hf.workflow
async def two_steps(number: int) -> int:
    return await step(await step(number))


def archived() -> tuple[Cluster, Path]:
    """A cluster that archives its WAL, and the folder of the archive."""
    archive = new_folder()
    settings = {"archive_mode": "on", "archive_command": f"cp %p {archive}/%f", "wal_level": "replica"}
    cluster = Cluster({**SAFE, **settings})
    cluster.start()
    return cluster, archive


def recovered(base: Path, archive: Path, until: str) -> Cluster:
    """A cluster from a base backup and the archive, as of a moment."""
    (base / "recovery.signal").touch()
    programs.give(base / "recovery.signal")
    recovery = {
        "restore_command": f"cp {archive}/%f %p",
        "recovery_target_time": until,
        "recovery_target_action": "promote",
        "archive_mode": "off",
    }
    cluster = Cluster({**SAFE, **recovery}, data=base)
    cluster.start()
    return cluster


async def start_some(url: str, prefix: str) -> None:
    async with hf.Engine(url, workflows=[two_steps], activities=[step]) as engine:
        for number in range(5):
            assert await engine.run(two_steps, number, id=f"{prefix}-{number}") == number + 2


async def leave_running(url: str) -> None:
    """A worker is killed while the bodies of its activities run."""
    engine = hf.Engine(url, workflows=[two_steps], activities=[hanging])
    await engine.__aenter__()
    for number in range(3):
        await engine.start(two_steps, number, id=f"open-{number}")
    await kill_engine(engine)


async def finish(url: str) -> list[int]:
    async with hf.Engine(url, workflows=[two_steps], activities=[step]) as engine:
        return [await engine.get(f"open-{number}").result(timeout=60) for number in range(3)]


def test_R2_R3_a_store_that_was_recovered_to_a_moment_is_restored_and_finishes_everything() -> None:
    primary, archive = archived()
    second: Cluster | None = None
    base = new_folder() / "data"
    try:
        together(start_some(primary.url(), "before"))
        source = f"host=127.0.0.1 port={primary.port} user=postgres"
        programs.run("pg_basebackup", "--checkpoint=fast", "--wal-method=none", f"--dbname={source}", "-D", base)
        together(leave_running(primary.url()))
        with psycopg.connect(primary.url(), autocommit=True) as connection:
            [(moment,)] = connection.execute("SELECT clock_timestamp()::text").fetchall()
        together(start_some(primary.url(), "lost"))
        with psycopg.connect(primary.url(), autocommit=True) as connection:
            connection.execute("SELECT pg_switch_wal()")
        primary.stop()  # waits until the last segment is archived
        second = recovered(base, archive, moment)
        url = second.url()
        assert audit(url) == []

        async def ids() -> set[str]:
            async with hf.connect(url) as client:
                return {found.id for found in await client.list(limit=100)}

        assert together(ids()) == {
            f"{name}-{number}" for name, n in (("before", 5), ("open", 3)) for number in range(n)
        }
        done = run("holdfast.cli:main", "restored", "--force", "--store", url)
        assert done.code == 0, done.complaints
        assert done.said.count("step attempt 1 RUNNING") == 3
        assert together(finish(url)) == [2, 3, 4]
        together(start_some(url, "lost"))
        with psycopg.connect(url) as connection:
            [(least,)] = connection.execute(
                "SELECT min(number) FROM holdfast.instances WHERE id LIKE 'lost%'"
            ).fetchall()
        assert least > NUMBERS_LIFTED
        assert audit(url) == []
    finally:
        primary.remove()
        if second is not None:
            second.remove()
        for folder in (archive, base.parent):
            shutil.rmtree(folder, ignore_errors=True)
