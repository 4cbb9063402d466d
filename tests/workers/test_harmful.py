"""Workflow code that takes down the workers of several machines: they find out which, and park it (G12).

Each worker has a folder of its own for temporary files, so nobody can read what another was running. Real processes.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.postgres.server import Place
from tests.scenarios.support import together
from tests.workers import deadly
from tests.workers.processes import Process, key_in
from tests.workers.support import instance, sound, told

import holdfast as hf
from holdfast.core.leases import MAX_LOST_OWNERS, SUSPECT_AFTER

pytestmark = pytest.mark.slow

INNOCENT = 8
LEASE = "1"


@pytest.fixture
def store(postgres: Place) -> str:
    """Machines that share a file share a folder, too."""
    return postgres.url


@contextmanager
def machine(store: str, folder: Path) -> Generator[Process]:
    """A worker that shares nothing with others but the database."""
    folder.mkdir()
    process = Process(
        store, "worker", "tests.workers.deadly", "--lease", LEASE, "--no-same-host", env={"TMPDIR": str(folder)}
    )
    try:
        process.key = key_in(process.headline())
        yield process
    finally:
        process.end()


@pytest.mark.parametrize("after", [0, 1], ids=["at its start", "when an activity has ended"])
def test_G12_an_instance_that_takes_down_a_machine_after_the_other_is_blocked(
    store: str, tmp_path: Path, after: int
) -> None:
    async def begin() -> None:
        async with await hf.connect(store) as client:
            await client.start("patient", id="patient")
            await client.start("deadly", after, id="deadly")
            for number in range(INNOCENT):
                await client.start("innocent", 2 + number, id=f"i{number}")

    async def outcome() -> None:
        async with await hf.connect(store, modules=[deadly]) as client:
            with pytest.raises(hf.WorkflowBlocked, match="took down 3 owners in a row"):
                await client.get("deadly").result(timeout=30)
            for number in range(INNOCENT):
                assert await client.get(f"i{number}").result(timeout=30) == 2 + number
            await client.get("patient").raise_event("word", "hello")
            assert await client.get("patient").result(timeout=30) == "hello"
            assert (await instance(client, "deadly")).state == "BLOCKED"

    together(begin())
    for number in range(MAX_LOST_OWNERS):
        with machine(store, tmp_path / f"host{number}") as victim:
            code, logged = victim.left()
            assert code == deadly.DEADLY_CODE, logged
    with machine(store, tmp_path / "survivor"):
        together(outcome(), seconds=60)
    sound(store)
    kept = [file for number in range(MAX_LOST_OWNERS) for file in (tmp_path / f"host{number}").rglob("*-turns/*")]
    assert len(kept) == MAX_LOST_OWNERS, "each left its words, and nobody could read them"


def test_G12_machines_that_are_switched_off_block_no_instance(store: str, tmp_path: Path) -> None:
    """Again and again, without a turn of the instances between: they are tried one at a time, and never parked."""
    names = ("a", "b", "c")

    async def begin() -> None:
        async with await hf.connect(store) as client:
            for name in names:
                await client.start("patient", id=name)

    async def is_taken_over(client: hf.Client, key: str, owner: str | None) -> bool:
        """Whether all rest, with that owner."""
        if any(view.key != key and view.state == "ACTIVE" for view in await client.workers()):
            return False
        found = [await instance(client, name) for name in names]
        return all(each.turn and each.owner == owner and each.claimable_at_ms is None for each in found)

    async def take_over(key: str, *, is_kept: bool) -> None:
        async with await hf.connect(store) as client:
            await told(lambda: is_taken_over(client, key, key if is_kept else None))

    async def finish() -> None:
        async with await hf.connect(store) as client:
            for name in names:
                await client.get(name).raise_event("word", name)
            assert [await client.get(name).result(timeout=30) for name in names] == list(names)

    together(begin())
    for number in range(MAX_LOST_OWNERS + 2):
        with machine(store, tmp_path / f"host{number}") as victim:
            together(take_over(victim.key, is_kept=number < SUSPECT_AFTER))
            victim.kill()
    with machine(store, tmp_path / "survivor"):
        together(finish())
    sound(store)
