"""Random filters match the same instances, in the same order, on every store as in a Python model (F3, F4, F6)."""

import asyncio
import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.postgres.server import Place
from tests.stores.memory import MemoryStore

from holdfast.core.filters import (
    FIELDS,
    And,
    Between,
    Comparison,
    Field,
    Filter,
    In,
    Instant,
    IsNull,
    Kind,
    Length,
    Not,
    Operator,
    Or,
    StartsWith,
    canonical,
    class_of,
    has_time_range,
    parse,
)
from holdfast.core.lifecycle import InstanceState
from holdfast.storage.contract import SearchStore, Store
from holdfast.storage.members.instances import Block
from holdfast.storage.members.turns import InstanceEnd
from holdfast.storage.postgres.store import PostgresStore
from holdfast.storage.relational import search
from holdfast.storage.search import OrderField, PageOrder, SearchQuery
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.testing.conformance.bench import ANNA, BERT, FIRST_TIME_MS, Bench, ManualClock, start, turn
from holdfast.testing.conformance.children import new_child, with_children
from holdfast.testing.conformance.search import changes

TEXTS = [
    "",
    "a",
    "ab",
    "b",
    "%",
    "_",
    "a%",
    "'",
    '"',
    "\\",
    "'; DROP TABLE instances --",
    "ä",
    "\U0001f600",
    "?1",
    "$1",
]
NUMBERS: list[Any] = [-(2**63), -1.5, -1, 0, 0.5, 1, 1.0, 2, 2**53, 2**53 + 1, 2**63 - 1, 1e300]
TIMES = [dt.datetime(2026, 11, 18, 12, 0, 0, micro, tzinfo=dt.UTC) for micro in (0, 1, 999, 1000)]
LISTS = [[], ["a"], ["a", "b"], ["%", "ab"]]
NAMES = ["v", "w", "tags", "missing"]
VALUES: list[Any] = [*TEXTS, *NUMBERS, True, False, *TIMES, *LISTS]
EVENTS = ["go", 'x", "y', "ä"]
MANY = 90


async def fill(store: Store, clock: ManualClock) -> None:
    """The same instances in any store: each is in another phase and has other attributes."""
    bench = Bench(store, clock)
    bench.beat(ANNA)
    bench.beat(BERT)
    for number in range(MANY):
        clock.now_ms += number % 4 * 7
        name = f"{TEXTS[number % len(TEXTS)]}{number}"
        given = {
            "v": VALUES[number % len(VALUES)],
            "w": VALUES[(number * 7 + 3) % len(VALUES)],
            "tags": LISTS[number % len(LISTS)],
        }
        kept = {key: value for place, (key, value) in enumerate(given.items()) if (number + place) % 5}
        workflow = ("flow", "other", "%")[number % 3]
        await bench.one(start(name, workflow=workflow, attributes=changes(**kept)))
        match number % 9:
            case 0 | 1:
                continue
            case 2:
                parent = await bench.started(f"p{number}", activities=0)
                await bench.one(with_children(parent, new_child(0, f"c{number}")))
                continue
            case _:
                record = await bench.started(f"r{number}", activities=0)
        match number % 9:
            case 3 | 4:
                end = InstanceEnd(state=InstanceState.FAILED, outcome=b"{}", error=("Declined", "%")[number % 2])
                await bench.one(turn(record, close=end, attributes=changes(v=number, w=TEXTS[number % len(TEXTS)])))
            case 5:
                await bench.one(turn(record, close=InstanceEnd(state=InstanceState.COMPLETED, outcome=b"{}")))
            case 6:
                blocked = Block(number=record.number, fence=record.fence, reason="no step", build="b", owner=ANNA)
                await bench.one(blocked)
            case 7:
                await bench.one(turn(record, waits=tuple(EVENTS[: number % 4]), attributes=changes(tags=["a"])))
            case _:
                pass


class Pair:
    """A store and the model, with the same instances."""

    def __init__(self, make: Callable[[Callable[[], int]], Store]) -> None:
        self.loop = asyncio.new_event_loop()
        clock, model_clock = ManualClock(), ManualClock()
        self.store: Any = make(clock)
        self.model = MemoryStore(model_clock)
        for store, its_clock in ((self.store, clock), (self.model, model_clock)):
            self.loop.run_until_complete(store.open())
            self.loop.run_until_complete(fill(store, its_clock))

    def ids(self, store: SearchStore, query: SearchQuery) -> list[str]:
        return [row.instance.id for row in self.loop.run_until_complete(store.search(query))]

    def check(self, query: SearchQuery) -> None:
        """The same instances in the same order. Numbers differ between stores, so that equal times may, too."""
        text = query.filter and canonical(query.filter)
        whole = SearchQuery(filter=query.filter, order=query.order, limit=1_000)
        expected = self.loop.run_until_complete(self.model.search(whole))
        found = self.loop.run_until_complete(self.store.search(query))
        places = [(row.position.key, row.position.number) for row in found]
        assert places == sorted(set(places), reverse=not query.order.is_ascending), text
        assert [key for key, _ in places] == [row.position.key for row in expected][: query.limit], text
        keys = {row.instance.id: (row.position.key, row.attributes) for row in expected}
        for row in found:
            assert keys.get(row.instance.id) == (row.position.key, row.attributes), text
        for limit in (3, 1_000):
            counted = self.loop.run_until_complete(self.store.count_found(query.filter, limit))
            assert counted == self.loop.run_until_complete(self.model.count_found(query.filter, limit))

    def close(self) -> None:
        for store in (self.store, self.model):
            self.loop.run_until_complete(store.close())
        self.loop.close()


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    path = tmp_path_factory.mktemp("filters") / "s.db"
    pair = Pair(lambda clock: SqliteStore(path, clock=clock, durability="relaxed"))
    yield pair
    pair.close()


