"""Many changes in one call: values come out as they went in, and what was taken for granted is checked."""

from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import RawCursor
from tests.postgres.server import Place
from tests.postgres.stores import event, on_a_store
from tools.generate_batch import TARGET, generate

from holdfast.core.lifecycle import AttemptState
from holdfast.storage.members.outcomes import Applied, Rejected, StartedInstance
from holdfast.storage.postgres import writer as postgres_writer
from holdfast.storage.postgres.optimistic import transaction as speculating
from holdfast.storage.postgres.optimistic.batch_function import as_text, kinds_of
from holdfast.storage.postgres.optimistic.transaction import InstanceNumbers
from holdfast.storage.postgres.store import PostgresStore
from holdfast.storage.postgres.transaction import run_pipelined
from holdfast.storage.records import CommitId
from holdfast.testing.conformance.bench import ANNA, Bench, ManualClock, closing, first_turn, start, turn

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
HARD_TEXTS = ["", "NULL", "null", "a,b", "{x}", '"', "\\", '\\"', "a\\\nb", " ", "ü", "\x7f", AttemptState.RUNNING]


def test_the_function_that_is_checked_in_is_the_one_of_these_statements(postgres: Place) -> None:
    assert Path(TARGET).read_text(encoding="utf-8") == generate(postgres), "run `python -m tools.generate_batch`"


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.none() | TEXTS | st.sampled_from(HARD_TEXTS) | st.integers(-(2**62), 2**62) | st.binary()))
def test_every_value_comes_out_of_the_list_as_it_went_in(postgres_server: str, values: list[Any]) -> None:
    with Place(postgres_server, "none").connect() as connection:
        cursor: Any = RawCursor(connection)
        given_list = "{" + ",".join(as_text(value) for value in values) + "}"
        [(back,)] = cursor.execute("SELECT $1::text[]", (given_list,)).fetchall()
    assert len(back) == len(values)
    for value, text in zip(values, back, strict=True):
        match value:
            case None:
                assert text is None
            case bytes():
                assert text == "\\x" + value.hex()
            case int():
                assert int(text) == value
            case _:
                assert text == str(value)


def counted(patch: pytest.MonkeyPatch) -> list[str]:
    """How groups were written: at once, or waiting for each answer."""
    ways: list[str] = []
    at_once, begin = postgres_writer.PostgresWriter._write_optimistically, postgres_writer.PostgresWriter._begin

    def speculate(self: Any, *arguments: Any) -> Any:
        ways.append("at once")
        return at_once(self, *arguments)

    def exactly(self: Any, *arguments: Any) -> Any:
        ways.append("answer by answer")
        return begin(self, *arguments)

    patch.setattr(postgres_writer.PostgresWriter, "_write_optimistically", speculate)
    patch.setattr(postgres_writer.PostgresWriter, "_begin", exactly)
    return ways


