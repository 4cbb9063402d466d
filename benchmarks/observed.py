"""The cost of metrics and of traces: batches of B1 with and without them, in one engine."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Sample, gather_bounded
from benchmarks.pairs import BATCH, take_turns
from benchmarks.programs import sequence
from benchmarks.workloads import IN_FLIGHT, STEPS, open_engine
from holdfast.client.metrics import observe
from holdfast.client.tracing import trace
from holdfast.runtime.observing import Untraced


async def metrics(store: Path, scale: float) -> Sample:
    """The speed and the processor time of B1 with metrics, relative to B1 without them."""
    async with open_engine(store) as engine:
        session = engine._session
        counted = observe(engine)

        async def one(number: int) -> None:
            if await engine.run(sequence, STEPS, id=f"it-{number}") != STEPS:
                raise AssertionError(number)

        async def with_metrics(number: int) -> None:
            session.observer = counted
            await gather_bounded(one, BATCH, IN_FLIGHT, first=2 * number * BATCH)

        async def without(number: int) -> None:
            session.observer = None
            await gather_bounded(one, BATCH, IN_FLIGHT, first=(2 * number + 1) * BATCH)

        took = await take_turns(with_metrics, without, 3 * scale)
        if counted.instances_closed["sequence", "COMPLETED"] != len(took.mine) * BATCH:
            raise AssertionError(counted.instances_closed)
    return {"speed": took.speed, "processor": took.processor}


async def traces(store: Path, scale: float) -> Sample:
    """The speed and the processor time of B1 with the spans of an SDK, relative to B1 without them."""
    # Imported here: the SDK in a process makes the other benchmarks slower.
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult  # noqa: PLC0415

    class Nowhere(SpanExporter):
        """Counts spans and sends them nowhere: the cost of a protocol is its own."""

        def __init__(self) -> None:
            self.spans = 0

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            self.spans += len(spans)
            return SpanExportResult.SUCCESS

    exporter = Nowhere()
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=1_000_000))
    async with open_engine(store) as engine:
        session = engine._session
        worker = engine._local.worker
        if worker is None:
            raise AssertionError
        trace(session, provider)
        observer, spans, nothing = session.observer, session.spans, Untraced()

        async def one(number: int) -> None:
            if await engine.run(sequence, STEPS, id=f"it-{number}") != STEPS:
                raise AssertionError(number)

        async def with_traces(number: int) -> None:
            session.observer, session.spans = observer, spans
            worker.attempts._set_current = spans.set_current
            await gather_bounded(one, BATCH, IN_FLIGHT, first=2 * number * BATCH)

        async def without(number: int) -> None:
            session.observer, session.spans = None, nothing
            worker.attempts._set_current = nothing.set_current
            await gather_bounded(one, BATCH, IN_FLIGHT, first=(2 * number + 1) * BATCH)

        took = await take_turns(with_traces, without, 3 * scale)
    provider.shutdown()
    if exporter.spans != len(took.mine) * BATCH * (STEPS + 2):
        raise AssertionError(exporter.spans)
    return {"speed": took.speed, "processor": took.processor}
