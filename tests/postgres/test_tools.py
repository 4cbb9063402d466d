"""The tools that harm a server and the way to it do what they say."""

import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.postgres.cluster import Cluster
from tests.postgres.namespace import namespace, why_not
from tests.postgres.pooler import Pooler
from tests.postgres.processes import watched
from tests.postgres.proxy import COMMIT, Direction, Every, Fate, Proxy
from tests.postgres.standby import pair

from holdfast.storage.postgres.transaction import BEGIN, run_pipelined

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    """One for all tests that do no harm to the server itself."""
    made = Cluster()
    try:
        made.start()
        with psycopg.connect(made.url(), autocommit=True) as connection:
            connection.execute("CREATE TABLE kept (number int)")
        yield made
    finally:
        made.remove()


@pytest.fixture
def cluster(server: Cluster) -> Cluster:
    """The same, empty again."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("TRUNCATE kept")
    return server


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[Proxy]:
    with Proxy(cluster.port) as made:
        yield made


def kept(where: str) -> list[int]:
    with psycopg.connect(where) as connection:
        return [number for (number,) in connection.execute("SELECT number FROM kept ORDER BY 1").fetchall()]


def through(cluster: Cluster, proxy: Proxy) -> psycopg.Connection:
    return psycopg.connect(cluster.url(port=proxy.port), autocommit=True)


def test_a_proxy_passes_everything_on(cluster: Cluster, proxy: Proxy) -> None:
    with through(cluster, proxy) as connection:
        long = "x" * 1_000_000
        assert connection.execute("SELECT %s", (long,)).fetchone() == (long,)
    assert (proxy.accepted, proxy.harmed) == (1, 0)


@pytest.mark.parametrize("direction", Direction)
def test_a_proxy_stalls_a_direction_until_it_goes_on(cluster: Cluster, proxy: Proxy, direction: Direction) -> None:
    with through(cluster, proxy) as connection:
        proxy.stall(direction)
        asked = threading.Thread(target=connection.execute, args=("INSERT INTO kept VALUES (1)",))
        asked.start()
        asked.join(0.2)
        assert asked.is_alive()
        assert kept(cluster.url()) == ([1] if direction is Direction.TO_CLIENT else [])
        proxy.resume()
        asked.join(10)
        assert kept(cluster.url()) == [1]


def test_a_proxy_cuts_and_refuses(cluster: Cluster, proxy: Proxy) -> None:
    connection = through(cluster, proxy)
    proxy.cut()
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    through(cluster, proxy).close()
    proxy.refuse()
    with pytest.raises(psycopg.OperationalError):
        through(cluster, proxy)
    proxy.mend()
    through(cluster, proxy).close()


def ask_for_ever(connection: "psycopg.Connection[tuple[object, ...]]") -> None:
    """What was on its way before a stall may still arrive."""
    while True:
        connection.execute("SELECT 1")


def test_a_stalled_connection_can_be_cut(cluster: Cluster, proxy: Proxy) -> None:
    connection = through(cluster, proxy)
    proxy.stall()
    threading.Timer(0.1, proxy.cut).start()
    with pytest.raises(psycopg.OperationalError):
        ask_for_ever(connection)


@pytest.mark.parametrize(("fate", "stored"), [(Fate.LOSE_AND_CUT, []), (Fate.ALLOW_BUT_LOSE_ANSWER, [1])])
def test_a_commit_is_lost_or_only_its_answer(cluster: Cluster, proxy: Proxy, fate: Fate, stored: list[int]) -> None:
    connection = through(cluster, proxy)
    proxy.rule = Every(1, COMMIT, fate)
    run_pipelined(connection, BEGIN, ("INSERT INTO kept VALUES (1)",))
    assert proxy.harmed == 0, "READ COMMITTED is no commit"
    with pytest.raises(psycopg.DatabaseError):  # in a pipeline the driver does not always say which one
        run_pipelined(connection, ("COMMIT",))
    assert proxy.harmed == 1
    assert kept(cluster.url()) == stored


def test_a_commit_that_is_asked_alone_is_lost_like_one_among_others(cluster: Cluster, proxy: Proxy) -> None:
    connection = through(cluster, proxy)
    proxy.rule = Every(1, COMMIT, Fate.LOSE_AND_CUT)
    run_pipelined(connection, BEGIN)
    with pytest.raises(psycopg.OperationalError):
        connection.execute("COMMIT")
    assert proxy.harmed == 1


def plain_connection(url: str) -> psycopg.Connection:
    """One that prepares nothing: both would use the same names in the sessions that they share."""
    return psycopg.connect(url, autocommit=True, prepare_threshold=None)


def test_a_pooler_gives_each_transaction_another_session(cluster: Cluster) -> None:
    with Pooler(cluster.port, 2) as pooler:
        url = cluster.url(port=pooler.port)
        with plain_connection(url) as one, plain_connection(url) as two:
            sessions = [one.execute("SELECT pg_backend_pid()").fetchone() for _ in range(4)]
            assert sessions[0] == sessions[2] != sessions[1] == sessions[3]
            with one.transaction():
                inside = [one.execute("SELECT pg_backend_pid()").fetchone() for _ in range(3)]
                assert two.execute("SELECT pg_backend_pid()").fetchone() not in inside
            assert len(set(inside)) == 1
            one.execute("SET application_name = 'left behind'")
            shown = {connection.execute("SHOW application_name").fetchone() for connection in (one, two, one)}
            assert len(shown) == 2, "found by the other, and missed by itself"
            with two.pipeline():
                numbers = [two.execute("SELECT %s::int", (number,)) for number in range(50)]
            assert [number.fetchone() for number in numbers] == [(number,) for number in range(50)]
        assert pooler.moves >= 3, "the first connection alone moved three times"


def test_backends_are_ended_by_name(cluster: Cluster) -> None:
    ours = psycopg.connect(cluster.url(), application_name="ours", autocommit=True)
    theirs = psycopg.connect(cluster.url(), application_name="theirs", autocommit=True)
    assert cluster.terminate_backends("theirs") == 1
    with pytest.raises(psycopg.errors.AdminShutdown):
        theirs.execute("SELECT pg_sleep(10)")
    assert ours.execute("SELECT 1").fetchone() == (1,)
    ours.close()


def test_a_synchronous_standby_has_all_that_was_acknowledged() -> None:
    with pair() as both:
        with psycopg.connect(both.url, autocommit=True) as connection:
            assert connection.info.port == both.primary.port
            connection.execute("CREATE TABLE kept (number int)")
            for number in range(20):
                connection.execute("INSERT INTO kept VALUES (%s)", (number,))
        both.fail_over()
        with psycopg.connect(both.url, autocommit=True) as connection:
            assert connection.info.port == both.standby.port
            connection.execute("INSERT INTO kept VALUES (20)")
        assert kept(both.url) == list(range(21))


IN_THERE = """
import sys, psycopg
connection = psycopg.connect(sys.argv[1], autocommit=True, tcp_user_timeout=1500)
print("connected", flush=True)
for line in sys.stdin:
    try:
        connection.execute("SELECT 1")
        print("answered", flush=True)
    except psycopg.OperationalError as error:
        print("lost", flush=True)
        break
"""


def test_a_cable_that_is_pulled_out_tells_nobody(cluster: Cluster, tmp_path: Path) -> None:
    if why_not():
        pytest.skip(why_not())
    with namespace() as room:
        cluster.stop()
        cluster.welcome(room.server_address, room.network)
        cluster.start()
        where = f"postgresql://postgres@{room.server_address}:{cluster.port}/postgres"
        with watched(room.inside([sys.executable, "-c", IN_THERE, where]), tmp_path / "errors") as client:
            client.have_said(1)
            room.pull()
            room.put_in()
            client.tell("again")
            client.have_said(2)
            room.pull()
            client.tell("again")
            client.have_said(3)
            assert client.lines == ["connected", "answered", "lost"]


def test_a_port_is_outside_of_what_the_system_gives_away(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert other.getsockname()[1] > 32_000 > cluster.port
