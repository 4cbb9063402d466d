"""Spans of what was committed: one trace from the starter to the last activity, and nothing from a replay (M4, M5)."""

import asyncio
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import opentelemetry.trace
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from tests.scenarios.support import check_tables, engine_of, rows, together, until
from tests.support.spans import Traces

import holdfast as hf
from holdfast.core.trace_context import attempt_span_id, parse_context
from holdfast.errors import ActivityTimedOut, UsageError

QUICK = hf.Retry(attempts=3, initial=0.001, jitter=False)


class Down(Exception):
    """Not now."""


@hf.activity
async def double(number: int) -> int:
    opentelemetry.trace.get_current_span().set_attribute("number", number)
    with opentelemetry.trace.get_tracer("unused").start_as_current_span("nothing"):
        return 2 * number


@hf.activity
def halve(number: int) -> int:
    return number // 2


@hf.activity(retry=QUICK)
async def flaky(number: int) -> int:
    if hf.activity_info().attempt < 3:
        raise Down(f"attempt {hf.activity_info().attempt}")
    return number


@hf.activity(retry=hf.Retry(attempts=1), start_to_close=0.05)
async def slow() -> None:
    await asyncio.sleep(3_600)


@hf.activity
async def hangs() -> int:
    if hf.activity_info().attempt == 1:
        await asyncio.sleep(3_600)
    return 1


@hf.workflow
async def child(number: int) -> int:
    return await double(number)


@hf.workflow(version="7")
async def parent(number: int) -> int:
    total = await child(number) + await double(number)
    if number:
        hf.continue_as_new(number - 1)
    return total


@hf.workflow
async def waits(name: str) -> int:
    return await hf.event(name, int)


@hf.workflow
async def one(number: int) -> int:
    return await double(number)


def test_M4_one_trace_from_the_starter_to_the_last_activity(tmp_path: Path) -> None:
    sender, worker = Traces(), Traces()
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        async with hf.connect(path, tracing=sender.provider) as client:
            with sender.tracer.start_as_current_span("request"):
                handle = await client.start(parent, 1, id="it")
            async with engine_of(path, parent, child, double, tracing=worker.provider):
                assert await handle.result(timeout=20) == 0
        check_tables(path)

    together(scenario())
    request, start = sender.only("request"), sender.only("start parent")
    assert start.parent == request.id
    first, second = worker.named("run parent")
    assert [first.outcome, second.outcome] == ["CONTINUED_AS_NEW", "COMPLETED"]
    assert first.parent == second.parent == start.id, "executions follow each other, and do not nest"
    assert [run.attributes["execution"] for run in (first, second)] == [1, 2]
    assert first.attributes["workflow.version"] == "7"
    for run, inner in zip((first, second), worker.named("run child"), strict=True):
        assert inner.parent == run.id
        mine = [span for span in worker.named("double") if span.parent in (run.id, inner.id)]
        assert len(mine) == 2, "one of the parent and one of the child"
    assert {span.trace for span in (*sender, *worker)} == {request.trace}
    assert len({span.id for span in (*sender, *worker)}) == 2 + 2 + 2 + 4


def test_M5_a_retried_execution_is_a_failed_span_of_the_same_trace(tmp_path: Path) -> None:
    @hf.workflow(retry=hf.Retry(attempts=2, initial=0))
    async def fails_once() -> int:
        if hf.info().attempt == 1:
            raise ValueError("once")
        return 1

    worker = Traces()
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        async with hf.connect(path) as client:  # the start has no context that both executions could get
            await client.start(fails_once, id="it")
        async with engine_of(path, fails_once, tracing=worker.provider) as engine:
            assert await engine.get("it").result(timeout=20) == 1
        check_tables(path)

    together(scenario())
    first, second = worker.named("run fails_once")
    assert [first.outcome, second.outcome] == ["FAILED", "COMPLETED"]
    assert first.attributes["error.type"] == "builtins.ValueError"
    assert first.trace == second.trace
    assert first.id != second.id


def test_M5_an_event_that_is_awaited_in_a_later_turn_has_one_span(tmp_path: Path) -> None:
    @hf.workflow
    async def raises() -> None:
        sent = hf.raise_event("other", "go", 1)
        await asyncio.sleep(0.01)
        await sent

    worker = Traces()
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(path, raises, waits, tracing=worker.provider) as engine:
            other = await engine.start(waits, "go", id="other")
            await engine.run(raises, id="it")
            assert await other.result(timeout=20) == 1
        check_tables(path)

    together(scenario())
    assert len({span.id for span in worker}) == len(list(worker))


