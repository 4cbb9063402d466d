"""``holdfast worker --otel``: a tracer provider from the standard variables ``OTEL_*``, with the exporter they name.

A provider that the program has set is used as it is, for example under ``opentelemetry-instrument``.
"""

import os
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Generator

    from opentelemetry.trace import TracerProvider

EXPORTERS: Final = "OTEL_TRACES_EXPORTER"
GROUP: Final = "opentelemetry_traces_exporter"
SERVICE: Final = "OTEL_SERVICE_NAME"
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
OTLP: Final = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
PACKAGES: Final = {
    "otlp_proto_grpc": "opentelemetry-exporter-otlp-proto-grpc",
    "otlp_proto_http": "opentelemetry-exporter-otlp-proto-http",
}


@contextmanager
def tracer_provider() -> "Generator[TracerProvider]":
    """The tracer provider of this process. At the end it exports what is left."""
    try:
        from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError(f"--otel needs opentelemetry-api: pip install 'holdfast[otel]' ({error})") from error
    set_before = get_tracer_provider()
    if not isinstance(set_before, ProxyTracerProvider):
        yield set_before
        return
    try:
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(f"--otel needs the SDK: pip install opentelemetry-sdk ({error})") from error
    exporters = [_exporter(name) for name in _exporter_names()]
    os.environ.setdefault(SERVICE, "holdfast")
    provider = TracerProvider(shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield provider
    finally:
        provider.shutdown()


def _exporter_names() -> list[str]:
    named = [name.strip() for name in os.environ.get(EXPORTERS, "otlp").split(",")]
    return [_otlp() if name == "otlp" else name for name in named if name and name != "none"]


def _otlp() -> str:
    protocol = next((os.environ[name] for name in PROTOCOLS if os.environ.get(name)), None)
    if protocol is not None:
        if protocol not in OTLP:
            raise UsageError(f"the protocol of OTLP must be {' or '.join(OTLP)}, not {protocol!r}")
        return OTLP[protocol]
    installed = {point.name for point in entry_points(group=GROUP)}
    return next((name for name in ("otlp_proto_http", "otlp_proto_grpc") if name in installed), "otlp_proto_http")


def _exporter(name: str) -> Any:
    found = next(iter(entry_points(group=GROUP, name=name)), None)
    if found is None:
        package = PACKAGES.get(name, "the package that has it")
        raise UsageError(
            f"--otel needs the exporter {name!r}: pip install {package}, or set {EXPORTERS} to another one"
        )
    return found.load()()
