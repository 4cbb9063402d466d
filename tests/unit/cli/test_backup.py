"""``holdfast backup`` and ``holdfast restored``: output, exit codes and refusals."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.commands import Command, sql

import holdfast as hf
from holdfast.core.leases import Heartbeat, WorkerKey
from holdfast.storage.members.workers import Registration

ELSEWHERE = b'{"boot_id":"b","namespace":1,"pid":77,"started":"1","name":"green"}'
STORE = "holdfast.db"


def on(path: Path, work: Callable[[hf.Client], Coroutine[Any, Any, None]]) -> None:
    async def connected() -> None:
        async with hf.connect(path) as client:
            await work(client)

    asyncio.run(connected())


async def register(client: hf.Client) -> None:
    """A worker on another host, whose process cannot be judged from here."""
    said = Registration(host=ELSEWHERE, queues="[]", build="b1", slots=8)
    client._session.store.heartbeat(Heartbeat(WorkerKey("k1"), None, 60_000), said)


def test_R1_a_backup_is_written_and_reported(filled: Command) -> None:
    done = filled("backup", "copy.db")
    assert done.code == 0
    assert done.out.startswith("copy.db is written: ")
    assert "2 instances checked" in done.out
    assert filled("verify", "--store", "copy.db").code == 0
    assert "copy.db exists; name another file, or replace it with --force" in filled.refused("backup", "copy.db")
    found = json.loads(filled("backup", "copy.db", "--force", "--json").out)
    assert (found["store"], found["file"], found["written"], found["verified"]) == (STORE, "copy.db", True, True)
    assert found["bytes"] == (filled.folder / "copy.db").stat().st_size
    assert found["instances"] == 2


def test_R1_a_copy_with_problems_is_reported_and_not_written(filled: Command) -> None:
    sql(filled.folder / STORE, "UPDATE instances SET turn = turn + 1 WHERE state = 'COMPLETED'")
    done = filled("backup", "copy.db")
    assert done.code == 1
    assert "history-gap-free" in done.out
    assert "no backup was written" in done.out
    assert not (filled.folder / "copy.db").exists()
    assert json.loads(filled("backup", "copy.db", "--json").out)["written"] is False
    unchecked = filled("backup", "copy.db", "--no-verify")
    assert unchecked.code == 0
    assert "only the file was checked" in unchecked.out


def test_R1_a_postgresql_store_is_refused_with_the_commands_that_copy_it(holdfast: Command) -> None:
    said = " ".join(
        holdfast.refused("backup", "copy.db", "--store", "postgresql://app:hidden@db/shop?schema=abc").split()
    )
    assert "pg_dump --format=custom --schema=abc --file=FILE postgresql://app@db/shop" in said
    assert "pg_basebackup" in said
    assert "hidden" not in said


@pytest.mark.parametrize("command", [("backup", "copy.db"), ("restored",)])
def test_R2_a_store_that_is_not_there_is_refused(holdfast: Command, command: tuple[str, ...]) -> None:
    assert "there is no store at" in holdfast.refused(*command)


def test_R2_a_live_worker_is_named_and_a_dry_run_changes_nothing(filled: Command) -> None:
    store = filled.folder / STORE
    on(store, register)
    said = filled.refused("restored")
    assert "live workers: k1 (its lease ends in " in " ".join(said.split())
    before = sql(store, "SELECT number, fence FROM instances"), sql(store, "SELECT * FROM sqlite_sequence")
    planned = filled("restored", "--dry-run", "--force")
    assert planned.code == 0
    assert "nothing was changed in holdfast.db; without --dry-run: 1 worker key ended, 1 open instance" in planned.out
    assert (sql(store, "SELECT number, fence FROM instances"), sql(store, "SELECT * FROM sqlite_sequence")) == before
    assert sql(store, "SELECT state FROM workers WHERE key = 'k1'") == [("ACTIVE",)]
    found = json.loads(filled("restored", "--force", "--json").out)
    assert (found["dry_run"], found["workers"], found["instances"], found["running"]) == (False, ["k1"], 1, [])
    assert sql(store, "SELECT state FROM workers WHERE key = 'k1'") == [("INACTIVE",)]
    [(sequence,)] = sql(store, "SELECT seq FROM sqlite_sequence WHERE name = 'instances'")
    assert sequence == 2 + 2**32


def test_R3_the_steps_that_were_running_are_listed(filled: Command) -> None:
    store = filled.folder / STORE
    on(store, register)
    sql(
        store,
        "UPDATE attempts SET state = 'RUNNING', closed_at_ms = NULL, owner = 'k1', ledger = 889000000000000 "
        "WHERE activity = 0",
    )
    sql(store, "UPDATE workers SET deadline_ms = 1")
    listed = filled("restored", "--dry-run").out
    assert "Running at the backup; each runs again, and its effects may have happened:" in listed
    assert "charge attempt 1 RUNNING, with worker k1 since " in listed
    (step,) = json.loads(filled("restored", "--dry-run", "--json").out)["running"]
    assert (step["activity"], step["attempt"], step["state"], step["worker"]) == ("charge", 1, "RUNNING", "k1")
    assert step["external"] is False


def test_R2_an_engine_does_not_restore_its_own_store(tmp_path: Path) -> None:
    async def case() -> None:
        async with hf.Engine(tmp_path / "shop.db") as engine:
            with pytest.raises(hf.errors.UsageError, match="this client has a worker"):
                await engine.restored(force=True)

    asyncio.run(case())