def test_M4_an_activity_of_another_worker_is_a_child_of_the_execution(tmp_path: Path) -> None:
    @hf.activity(queue="far")
    async def far(number: int) -> int:
        return number

    @hf.workflow
    async def asks(number: int) -> int:
        return await far(number)

    here, there = Traces(), Traces()
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        async with (
            engine_of(path, asks, tracing=here.provider, queues=["default"]) as engine,
            engine_of(path, far, tracing=there.provider, queues=["far"]),
        ):
            assert await engine.run(asks, 1, id="it") == 1

    together(scenario())
    run = here.only("run asks")
    (attempt,) = (*here.named("far"), *there.named("far"))
    assert (attempt.parent, attempt.trace, attempt.outcome) == (run.id, run.trace, "COMPLETED")
    assert attempt.id == attempt_span_id(run.id, 0, 1)
    assert attempt.attributes["queue"] == "far"


def test_M4_the_span_of_an_attempt_is_current_in_its_body(tmp_path: Path) -> None:
    traces = Traces()

    @hf.activity
    async def calls(number: int) -> int:
        with traces.tracer.start_as_current_span("http"):
            return number

    @hf.activity
    def calls_in_thread(number: int) -> int:
        opentelemetry.trace.get_current_span().set_attribute("mine", number)
        with traces.tracer.start_as_current_span("http in a thread"):
            return number

    @hf.workflow
    async def both(number: int) -> int:
        return await calls(number) + await calls_in_thread(number)

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", both, calls, calls_in_thread, tracing=traces.provider) as engine:
            assert await engine.run(both, 4) == 8
        assert not opentelemetry.trace.get_current_span().get_span_context().is_valid

    together(scenario())
    assert traces.only("http").parent == traces.only("calls").id
    assert traces.only("http in a thread").parent == traces.only("calls_in_thread").id
    assert traces.only("calls_in_thread").attributes["mine"] == 4
    for inner, outer in (("http", "calls"), ("calls", "run both")):
        assert traces.only(outer).ended >= traces.only(inner).ended


def test_M4_each_attempt_has_a_span_with_its_outcome(tmp_path: Path) -> None:
    @hf.workflow
    async def tries() -> int:
        number = await flaky(5)
        with suppress(ActivityTimedOut):
            await slow()
        return number

    traces = Traces()

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", tries, flaky, slow, tracing=traces.provider) as engine:
            assert await engine.run(tries) == 5

    together(scenario())
    attempts = traces.named("flaky")
    assert [span.attributes["attempt"] for span in attempts] == [1, 2, 3]
    assert [span.outcome for span in attempts] == ["FAILED", "FAILED", "COMPLETED"]
    assert [span.status for span in attempts] == ["ERROR", "ERROR", "UNSET"]
    assert attempts[0].attributes["error.type"] == f"{Down.__module__}.Down"
    assert (attempts[0].description, attempts[0].events) == ("attempt 1", ["exception"])
    assert traces.only("slow").outcome == "TIMED_OUT"
    assert traces.only("slow").attributes["error.type"] == "holdfast.errors.ActivityTimedOut"
    assert len({span.id for span in traces}) == len(list(traces))


def test_M5_after_a_kill_the_execution_is_one_span_and_a_replay_writes_none(tmp_path: Path) -> None:
    """The first worker dies in the second activity. The other one replays the first, and runs the second again."""

    @hf.workflow
    async def survives(number: int) -> int:
        return await double(number) + await hangs()

    first, second = Traces(), Traces()
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        engine = engine_of(path, survives, double, hangs, tracing=first.provider, lease=1, detect_local_deaths=False)
        await engine.open()
        await engine.start(survives, 1, id="it")
        await until(lambda: rows(path, "SELECT 1 FROM attempts WHERE name = 'hangs' AND state = 'RUNNING'"))
        await until(lambda: first.names["double"] == 1)
        await engine._kill()
        async with engine_of(path, survives, double, hangs, tracing=second.provider) as other:
            assert await other.get("it").result(timeout=20) == 3

    together(scenario())
    [run] = [*first.named("run survives"), *second.named("run survives")]
    assert run.parent == first.only("start survives").id
    assert first.only("double").parent == run.id, "the id was known before the span was written"
    assert second.named("double") == [], "a replay writes nothing"
    lost, again = second.named("hangs")
    assert [lost.outcome, again.outcome] == ["TIMED_OUT", "COMPLETED"]
    assert lost.attributes["error.type"] == "holdfast.errors.WorkerLost"
    assert {lost.parent, again.parent} == {run.id}
    assert first.named("hangs") == []
    assert "run survives" not in first.names


