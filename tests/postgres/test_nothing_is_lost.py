"""Nothing acknowledged is lost: real processes under load while the server and the way to it are harmed.

Clients are told of starts, events and results, and check each. A fault is followed by the next one only when work has
gone on, so that every one of them was survived. In the end the audit finds the store sound.
"""

import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from tests.postgres.fixtures import NewCluster
from tests.postgres.load import AT_ONCE, EVENTS, Told
from tests.postgres.namespace import namespace, why_not
from tests.postgres.pooler import Pooler
from tests.postgres.processes import Watched, told_by, verify, watched, words
from tests.postgres.proxy import CALL, COMMIT, Direction, Every, Fate, Proxy
from tests.postgres.standby import pair

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LEASE = "3"
BACK_SECONDS = 30.0
"""From the end of a fault to the next finished instance, on a machine that does other things as well."""
STEP = 3
"""Instances that must finish between two faults."""
SCHEMA = "shop"
LOOKS, LOOK_SECONDS = 600, 0.05


def under_load(store: str, harm: Callable[[int], object], rounds: int, folder: Path, direct: str | None = None) -> Told:
    """Two workers and a client; after each harm work goes on. What is left is looked at by the direct way."""
    errors = folder / "errors"
    with (
        watched(words("worker", store, LEASE), errors) as one,
        watched(words("worker", store, LEASE), errors) as two,
    ):
        one.have_said(1)
        two.have_said(1)
        with watched(words("client", store), errors) as client:
            client.say_more(STEP)
            for number in range(rounds):
                harm(number)
                client.say_more(STEP, BACK_SECONDS)
            told = told_by(client)
        one.finish()
        two.finish()
    check(direct or store, told, errors.read_text(encoding="utf-8"))
    return told


def check(store: str, told: Told, complaints: str) -> None:
    """What the client was told is in the store, no more and no less, and the audit finds nothing."""
    assert told.wrong == []
    assert told.events == told.instances * (EVENTS + 1)
    assert "Traceback" not in complaints, complaints
    server = store.partition("?schema=")[0].partition("&schema=")[0]
    with psycopg.connect(server) as connection:
        count = SQL("SELECT count(*), count(*) FILTER (WHERE state = 'COMPLETED') FROM {}").format(
            Identifier(SCHEMA, "instances")
        )
        assert connection.execute(count).fetchone() == (told.instances, told.instances)
    assert "is sound" in verify(store)


def snapshot(server: str) -> list[tuple[object, ...]]:
    """What a ghost must not change."""
    instances = SQL("SELECT number, state, fence, turn, outcome FROM {} ORDER BY number")
    attempts = SQL("SELECT number, activity, attempt, state, ledger FROM {} ORDER BY 1, 2, 3")
    with psycopg.connect(server) as connection:
        found = connection.execute(instances.format(Identifier(SCHEMA, "instances"))).fetchall()
        return [*found, *connection.execute(attempts.format(Identifier(SCHEMA, "attempts"))).fetchall()]


def state_of(server: str, key: str) -> str:
    with psycopg.connect(server) as connection:
        states = SQL("SELECT state FROM {} WHERE key = %s").format(Identifier(SCHEMA, "workers"))
        [(state,)] = connection.execute(states, (key,)).fetchall()
        return str(state)


def key_of(worker: Watched) -> str:
    """The key it has now."""
    count = len(worker.lines)
    worker.tell("key")
    worker.have_said(count + 1)
    return worker.lines[-1]


def until(is_so: Callable[[], bool]) -> None:
    """Look until it is."""
    for _ in range(LOOKS):
        if is_so():
            return
        time.sleep(LOOK_SECONDS)
    raise AssertionError("it never was")


def shop(url: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}schema={SCHEMA}"


def test_an_immediate_restart_again_and_again(new_cluster: NewCluster, tmp_path: Path) -> None:
    cluster = new_cluster()
    under_load(shop(cluster.url(tcp=True)), lambda _: cluster.restart("immediate"), 4, tmp_path)


def test_a_killed_server(new_cluster: NewCluster, tmp_path: Path) -> None:
    cluster = new_cluster()

    def kill(_: int) -> None:
        cluster.kill()
        cluster.start()

    under_load(shop(cluster.url()), kill, 3, tmp_path)


