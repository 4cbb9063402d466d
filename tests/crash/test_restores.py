"""A store that is restored from a backup: dead before and after every commit of `restored`, and while work goes on."""

import os
import shutil
import signal
import time
from collections import Counter
from pathlib import Path

import psycopg
import pytest
from tests.crash import restore_apps as apps
from tests.crash.killed import was_killed
from tests.crash.program import BODIES
from tests.crash.test_processes import line, results, start_all, stop, worker
from tests.forking.processes import run
from tests.postgres import places, programs
from tests.scenarios.kinds import are_files, named
from tests.scenarios.support import check_tables, rows, together

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.client.activity_reports import ActivityReports
from holdfast.client.client import calls_of
from holdfast.core.activity_events import ReportKind
from holdfast.errors import UsageError
from holdfast.runtime.platform import FaultPoint
from holdfast.storage.members.restoring import NUMBERS_LIFTED
from holdfast.storage.postgres.address import parse

MOST_COMMITS = 30
EXPECTED_COMMITS = 9
pytestmark = pytest.mark.slow


def expected() -> dict[str, object]:
    external = {"ready": 71, "queued": 71, "running": 71, "reported": 70}
    return {**external, **{f"local-{number}": number + 1 for number in range(apps.INSTANCES)}}


@pytest.mark.parametrize("point", [FaultPoint.BEFORE_COMMIT.value, FaultPoint.AFTER_COMMIT.value])
def test_R2_a_crash_at_every_commit_of_a_restore_is_repaired_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setenv(BODIES, str(tmp_path / "recovered.bodies"))
    for at in range(1, MOST_COMMITS):
        store = tmp_path / f"{at}.db"
        stale = together(apps.prepare(named(store)))
        died = was_killed("tests.crash.restore_apps", store, "restore", point, at)
        assert audit(store) == [], "what a restore leaves half done is sound"
        if died:
            together(restore_again(store))
        together(check_restored(store, stale))
        assert together(apps.complete(named(store))) == expected()
        check_tables(store)
        assert audit(store) == []
        assert Counter(losses for (losses,) in rows(store, "SELECT losses FROM attempts")).keys() == {0}
        if not died:
            assert at > EXPECTED_COMMITS, "it has fewer commits than worker keys and batches"
            return
    pytest.fail(f"it still died at its commit number {MOST_COMMITS - 1}")


async def restore_again(store: Path) -> None:
    async with hf.connect(store) as client:
        await client.restored(force=True)


async def check_restored(store: Path, stale: dict[str, str]) -> None:
    """Nothing that the lost time knows is of any use."""
    fences = [fence for (fence,) in rows(store, "SELECT fence FROM instances WHERE closed_at_ms IS NULL")]
    assert min(fences) > NUMBERS_LIFTED
    assert rows(store, "SELECT key FROM workers WHERE state = 'ACTIVE'") == []
    still = rows(
        store,
        "SELECT exec_id FROM offers JOIN attempts ON attempts.number = offers.number AND "
        "attempts.attempt = offers.attempt WHERE withdrawn_at_ms IS NULL AND closed_at_ms IS NULL",
    )
    assert len(still) == 4
    assert not {exec_id for (exec_id,) in still} & set(stale.values())
    async with hf.connect(store) as client:
        await client.start("later", id="later")
        reports = ActivityReports(calls_of(client))
        for exec_id in stale.values():
            await reports.insert(exec_id, ReportKind.COMPLETED, claim=apps.STALE, payload="666")
    [(number,)] = rows(store, "SELECT number FROM instances WHERE id = 'later'")
    assert number > NUMBERS_LIFTED
    [(others,)] = rows(store, "SELECT max(number) FROM instances WHERE id <> 'later'")
    assert others < NUMBERS_LIFTED
    async with hf.connect(store) as client:
        await client.get("later").terminate()


class Copy:
    """A backup, by the means of each store, and its restore: what came after it is lost."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._file = store.with_name("backup.db")

    def take(self) -> None:
        if are_files():
            hf.backup(self._store, self._file, replace=True)
            return
        address = parse(named(self._store))
        dumped = programs.run("pg_dump", "--format=plain", f"--schema={address.schema}", address.libpq_url)
        self._file.write_text(dumped, encoding="utf-8")

    def restore(self) -> None:
        if are_files():
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self._store}{suffix}").unlink(missing_ok=True)
            shutil.copyfile(self._file, self._store)
            return
        address = parse(named(self._store))
        with psycopg.connect(address.libpq_url, autocommit=True) as connection:
            connection.execute(f'DROP SCHEMA "{address.schema}" CASCADE'.encode())
        readable = places.of_run() / f"restore-{os.getpid()}.sql"  # psql is run by another user
        shutil.copyfile(self._file, readable)
        readable.chmod(0o644)
        try:
            programs.run("psql", "--quiet", "--set=ON_ERROR_STOP=1", f"--file={readable}", address.libpq_url)
        finally:
            readable.unlink()


def test_R2_R3_a_backup_of_a_workload_under_kill_9_is_restored_and_finishes_everything(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"
    copy = Copy(store)
    names = [f"it-{number}" for number in range(150)]
    together(start_all(store, names))
    for attempt in range(4):
        with worker(store) as process:
            assert line(process).startswith("key ")
            time.sleep(0.03)
            if attempt == 1:
                copy.take()
            process.send_signal(signal.SIGKILL)
            process.wait()
    with worker(store, lease=60) as lost:
        assert line(lost).startswith("key ")
        together(results(store, names))
        [(before,)] = rows(store, "SELECT count(*) FROM instances WHERE closed_at_ms IS NULL")
        assert before == 0, "all are done in the time that is lost"
        lost.send_signal(signal.SIGKILL)
        lost.wait()
    copy.restore()
    assert audit(store) == []
    [(unfinished,)] = rows(store, "SELECT count(*) FROM instances WHERE closed_at_ms IS NULL")
    assert unfinished > 0, "the backup was taken when nothing was left to do"
    done = run("holdfast.cli:main", "restored", "--store", named(store))
    assert done.code == 0, done.complaints
    assert "is ready for workers" in done.said
    again = run("holdfast.cli:main", "restored", "--store", named(store), "--json")
    assert again.code == 0, again.complaints
    with worker(store) as process:
        together(results(store, names))
        stop(process)
    check_tables(store)
    assert audit(store) == []


def test_R2_a_restore_beside_a_live_worker_is_refused_and_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"
    names = ["it-0", "it-1", "it-2"]
    with worker(store, lease=60) as process:
        key = line(process).split()[1]

        async def refused() -> None:
            async with hf.connect(store) as client:
                with pytest.raises(UsageError, match=f"live workers: {key}"):
                    await client.restored()

        together(refused())
        together(start_all(store, names))
        together(results(store, names))
        before = rows(store, "SELECT key, state, token FROM workers")
        done = run("holdfast.cli:main", "restored", "--store", named(store), "--dry-run", "--force", "--json")
        assert done.code == 0, done.complaints
        assert f'"{key}"' in done.said
        assert [row[:2] for row in rows(store, "SELECT key, state, token FROM workers")] == [row[:2] for row in before]
        forced = run("holdfast.cli:main", "restored", "--store", named(store), "--force")
        assert forced.code == 0, forced.complaints
        assert rows(store, "SELECT state FROM workers WHERE key = ?", key) == [("INACTIVE",)]
        more = ["it-3", "it-4", "it-5"]
        together(start_all(store, more))
        together(results(store, more))  # the worker has taken another key
        stop(process)
    check_tables(store)
