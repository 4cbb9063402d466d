"""``holdfast run``: run a workflow here, with its steps on screen. The same id again goes on, or gives the result."""

import asyncio
import logging
import shlex
import signal
from dataclasses import dataclass
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from holdfast.authoring.names import checked_name
from holdfast.cli.applications import Application, load_application
from holdfast.cli.exits import EXIT_INTERRUPTED
from holdfast.cli.inputs import bind_input
from holdfast.cli.progress import Lines, ProgressDisplay, Silent
from holdfast.cli.steps import take_picture
from holdfast.cli.stores import StoreName, is_there, shown, store_path
from holdfast.cli.texts import count_text, print_line, safe, seconds_text, visible_json
from holdfast.client.engine import Engine
from holdfast.client.handle import Handle
from holdfast.core.gates import IdPolicy
from holdfast.core.words import word
from holdfast.errors import InstanceConflict, InstanceNotFound
from holdfast.payloads.limits import PAYLOAD_LIMIT_BYTES
from holdfast.runtime.providers import SystemClockAndIds
from holdfast.runtime.telling import log_failed_attempt, log_failed_instance
from holdfast.storage.contract import InstanceId, InstanceRecord, Store

REFRESH_SECONDS: Final = 0.1
MOST_OF_THE_TIME: Final = 5
"""Looking at a long history takes time; the pauses are this many times longer."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What was asked for."""

    command: tuple[str, ...]
    """What was typed, without options: it is shown to those who go on with it."""
    application: Application
    input: str | None
    id: str
    path: StoreName
    store: str | None
    policy: IdPolicy
    payload_limit: int = PAYLOAD_LIMIT_BYTES

    def is_answered_by(self, before: InstanceRecord | None) -> bool:
        """Whether the instance that has the id is gone on with, with the input that it has (G3)."""
        if before is None or self.input is not None or self.policy is IdPolicy.TERMINATE_EXISTING:
            return False
        return self.policy is IdPolicy.IDEMPOTENT or before.closed_at_ms is None

    @property
    def again(self) -> str:
        """The command that goes on with it."""
        words = ["holdfast", *self.command, "--id", self.id]  # without the policy: it goes on with this instance
        if self.payload_limit != PAYLOAD_LIMIT_BYTES:
            words += ["--payload-limit", str(self.payload_limit)]
        if self.store is not None:
            words += ["--store", shown(self.path)]
        return shlex.join(words)


