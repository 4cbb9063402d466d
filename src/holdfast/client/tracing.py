"""The option `tracing`: OpenTelemetry spans of a client and its worker (M4). Without it nothing is imported."""

from typing import TYPE_CHECKING, TypeAlias

from holdfast.errors import UsageError
from holdfast.runtime.observing import Untraced, joined
from holdfast.runtime.platform import precise_seconds, wall_ns
from holdfast.runtime.session import StoreSession

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

Tracing: TypeAlias = "bool | TracerProvider | None"
"""True: the tracer provider that the program has set. None: no spans."""


def trace(session: StoreSession, tracing: Tracing) -> None:
    """Write spans of what a session commits, if `tracing` asks for it. A session has one tracer."""
    if tracing is None or tracing is False:
        return
    if not isinstance(session.spans, Untraced):
        raise UsageError("this client has tracing already; give tracing= to the client or to its worker, not to both")
    try:
        from holdfast.runtime.spans import tracer_of  # noqa: PLC0415 - an extra
        from holdfast.runtime.tracing import Tracing as Spans  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(f"tracing needs opentelemetry-api: pip install 'holdfast[otel]' ({error})") from error
    spans = Spans(tracer_of(tracing), session.store, clock=precise_seconds, wall_ns=wall_ns)
    session.spans = spans
    session.observer = joined(session.observer, spans)
