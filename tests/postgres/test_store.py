"""What is PostgreSQL's own about its store: lost connections, its clock, and rows that become visible late."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from tests.postgres.server import Place
from tests.postgres.stores import ask, event, on_a_store, run, writer_of

from holdfast.core.leases import Heartbeat, Renewed
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Outcome, Rejected, StartedInstance
from holdfast.storage.postgres import store as postgres_store
from holdfast.storage.postgres import writer as postgres_writer
from holdfast.storage.postgres.store import PostgresStore
from holdfast.storage.postgres.transaction import run_pipelined
from holdfast.storage.records import CommitId, InstanceId
from holdfast.storage.relational import statements
from holdfast.storage.relational.apply.dispatch import apply_members
from holdfast.testing.conformance.bench import ANNA, HERE, Bench, ManualClock, start

STORAGE = Path(statements.__file__).parents[1]


def end_backends(place: Place) -> None:
    with place.connect() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'"
        )


def test_L13_a_group_whose_connection_is_lost_before_its_commit_goes_through_another_one(postgres: Place) -> None:
    async def case(store: PostgresStore) -> None:
        lost: list[int] = []

        def lose_once(transaction: Any, members: Sequence[Member]) -> list[Outcome]:
            outcomes = apply_members(transaction, members)
            if not lost:
                lost.append(1)
                end_backends(postgres)
            return outcomes

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(postgres_writer, "apply_members", lose_once)
            (outcome,) = await store.commit(CommitId(1), [start("a")])
        assert isinstance(outcome, StartedInstance)
        assert outcome.created
        assert lost == [1]
        assert await store.was_committed(CommitId(1))

    on_a_store(postgres, case, clock=ManualClock())


def never(_: Sequence[Member]) -> bool:
    return False


def lose_reply(patch: pytest.MonkeyPatch, times: int) -> list[str]:
    """COMMIT is done, and its reply is lost, so many times."""
    lost: list[str] = []

    def losing(connection: psycopg.Connection, *asked: Any) -> Any:
        answer = run_pipelined(connection, *asked)
        if ("COMMIT",) in asked and len(lost) < times:
            lost.append("COMMIT")
            connection.close()
            raise psycopg.OperationalError("the connection is lost")
        return answer

    patch.setattr(postgres_writer, "run_pipelined", losing)
    return lost


def test_L13_a_commit_whose_reply_is_lost_is_found_by_its_id_with_what_came_of_its_members(postgres: Place) -> None:
    async def case(store: PostgresStore) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(postgres_writer, "is_eligible", never)  # of one call: see test_loop_writer
            lost = lose_reply(patch, 1)
            (outcome,) = await store.commit(CommitId(1), [start("a")])
            assert lost
        assert isinstance(outcome, StartedInstance)
        assert outcome.created
        assert len(await store.list_instances(before=2**62, limit=10)) == 1

    on_a_store(postgres, case, clock=ManualClock())


def test_L13_a_commit_that_was_given_up_is_never_made_and_may_be_tried_again(postgres: Place) -> None:
    """Whoever settles an unknown outcome puts a void row in its place, which a late transaction cannot pass."""

    async def case(store: PostgresStore) -> None:
        vars(writer_of(store))["_in_doubt"][CommitId(7)] = 0
        assert not await store.was_committed(CommitId(7))
        assert not await store.was_committed(CommitId(7))
        (late,) = await store.commit(CommitId(7), [start("a")])
        assert isinstance(late, Rejected)
        assert await store.find_instance(InstanceId("a")) is None

    on_a_store(postgres, case, clock=ManualClock())


def test_G3_a_member_that_cannot_be_sent_falls_alone_out_of_its_group(postgres: Place) -> None:
    async def case(store: PostgresStore) -> None:
        for commit, wrong in enumerate(("b\0c", "b\ud800c", "b\0c", "b\ud800c")):
            group = [start(f"a{commit}"), start(wrong), start(f"d{commit}")]
            outcomes = await store.commit(CommitId(commit), group)
            assert [isinstance(outcome, StartedInstance) for outcome in outcomes] == [True, False, True]

    on_a_store(postgres, case, clock=ManualClock())


def test_C15_a_group_that_was_divided_has_the_wake_ups_of_all_parts(postgres: Place) -> None:
    async def case(store: PostgresStore) -> None:
        sent: list[Any] = []
        group = [start("a"), start("b\0c"), msgspec.structs.replace(start("d"), workflow="other")]
        await store.commit(CommitId(1), group, sent.append)
        assert [wakeups.to_all.workflows for wakeups in sent] == [{"flow", "other"}]

    on_a_store(postgres, case, clock=ManualClock())


# ------------------------------------------------------------ time


def test_W9_time_is_the_servers_and_the_mark_holds_it_when_the_servers_clock_goes_back(postgres: Place) -> None:
    async def case(store: PostgresStore) -> None:
        with postgres.connect() as connection:
            [(now_ms,)] = connection.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").fetchall()
            assert abs(store.now_ms() - now_ms) < 10_000
            reply = store.heartbeat(Heartbeat(ANNA, None, 5_000), HERE)
            assert isinstance(reply, Renewed)
            assert 4_000 < reply.deadline_ms - now_ms < 15_000
            ahead_ms = now_ms + 3_600_000
            run(connection, postgres, "UPDATE {}.clock SET now_ms = %s", ahead_ms)
        await store.commit(CommitId(1), [start("first")])  # may be said at once, by the time that was told last
        (outcome,) = await store.commit(CommitId(2), [start("a")])
        assert isinstance(outcome, StartedInstance)
        assert outcome.instance.created_at_ms == ahead_ms

    on_a_store(postgres, case)


def test_W9_a_group_writes_no_row_that_every_group_writes(postgres: Place) -> None:
    async def case(store: PostgresStore) -> None:
        store.heartbeat(Heartbeat(ANNA, None, 5_000), HERE)

        def mark() -> int:
            return int(ask(postgres, "SELECT xmin FROM {}.clock")[0][0])

        before = mark()
        for number in range(5):
            await store.commit(CommitId(number), [start(f"i{number}")])
        assert mark() == before

    on_a_store(postgres, case)


# ------------------------------------------------------------ messages


def test_G10_a_message_that_becomes_visible_late_is_not_overlooked(postgres: Place) -> None:
    """Its row has a lower number than one that was seen: its transaction took longer."""

    async def case(store: PostgresStore) -> None:
        bench = Bench(store, ManualClock())
        bench.beat(ANNA)
        first, second = await bench.started("a", activities=0), await bench.started("b", activities=0)
        with postgres.connect() as connection:
            connection.execute("BEGIN")
            insert = "INSERT INTO {}.inbox (number, execution, stamp_ms, event) VALUES (%s, 1, 0, %s)"
            run(connection, postgres, insert, first.number, b"slow")
            await bench.one(event("b"))
            (seen,) = await store.read_inbox_of(ANNA, 0)
            assert seen.number == second.number
            connection.execute("COMMIT")
        (late,) = [row for row in await store.read_inbox_of(ANNA, seen.row) if row.row != seen.row]
        assert late.row < seen.row
        assert late.event == b"slow"

    on_a_store(postgres, case, clock=ManualClock())


def test_C1_a_clean_up_is_done_in_pieces_and_waits_for_nobody(postgres: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another one is removing is passed over, and is there again if that one gives up."""
    monkeypatch.setattr(postgres_store, "PIECE", 2)

    async def case(store: PostgresStore) -> None:
        bench = Bench(store, ManualClock())
        for number in range(5):
            await bench.one(start(f"i{number}"))
        ask(postgres, "UPDATE {}.commits SET at_ms = id - 10")
        with postgres.connect() as other:
            other.execute("BEGIN")
            run(other, postgres, "DELETE FROM {}.commits WHERE id <= 2")
            assert await store.prune()
            left = [number for number in range(1, 6) if await store.was_committed(CommitId(number))]
            assert left == [1, 2, 5], "two of those that nobody is at"
            assert not await store.prune()
            other.execute("ROLLBACK")
        assert await store.prune()
        assert not await store.prune()
        assert ask(postgres, "SELECT count(*) FROM {}.commits") == [(0,)]

    on_a_store(postgres, case)


