"""Spans of the tracer `holdfast`: with ids that are given, and without harm to the caller (M4).

The API of OpenTelemetry makes random ids. A tracer of the SDK takes them from its `id_generator`, which is replaced for
this tracer only. Another implementation of the API keeps its ids; its spans are children of the start.
"""

import logging
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    ProxyTracerProvider,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TracerProvider,
    TraceState,
    get_tracer_provider,
    set_span_in_context,
)

from holdfast._version import __version__
from holdfast.core.trace_context import SAMPLED, TraceContext
from holdfast.errors import UsageError

logger = logging.getLogger("holdfast")

NANOSECONDS: Final = 1_000_000
"""In a millisecond."""
MOST_MESSAGE: Final = 300
"""Characters of the message of a failure that a span shows."""
INVALID: Final = NonRecordingSpan(SpanContext(0, 0, is_remote=False))
Method = TypeVar("Method", bound=Callable[..., None])


class _Failure(msgspec.Struct, frozen=True):
    """The parts of an encoded failure that a span shows."""

    type: str = ""
    message: str = ""


_decode_failure: Final = msgspec.json.Decoder(_Failure).decode


class HasFailed(Protocol):
    """Logs errors of spans."""

    def failed(self, error: Exception) -> None: ...


def harmless(method: Method) -> Method:
    """A span processor or sampler of the user that raises costs the span, and nothing else."""

    @wraps(method)
    def called(self: HasFailed, *args: Any, **kwargs: Any) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - of code of the user
            self.failed(error)

    return cast("Method", called)


def tracer_of(tracing: object) -> Tracer:
    """The tracer for the option `tracing`: True, or a tracer provider."""
    if tracing is True:
        provider = get_tracer_provider()
        if isinstance(provider, ProxyTracerProvider):
            raise UsageError(
                "tracing=True needs a tracer provider: call opentelemetry.trace.set_tracer_provider(...) before, "
                "or pass tracing=provider"
            )
    elif isinstance(tracing, TracerProvider):
        provider = tracing
    else:
        raise UsageError(f"tracing takes True or an OpenTelemetry TracerProvider, not {tracing!r}")
    tracer = provider.get_tracer("holdfast", __version__)
    usual = getattr(tracer, "id_generator", None)
    if usual is not None and not isinstance(usual, DerivedIds):
        tracer.id_generator = DerivedIds(usual)  # type: ignore[attr-defined]
    return tracer


class DerivedIds:
    """The id generator of the tracer `holdfast` of an SDK: ids that are given, else those of the usual generator.

    Other tracers of the provider keep the usual one. A thread sees only the ids that it has given.
    """

    def __init__(self, usual: Any) -> None:
        self._usual = usual
        self._given = threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._usual, name)

    @contextmanager
    def give(self, trace_id: int, span_id: int) -> Generator[None]:
        self._given.ids = (trace_id, span_id)
        try:
            yield
        finally:
            self._given.ids = None

    def generate_trace_id(self) -> int:
        ids = getattr(self._given, "ids", None)
        found: int = self._usual.generate_trace_id() if ids is None else ids[0]
        return found

    def generate_span_id(self) -> int:
        ids = getattr(self._given, "ids", None)
        found: int = self._usual.generate_span_id() if ids is None else ids[1]
        return found


class SpanWriter:
    """Starts the spans of one session."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        ids = getattr(tracer, "id_generator", None)
        self._ids = ids if isinstance(ids, DerivedIds) else None

    @property
    def derives_ids(self) -> bool:
        """Whether a span gets the id that it is given."""
        return self._ids is not None

    def start(
        self,
        name: str,
        kind: SpanKind,
        parent: TraceContext | None,
        *,
        span_id: int,
        started_ns: int,
        attributes: Mapping[str, Any],
        links: Sequence[Link] = (),
        trace_id: int = 0,
    ) -> Span:
        """A span with a given id, or with a random one if that is 0. `trace_id` is that of a span without a parent."""
        given = {key: value for key, value in attributes.items() if value not in ("", None)}
        context = Context()
        if parent is not None:
            context = set_span_in_context(NonRecordingSpan(span_context(parent)), context)
        start = self.tracer.start_span
        if self._ids is None or not span_id:
            return start(name, context, kind, given, links, started_ns)
        with self._ids.give(trace_id, span_id):
            return start(name, context, kind, given, links, started_ns)

    def flags_of(self, trace_id: int, name: str) -> int:
        """Whether a trace that no client has begun is recorded. Processes decide alike, by the id of the trace."""
        sampler = getattr(self.tracer, "sampler", None)
        if sampler is None:
            return SAMPLED
        result = sampler.should_sample(Context(), trace_id, name, SpanKind.CONSUMER, {}, ())
        return SAMPLED if result.decision.is_sampled() else 0


def span_context(context: TraceContext) -> SpanContext:
    state = TraceState.from_header([context.state]) if context.state else None
    return SpanContext(context.trace_id, context.span_id, True, TraceFlags(context.flags), state)


def stored_context(context: SpanContext) -> TraceContext:
    return TraceContext(context.trace_id, context.span_id, context.trace_flags, context.trace_state.to_header())


def set_failure(span: Span, failure: bytes, time_ns: int) -> None:
    try:
        found = _decode_failure(failure)
    except msgspec.DecodeError:  # of a newer release
        found = _Failure()
    message = found.message[:MOST_MESSAGE]
    set_error(span, found.type, message)
    span.add_event("exception", {"exception.type": found.type, "exception.message": message}, time_ns)


def set_error(span: Span, error_type: str, message: str) -> None:
    span.set_attribute("error.type", error_type)
    span.set_status(Status(StatusCode.ERROR, message[:MOST_MESSAGE]))