@pytest.mark.parametrize("cache_size", [0, 100])
def test_M5_replays_change_no_span(tmp_path: Path, cache_size: int) -> None:
    """Without a cache an instance is replayed for each of its turns."""

    @hf.workflow
    async def long(number: int) -> int:
        total = 0
        for each in range(number):
            total += await double(each)
            await asyncio.sleep(0.001)
        return total + await hf.event("go", int) + await child(number)

    traces = Traces()

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, long, child, double, tracing=traces.provider, cache_size=cache_size) as engine:
            handle = await engine.start(long, 3, id="it")
            await until(lambda: rows(path, "SELECT 1 FROM instances WHERE turn > 5"))
            await handle.raise_event("go", 1)
            assert await handle.result(timeout=20) == 13

    together(scenario())
    assert traces.names == {
        "start long": 1,
        "event go": 1,
        "run long": 1,
        "run child": 1,
        "double": 4,
    }
    run = traces.only("run long")
    assert run.events == [*["timer started", "timer fired"] * 3, "event awaited", "event received"]
    assert run.links == [traces.only("event go").id]


@given(steps=st.lists(st.sampled_from(["activity", "timer", "child", "retry"]), max_size=6))
@settings(max_examples=8)
def test_M5_random_programs_have_the_same_spans_with_and_without_replays(steps: list[str]) -> None:
    @hf.workflow
    async def runs(steps: list[str]) -> None:
        for step in steps:
            match step:
                case "activity":
                    await double(1)
                case "timer":
                    await asyncio.sleep(0.001)
                case "child":
                    await child(1)
                case _:
                    await flaky(1)

    def spans_of(cache_size: int) -> Counter[tuple[str, str, object]]:
        traces = Traces()

        async def scenario() -> None:
            with TemporaryDirectory() as folder:
                path = Path(folder) / "shop.db"
                known = (runs, child, double, flaky)
                async with engine_of(path, *known, tracing=traces.provider, cache_size=cache_size) as engine:
                    await engine.run(runs, steps, id="it")

        together(scenario())
        names = {span.id: span.name for span in traces}
        assert len(names) == len(list(traces)), "no id occurs twice"
        return Counter((span.name, names.get(span.parent or 0, ""), span.outcome) for span in traces)

    spans = spans_of(cache_size=0)
    assert spans == spans_of(cache_size=100)
    attempts = {"activity": 1, "timer": 0, "child": 2, "retry": 3}
    assert spans.total() == 2 + sum(attempts[step] for step in steps)


def test_M4_events_and_updates_link_their_senders(tmp_path: Path) -> None:
    @hf.workflow
    async def sends(target: str) -> None:
        hf.raise_event(target, "word", 3)

    @hf.workflow
    async def listens() -> int:
        total = 0

        @hf.on_update
        async def add(number: int) -> int:
            nonlocal total
            total += number
            return total

        return await hf.event("word", int) + total

    traces = Traces()

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", sends, listens, tracing=traces.provider) as engine:
            handle = await engine.start(listens, id="listener")
            with traces.tracer.start_as_current_span("request"):
                assert await handle.update("add", 4) == 4
            await engine.run(sends, "listener", id="sender")
            assert await handle.result(timeout=20) == 7

    together(scenario())
    update, event = traces.only("update add"), traces.only("event word")
    assert update.parent == traces.only("request").id
    assert event.parent == traces.only("run sends").id
    assert event.attributes["instance.id"] == "listener"
    assert traces.only("run listens").links == [update.id, event.id]


def test_M4_instances_that_end_without_their_code_have_a_span(tmp_path: Path) -> None:
    @hf.workflow
    async def family() -> None:
        await hf.start(waits, "never", id="inner")
        await hf.event("never")

    traces = Traces()
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(path, waits, family, tracing=traces.provider) as engine:
            terminated = await engine.start(waits, "never", id="terminated")
            await terminated.terminate("enough")
            await engine.start(family, id="outer")
            await until(lambda: rows(path, "SELECT 1 FROM instances WHERE id = 'inner' AND turn > 0"))
            await engine.get("outer").terminate()
            cancelled = await engine.start(waits, "never", id="cancelled")
            await cancelled.cancel()
            with pytest.raises(hf.WorkflowCancelled):
                await cancelled.result(timeout=20)
            failed = await engine.start(waits, "never", id="overdue", deadline=0.01)
            with pytest.raises(hf.WorkflowFailed):
                await failed.result(timeout=20)
            await until(lambda: sum(span.name.startswith("run ") for span in traces) == 5)

    together(scenario())
    found = {span.attributes["instance.id"]: span for span in traces if span.name.startswith("run ")}
    outcomes = {name: span.outcome for name, span in found.items()}
    assert outcomes == {
        "terminated": "TERMINATED",
        "outer": "TERMINATED",
        "inner": "TERMINATED",
        "cancelled": "CANCELLED",
        "overdue": "FAILED",
    }
    assert found["inner"].parent == found["outer"].id
    assert found["overdue"].status == "ERROR"


