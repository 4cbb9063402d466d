"""``holdfast worker``: run what others start, in a process of its own, until it is told to leave (W10)."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Final

import click

from holdfast.authoring.registry import Registry
from holdfast.authoring.validation import checked_duration_ms, checked_integer, checked_name, lease_milliseconds
from holdfast.cli.application import load_module
from holdfast.cli.console import count_text, safe
from holdfast.cli.exits import EXIT_INTERRUPTED
from holdfast.cli.signals import EarlySignals, Signals, ToldToLeave, end, leaving_early
from holdfast.cli.store_option import StoreName, store_path
from holdfast.client.client import connect
from holdfast.client.embedded_worker import DEFAULT_MAX_ACTIVITIES, checked_loop_timeout_ms
from holdfast.client.worker import Worker
from holdfast.compose import display_name
from holdfast.core.leases import LOOP_TIMEOUT_MS, WORKER_LEASE_MS
from holdfast.errors import UsageError
from holdfast.payloads.limits import LEAST_PAYLOAD_LIMIT_BYTES, MOST_PAYLOAD_LIMIT_BYTES, PAYLOAD_LIMIT_BYTES
from holdfast.runtime.platform import Platform

logger = logging.getLogger("holdfast")

MILLISECONDS: Final = 1000
DRAIN_SECONDS: Final = 25.0
"""Five less than what most who stop services wait before they kill."""
LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """What was asked for, checked."""

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


def worker(
    applications: Sequence[str],
    *,
    queues: str | None = None,
    concurrency: int = DEFAULT_MAX_ACTIVITIES,
    lease: float = WORKER_LEASE_MS / MILLISECONDS,
    loop_timeout: float = LOOP_TIMEOUT_MS / MILLISECONDS,
    drain_timeout: float = DRAIN_SECONDS,
    same_host: bool = True,
    payload_limit: int = PAYLOAD_LIMIT_BYTES,
    store: str | None = None,
) -> None:
    """Run workflows and activities that others start, until a signal ends the worker."""
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    try:
        with leaving_early() as early:
            modules = [load_module(source) for source in applications]
            wish = WorkerRequest(
                modules,
                registry := _registry(modules, applications),
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
            )
            early.keep()
            code = asyncio.run(_work(wish, early))
    except ToldToLeave as told:
        logger.info("%s: the worker leaves before it has begun", told)
        code = 0
    except KeyboardInterrupt:  # one more, while it leaves at once
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


async def _work(wish: WorkerRequest, early: EarlySignals) -> int:
    signals = Signals(wish.drain_seconds)
    serving = asyncio.create_task(_serve(wish, signals))
    signals.listen(serving, early)
    try:
        await serving
    except asyncio.CancelledError:
        if not signals.heard:
            raise
    except Exception as error:
        if not signals.called_off:
            raise
        logger.info("the worker leaves a store that it could not close: %s", error)
        end(0)  # a thread may still use the store
    finally:
        signals.has_ended()
    logger.info("the worker has left")
    return EXIT_INTERRUPTED if signals.heard > 1 else 0


async def _serve(wish: WorkerRequest, signals: Signals) -> None:
    world = Platform(detect_local_deaths=wish.detect_local_deaths)
    connecting = connect(wish.path, modules=wish.modules, payload_limit=wish.payload_limit, _platform=world)
    async with connecting as client:
        working = Worker(
            client,
            modules=wish.modules,
            queues=wish.queues,
            max_activities=wish.concurrency,
            lease=wish.lease_seconds,
            loop_timeout=wish.loop_timeout_seconds,
        )
        async with working:
            signals.has_begun(working)
            click.echo(_headline(working, wish))
            _warn_of_idle_queues(wish)
            await working.wait()


def _headline(working: Worker, wish: WorkerRequest) -> str:
    registry = wish.registry
    code = f"{count_text(len(registry.workflows), 'workflow')}, {count_text(len(registry.activities), 'activity')}"
    return (
        f"worker {working.key} serves {safe(', '.join(wish.queues))} in {safe(display_name(wish.path))}: "
        f"{code}, {wish.concurrency} at once, lease {wish.lease_seconds:g} s"
    )


def _warn_of_idle_queues(wish: WorkerRequest) -> None:
    """A name that was misspelt would wait for ever, and nobody would know why."""
    theirs = wish.registry.queues
    for queue in wish.queues:
        if queue not in theirs:
            logger.warning("no activity here is for the queue %r; theirs are %s", queue, ", ".join(theirs))