@pytest.mark.parametrize("is_guessed", [True, False])
def test_G5_a_group_reads_what_is_committed_whatever_the_role_prefers(postgres: Place, is_guessed: bool) -> None:
    levels: list[Any] = []

    def noted(transaction: Any, members: Sequence[Member]) -> list[Outcome]:
        levels.extend(transaction.fetch("SHOW transaction_isolation"))
        return apply_members(transaction, members)

    async def case(store: PostgresStore) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(postgres_writer, "apply_members", noted)
            if not is_guessed:
                patch.setattr(postgres_writer, "is_eligible", never)
            (outcome,) = await store.commit(CommitId(1), [start("a")])
        assert isinstance(outcome, StartedInstance)
        assert levels == [("read committed",)]

    prefers = "options=-cdefault_transaction_isolation%3Dserializable"
    preferring = Place(f"{postgres.server}{'&' if '?' in postgres.server else '?'}{prefers}", postgres.schema)
    on_a_store(preferring, case, clock=ManualClock())


def test_a_store_that_is_open_needs_no_file_of_its_package(postgres: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package may be upgraded under a running worker."""

    async def case(store: PostgresStore) -> None:
        def gone(package: str, _: str) -> Any:
            raise FileNotFoundError(package)

        monkeypatch.setattr(statements, "files_of", gone)
        names = {file.stem for package in ("relational", "postgres") for file in (STORAGE / package / "sql").glob("*")}
        assert {name for name in names if not getattr(store.sql, name)} == set()

    on_a_store(postgres, case, clock=ManualClock())  # in a schema of its own, whose statements are read for it
