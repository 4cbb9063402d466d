"""Rules of requests of clients (C2, C3): `HandleRequest`.

They apply to stores with the capability `OPEN_CONTRACT`; for other stores they are skipped.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, cast
from unittest import SkipTest

from holdfast.compose import capabilities_of
from holdfast.core.lifecycle import InstanceState
from holdfast.storage.contract import OPEN_CONTRACT, OpenContractStore
from holdfast.storage.members.contract_rows import InsertReport, InsertRequest
from holdfast.storage.members.instances import Start
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import HandledRows, Outcome, Rejected, StartedInstance
from holdfast.storage.members.row_handling import HandleRequest
from holdfast.storage.records import RequestRecord, RequestState, RowPage
from holdfast.testing.conformance.bench import FIRST_TIME_MS, Bench, Rules, applied, check, closing, start
from holdfast.testing.conformance.messages import cancel, event

LARGEST: Final = 100
EVERY: Final = ("flow", "other")


class RequestRules(Rules):
    """C2, C3, G3."""

    def on_requests(self, case: Callable[[Bench, OpenContractStore], Awaitable[None]]) -> None:
        """As `on_bench`, for a store that has the tables of the open contract."""

        async def capable(bench: Bench) -> None:
            if OPEN_CONTRACT not in capabilities_of(bench.store):
                raise SkipTest(f"the store does not declare {OPEN_CONTRACT!r}")
            await case(bench, cast("OpenContractStore", bench.store))

        self.on_bench(capable)

    def test_C7_a_request_is_handled_once_with_its_effect(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            bench.clock.now_ms += 5
            outcome = await _handle(bench, store, start("a"), workflow="flow")
            [handled] = _rows(outcome)
            found = await _read(store)
            number = (await bench.instance("a")).number
            check((found.state, found.refusal, found.instance_number) == ("ACCEPTED", None, number))
            check(handled.number == number and found.handled_at_ms == FIRST_TIME_MS + 5)
            again = HandleRequest(row=found.row, request_id="r", action=start("b"))
            check(isinstance(await bench.one(again), Rejected), "the row was handled before")
            check(await store.find_instance(start("b").id) is None)
            refusing = HandleRequest(row=found.row, request_id="r", refusal="no")
            check(isinstance(await bench.one(refusing), Rejected))
            check((await _read(store)).state == "ACCEPTED")

        self.on_requests(case)

    def test_C7_two_workers_handle_a_request_once(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            another = self.make_another(bench.clock)
            if another is None:
                raise SkipTest("only one store object can have the data")
            await another.open()
            try:
                check(applied(await bench.one(InsertRequest(request_id="r", workflow="flow"))))
                row = (await _read(store)).row
                member = HandleRequest(row=row, request_id="r", action=start("a"))
                check(isinstance(await Bench(another, bench.clock, first_id=10**6).one(member), HandledRows))
                check(isinstance(await bench.one(member), Rejected))
            finally:
                await another.close()

        self.on_requests(case)

    def test_C2_a_group_handles_the_same_row_once(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            check(applied(await bench.one(InsertRequest(request_id="r", workflow="flow"))))
            row = (await _read(store)).row
            first, second = await bench.commit(
                HandleRequest(row=row, request_id="r", action=start("a")),
                HandleRequest(row=row, request_id="r", action=start("b")),
            )
            check(isinstance(first, HandledRows) and isinstance(second, Rejected))
            check(await store.find_instance(start("b").id) is None)

        self.on_requests(case)

    def test_C2_a_refused_start_changes_nothing_but_the_row(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            await bench.started("a")
            record = await bench.instance("a")
            for number, action in enumerate((start("a", given=b'{"other": 1}'), start("a", workflow="other"))):
                await _handle(bench, store, action, request_id=f"r{number}", workflow="flow")
                found = await _read(store, f"r{number}")
                check(found.state == "REFUSED" and bool(found.refusal) and found.instance_number is None)
                check(await bench.instance("a") == record)

        self.on_requests(case)

    def test_C2_a_repeated_start_of_the_same_input_is_accepted(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            for request_id in ("r", "s"):
                await _handle(bench, store, start("a"), request_id=request_id, workflow="flow")
            numbers = {(await _read(store, one)).instance_number for one in ("r", "s")}
            check(numbers == {(await bench.instance("a")).number})

        self.on_requests(case)

    def test_C2_events_and_cancels_are_delivered_or_refused(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            await bench.started("a")
            cases: list[tuple[Deliver, str]] = [
                (event("a", message_id="r0"), "ACCEPTED"),
                (event("unknown", message_id="r1"), "REFUSED"),
                (cancel("unknown"), "REFUSED"),
                (cancel("a"), "ACCEPTED"),
            ]
            for number, (action, state) in enumerate(cases):
                await _handle(bench, store, action, request_id=f"r{number}", kind="event")
                found = await _read(store, f"r{number}")
                check((found.state, found.refusal is None) == (state, state == "ACCEPTED"), f"{found}")
            record = await bench.instance("a")
            check(record.state is InstanceState.CANCEL_REQUESTED or record.state is InstanceState.RUNNING)
            inbox = await bench.store.peek_inbox(record.number, 9)
            check(applied(await bench.one(closing(record, read_to=inbox[-1].row))))
            for number, action in enumerate((event("a"), cancel("a"))):
                await _handle(bench, store, action, request_id=f"late{number}", kind="event")
                check((await _read(store, f"late{number}")).state == "REFUSED")

        self.on_requests(case)

    def test_C3_a_row_without_action_and_refusal_is_a_trace(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            await _handle(bench, store, None, workflow="flow", manual=True)
            found = await _read(store)
            check((found.state, found.refusal, found.instance_number) == ("TRACE", None, None))
            await _handle(bench, store, None, request_id="s", refusal="a reason")
            found = await _read(store, "s")
            check((found.state, found.refusal) == ("REFUSED", "a reason"))

        self.on_requests(case)

    def test_C2_a_worker_reads_requests_that_it_can_handle_oldest_first(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            rows: tuple[dict[str, Any], ...] = (
                {"workflow": "unknown"},
                {"workflow": "other"},
                {"workflow": "flow"},
                {"kind": "event", "workflow": "unknown"},
                {"kind": "cancel"},
                {"workflow": None},
                {"workflow": "unknown", "manual": True},
                {"kind": "nonsense", "workflow": "unknown"},
                {"workflow": ""},
                {"workflow": "x" * 256},
            )
            for number, columns in enumerate(rows):
                check(applied(await bench.one(InsertRequest(request_id=f"r{number}", **columns))))
            page = await store.new_requests(["flow"], limit=99, largest=LARGEST)
            check([row.request_id for row in page.rows] == ["r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9"])
            check(page.others == 2)
            page = await store.new_requests(EVERY, limit=2, largest=LARGEST)
            check([row.request_id for row in page.rows] == ["r1"] and page.others == 1)
            page = await store.new_requests([], limit=2, largest=LARGEST, after=page.last_row or 0)
            check([row.request_id for row in page.rows] == ["r3"] and page.others == 1)
            page = await store.new_requests(EVERY, limit=2, largest=LARGEST, after=10**6)
            check(page == RowPage(rows=[]))

        self.on_requests(case)

    def test_C7_events_and_cancels_wait_for_an_earlier_start_of_another_worker(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            async def found(*workflows: str) -> list[str]:
                page = await store.new_requests(workflows, limit=99, largest=LARGEST)
                check(len(page.rows) + page.others == len(rows))
                return [row.request_id for row in page.rows]

            rows: dict[str, dict[str, Any]] = {
                "before": {"kind": "event", "instance_id": "a"},
                "start": {"workflow": "flow", "instance_id": "a"},
                "b": {"workflow": "flow"},
                "trace": {"workflow": "flow", "instance_id": "c", "manual": True},
                "no name": {"workflow": "", "instance_id": "d"},
                "event": {"kind": "event", "instance_id": "a"},
                "cancel": {"kind": "cancel", "instance_id": "b"},
                **{f"to {name}": {"kind": "cancel", "instance_id": name} for name in "cde"},
                "nonsense": {"kind": "nonsense", "instance_id": "a"},
                "no target": {"kind": "cancel"},
            }
            for request_id, columns in rows.items():
                check(applied(await bench.one(InsertRequest(request_id=request_id, **columns))))
            left = {"start", "b", "event", "cancel"}
            check(await found("other") == [name for name in rows if name not in left], "the starts are another's")
            check(await found("flow") == list(rows), "in one group, behind their starts")
            check(isinstance(await bench.one(start("a")), StartedInstance))
            check(set(rows) - set(await found("other")) == left - {"event"}, "the instance exists")
            row = (await _read(store, "b")).row
            check(isinstance(await bench.one(HandleRequest(row=row, request_id="b", refusal="no")), HandledRows))
            del rows["b"]
            check(set(rows) - set(await found("other")) == {"start"}, "the start was refused")

        self.on_requests(case)

    def test_C12_a_poll_asks_whether_there_are_new_rows(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            check(not await store.has_new_rows())
            check(applied(await bench.one(InsertRequest(request_id="r", workflow="unknown"))))
            check(await store.has_new_rows(), "of any name")
            row = (await _read(store)).row
            check(isinstance(await bench.one(HandleRequest(row=row, request_id="r", refusal="no")), HandledRows))
            check(not await store.has_new_rows())
            check(applied(await bench.one(InsertReport(event_id="e", activity_exec_id="x", transition="NOTE"))))
            check(await store.has_new_rows())

        self.on_requests(case)

    def test_C6_texts_above_the_limit_are_not_read(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            over = "x" * (LARGEST + 1)
            check(applied(await bench.one(InsertRequest(request_id="r", workflow="flow", input=over))))
            check(applied(await bench.one(InsertRequest(request_id="s", workflow="flow", instance_id="i" * 3_000))))
            check(applied(await bench.one(InsertRequest(request_id="t", workflow="flow", input=over[1:]))))
            page = await store.new_requests(EVERY, limit=9, largest=LARGEST)
            large, named, fits = page.rows
            check(large.input == b"" and large.fault is not None and f"{len(over)} bytes" in large.fault)
            check(named.instance_id is None and named.fault is not None and "instance_id" in named.fault)
            check(fits.fault is None and len(fits.input) == LARGEST)

        self.on_requests(case)


async def _handle(
    bench: Bench,
    store: OpenContractStore,
    action: Start | Deliver | None,
    *,
    request_id: str = "r",
    refusal: str | None = None,
    **columns: Any,
) -> Outcome:
    """Insert a request and handle it."""
    check(applied(await bench.one(InsertRequest(request_id=request_id, **columns))))
    row = (await _read(store, request_id)).row
    return await bench.one(HandleRequest(row=row, request_id=request_id, action=action, refusal=refusal))


def _rows(outcome: Outcome) -> tuple[Any, ...]:
    check(isinstance(outcome, HandledRows), f"it was not handled: {outcome}")
    return outcome.requests if isinstance(outcome, HandledRows) else ()


async def _read(store: OpenContractStore, request_id: str = "r") -> RequestRecord:
    found = await store.read_request(request_id)
    check(found is not None and found.state in list(RequestState), "the request is there")
    return cast("RequestRecord", found)