def run(
    target: str,
    *,
    input_json: str | None = None,
    instance_id: str | None = None,
    policy: str = IdPolicy.IDEMPOTENT.value,
    payload_limit: int = PAYLOAD_LIMIT_BYTES,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Run a workflow in this process and show its steps."""
    application = load_application(target)
    wish = wish_of(
        ("run", target),
        application,
        input_json=input_json,
        instance_id=instance_id,
        policy=policy,
        payload_limit=payload_limit,
        store=store,
    )
    fulfil(wish, as_json=as_json)


def wish_of(
    command: tuple[str, ...],
    application: Application,
    *,
    input_json: str | None,
    instance_id: str | None,
    policy: str,
    payload_limit: int,
    store: str | None,
) -> RunRequest:
    """What was asked for, checked. What does not fit is told before a store is made."""
    named = SystemClockAndIds().unique_text() if instance_id is None else checked_name(instance_id, "an instance")
    taken = word(IdPolicy, policy, "policy for ids")
    wish = RunRequest(command, application, input_json, named, store_path(store), store, taken, payload_limit)
    is_new = instance_id is None or input_json is not None or taken is IdPolicy.TERMINATE_EXISTING
    if is_new or not is_there(wish.path):
        bind_input(application.workflow, input_json)
    return wish


def fulfil(wish: RunRequest, *, as_json: bool) -> None:
    """Run it here, with its steps on screen, and print the result."""
    console = Console(highlight=False)
    if not as_json:
        _leave_out_of_the_log(wish.id)
    try:
        result = asyncio.run(_run_until_signal(wish, console, as_json=as_json))
    except (KeyboardInterrupt, asyncio.CancelledError):
        Console(stderr=True, highlight=False).print(
            Text(f"Stopped. Everything up to here is recorded; go on with: {safe(wish.again)}"), soft_wrap=True
        )
        raise SystemExit(EXIT_INTERRUPTED) from None
    encoded = wish.application.workflow.signature.encode_result(result)
    if as_json:
        click.echo(visible_json(encoded.decode()))
    else:
        console.print(Text.assemble(("result ", "bold green"), safe(encoded.decode())), soft_wrap=True)


async def _run_until_signal(wish: RunRequest, console: Console, *, as_json: bool) -> Any:
    """SIGTERM does what asyncio does at Ctrl-C: the run is cancelled, and the engine ends its lease as it closes.

    A second SIGTERM ends the process as the system does.
    """
    running = asyncio.create_task(_run(wish, console, as_json=as_json))
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_signal_handler(signal.SIGTERM)
        running.cancel()

    loop.add_signal_handler(signal.SIGTERM, stop)
    return await running


async def _run(wish: RunRequest, console: Console, *, as_json: bool) -> Any:
    application = wish.application
    working = Engine(wish.path, modules=application.modules, flows=application.flows, payload_limit=wish.payload_limit)
    async with working as engine:
        before = await engine.store.find(InstanceId(wish.id))
        handle = await _begin(engine, wish, before)
        store = engine.store
        record = await (
            store.find(InstanceId(wish.id)) if handle.number is None else store.read_instance(handle.number)
        )
        if record is None:
            raise InstanceNotFound(f"no instance has the id {wish.id!r}")
        if not as_json:
            _headline(console, wish, before, is_new=handle.is_new)
        progress: ProgressDisplay = Silent() if as_json else Lines(console, resumes=not handle.is_new)
        try:
            return await _follow(store, handle, record, progress)
        finally:
            if not as_json:
                await _last_line(console, store, record)


def _leave_out_of_the_log(instance_id: str) -> None:
    """Failures of this instance are on screen. A program that has set up logging gets them in its log, too."""
    logger = logging.getLogger("holdfast")
    failures = (log_failed_attempt.__name__, log_failed_instance.__name__)
    if not logger.hasHandlers():
        logger.addFilter(
            lambda record: record.funcName not in failures or getattr(record, "holdfast_instance", None) != instance_id
        )


async def _begin(engine: Engine, wish: RunRequest, before: InstanceRecord | None) -> Handle[Any]:
    """Start it. An instance that is there goes on with the input that it has, if no other is given."""
    workflow = wish.application.workflow
    if before is None or not wish.is_answered_by(before):
        return await engine.start(bind_input(workflow, wish.input), id=wish.id, policy=wish.policy)
    if before.workflow != workflow.name:
        raise InstanceConflict(
            f"the id {wish.id!r} is taken by an instance of {before.workflow!r}, not {workflow.name!r}"
        )
    return engine.get(wish.id)


async def _follow(store: Store, handle: Handle[Any], record: InstanceRecord, progress: ProgressDisplay) -> Any:
    """Wait for the result, and show what happens meanwhile."""
    loop = asyncio.get_running_loop()
    pause = REFRESH_SECONDS
    with progress:
        result = asyncio.ensure_future(handle.result())
        try:
            while not result.done():
                began = loop.time()
                progress.show(await take_picture(store, record), store.now_ms())
                pause = max(REFRESH_SECONDS, (loop.time() - began) * MOST_OF_THE_TIME)
                await asyncio.wait({result}, timeout=pause)
        finally:
            result.cancel()
        progress.show(await take_picture(store, record), store.now_ms())
    return result.result()


def _headline(console: Console, wish: RunRequest, before: InstanceRecord | None, *, is_new: bool) -> None:
    how = ""
    if before is not None and is_new:
        how = " (a new one; the one before is kept)"
    elif before is not None:
        how = " (goes on)" if before.closed_at_ms is None else " (ended before)"
    line = Text.assemble(
        (safe(wish.application.workflow.name), "bold"),
        " ",
        (safe(wish.id), "cyan"),
        f" in {safe(shown(wish.path))}{how}",
    )
    print_line(console, line)


async def _last_line(console: Console, store: Store, begun: InstanceRecord) -> None:
    """How it ended, and how long it took from its start, also across processes."""
    record = await store.read_instance(begun.number)
    if record is None or record.closed_at_ms is None:
        return
    took = seconds_text((record.closed_at_ms - record.created_at_ms) / 1000)
    turns = count_text(record.turn, "turn")
    print_line(console, Text(f"{str(record.state).lower()} after {took}, {turns}", "dim"))
