"""A group in one call: values come out as they went in, order is kept where it matters, assumptions are checked."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.postgres.server import Place
from tests.postgres.stores import ask, event, on_a_store, ways_of_writing, writer_of
from tools.generate_batch import TARGET, generate

from holdfast.core.lifecycle import AttemptState
from holdfast.storage.members.outcomes import Applied, Rejected, StartedInstance
from holdfast.storage.members.turns import Turn
from holdfast.storage.postgres.optimistic import group_call
from holdfast.storage.postgres.optimistic import transaction as speculating
from holdfast.storage.postgres.optimistic.group_call import (
    BatchedStatement,
    GroupHead,
    as_text,
    call_of,
    kinds_of,
    literal,
    runs_of,
)
from holdfast.storage.postgres.optimistic.group_function import BATCHED, SETS
from holdfast.storage.postgres.optimistic.transaction import InstanceNumbers
from holdfast.storage.postgres.store import PostgresStore
from holdfast.storage.postgres.transaction import statements_of
from holdfast.storage.records import CommitId, InstanceRecord, TimerRow
from holdfast.testing.conformance.bench import (
    ANNA,
    Bench,
    ManualClock,
    closing,
    completion,
    first_turn,
    new_attempt,
    start,
    turn,
)

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
HARD_TEXTS = [
    "",
    "NULL",
    "null",
    "a,b",
    "{x}",
    '"',
    "\\",
    '\\"',
    "a\\\nb",
    " ",
    "ü",
    "\x7f",
    "'",
    "''",
    "\\'",
    "$1",
    "%s",
]
SQL = statements_of("s")
WITHOUT_INSTANCE = {
    *("active_worker", "lock_request", "insert_request", "mark_trace", "handle_request", "advance_clock"),
    "insert_payload",
}
"""Statements that no order has to be kept for."""
ONE, THREAD, CAREFUL = "one call", "on the thread", "answer by answer"


def test_the_function_that_is_checked_in_is_the_one_of_these_statements(postgres: Place) -> None:
    assert Path(TARGET).read_text(encoding="utf-8") == generate(postgres), "run `python -m tools.generate_batch`"


# ------------------------------------------------------------ values


@pytest.mark.parametrize("conforming", ["on", "off"])
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.none() | TEXTS | st.sampled_from(HARD_TEXTS) | st.integers(-(2**62), 2**62) | st.binary()))
def test_every_value_comes_out_of_the_list_as_it_went_in(
    postgres_server: str, conforming: str, values: list[Any]
) -> None:
    with Place(postgres_server, "none").connect() as connection:
        connection.execute("SET backslash_quote = safe_encoding; SET escape_string_warning = off")
        connection.execute(f"SET standard_conforming_strings = {conforming}".encode())
        given_list = literal("{" + ",".join(as_text(value) for value in values) + "}")
        [(back,)] = connection.execute(f"SELECT {given_list}::text[]".encode()).fetchall()
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


def test_a_state_is_sent_by_its_value() -> None:
    assert as_text(AttemptState.RUNNING) == '"RUNNING"'


def test_a_text_that_cannot_be_sent_is_refused_before_it_is_sent() -> None:
    """libpq would end the statement there."""
    update = BatchedStatement(SQL.delete_state_value, (1, "a\0b"), one=False)
    for queued, ids in (([update], ["a"]), ([], ["a\0b"])):
        with pytest.raises(psycopg.DataError, match="NUL"):
            call_of("s", runs_of("s", queued), head=GroupHead(1, 0, 0, [], ids))


# ------------------------------------------------------------ order


def test_every_statement_of_an_instance_is_known_by_its_number() -> None:
    """By the text of the statement: its values are compared with the columns that they are for."""
    kinds = kinds_of("s")
    found = {name: kinds[getattr(SQL, name)].number_at for name in BATCHED}
    assert {name for name, at in found.items() if at is None} == WITHOUT_INSTANCE
    assert found["insert_offer"] == found["set_state_value"] == found["start_numbered"] == 0
    assert found["move_attempt"] == 4
    assert (found["close_instance"], found["set_awaited_events"]) == (3, 2)
    assert found["exit_response"] == found["cancel_activity"] == found["count_event"] == 1


def change(name: str, number: int) -> BatchedStatement:
    """A statement about an instance, whose other values do not matter."""
    text: str = getattr(SQL, name)
    at = kinds_of("s")[text].number_at or 0
    return BatchedStatement(text, (*["x"] * at, number), one=True)


@given(st.lists(st.tuples(st.sampled_from(sorted({*BATCHED} - WITHOUT_INSTANCE)), st.integers(1, 4)), max_size=40))
def test_statements_of_one_instance_keep_their_order_whatever_it_is(asked: list[tuple[str, int]]) -> None:
    runs = runs_of("s", [change(name, number) for name, number in asked])
    run = [(BATCHED[one.kind - 1], row[-1]) for one in runs for row in one.rows]
    assert len(run) == len(asked)
    for number in range(1, 5):
        assert [name for name, of in run if of == number] == [name for name, of in asked if of == number]


def test_a_group_of_turns_is_a_run_for_each_kind_of_statement() -> None:
    names = ["move_attempt", "commit_turn", "append_history", "insert_attempt"]
    runs = runs_of("s", [change(name, number) for number in range(50) for name in names])
    assert [(BATCHED[run.kind - 1], len(run.rows)) for run in runs] == [(name, 50) for name in names]


def test_a_statement_that_has_no_set_is_a_run_for_each_row() -> None:
    runs = runs_of("s", [change("count_event", number) for number in range(3)])
    assert [len(run.rows) for run in runs] == [1, 1, 1]
    assert {*SETS} <= {*BATCHED}


def rows_of(place: Place, record: InstanceRecord) -> list[list[tuple[Any, ...]]]:
    """All that a store has of an instance, without its number."""
    texts = (
        "SELECT to_jsonb(i) - 'number' - 'id' FROM {}.instances AS i WHERE number = %s",
        "SELECT to_jsonb(h) - 'number' FROM {}.history AS h WHERE number = %s ORDER BY turn",
        "SELECT to_jsonb(a) - 'number' FROM {}.attempts AS a WHERE number = %s ORDER BY activity",
        "SELECT to_jsonb(b) - 'number' - 'row' - 'xid' FROM {}.inbox AS b WHERE number = %s",
        "SELECT to_jsonb(t) - 'number' FROM {}.timers AS t WHERE number = %s",
    )
    return [ask(place, text, record.number) for text in texts]


def test_G11_a_group_leaves_what_its_members_leave_one_after_the_other(
    postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starts, turns with completions and attempts, waits, timers, ends: by sets, and by one row at a time."""

    def members(records: Sequence[InstanceRecord], stage: int) -> list[Turn]:
        after = [
            turn(one, turn=one.turn, completions=(completion(one),), attempts=(new_attempt(1, owner=ANNA),))
            if at % 2
            else turn(one, timers_started=(TimerRow(timer=0, due_at_ms=5),), waits=("go",))
            for at, one in enumerate(records)
        ]
        return after if stage == 0 else [closing(one, read_to=0) for one in records]

    async def case(store: PostgresStore) -> None:
        bench = Bench(store, clock)
        bench.beat(ANNA)
        ways = ways_of_writing(monkeypatch, store)
        await bench.commit(*(start(f"set{number}", first=first_turn()) for number in range(4)))
        for number in range(4):
            await bench.commit(start(f"one{number}", first=first_turn()))
        for stage in range(2):
            grouped = [await bench.instance(f"set{number}") for number in range(4)]
            alone = [await bench.instance(f"one{number}") for number in range(4)]
            assert all(isinstance(outcome, Applied) for outcome in await bench.commit(*members(grouped, stage)))
            for member in members(alone, stage):
                assert isinstance(await bench.one(member), Applied)
            for one, other in zip(grouped, alone, strict=True):
                assert rows_of(postgres, one) == rows_of(postgres, other)
        assert [*ways] == [THREAD, *[ONE] * (len(ways) - 1)], "the first one connects"
        assert ask(postgres, "SELECT count(*) FROM {}.timers") == [(0,)]

    clock = ManualClock()
    on_a_store(postgres, case, clock=clock)


