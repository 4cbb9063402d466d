"""Rules of attributes and of searches by filters, for a store with the capability `SEARCH` (F)."""

import datetime as dt
from collections.abc import Awaitable, Callable
from typing import Any, cast
from unittest import SkipTest

import msgspec

from holdfast.compose import capabilities_of
from holdfast.core.attributes import MOST_ATTRIBUTES, AttributeChange, AttributeValue, read_value, store_value
from holdfast.core.filters import at, parse
from holdfast.core.history import AttributesChanged, decode_event
from holdfast.core.lifecycle import InstanceState
from holdfast.storage.contract import SEARCH, SearchStore
from holdfast.storage.members.instances import Block, ClaimInstances, Release, SetAttributes
from holdfast.storage.members.outcomes import ChangedAttributes, ClaimedInstances, Rejected
from holdfast.storage.members.turns import InstanceEnd, NextExecution, TurnEffects
from holdfast.storage.records import Fence, InstanceId, InstanceRecord
from holdfast.storage.search import OrderField, PageOrder, Position, SearchQuery
from holdfast.testing.conformance.bench import (
    ANNA,
    FIRST_TIME_MS,
    Bench,
    Rules,
    applied,
    check,
    closing,
    first_turn,
    start,
    turn,
)
from holdfast.testing.conformance.children import new_child

NOON = dt.datetime(2026, 11, 18, 12, tzinfo=dt.UTC)
VALUES: dict[str, AttributeValue] = {
    "text": "acme",
    "empty": "",
    "int": 2**63 - 1,
    "negative": -(2**63),
    "float": -0.25,
    "bool": False,
    "time": NOON,
    "texts": ["b", "a", "%_"],
    "none": [],
}


def changes(**values: AttributeValue | None) -> tuple[AttributeChange, ...]:
    """Changes of attributes; None deletes one."""
    return tuple(
        AttributeChange(name, None if value is None else store_value(name, value)) for name, value in values.items()
    )


class _SearchCases(Rules):
    def on_search(self, case: Callable[[Bench, SearchStore], Awaitable[None]]) -> None:
        """As `on_bench`, for a store that searches."""

        async def capable(bench: Bench) -> None:
            if SEARCH not in capabilities_of(bench.store):
                raise SkipTest(f"the store does not declare {SEARCH!r}")
            await case(bench, cast("SearchStore", bench.store))

        self.on_bench(capable)


async def values_of(store: SearchStore, record: InstanceRecord) -> dict[str, AttributeValue]:
    return {name: read_value(value) for name, value in (await store.read_attributes(record.number)).items()}


async def found(store: SearchStore, text: str | None, **more: Any) -> list[str]:
    """The ids of a page."""
    filter_ = None if text is None else at(parse(text), FIRST_TIME_MS)
    return [row.instance.id for row in await store.search(SearchQuery(filter=filter_, **more))]