def test_ended_backends(new_cluster: NewCluster, tmp_path: Path) -> None:
    cluster = new_cluster()
    ended: list[int] = []
    under_load(shop(cluster.url(tcp=True)), lambda _: ended.append(cluster.terminate_backends("holdfast")), 6, tmp_path)
    assert min(ended) >= 3, "of each process at least one"


def test_cut_connections(new_cluster: NewCluster, tmp_path: Path) -> None:
    cluster = new_cluster()
    with Proxy(cluster.port) as proxy:

        def cut(number: int) -> None:
            if number % 2:
                proxy.stall(*list(Direction)[number // 2 % 2 :])
            proxy.cut()
            proxy.resume()

        under_load(shop(cluster.url(port=proxy.port)), cut, 6, tmp_path, shop(cluster.url()))
        assert proxy.accepted > 20


@pytest.mark.parametrize(("every", "text"), [(10, COMMIT), (30, CALL)], ids=["commit", "call"])
@pytest.mark.parametrize("fate", [Fate.LOSE_AND_CUT, Fate.ALLOW_BUT_LOSE_ANSWER], ids=["request", "answer"])
def test_connections_cut_at_the_commit(
    new_cluster: NewCluster, tmp_path: Path, fate: Fate, every: int, text: bytes
) -> None:
    """Whether the commit went through is settled by its id: a lost answer is no lost commit, and none is made twice."""
    cluster = new_cluster()
    with Proxy(cluster.port) as proxy:
        proxy.rule = Every(every, text, fate)  # a group with six events has seven calls
        under_load(shop(cluster.url(port=proxy.port)), lambda _: None, 6, tmp_path, shop(cluster.url()))
        assert proxy.harmed >= 5, "the faults never happened"


def test_a_pooler_that_shares_connections_between_transactions(new_cluster: NewCluster, tmp_path: Path) -> None:
    cluster = new_cluster()
    with Pooler(cluster.port, 3) as pooler:
        url = f"{shop(cluster.url(port=pooler.port))}&notify=false&poll_seconds=0.05"
        under_load(url, lambda _: None, 4, tmp_path, shop(cluster.url()))
        assert pooler.moves > pooler.transactions / 2 > 100


def test_a_failover_to_the_synchronous_standby(tmp_path: Path) -> None:
    with pair() as both:
        under_load(shop(both.url), lambda _: both.fail_over(), 1, tmp_path)


def cut_off(
    command: list[str], store: str, server: str, part: Callable[[], None], join: Callable[[], None], folder: Path
) -> None:
    """A worker that nothing reaches any more is taken over; when it is back it changes nothing, and has a new key."""
    errors = folder / "errors"
    with watched(command, errors) as ghost, watched(words("worker", store, LEASE), errors) as other:
        ghost.have_said(1)
        other.have_said(1)
        with watched(words("client", store), errors) as client:
            client.say_more(STEP)
            part()
            client.say_more(4 * AT_ONCE, BACK_SECONDS)
            told = told_by(client)
        until(lambda: state_of(server, ghost.lines[0]) == "INACTIVE")
        before = snapshot(server)
        join()
        until(lambda: key_of(ghost) != ghost.lines[0])  # a dead key is never used again
        ghost.finish()
        assert snapshot(server) == before
        other.finish()
    check(store, told, errors.read_text(encoding="utf-8"))


@pytest.mark.parametrize("direction", Direction)
def test_W7_a_worker_whose_connections_stall_beyond_its_lease(
    new_cluster: NewCluster, tmp_path: Path, direction: Direction
) -> None:
    cluster = new_cluster()
    with Proxy(cluster.port) as proxy:
        command = words("worker", shop(cluster.url(port=proxy.port)), LEASE)
        cut_off(command, shop(cluster.url()), cluster.url(), lambda: proxy.stall(direction), proxy.resume, tmp_path)


def test_W7_a_worker_whose_cable_is_pulled_out(new_cluster: NewCluster, tmp_path: Path) -> None:
    if why_not():
        pytest.skip(why_not())
    cluster = new_cluster()
    with namespace() as room:
        cluster.stop()
        cluster.welcome(room.server_address, room.network)
        cluster.start()
        url = f"postgresql://postgres@{room.server_address}:{cluster.port}/postgres"
        command = room.inside(words("worker", shop(url), LEASE))
        cut_off(command, shop(cluster.url()), cluster.url(), room.pull, room.put_in, tmp_path)