def test_a_group_that_goes_as_expected_is_said_at_once(postgres: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def case(store: PostgresStore) -> None:
        bench = Bench(store, clock)
        bench.beat(ANNA)
        ways = counted(monkeypatch)
        outcomes = await bench.commit(*(start(name, first=first_turn()) for name in "abc"))
        assert all(isinstance(outcome, StartedInstance) and outcome.created for outcome in outcomes)
        records = [await bench.instance(name) for name in "abc"]
        assert len({record.number for record in records}) == len("abc")
        assert all(isinstance(outcome, Applied) for outcome in await bench.commit(*(turn(one) for one in records)))
        assert ways == ["at once", "at once"]

    clock = ManualClock()
    on_a_store(postgres, case, clock=clock)


def test_G14_a_group_that_closes_instances_is_one_round_trip(postgres: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check that the owner has read every message is part of the batch, and it can still fail."""

    async def case(store: PostgresStore) -> None:
        bench = Bench(store, clock)
        bench.beat(ANNA)
        records = [await bench.started(name) for name in "abc"]
        ways = counted(monkeypatch)
        trips: list[int] = []

        def ask_and_count(connection: Any, *asked: Any) -> Any:
            trips.append(len(asked))
            return run_pipelined(connection, *asked)

        with monkeypatch.context() as patched:
            patched.setattr(speculating, "run_pipelined", ask_and_count)
            outcomes = await bench.commit(*(closing(record, read_to=0) for record in records[:2]))
        assert all(isinstance(outcome, Applied) for outcome in outcomes)
        assert len(trips) == 1
        await bench.one(event("c"))
        assert isinstance(await bench.one(closing(records[2], read_to=0)), Rejected)
        assert ways == ["at once", "at once", "at once", "answer by answer"]

    clock = ManualClock()
    on_a_store(postgres, case, clock=clock)


def test_L13_a_guess_that_was_wrong_costs_a_second_try_and_nothing_else(
    postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case(store: PostgresStore) -> None:
        bench = Bench(store, clock)
        bench.beat(ANNA)
        record = await bench.started("a")
        ways = counted(monkeypatch)
        stale = turn(record, turn=record.turn + 5)
        fine, refused, taken = await bench.commit(turn(record), stale, start("a", first=first_turn()))
        assert isinstance(fine, Applied)
        assert isinstance(refused, Rejected)
        assert isinstance(taken, StartedInstance)
        assert not taken.created
        assert ways == ["at once", "answer by answer"]
        assert (await bench.instance("a")).turn == record.turn + 1

    clock = ManualClock()
    on_a_store(postgres, case, clock=clock)


def test_L13_a_change_that_the_function_does_not_know_is_judged_before_the_commit(
    postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case(store: PostgresStore) -> None:
        bench = Bench(store, clock)
        bench.beat(ANNA)
        record = await bench.started("a")
        known = dict(kinds_of(store.address.schema))
        del known[store.sql.commit_turn]

        def kinds(_: str) -> dict[str, int]:
            return known

        monkeypatch.setattr(speculating, "kinds_of", kinds)
        ways = counted(monkeypatch)
        assert isinstance(await bench.one(turn(record, turn=record.turn + 5)), Rejected)
        assert isinstance(await bench.one(turn(record)), Applied)
        assert ways == ["at once", "answer by answer", "at once"]

    clock = ManualClock()
    on_a_store(postgres, case, clock=clock)


def test_L13_the_same_commit_twice_is_refused_also_when_it_is_said_at_once(postgres: Place) -> None:
    async def case(store: PostgresStore) -> None:
        bench = Bench(store, clock)
        bench.beat(ANNA)
        assert isinstance((await store.commit(CommitId(9), [start("a", first=first_turn())]))[0], StartedInstance)
        assert isinstance((await store.commit(CommitId(9), [start("b", first=first_turn())]))[0], Rejected)
        assert await store.find_instance(start("b").id) is None

    clock = ManualClock()
    on_a_store(postgres, case, clock=clock)


@pytest.mark.parametrize("is_done", [True, False])
def test_L13_a_group_said_at_once_whose_reply_is_lost_is_there_once(
    postgres: Place, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    async def case(store: PostgresStore) -> None:
        bench = Bench(store, clock)
        bench.beat(ANNA)
        say = run_pipelined
        lost: list[bool] = []

        def losing(connection: Any, *asked: Any) -> Any:
            if ("COMMIT",) not in asked or lost:
                return say(connection, *asked)
            lost.append(is_done)
            if is_done:
                say(connection, *asked)
            connection.close()
            raise psycopg.OperationalError("the connection is lost")

        monkeypatch.setattr(speculating, "run_pipelined", losing)
        outcome = await bench.one(start("a", first=first_turn()))
        assert isinstance(outcome, StartedInstance)
        assert outcome.created
        assert lost == [is_done]
        record = await bench.instance("a")
        assert record.number == outcome.instance.number, "what is told is what is there"
        assert len(await store.read_attempts(record.number, 1)) == 1

    clock = ManualClock()
    on_a_store(postgres, case, clock=clock)


def test_numbers_that_were_fetched_long_ago_are_not_given_to_new_instances() -> None:
    numbers = InstanceNumbers()
    fetched: list[int] = []

    def fetch(count: int) -> list[tuple[int]]:
        first = len(fetched)
        fetched.extend(range(first, first + count))
        return [(number,) for number in range(first, first + count)]

    numbers.begin(1_000)
    first = numbers.take(fetch, 1_000)
    assert numbers.take(fetch, 1_000) == first + 1
    kept = len(fetched)
    numbers.begin(1_500)
    assert numbers.take(fetch, 1_500) == first + 2, "those of a moment ago are used"
    numbers.begin(1_000 + speculating.FRESH_MS + 1)
    assert numbers.take(fetch, 3_000) == kept, "and those that are left are not"