@pytest.fixture
def postgresql(postgres: Place) -> Iterator[Pair]:
    pair = Pair(lambda clock: PostgresStore(postgres.url, clock=clock))
    yield pair
    pair.close()


texts = st.one_of(
    st.sampled_from([*TEXTS, *(f"{text}{number}" for number, text in enumerate(TEXTS))]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3),
)
times = st.one_of(
    st.integers(-5, 3_000).map(lambda ms: Instant((FIRST_TIME_MS + ms) * 1000)),
    st.integers(0, 5_000_000_000).map(Instant),
)
attribute_times = st.sampled_from(TIMES).map(
    lambda time: Instant((time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1))
)
values_of_kind: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.TEXT: st.one_of(texts, st.sampled_from(["flow", "other", "Declined", "no step", "p2", "c2"])),
    Kind.STATE: st.sampled_from([state.value for state in InstanceState]),
    Kind.NUMBER: st.integers(-1, 3),
    Kind.TIME: times,
    Kind.DURATION: st.integers(0, 400_000).map(Length),
    Kind.NAMES: st.sampled_from([*EVENTS, "y", "x", "g", "other"]),
    Kind.ATTRIBUTE: st.one_of(texts, st.sampled_from(NUMBERS), st.booleans(), attribute_times, st.integers(0, MANY)),
}
fields = st.one_of(
    st.sampled_from([*FIELDS]).map(Field), st.sampled_from(NAMES).map(lambda name: Field(name, is_attribute=True))
)


@st.composite
def single_tests(draw: st.DrawFn) -> Filter:
    field = draw(fields)
    values = values_of_kind[field.kind]
    has_order = field.kind not in (Kind.STATE, Kind.NAMES)
    operators = [*Operator] if has_order else [Operator.EQUAL, Operator.NOT_EQUAL]
    kinds = ["comparison", "in", "null", *(["between"] if has_order else [])]
    if field.kind in (Kind.TEXT, Kind.NAMES, Kind.ATTRIBUTE):
        kinds.append("starts")
    match draw(st.sampled_from(kinds)):
        case "comparison":
            return Comparison(field, draw(st.sampled_from(operators)), draw(values))
        case "in":
            return In(field, tuple(draw(st.lists(values, min_size=1, max_size=4))))
        case "null":
            return IsNull(field, draw(st.booleans()))
        case "starts":
            return StartsWith(field, draw(texts if field.kind is not Kind.NAMES else st.sampled_from(["", "g", 'x"'])))
        case _:
            low = draw(values)
            high = draw(values.filter(lambda value: class_of(value) == class_of(low)))
            return Between(field, low, high)


def joined(parts: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
    several = st.lists(parts, min_size=2, max_size=3).map(tuple)
    return st.one_of(several.map(And), several.map(Or), parts.map(Not))


filters = st.recursive(single_tests(), joined, max_leaves=6)
orders = st.builds(PageOrder, field=st.sampled_from(OrderField), is_ascending=st.booleans())


@st.composite
def queries(draw: st.DrawFn) -> SearchQuery:
    found = draw(st.one_of(filters, st.none()))
    order = draw(orders)
    if order.field is not OrderField.CREATED and not has_time_range(found):
        bound = Comparison(Field(draw(st.sampled_from(["created", "closed"]))), Operator.AT_LEAST, draw(times))
        found = bound if found is None else And((found, bound))
    return SearchQuery(filter=found, order=order, limit=draw(st.sampled_from([2, 5, 1_000])))


SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@SETTINGS
@given(queries())
def test_F6_a_random_filter_matches_as_in_the_model_on_sqlite(sqlite: Pair, query: SearchQuery) -> None:
    sqlite.check(query)


@SETTINGS
@given(queries())
def test_F6_a_random_filter_matches_as_in_the_model_on_postgresql(postgresql: Pair, query: SearchQuery) -> None:
    postgresql.check(query)


@SETTINGS
@given(queries(), st.sampled_from([0, 3, 30]), st.sampled_from([0, 3, 30]))
def test_F8_every_choice_of_an_index_gives_the_same_page(
    sqlite: Pair, query: SearchQuery, probed: int, most: int
) -> None:
    """With limits so small that each way to read a list is taken."""
    before = search.PROBED_ROWS, search.SORTED_ROWS
    search.PROBED_ROWS, search.SORTED_ROWS = probed, most  # type: ignore[misc]
    try:
        sqlite.check(query)
    finally:
        search.PROBED_ROWS, search.SORTED_ROWS = before  # type: ignore[misc]


@SETTINGS
@given(queries())
def test_F7_pages_of_a_random_list_make_the_whole_list(sqlite: Pair, query: SearchQuery) -> None:
    whole = sqlite.ids(sqlite.store, SearchQuery(filter=query.filter, order=query.order, limit=1_000))
    walked: list[str] = []
    after = None
    while True:
        page = sqlite.loop.run_until_complete(
            sqlite.store.search(SearchQuery(filter=query.filter, order=query.order, limit=7, after=after))
        )
        walked += [row.instance.id for row in page]
        if len(page) < 7:
            break
        after = page[-1].position
    assert walked == whole


@given(filters)
def test_F4_the_text_of_a_tree_is_read_as_the_tree(found: Filter) -> None:
    assert canonical(parse(canonical(found))) == canonical(found)