class AttributeRules(_SearchCases):
    """F1, F2: attributes commit with the start or the turn that sets them."""

    def test_F1_a_start_sets_attributes_of_every_type(self) -> None:
        async def case(bench: Bench, store: SearchStore) -> None:
            await bench.one(start("a", attributes=changes(**VALUES)))
            await bench.one(start("b", first=first_turn(), attributes=changes(text="other")))
            check(await values_of(store, await bench.instance("a")) == VALUES)
            check(await values_of(store, await bench.instance("b")) == {"text": "other"})
            kinds = {name: type(value) for name, value in (await values_of(store, await bench.instance("a"))).items()}
            check(kinds == {name: type(value) for name, value in VALUES.items()})
            [one] = await store.search(SearchQuery(filter=parse('a.text = "acme"')))
            check({name: read_value(value) for name, value in one.attributes.items()} == VALUES, "a list has them, too")

        self.on_search(case)

    def test_F2_a_turn_sets_changes_and_deletes_attributes(self) -> None:
        async def case(bench: Bench, store: SearchStore) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(turn(record, attributes=changes(n=1, tags=["a", "b"], gone="x")))))
            record = await bench.instance("a")
            check(await values_of(store, record) == {"n": 1, "tags": ["a", "b"], "gone": "x"})
            check(await found(store, 'a.gone = "x"') == ["a"])
            check(applied(await bench.one(turn(record, attributes=changes(n="one", tags=["c"], gone=None, no=None)))))
            check(await values_of(store, record) == {"n": "one", "tags": ["c"]})
            check(await found(store, 'a.gone = "x" or a.n = 1 or a.tags in ("a", "b")') == [])
            check(await found(store, 'a.n = "one" and a.tags = "c"') == ["a"])

        self.on_search(case)

    def test_F2_the_first_turn_changes_the_attributes_of_its_start(self) -> None:
        async def case(bench: Bench, store: SearchStore) -> None:
            effects = TurnEffects(attributes=changes(n=2, own=True))
            first = msgspec.structs.replace(first_turn(), effects=effects)
            await bench.one(start("a", first=first, attributes=changes(n=1, given="x")))
            check(await values_of(store, await bench.instance("a")) == {"n": 2, "own": True, "given": "x"})

        self.on_search(case)

    def test_F2_a_rejected_turn_sets_no_attribute(self) -> None:
        async def case(bench: Bench, store: SearchStore) -> None:
            record = await bench.started("a")
            stale = turn(record, fence=Fence(record.fence + 1), attributes=changes(n=1))
            check(isinstance(await bench.one(stale), Rejected))
            check(await values_of(store, record) == {})
            check(await found(store, "a.n = 1") == [] == await found(store, "a.n is not null"))

        self.on_search(case)

    def test_F2_a_repeated_start_leaves_the_attributes_as_they_are(self) -> None:
        async def case(bench: Bench, store: SearchStore) -> None:
            await bench.one(start("a", attributes=changes(n=1)))
            await bench.one(start("a", attributes=changes(n=2, more="x")))
            check(await values_of(store, await bench.instance("a")) == {"n": 1})

        self.on_search(case)

    def test_F2_attributes_stay_with_the_next_execution_and_at_the_end(self) -> None:
        async def case(bench: Bench, store: SearchStore) -> None:
            record = await bench.started("a", activities=0)
            following = NextExecution(input=b"[2]", started=start("a").started)
            check(applied(await bench.one(turn(record, next=following, attributes=changes(n=1)))))
            record = await bench.instance("a")
            check(record.execution == 2 and await values_of(store, record) == {"n": 1})
            check(applied(await bench.one(closing(record, attributes=changes(last=True)))))
            check(await values_of(store, record) == {"n": 1, "last": True})
            check(await found(store, "a.n = 1 and a.last = true and execution = 2") == ["a"])

        self.on_search(case)

    def test_F10_a_client_changes_attributes_and_the_code_gets_a_message(self) -> None:
        async def case(bench: Bench, store: SearchStore) -> None:
            record = await bench.started("a", activities=0)
            check(applied(await bench.one(turn(record, attributes=changes(n=1, gone="x", kept=True)))))
            asked = changes(n="two", gone=None, tags=["a", "b"], never=None)
            told = await bench.one(SetAttributes(id=record.id, changes=asked))
            check(isinstance(told, ChangedAttributes) and told.was_changed and told.instance.number == record.number)
            expected = {"kept": True, "n": "two", "tags": ["a", "b"]}
            check(await values_of(store, record) == expected)
            check(isinstance(told, ChangedAttributes) and told.attributes == await store.read_attributes(record.number))
            check(await found(store, 'a.n = "two" and a.tags = "b"') == ["a"] and await found(store, "a.n = 1") == [])
            [message] = await bench.store.peek_inbox(record.number, 5)
            event = decode_event(message.event)
            check(isinstance(event, AttributesChanged) and event.time_ms == bench.clock.now_ms)
            check(isinstance(event, AttributesChanged) and event.values == {each.name: each.value for each in asked})
            record = await bench.instance("a")
            check(applied(await bench.one(turn(record, attributes=asked, consumed=(message.row,)))))
            check(await values_of(store, record) == expected, "the turn that takes the message writes the same")

        self.on_search(case)

    def test_F10_a_change_makes_an_unowned_instance_claimable_and_starts_none_early(self) -> None:
        async def case(bench: Bench, store: SearchStore) -> None:
            bench.beat(ANNA)
            at_ms = bench.clock.now_ms + 5_000
            await bench.one(start("later", start_at_ms=at_ms, workflow="later"))
            await bench.one(SetAttributes(id=InstanceId("later"), changes=changes(n=1)))
            check(await found(store, "a.n = 1") == ["later"])
            claim = ClaimInstances(owner=ANNA, workflows=("later", "flow"), limit=5)
            told = await bench.one(claim)
            check(isinstance(told, ClaimedInstances) and told.instances == [], "its first turn is not due")
            record = await bench.started("idle", activities=0)
            check(applied(await bench.one(Release(number=record.number, fence=record.fence, owner=ANNA))))
            told = await bench.one(claim)
            check(isinstance(told, ClaimedInstances) and told.instances == [], "it has nothing to do")
            await bench.one(SetAttributes(id=record.id, number=record.number, changes=changes(n=2)))
            told = await bench.one(claim)
            check(isinstance(told, ClaimedInstances) and [each.id for each in told.instances] == ["idle"])

        self.on_search(case)

    def test_F10_a_closed_instance_gets_the_change_and_no_message(self) -> None:
        async def case(bench: Bench, store: SearchStore) -> None:
            record = await bench.started("a", activities=0)
            check(applied(await bench.one(closing(record, attributes=changes(n=1)))))
            told = await bench.one(SetAttributes(id=record.id, changes=changes(n=2, ticket="OPS-1")))
            check(isinstance(told, ChangedAttributes) and told.was_changed)
            check(await values_of(store, record) == {"n": 2, "ticket": "OPS-1"})
            check(await bench.store.peek_inbox(record.number, 5) == [])

        self.on_search(case)

    def test_F10_a_refused_change_stores_nothing(self) -> None:
        async def case(bench: Bench, store: SearchStore) -> None:
            record = await bench.started("a", activities=0)
            full = {f"n{number}": number for number in range(MOST_ATTRIBUTES)}
            check(applied(await bench.one(turn(record, attributes=changes(**full)))))
            told = await bench.one(SetAttributes(id=record.id, changes=changes(n0="new", more=1)))
            check(isinstance(told, ChangedAttributes) and not told.was_changed)
            check(await values_of(store, record) == full)
            check(await bench.store.peek_inbox(record.number, 5) == [])
            told = await bench.one(SetAttributes(id=record.id, changes=changes(n0=None, more=1)))
            check(isinstance(told, ChangedAttributes) and told.was_changed, "it takes the place of a deleted one")
            unknown = await bench.one(SetAttributes(id=InstanceId("unknown"), changes=changes(n=1)))
            check(isinstance(unknown, Rejected))

        self.on_search(case)

    def test_F3_a_filter_finds_values_of_its_own_class(self) -> None:
        async def case(bench: Bench, store: SearchStore) -> None:
            given: dict[str, AttributeValue] = {"int": 1, "float": 1.0, "text": "1", "bool": True, "texts": ["1"]}
            for name, value in given.items():
                await bench.one(start(name, attributes=changes(v=value)))
            check(await found(store, "a.v = 1") == ["float", "int"])
            check(await found(store, 'a.v = "1"') == ["texts", "text"])
            check(await found(store, "a.v = true") == ["bool"])
            check(await found(store, "a.v != 2") == ["float", "int"])
            check(await found(store, 'a.v >= "0"') == ["texts", "text"])
            check(await found(store, "not a.v = 1") == ["texts", "bool", "text"])
            check(await found(store, "a.v is null") == [])

        self.on_search(case)

    def test_F3_numbers_texts_and_times_have_an_order(self) -> None:
        async def case(bench: Bench, store: SearchStore) -> None:
            numbers = (-(2**63), -1.5, -1, 0, 0.1, 1, 2**53, 2**53 + 1, 1e300)
            for place, number in enumerate(numbers):
                moment = NOON + dt.timedelta(microseconds=place)
                given = changes(n=number, t="a" * place, at=moment)
                await bench.one(start(f"i{place}", attributes=given))
            check(await found(store, "a.n > 9007199254740992") == ["i8", "i7"])
            check(await found(store, "a.n <= -1", order=PageOrder(is_ascending=True)) == ["i0", "i1", "i2"])
            check(await found(store, "a.n between -1 and 0.1") == ["i4", "i3", "i2"])
            check(await found(store, 'a.t < "aaa" and a.t > ""') == ["i2", "i1"])
            check(await found(store, "a.at >= 2026-11-18T12:00:00.000007Z") == ["i8", "i7"])
            check(await found(store, "a.at = 2026-11-18T13:00:00.000007+01:00") == ["i7"])

        self.on_search(case)