# ------------------------------------------------------------ assumptions


def test_a_group_that_goes_as_expected_is_one_call(postgres: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def case(store: PostgresStore) -> None:
        bench = Bench(store, clock)
        bench.beat(ANNA)
        await bench.started("connects")
        ways = ways_of_writing(monkeypatch, store)
        outcomes = await bench.commit(*(start(name, first=first_turn()) for name in "abc"))
        assert all(isinstance(outcome, StartedInstance) and outcome.created for outcome in outcomes)
        records = [await bench.instance(name) for name in "abc"]
        assert len({record.number for record in records}) == len("abc")
        assert all(isinstance(outcome, Applied) for outcome in await bench.commit(*(turn(one) for one in records)))
        assert ways == [ONE, ONE]

    clock = ManualClock()
    on_a_store(postgres, case, clock=clock)


def test_G14_a_group_that_closes_instances_is_one_call(postgres: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check that the owner has read every message is part of the call, and it can still fail."""

    async def case(store: PostgresStore) -> None:
        bench = Bench(store, clock)
        bench.beat(ANNA)
        records = [await bench.started(name) for name in "abc"]
        ways = ways_of_writing(monkeypatch, store)
        outcomes = await bench.commit(*(closing(record, read_to=0) for record in records[:2]))
        assert all(isinstance(outcome, Applied) for outcome in outcomes)
        await bench.one(event("c"))
        assert isinstance(await bench.one(closing(records[2], read_to=0)), Rejected)
        assert ways == [ONE, THREAD, ONE, CAREFUL], "an event reads, and so it has a thread"

    clock = ManualClock()
    on_a_store(postgres, case, clock=clock)


def test_L13_a_guess_that_was_wrong_costs_a_second_try_and_nothing_else(
    postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case(store: PostgresStore) -> None:
        bench = Bench(store, clock)
        bench.beat(ANNA)
        record = await bench.started("a")
        ways = ways_of_writing(monkeypatch, store)
        stale = turn(record, turn=record.turn + 5)
        fine, refused, taken = await bench.commit(turn(record), stale, start("a", first=first_turn()))
        assert isinstance(fine, Applied)
        assert isinstance(refused, Rejected)
        assert isinstance(taken, StartedInstance)
        assert not taken.created
        assert ways == [ONE, CAREFUL]
        assert (await bench.instance("a")).turn == record.turn + 1

    clock = ManualClock()
    on_a_store(postgres, case, clock=clock)


def test_L13_one_stale_member_of_a_set_is_rejected_and_the_others_are_applied(
    postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case(store: PostgresStore) -> None:
        bench = Bench(store, clock)
        bench.beat(ANNA)
        records = [await bench.started(f"i{number}") for number in range(6)]
        ways = ways_of_writing(monkeypatch, store)
        group = [turn(one, completions=(completion(one),)) for one in records]
        group[3] = turn(records[3], completions=(completion(records[3], activity=7),))
        outcomes = await bench.commit(*group)
        assert [isinstance(outcome, Applied) for outcome in outcomes] == [True, True, True, False, True, True]
        assert ways == [ONE, CAREFUL]
        # the same row twice in one set: one of the two does not change it
        twice = [turn(await bench.instance("i0")), turn(await bench.instance("i0"))]
        assert [isinstance(outcome, Applied) for outcome in await bench.commit(*twice)] == [True, False]

    clock = ManualClock()
    on_a_store(postgres, case, clock=clock)


def test_L13_a_statement_that_the_function_does_not_have_is_judged_before_the_commit(
    postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case(store: PostgresStore) -> None:
        bench = Bench(store, clock)
        bench.beat(ANNA)
        record = await bench.started("a")
        known = dict(kinds_of(store.address.schema))
        del known[store.sql.commit_turn]

        def kinds(_: str) -> dict[str, Any]:
            return known

        monkeypatch.setattr(group_call, "kinds_of", kinds)
        ways = ways_of_writing(monkeypatch, store)
        assert isinstance(await bench.one(turn(record, turn=record.turn + 5)), Rejected)
        assert isinstance(await bench.one(turn(record)), Applied)
        assert ways == [THREAD, CAREFUL, THREAD, CAREFUL]

    clock = ManualClock()
    on_a_store(postgres, case, clock=clock)


def test_G11_a_group_that_is_too_long_for_one_call_is_written_statement_by_statement(
    postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL refuses messages and values above 1 GB, and a group has up to 500 members with payloads of 32 MiB."""
    size = 200_000
    monkeypatch.setattr(group_call, "MOST_CHARACTERS", 5 * size)

    async def case(store: PostgresStore) -> None:
        bench = Bench(store, clock)
        bench.beat(ANNA)
        records = [await bench.started(f"i{number}") for number in range(5)]
        ways = ways_of_writing(monkeypatch, store)
        for some in (records[:2], records[2:]):  # a byte is two hexadecimal digits
            group = [turn(one, attempts=(new_attempt(1, owner=ANNA, input=large_of(one)),)) for one in some]
            assert all(isinstance(outcome, Applied) for outcome in await bench.commit(*group))
        assert ways == [ONE, THREAD, CAREFUL]
        stored = {(number, bytes(data)) for number, data in ask(postgres, "SELECT number, data FROM {}.payloads")}
        assert stored == {(one.number, large_of(one)) for one in records}

    def large_of(record: InstanceRecord) -> bytes:
        return b'"%0*d"' % (size, record.number)

    clock = ManualClock()
    on_a_store(postgres, case, clock=clock)


def test_L13_the_same_commit_twice_is_refused_also_in_one_call(postgres: Place) -> None:
    async def case(store: PostgresStore) -> None:
        bench = Bench(store, clock)
        bench.beat(ANNA)
        assert isinstance((await store.commit(CommitId(9), [start("a", first=first_turn())]))[0], StartedInstance)
        assert isinstance((await store.commit(CommitId(9), [start("b", first=first_turn())]))[0], Rejected)
        assert await store.find_instance(start("b").id) is None

    clock = ManualClock()
    on_a_store(postgres, case, clock=clock)


@pytest.mark.parametrize(
    "default", ["default_transaction_isolation = 'serializable'", "default_transaction_read_only = on"]
)
def test_G5_a_call_refuses_the_defaults_of_the_role_and_then_says_begin(
    postgres: Place, monkeypatch: pytest.MonkeyPatch, default: str
) -> None:
    """A setting that is changed while the connection is open; a new connection to a read-only database is refused."""

    async def case(store: PostgresStore) -> None:
        bench = Bench(store, clock)
        bench.beat(ANNA)
        record = await bench.started("a")
        connection = writer_of(store).ready_connection()
        assert connection is not None
        connection.execute(f"SET {default}".encode())
        ways = ways_of_writing(monkeypatch, store)
        for number in range(3):
            changed = turn(record, turn=record.turn + number)
            assert isinstance(await bench.one(changed), Applied)
        assert ways == [ONE, CAREFUL, THREAD, THREAD]
        assert connection is writer_of(store).ready_connection()

    clock = ManualClock()
    on_a_store(postgres, case, clock=clock)


@pytest.mark.parametrize(("durability", "expected"), [("full", "on"), ("relaxed", "off")])
def test_a_relaxed_store_does_not_wait_for_the_disk(postgres: Place, durability: str, expected: str) -> None:
    """For the transaction of the group only: the session keeps its own setting."""

    async def case(store: PostgresStore) -> None:
        ask(postgres, "CREATE TABLE {0}.seen (setting TEXT)")
        ask(
            postgres,
            "CREATE FUNCTION {0}.see() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS "
            "$$ BEGIN INSERT INTO {0}.seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$",
        )
        ask(postgres, "CREATE TRIGGER see AFTER INSERT ON {0}.commits EXECUTE FUNCTION {0}.see()")
        bench = Bench(store, clock)
        bench.beat(ANNA)
        record = await bench.started("a")
        await bench.one(turn(record))
        await bench.one(event("a"))
        assert ask(postgres, "SELECT DISTINCT setting FROM {}.seen") == [(expected,)]
        connection = writer_of(store).ready_connection()
        assert connection is not None
        assert connection.execute("SHOW synchronous_commit").fetchall() == [("on",)]

    clock = ManualClock()
    on_a_store(postgres, case, clock=clock, durability=durability)


# ------------------------------------------------------------ numbers


def test_numbers_that_were_fetched_long_ago_are_not_given_to_new_instances() -> None:
    numbers = InstanceNumbers()
    fetched: list[int] = []

    def fetch(count: int) -> list[int]:
        first = len(fetched)
        fetched.extend(range(first, first + count))
        return [*range(first, first + count)]

    numbers.begin(1_000)
    first = numbers.take(fetch, 1_000)
    assert numbers.take(fetch, 1_000) == first + 1
    kept = len(fetched)
    numbers.begin(1_500)
    assert numbers.take(fetch, 1_500) == first + 2, "those of a moment ago are used"
    numbers.begin(1_000 + speculating.FRESH_MS + 1)
    assert numbers.take(fetch, 3_000) == kept, "and those that are left are not"