def test_M4_without_a_traced_client_the_execution_begins_the_trace(tmp_path: Path) -> None:
    first, second = Traces(), Traces()
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        async with hf.connect(path) as client:
            await client.start(parent, 1, id="it")
        async with engine_of(path, parent, child, double, tracing=first.provider, cache_size=0) as engine:
            assert await engine.get("it").result(timeout=20) == 0

    together(scenario())
    runs = first.named("run parent")
    assert [run.parent for run in runs] == [None, runs[0].id]
    assert len({span.trace for span in first}) == 1
    assert second.names == {}


def test_M4_what_the_starter_does_not_sample_is_recorded_nowhere(tmp_path: Path) -> None:
    sender, worker = Traces(ParentBased(ALWAYS_OFF)), Traces()
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        async with hf.connect(path, tracing=sender.provider) as client:
            handle = await client.start(one, 1, id="it")
            async with engine_of(path, one, double, tracing=worker.provider):
                assert await handle.result(timeout=20) == 2

    together(scenario())
    assert [*sender, *worker] == []


def test_M4_a_trace_that_no_client_began_is_sampled_as_a_whole(tmp_path: Path) -> None:
    worker = Traces(ParentBased(TraceIdRatioBased(0.5)))
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        async with hf.connect(path) as client:
            handles = [await client.start(one, number, id=f"it-{number}") for number in range(40)]
            async with engine_of(path, one, double, tracing=worker.provider):
                for handle in handles:
                    await handle.result(timeout=20)

    together(scenario())
    assert 0 < worker.names["run one"] < 40
    assert worker.names["run one"] == worker.names["double"]
    assert {span.trace for span in worker.named("run one")} == {span.trace for span in worker.named("double")}


class Broken(SpanProcessor):
    """Code of a user that raises."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        del span, parent_context
        raise RuntimeError("a span processor failed")

    def on_end(self, span: ReadableSpan) -> None:
        del span
        raise RuntimeError("a span processor failed")


def test_M4_a_span_processor_that_raises_costs_the_span_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    traces = Traces()
    traces.provider.add_span_processor(Broken())

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, parent, child, double, waits, tracing=traces.provider) as engine:
            assert await engine.run(parent, 1) == 0
            handle = await engine.start(waits, "go")
            await handle.raise_event("go", 2)
            assert await handle.result(timeout=20) == 2
        check_tables(path)

    together(scenario())
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


def test_M4_the_option_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="needs a tracer provider"):
        engine_of(tmp_path / "shop.db", one, tracing=True)
    with pytest.raises(UsageError, match="not 'yes'"):
        engine_of(tmp_path / "shop.db", one, tracing="yes")
    monkeypatch.setitem(sys.modules, "holdfast.runtime.tracing", None)
    with pytest.raises(UsageError, match=r"holdfast\[otel\]"):
        engine_of(tmp_path / "shop.db", one, tracing=Traces().provider)


def test_M4_a_client_and_its_worker_have_one_tracer(tmp_path: Path) -> None:
    traces = Traces()

    async def scenario() -> None:
        async with hf.connect(tmp_path / "shop.db") as client:
            async with hf.Worker(client, workflows=[one], activities=[double], tracing=traces.provider):
                assert await client.run(one, 3, id="it") == 6
            with pytest.raises(UsageError, match="tracing already"):
                hf.Worker(client, workflows=[one], tracing=traces.provider)

    together(scenario())
    assert traces.only("run one").parent == traces.only("start one").id


def test_M4_without_tracing_nothing_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(path, one, double) as engine:
            await engine.run(one, 1, id="it")

    together(scenario())
    stored = [bytes(row[0]) for row in rows(path, "SELECT events FROM history")]
    stored += [bytes(row[0]) for row in rows(path, "SELECT options FROM attempts")]
    assert stored
    assert all(b'"trace"' not in each for each in stored)


@pytest.mark.parametrize(
    "text",
    ["", "00-0-0-0", f"00-{0:032x}-{1:016x}-01", f"ff-{1:032x}-{1:016x}-01", f"00-{1:032x}-{0:016x}-01", "x" * 99],
)
def test_M4_a_malformed_context_is_none(text: str) -> None:
    assert parse_context(text) is None


def test_M4_a_context_keeps_its_state_if_it_is_short() -> None:
    context = parse_context(f"00-{1:032x}-{2:016x}-01 vendor=a,other=b")
    assert context is not None
    assert (context.trace_id, context.span_id, context.flags, context.state) == (1, 2, 1, "vendor=a,other=b")
    assert parse_context(context.encode()) == context
    long = context._replace(state="v=" + "x" * 600)
    assert long.encode() == f"00-{1:032x}-{2:016x}-01"