class SearchRules(_SearchCases):
    """F4, F6, F7, F9: the same instances, in the same order, on every store."""

    async def _family(self, bench: Bench) -> None:
        """A parent, its child, and a failed, a blocked, a waiting and a later instance."""
        parent = await bench.started("top", activities=0)
        await bench.one(turn(parent, children=(new_child(0, "below"),), has_relatives=True))
        bench.clock.now_ms += 1_000
        failed = await bench.started("failed", activities=0)
        bench.clock.now_ms += 500
        end = InstanceEnd(state=InstanceState.FAILED, outcome=b"{}", error="Declined")
        check(applied(await bench.one(turn(failed, close=end))))
        blocked = await bench.started("blocked", activities=0)
        await bench.one(Block(number=blocked.number, fence=blocked.fence, reason="no such step", build="b", owner=ANNA))
        waiting = await bench.started("waiting", activities=0)
        await bench.one(turn(waiting, waits=("approval", 'x", "y')))
        bench.clock.now_ms += 1_000
        await bench.one(start("last", workflow="other"))

    def test_F4_every_field_is_a_test(self) -> None:
        async def case(bench: Bench, store: SearchStore) -> None:
            await self._family(bench)
            everything = ["last", "waiting", "blocked", "failed", "below", "top"]
            for text, expected in {
                'id = "failed"': ["failed"],
                'id in ("top", "last", "unknown")': ["last", "top"],
                'id starts with "b"': ["blocked", "below"],
                'id >= "top"': ["waiting", "top"],
                'workflow = "other"': ["last"],
                'workflow != "other"': everything[1:],
                'version = ""': everything,
                "state = failed": ["failed"],
                "state in (FAILED, Blocked)": ["blocked", "failed"],
                "state != running": ["last", "blocked", "failed", "below"],
                "not (state = running or state = requested)": ["blocked", "failed"],
                "closed is not null": ["failed"],
                "closed is null and state = failed": [],
                "closed > now": ["failed"],
                "duration >= 1s": ["failed"],
                "duration < 1s": [],
                "not duration < 1s": everything,
                "created > now": ["last"],
                "created between now and now + 1ms": everything[1:],
                'parent = "top"': ["below"],
                'parent != "top"': [],
                "parent is null": [each for each in everything if each != "below"],
                'root = "top"': ["below", "top"],
                'root != "top"': ["last", "waiting", "blocked", "failed"],
                'error = "Declined"': ["failed"],
                "error is null": [each for each in everything if each != "failed"],
                'blocked starts with "no such"': ["blocked"],
                'waits = "approval"': ["waiting"],
                'waits = "y"': [],
                'waits in ("x\\", \\"y", "other")': ["waiting"],
                'waits starts with "app"': ["waiting"],
                "waits is null": [each for each in everything if each != "waiting"],
                'waits != "approval"': [],
                "execution = 1": everything,
                "execution > 1 or execution is null": [],
            }.items():
                result = await found(store, text.replace("\\\\", "\\"))
                check(sorted(result) == sorted(expected), f"{text}: {result}")

        self.on_search(case)

    def test_F4_no_text_of_a_filter_is_part_of_a_statement(self) -> None:
        async def case(bench: Bench, store: SearchStore) -> None:
            for text in ("50%", "5_", "'; DROP TABLE instances --", '"', "\\", "ä\U0001f600", "?1", "$1"):
                await bench.one(start(text, workflow=text, attributes=changes(v=text, w=[text])))
                quoted = text.replace("\\", "\\\\").replace('"', '\\"')
                for test in (
                    "id = {}",
                    "workflow = {}",
                    "a.v = {}",
                    "a.w in ({})",
                    "id starts with {}",
                    "a.v starts with {}",
                ):
                    check(await found(store, test.format(f'"{quoted}"')) == [text], f"{test} of {text}")
            check(await found(store, 'id = "%" or id starts with "_" or a.v = "5%"') == [])
            check(len(await found(store, None)) == 8)

        self.on_search(case)

    def test_F7_pages_are_in_order_and_do_not_overlap(self) -> None:
        async def case(bench: Bench, store: SearchStore) -> None:
            for place in range(10):
                bench.clock.now_ms += place % 3  # several have the same time
                await bench.one(start(f"i{place}", attributes=changes(v="x", n=place)))
            ids = [f"i{place}" for place in range(10)]
            since = 'a.v = "x" and created >= now'
            for text in (
                None,
                "state = requested",
                'a.v = "x"',
                since,
                "a.n >= 0",
                'id starts with "i"',
                "state != failed",
            ):
                for is_ascending in (False, True):
                    order = PageOrder(is_ascending=is_ascending)
                    walked: list[str] = []
                    after: Position | None = None
                    while page := await store.search(_query(text, order=order, after=after, limit=3)):
                        walked += [row.instance.id for row in page]
                        after = page[-1].position
                    check(walked == (ids if is_ascending else ids[::-1]), f"{text}: {walked}")

        self.on_search(case)

    def test_F7_a_list_is_in_the_order_of_its_ends_or_durations(self) -> None:
        async def case(bench: Bench, store: SearchStore) -> None:
            records = [await bench.started(f"i{place}", activities=0) for place in range(4)]
            bench.clock.now_ms += 5_000
            for place in (2, 0, 3):
                bench.clock.now_ms += 10
                check(applied(await bench.one(closing(records[place]))))
            for text in ("closed > now", "state = completed and created >= now", 'id starts with "i" and closed > now'):
                closed = await found(store, text, order=PageOrder(field=OrderField.CLOSED))
                check(closed == ["i3", "i0", "i2"], f"{text}: {closed}")
                longest = await found(
                    store, text, order=PageOrder(field=OrderField.DURATION, is_ascending=True), limit=2
                )
                check(longest == ["i2", "i0"], f"{text}: {longest}")
            order = PageOrder(field=OrderField.CLOSED)
            [first] = await store.search(_query("closed > now", order=order, limit=1))
            check(await found(store, "closed > now", order=order, after=first.position) == ["i0", "i2"])

        self.on_search(case)

    def test_F9_a_count_stops_at_its_limit(self) -> None:
        async def case(bench: Bench, store: SearchStore) -> None:
            for place in range(5):
                await bench.one(start(f"i{place}", attributes=changes(v="x", tags=["a", "b"])))
            for text in (
                None,
                "state = requested",
                'a.v = "x"',
                'a.tags in ("a", "b")',
                "state != failed",
                "a.v is not null",
            ):
                query = _query(text)
                check(await store.count_found(query.filter, 3) == 3, f"{text}: the limit")
                check(await store.count_found(query.filter, 100) == 5, f"{text}: each once")

        self.on_search(case)

    def test_F7_the_key_of_cursors_stays_the_same(self) -> None:
        async def case(bench: Bench, store: SearchStore) -> None:
            del bench
            key = await store.read_secret("cursors")
            check(len(key) >= 16 and key == await store.read_secret("cursors"))

        self.on_search(case)


def _query(text: str | None, **more: Any) -> SearchQuery:
    return SearchQuery(filter=None if text is None else at(parse(text), FIRST_TIME_MS), **more)
