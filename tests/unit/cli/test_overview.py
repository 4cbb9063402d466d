"""``holdfast workers`` and ``holdfast queues``: what they tell, and that looking changes nothing."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.unit.cli.commands import Command, sql

import holdfast as hf
from holdfast.core.leases import Heartbeat, WorkerKey
from holdfast.storage.members.workers import Registration

HOST = b'{"boot_id":"b","namespace":1,"pid":77,"started":"1","name":"green [b]"}'


def on(path: Path, work: Callable[[hf.Client], Coroutine[Any, Any, None]]) -> None:
    async def connected() -> None:
        async with await hf.connect(path) as client:
            await work(client)

    asyncio.run(connected())


async def register(client: hf.Client) -> None:
    said = Registration(host=HOST, queues='["mail","a,b"]', build="b1", slots=8, abandoned=3)
    client._session.store.heartbeat(Heartbeat(WorkerKey("k1"), None, 60_000), said)


def test_workers_are_told_with_lease_load_queues_build_and_place(filled: Command) -> None:
    store = filled.folder / "holdfast.db"
    on(store, register)
    sql(store, "UPDATE instances SET owner = 'k1', claimable_at_ms = NULL WHERE id = 'open'")
    header, line = filled("workers").out.splitlines()
    assert re.split(r"  +", header)[:4] == ["worker", "state", "lease left", "activities"]
    assert re.match(r"k1 +ACTIVE +\d+\.\d s +0/8 +0% +1 +3 +mail, a,b +b1 +green \[b\]:77 +20", line)
    (fields,) = json.loads(filled("workers", "--json").out)
    assert (fields["key"], fields["slots"], fields["instances"], fields["load"]) == ("k1", 8, 1, 0.0)
    assert fields["abandoned"] == 3
    assert (fields["queues"], fields["host"], fields["pid"]) == (["mail", "a,b"], "green [b]", 77)
    assert 0 < fields["lease_left"] <= fields["lease"] == 60
    sql(store, "UPDATE workers SET deadline_ms = 1 WHERE key = 'k1'")
    assert re.search(r"k1 +OVERDUE +-\d+ d", filled("workers").out)
    assert json.loads(filled("workers", "--json").out)[0]["is_overdue"]


def test_workers_that_are_gone_are_told_when_asked_for(filled: Command) -> None:
    assert filled("workers").out == "No workers.\n"
    assert re.search(r"\w+ +INACTIVE +0/100", filled("workers", "--all").out)
    assert json.loads(filled("workers", "--json").out) == []


def test_a_queue_that_has_work_and_no_worker_is_marked(filled: Command) -> None:
    store = filled.folder / "holdfast.db"
    assert filled("queues").out == "No queues: no activity waits or runs, and no worker is alive.\n"
    on(store, register)
    sql(
        store,
        "UPDATE attempts SET state = 'READY', ledger = 999000000000000, owner = NULL, closed_at_ms = NULL, "
        "available_at_ms = available_at_ms - 120000 WHERE queue = 'parcels'",
    )
    lines = [re.split(r"  +", line.strip()) for line in filled("queues").out.splitlines()]
    assert lines[0] == ["queue", "ready", "later", "running", "oldest waits", "served by"]
    assert lines[1] == ["a,b", "0", "0", "0", "k1"]
    assert lines[2] == ["mail", "0", "0", "0", "k1"]
    assert lines[3][:4] == ["parcels", "1", "0", "0"]
    assert re.fullmatch(r"2 min \d\d s", lines[3][4])
    assert lines[3][5] == "no worker"
    fields = json.loads(filled("queues", "--json").out)
    assert [(each["name"], each["is_served"]) for each in fields] == [("a,b", True), ("mail", True), ("parcels", False)]
    assert fields[2]["oldest_wait"] >= 120
    sql(store, "UPDATE workers SET deadline_ms = 1 WHERE key = 'k1'")
    assert [each["name"] for each in json.loads(filled("queues", "--json").out)] == ["parcels"], "it is overdue"


def test_looking_at_workers_changes_nothing_and_makes_no_store(holdfast: Command) -> None:
    for name in ("workers", "queues"):
        assert "there is no store" in holdfast.refused(name)
    assert sorted(path.name for path in holdfast.folder.iterdir()) == ["shop.py"]
