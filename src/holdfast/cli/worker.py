"""``holdfast worker``: runs workflows and activities until a signal ends the worker (W10)."""

import asyncio
import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Final

import click

from holdfast.authoring.provided import ContextFactory, checked_context
from holdfast.authoring.registry import Registry
from holdfast.authoring.validation import checked_duration_ms, checked_integer, checked_name, lease_milliseconds
from holdfast.cli.application import load_function, load_module
from holdfast.cli.console import count_text, safe
from holdfast.cli.exits import EXIT_INTERRUPTED
from holdfast.cli.signals import EarlySignals, Signals, StoppedEarly, end_process, stopping_early
from holdfast.cli.store_option import StoreName, store_path
from holdfast.client.client import Client, connect
from holdfast.client.embedded_worker import DEFAULT_MAX_ACTIVITIES, checked_build, checked_loop_timeout_ms
from holdfast.client.worker import Worker
from holdfast.compose import display_name
from holdfast.core.leases import LOOP_TIMEOUT_MS, WORKER_LEASE_MS
from holdfast.errors import UsageError
from holdfast.payloads.limits import LEAST_PAYLOAD_LIMIT_BYTES, MOST_PAYLOAD_LIMIT_BYTES, PAYLOAD_LIMIT_BYTES
from holdfast.runtime.platform import Platform

if TYPE_CHECKING:
    from holdfast.cli.metrics import ListenAddress
    from holdfast.cli.otel import Providers

logger = logging.getLogger("holdfast")

MILLISECONDS: Final = 1000
DRAIN_SECONDS: Final = 25.0
"""Five seconds less than supervisors usually wait before SIGKILL."""
LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """The checked arguments of the command."""

    modules: list[ModuleType]
    registry: Registry
    queues: list[str]
    concurrency: int
    lease_seconds: float
    loop_timeout_seconds: float | None
    drain_seconds: float
    path: StoreName
    detect_local_deaths: bool
    payload_limit: int
    metrics: "ListenAddress | None"
    context: ContextFactory | None
    build: str
    otel: "Providers | None"


def worker(
    applications: Sequence[str],
    *,
    queues: str | None = None,
    concurrency: int = DEFAULT_MAX_ACTIVITIES,
    lease: float = WORKER_LEASE_MS / MILLISECONDS,
    loop_timeout: float = LOOP_TIMEOUT_MS / MILLISECONDS,
    drain_timeout: float = DRAIN_SECONDS,
    same_host: bool = True,
    metrics: str | None = None,
    context: str | None = None,
    build: str | None = None,
    otel: bool = False,
    payload_limit: int = PAYLOAD_LIMIT_BYTES,
    store: str | None = None,
) -> None:
    """Run workflows and activities that others start, until a signal ends the worker."""
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    try:
        with stopping_early() as early, _otel(otel) as providers:
            modules = [load_module(source) for source in applications]
            registry = _registry(modules, applications)
            request = WorkerRequest(
                modules,
                registry,
                _queues(queues, registry),
                checked_integer(concurrency, "--concurrency", least=1),
                lease_milliseconds(lease, "--lease") / MILLISECONDS,
                _loop_timeout_seconds(loop_timeout),
                checked_duration_ms(drain_timeout, "--drain-timeout") / MILLISECONDS,
                store_path(store),
                same_host,
                checked_integer(
                    payload_limit, "--payload-limit", least=LEAST_PAYLOAD_LIMIT_BYTES, most=MOST_PAYLOAD_LIMIT_BYTES
                ),
                None if metrics is None else _metrics_address(metrics),
                None if context is None else checked_context(load_function(context, "--context")),
                checked_build(build) or registry.build,
                providers,
            )
            early.keep()
            code = asyncio.run(_work(request, early))
    except StoppedEarly as stopped:
        logger.info("%s: the worker ends before it has started", stopped)
        code = 0
    except KeyboardInterrupt:  # a third signal
        code = EXIT_INTERRUPTED
    raise SystemExit(code)


