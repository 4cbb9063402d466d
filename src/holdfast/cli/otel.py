"""``holdfast worker --otel``: providers from the standard variables ``OTEL_*``, with the exporters that they name.

Providers that the program has set are used as they are, for example under ``opentelemetry-instrument``.
"""

import os
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Generator

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

SERVICE: Final = "OTEL_SERVICE_NAME"
OTLP: Final = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
PACKAGES: Final = {
    "otlp_proto_grpc": "opentelemetry-exporter-otlp-proto-grpc",
    "otlp_proto_http": "opentelemetry-exporter-otlp-proto-http",
}


@dataclass(frozen=True, slots=True)
class Providers:
    """The providers of one worker; without any, it writes no spans and counts nothing."""

    tracer: "TracerProvider | None" = None
    meter: "MeterProvider | None" = None


@contextmanager
def providers() -> "Generator[Providers]":
    """The providers of this process. At the end they export what is left."""
    try:
        from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError(f"--otel needs opentelemetry-api: pip install 'holdfast[otel]' ({error})") from error
    set_before = get_tracer_provider()
    if not isinstance(set_before, ProxyTracerProvider):
        from opentelemetry.metrics import get_meter_provider  # noqa: PLC0415

        yield Providers(set_before, get_meter_provider())
        return
    try:
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(f"--otel needs the SDK: pip install opentelemetry-sdk ({error})") from error
    span_exporters = _exporters("traces")
    metric_exporters = _exporters("metrics")
    os.environ.setdefault(SERVICE, "holdfast")
    tracer = TracerProvider(shutdown_on_exit=False)
    for exporter in span_exporters:
        tracer.add_span_processor(BatchSpanProcessor(exporter))
    readers = [PeriodicExportingMetricReader(exporter) for exporter in metric_exporters]
    meter = MeterProvider(metric_readers=readers, shutdown_on_exit=False)
    try:
        yield Providers(tracer if span_exporters else None, meter if metric_exporters else None)
    finally:
        tracer.shutdown()
        meter.shutdown()


def _exporters(signal: str) -> list[Any]:
    """The exporters of traces or of metrics."""
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    named = [name.strip() for name in os.environ.get(variable, "otlp").split(",")]
    group = f"opentelemetry_{signal}_exporter"
    return [
        _exporter(_otlp(signal, group) if name == "otlp" else name, group, variable)
        for name in named
        if name and name != "none"
    ]


def _otlp(signal: str, group: str) -> str:
    protocols = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((os.environ[name] for name in protocols if os.environ.get(name)), None)
    if protocol is not None:
        if protocol not in OTLP:
            raise UsageError(f"the protocol of OTLP must be {' or '.join(OTLP)}, not {protocol!r}")
        return OTLP[protocol]
    installed = {point.name for point in entry_points(group=group)}
    return next((name for name in ("otlp_proto_http", "otlp_proto_grpc") if name in installed), "otlp_proto_http")


def _exporter(name: str, group: str, variable: str) -> Any:
    found = next(iter(entry_points(group=group, name=name)), None)
    if found is None:
        package = PACKAGES.get(name, "the package that has it")
        raise UsageError(f"--otel needs the exporter {name!r}: pip install {package}, or set {variable} to another one")
    return found.load()()
