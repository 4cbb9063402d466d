"""The servers that tests run on: a schema for each test, and clusters that survive what is done to them."""

import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from tests.postgres import places
from tests.postgres.cluster import Cluster
from tests.postgres.fixtures import NewCluster
from tests.postgres.server import GIVEN, Place, place, server

ROOT = Path(__file__).parents[2]


def tables(where: str, schema: str) -> list[str]:
    with psycopg.connect(where) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
        return [name for (name,) in found]


def make_table(mine: Place) -> None:
    with mine.connect() as connection:
        connection.execute(SQL("CREATE SCHEMA {} CREATE TABLE kept (number int)").format(Identifier(mine.schema)))


def test_every_test_has_a_schema_of_its_own_that_is_gone_after_it(postgres: Place) -> None:
    with place(postgres.server) as other:
        assert other.schema != postgres.schema
        make_table(other)
        assert tables(postgres.server, other.schema) == ["kept"]
    assert tables(postgres.server, other.schema) == []
    assert postgres.url.endswith(f"schema={postgres.schema}")


def test_the_server_can_be_named_by_the_environment(postgres: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GIVEN, postgres.server)
    with server() as url:
        assert url == postgres.server
    with postgres.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,), "it is not ours, and goes on"


def test_nothing_of_it_is_loaded_by_importing_holdfast() -> None:
    code = "import sys, holdfast; print([m for m in sys.modules if m.split('.')[0] in ('psycopg', 'psycopg_binary')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def put(cluster: Cluster, number: int) -> None:
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (number int)")
        connection.execute("INSERT INTO kept VALUES (%s)", (number,))


def kept(cluster: Cluster, *, tcp: bool = False) -> list[int]:
    with psycopg.connect(cluster.url(tcp=tcp)) as connection:
        return [number for (number,) in connection.execute("SELECT number FROM kept ORDER BY 1").fetchall()]


@pytest.mark.slow
def test_a_cluster_comes_back_with_its_data_after_every_kind_of_end(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    put(cluster, 1)
    cluster.restart("fast")
    put(cluster, 2)
    cluster.restart("immediate")
    put(cluster, 3)
    idle = psycopg.connect(cluster.url())
    first = cluster.pid
    cluster.kill()
    cluster.start()
    assert cluster.pid != first
    assert kept(cluster) == kept(cluster, tcp=True) == [1, 2, 3]
    with pytest.raises(psycopg.OperationalError):
        idle.execute("SELECT 1")
    idle.close()


@pytest.mark.slow
def test_a_cluster_that_cannot_start_says_why(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    cluster.stop()
    cluster.configure({"shared_buffers": "a lot"})
    with pytest.raises(RuntimeError, match="invalid value for parameter"):
        cluster.start()


@pytest.mark.slow
def test_a_server_does_not_outlive_the_process_that_started_it() -> None:
    code = (
        "import os, signal\n"
        "from tests.postgres import places\n"
        "from tests.postgres.cluster import Cluster\n"
        "cluster = Cluster()\n"
        "cluster.start()\n"
        "print(cluster.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    end = os.pidfd_open(int(done.stdout)) if Path(f"/proc/{done.stdout.strip()}").exists() else None
    if end is not None:
        assert select.select([end], [], [], 30)[0]
        os.close(end)


def test_the_folder_of_the_run_is_shared_by_its_processes() -> None:
    code = "from tests.postgres import places; places.begin_run(); print(places.of_run()); places.end_run()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == str(places.of_run())
    assert places.of_run().exists()


def test_what_a_killed_run_left_behind_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    names = {"dead": ended.stdout.decode().strip(), "alive": str(os.getpid()), "ours": "this"}
    for name in names.values():
        (tmp_path / f"{places.PREFIX}{name}" / "data").mkdir(parents=True)
    monkeypatch.setenv(places.RUN, names["ours"])
    places.sweep()
    assert len(list(tmp_path.iterdir())) == 3, "the first of them may be of a run that began just now"
    places.sweep(older_than_seconds=0)
    assert {path.name.removeprefix(places.PREFIX) for path in tmp_path.iterdir()} == {names["alive"], names["ours"]}