def _registry(modules: list[ModuleType], applications: Sequence[str]) -> Registry:
    registry = Registry(modules)
    if not registry.workflows and not registry.activities:
        named = ", ".join(applications)
        raise UsageError(f"{named}: no workflow and no activity; mark functions with @hf.workflow and @hf.activity")
    return registry


def _queues(option: str | None, registry: Registry) -> list[str]:
    if option is None:
        return list(registry.queues)
    names = [name.strip() for name in option.split(",")]
    if not all(names):
        raise UsageError(f"--queues {option!r} has an empty name; write --queues A,B")
    return list(dict.fromkeys(checked_name(name, "a queue") for name in names))


def _loop_timeout_seconds(timeout: float) -> float | None:
    timeout_ms = checked_loop_timeout_ms(timeout, "--loop-timeout")
    return None if timeout_ms is None else timeout_ms / MILLISECONDS


def _metrics_address(option: str) -> "ListenAddress":
    from holdfast.cli.metrics import parse_address, require_prometheus  # noqa: PLC0415 - for one option

    require_prometheus()
    return parse_address(option)


@contextmanager
def _otel(is_asked_for: bool) -> "Generator[Providers | None]":
    if not is_asked_for:
        yield None
        return
    from holdfast.cli.otel import providers  # noqa: PLC0415 - for one option

    with providers() as found:
        yield found


async def _work(request: WorkerRequest, early: EarlySignals) -> int:
    signals = Signals(request.drain_seconds)
    serving = asyncio.create_task(_serve(request, signals))
    signals.listen(serving, early)
    try:
        await serving
    except asyncio.CancelledError:
        if not signals.count:
            raise
    except Exception as error:
        if not signals.cancelled_start:
            raise
        logger.info("the worker ends without closing its store: %s", error)
        end_process(0)  # a thread may still use the store
    finally:
        signals.has_ended()
    logger.info("the worker has ended")
    return EXIT_INTERRUPTED if signals.count > 1 else 0


async def _serve(request: WorkerRequest, signals: Signals) -> None:
    platform = Platform(detect_local_deaths=request.detect_local_deaths)
    connecting = connect(request.path, modules=request.modules, payload_limit=request.payload_limit, _platform=platform)
    async with connecting as client:
        running = Worker(
            client,
            modules=request.modules,
            queues=request.queues,
            max_activities=request.concurrency,
            lease=request.lease_seconds,
            loop_timeout=request.loop_timeout_seconds,
            context=request.context,
            build=request.build,
            tracing=None if request.otel is None else request.otel.tracer,
            metrics=None if request.otel is None else request.otel.meter,
        )
        with _serving_metrics(request, client, running) as url:
            async with running:
                signals.has_begun(running)
                click.echo(_headline(running, request) + (f", metrics at {url}/metrics" if url else ""))
                _warn_of_unused_queues(request)
                await running.wait()


@contextmanager
def _serving_metrics(request: WorkerRequest, client: Client, running: Worker) -> Generator[str | None]:
    """Count from before the start of the worker to its end, and serve the counts if that is asked for."""
    if request.metrics is None:
        yield None
        return
    from holdfast.cli.metrics import MetricsServer  # noqa: PLC0415 - for one option
    from holdfast.client.metrics import observe, read_gauges  # noqa: PLC0415

    server = MetricsServer(request.metrics, request.path, observe(client), lambda: read_gauges(running))
    try:
        yield server.start()
    finally:
        server.stop()


def _headline(running: Worker, request: WorkerRequest) -> str:
    registry = request.registry
    code = f"{count_text(len(registry.workflows), 'workflow')}, {count_text(len(registry.activities), 'activity')}"
    return (
        f"worker {running.key} serves {safe(', '.join(request.queues))} in {safe(display_name(request.path))}: "
        f"{code}, {request.concurrency} at once, lease {request.lease_seconds:g} s, build {safe(request.build)}"
    )


def _warn_of_unused_queues(request: WorkerRequest) -> None:
    """Warns of queues that no registered activity uses, because their names may be misspelt."""
    used = request.registry.queues
    for queue in request.queues:
        if queue not in used:
            logger.warning("no activity here uses the queue %r; they use %s", queue, ", ".join(used))
