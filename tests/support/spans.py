"""Tracer providers that keep their spans, and the spans as a test reads them."""

from collections import Counter
from collections.abc import Iterator

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

PREFIX = "holdfast."


class Seen:
    """A span that has ended."""

    def __init__(self, span: ReadableSpan) -> None:
        assert span.context is not None
        self.name = span.name
        self.id = span.context.span_id
        self.trace = span.context.trace_id
        self.parent = None if span.parent is None else span.parent.span_id
        self.attributes = {key.removeprefix(PREFIX): value for key, value in (span.attributes or {}).items()}
        self.events = [event.name for event in span.events]
        self.links = [link.context.span_id for link in span.links]
        self.status = span.status.status_code.name
        self.description = span.status.description
        self.began, self.ended = span.start_time or 0, span.end_time or 0

    @property
    def outcome(self) -> object:
        return self.attributes.get("outcome")

    def __repr__(self) -> str:
        return f"{self.name} {self.outcome} {self.id:x}"


class Traces:
    """A provider, and everything that its tracers have written."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("application")

    def __iter__(self) -> Iterator[Seen]:
        return (Seen(span) for span in self._exporter.get_finished_spans())

    def named(self, name: str) -> list[Seen]:
        return sorted((span for span in self if span.name == name), key=lambda span: span.began)

    def only(self, name: str) -> Seen:
        [span] = self.named(name)
        return span

    @property
    def names(self) -> Counter[str]:
        return Counter(span.name for span in self)
