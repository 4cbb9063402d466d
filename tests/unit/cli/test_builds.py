"""``holdfast builds``: the builds of a store, what is only for one of them, and waiting until one is drained (R9)."""

import asyncio
import json
import re
from pathlib import Path

from tests.unit.cli.commands import Command, sql

import holdfast as hf
from holdfast.core.leases import Heartbeat, WorkerKey
from holdfast.storage.members.workers import Registration


def register(path: Path, key: str, build: str, versions: dict[str, list[str]]) -> None:
    async def beat() -> None:
        async with await hf.connect(path) as client:
            said = Registration(
                host=b"", queues="[]", build=build, workflows=json.dumps([*versions]), versions=json.dumps(versions)
            )
            client._session.store.heartbeat(Heartbeat(WorkerKey(key), None, 60_000), said)

    asyncio.run(beat())


def held_by_old(filled: Command) -> Path:
    """A store with one open instance of version 1, held by a worker of the build "old", and a worker with version 2."""
    store = filled.folder / "holdfast.db"
    [(workflow,)] = sql(store, "SELECT workflow FROM instances WHERE id = 'open'")
    sql(store, "UPDATE instances SET version = '1' WHERE closed_at_ms IS NULL")
    sql(store, "DELETE FROM instances WHERE closed_at_ms IS NULL AND id <> 'open'")
    sql(store, "DELETE FROM workers")
    register(store, "k1", "old", {str(workflow): ["1"]})
    register(store, "k2", "new", {str(workflow): ["2"]})
    sql(store, "UPDATE instances SET owner = 'k1', claimable_at_ms = NULL WHERE id = 'open'")
    return store


def test_builds_are_listed_with_the_instances_that_need_them(filled: Command) -> None:
    store = held_by_old(filled)
    header, *lines = filled("builds").out.splitlines()
    names = ["build", "workers", "open", "only here", "activities", "blocked", "last seen (UTC)"]
    assert re.split(r"  +", header) == names
    assert sorted(re.split(r"  +", line) for line in lines) == [
        ["new", "1", "0", "0", "0", "0", "now"],
        ["old", "1", "1", "0", "0", "0", "now"],
    ]
    sql(store, "UPDATE instances SET owner = NULL WHERE id = 'open'")
    sql(store, "UPDATE workers SET state = 'INACTIVE' WHERE key = 'k1'")
    [fields] = [each for each in json.loads(filled("builds", "--json").out)["builds"] if each["build"] == "old"]
    assert (fields["workers"], fields["open"], fields["only_here"], fields["is_drained"]) == (0, 1, 1, False)


def test_instances_that_no_known_worker_had_are_named(filled: Command) -> None:
    store = held_by_old(filled)
    sql(store, "DELETE FROM workers WHERE key = 'k1'")
    said = filled("builds").out.splitlines()[-1]
    assert re.fullmatch(r"1 open instance of \w+, version 1, which no worker here has had within a day: .*", said)
    [stranded] = json.loads(filled("builds", "--json").out)["stranded"]
    assert (stranded["version"], stranded["instances"]) == ("1", 1)


def test_waiting_ends_with_0_when_a_build_is_drained_and_with_1_when_it_is_not(filled: Command) -> None:
    store = held_by_old(filled)
    done = filled("builds", "--wait-drained", "new", "--timeout", "0.01")
    assert (done.code, done.out) == (0, "build new is drained: 1 live worker\n")
    done = filled("builds", "--wait-drained", "old", "--timeout", "0.01")
    assert done.code == 1
    assert done.out == "build old: 1 open instance held by its workers, 1 live worker\n"
    assert "build old is not drained after 0.01 s: 1 open instance held by its workers, 1 live worker" in done.err
    done = filled("builds", "--wait-drained", "old", "--timeout", "0.01", "--json")
    assert (done.code, json.loads(done.out)["held"]) == (1, 1)
    sql(store, "UPDATE instances SET owner = NULL, version = '2' WHERE id = 'open'")
    assert filled("builds", "--wait-drained", "old").code == 0


def test_a_build_that_is_not_known_is_wrong_input(filled: Command) -> None:
    held_by_old(filled)
    done = filled("builds", "--wait-drained", "older")
    assert done.code == 2
    assert "the store knows no worker of build 'older'; known: new, old" in done.err.replace("old, new", "new, old")
    assert filled("builds", "--timeout", "3").code == 2
    assert filled("builds", "--wait-drained", "old", "--timeout", "-1").code == 2


def test_a_store_without_workers_has_no_builds(filled: Command) -> None:
    sql(filled.folder / "holdfast.db", "DELETE FROM workers")
    sql(filled.folder / "holdfast.db", "DELETE FROM instances")
    assert filled("builds").out == "No builds: the store has seen no worker within a day.\n"
