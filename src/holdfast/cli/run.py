"""``holdfast run`` and ``flow run``: run a workflow in this process and show its steps.

A step that ended is printed as a line, once. On a terminal the open steps are drawn below and refreshed. Running the
same id again continues the instance, or prints its result.
"""

import asyncio
import logging
import shlex
import signal
from dataclasses import dataclass
from typing import Any, Final, Self

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from holdfast.authoring.validation import checked_name
from holdfast.cli.application import Application, bind_input, load_application
from holdfast.cli.console import count_text, print_line, safe, seconds_text, standard_output, visible_json
from holdfast.cli.exits import EXIT_INTERRUPTED
from holdfast.cli.store_option import StoreName, is_there, require_instance, store_path
from holdfast.client.client import store_of
from holdfast.client.engine import Engine
from holdfast.client.handle import Handle
from holdfast.client.views.instances import short_failure
from holdfast.client.views.report import ExecutionReport, read_execution
from holdfast.client.views.steps import StepReport, StepState, attempt_seconds, failure_of
from holdfast.compose import display_name
from holdfast.core.admission import IdPolicy
from holdfast.core.checks import parse_enum
from holdfast.core.lifecycle import AttemptState
from holdfast.errors import InstanceConflict
from holdfast.payloads.limits import PAYLOAD_LIMIT_BYTES
from holdfast.runtime.platform import SystemClockAndIds
from holdfast.runtime.signals import FAILED
from holdfast.storage.contract import Store
from holdfast.storage.records import AttemptRecord, InstanceId, InstanceRecord

MOST_OPEN: Final = 12
"""Open steps that are drawn; the others are counted."""
MOST_EARLIER: Final = 10
"""Steps of an earlier run that are listed; more are counted."""
LONGEST_NOTE: Final = 160
REFRESH_PER_SECOND: Final = 10

MARKS: Final = {
    StepState.DONE: ("✓", "+", "bold green"),
    StepState.FAILED: ("✗", "x", "bold red"),
    StepState.CANCELLED: ("-", "-", "magenta"),
    StepState.OPEN: ("·", ".", "yellow"),
}


class Lines:
    """Prints a line for each step that ended and each attempt that is retried."""

    def __init__(self, console: Console, *, resumes: bool) -> None:
        self._console = console
        self._resumes = resumes
        self._printed: set[tuple[str, int, int]] = set()
        self._live: Live | None = None
        if console.is_terminal:
            self._live = Live(console=console, refresh_per_second=REFRESH_PER_SECOND, transient=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.update(Text())
            self._live.stop()

    def show(self, execution: ExecutionReport, now_ms: int) -> None:
        """Prints the lines that are new since the last call, and draws the open steps."""
        if self._resumes:
            self._resumes = False
            self._print_earlier(execution)
        for step in execution.steps:
            for attempt in step.attempts[:-1]:
                if self._is_new("attempt", step.recorded.number, attempt.key.attempt):
                    self._print(self._retried(step, attempt, now_ms))
            if step.state is not StepState.OPEN and self._is_new(step.recorded.kind, step.recorded.number, 0):
                self._print(self._ended(step, now_ms))
        if self._live is not None:
            self._live.update(self._open(execution, now_ms))

    def _print_earlier(self, execution: ExecutionReport) -> None:
        """Prints the steps of an earlier run, which are recorded and do not run again."""
        ended = [step for step in execution.steps if step.state is not StepState.OPEN]
        for step in execution.steps:
            for attempt in step.attempts[:-1]:
                self._is_new("attempt", step.recorded.number, attempt.key.attempt)
        for step in ended:
            self._is_new(step.recorded.kind, step.recorded.number, 0)
        if len(ended) > MOST_EARLIER:
            self._print(Text(f"  {len(ended)} steps were recorded before and are not run again", "dim"))
            return
        for step in ended:
            self._print(Text(f"  {self._mark(step.state)} {safe(step.title)}  recorded before, not run again", "dim"))

    def _is_new(self, kind: str, number: int, attempt: int) -> bool:
        key = (kind, number, attempt)
        if key in self._printed:
            return False
        self._printed.add(key)
        return True

    def _print(self, line: Text) -> None:
        print_line(self._console, line)

    def _mark(self, state: StepState) -> str:
        nice, plain, _ = MARKS[state]
        return nice if self._console.encoding.lower().startswith("utf") else plain

    def _ended(self, step: StepReport, now_ms: int) -> Text:
        line = Text.assemble("  ", (self._mark(step.state), MARKS[step.state][2]), " ", safe(step.title))
        if step.attempts and (seconds := attempt_seconds(step.attempts[-1], now_ms)) is not None:
            line.append(f"  {seconds_text(seconds)}", "dim")
        if len(step.attempts) > 1:
            line.append(f"  attempt {len(step.attempts)}", "yellow")
        if step.state is StepState.FAILED and step.failure is not None:
            line.append(f"  {safe(short_failure(step.failure), LONGEST_NOTE)}", "red")
        if step.state is StepState.CANCELLED:
            line.append("  cancelled", "magenta")
        return line

    def _retried(self, step: StepReport, attempt: AttemptRecord, now_ms: int) -> Text:
        line = Text.assemble("  ", (self._mark(StepState.FAILED), "yellow"), " ", safe(step.title))
        if (seconds := attempt_seconds(attempt, now_ms)) is not None:
            line.append(f"  {seconds_text(seconds)}", "dim")
        failure = failure_of(attempt)
        why = attempt.state if failure is None else safe(short_failure(failure), LONGEST_NOTE)
        line.append(f"  attempt {attempt.key.attempt}: {why}; tried again", "yellow")
        return line

    def _open(self, execution: ExecutionReport, now_ms: int) -> Text:
        open_steps = [step for step in execution.steps if step.state is StepState.OPEN]
        lines = [self._waiting(step, now_ms) for step in open_steps[:MOST_OPEN]]
        if len(open_steps) > MOST_OPEN:
            lines.append(Text(f"    and {len(open_steps) - MOST_OPEN} more", "dim"))
        return Text("\n").join(lines)

    def _waiting(self, step: StepReport, now_ms: int) -> Text:
        line = Text.assemble("  ", (self._mark(StepState.OPEN), "yellow"), " ", safe(step.title))
        due_at_ms = step.recorded.due_at_ms
        if due_at_ms is not None:
            line.append(f"  {seconds_text(max(0, due_at_ms - now_ms) / 1000)} left", "yellow")
        elif step.attempts:
            last = step.attempts[-1]
            line.append(f"  {_activity_state(last, now_ms)}", "yellow")
            if last.key.attempt > 1:
                line.append(f"  attempt {last.key.attempt}", "yellow")
        return line


def _activity_state(attempt: AttemptRecord, now_ms: int) -> str:
    seconds = attempt_seconds(attempt, now_ms)
    if seconds is not None:
        return f"running {seconds_text(seconds)}"
    if attempt.is_withheld:
        return "held by the pause"
    if attempt.state is AttemptState.READY and attempt.available_at_ms > now_ms:
        return f"again in {seconds_text((attempt.available_at_ms - now_ms) / 1000)}"
    return "waiting for a worker" if attempt.state is AttemptState.READY else str(attempt.state)


REFRESH_SECONDS: Final = 0.1
PAUSE_FACTOR: Final = 5
"""A pause is at least this many times as long as reading the history, so that the display leaves time for the work."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The checked arguments of a run."""

    command: tuple[str, ...]
    """The words that name the workflow, for the command that continues the instance."""
    application: Application
    input: str | None
    id: str
    path: StoreName
    store: str | None
    policy: IdPolicy
    payload_limit: int = PAYLOAD_LIMIT_BYTES

    def continues(self, before: InstanceRecord | None) -> bool:
        """Whether the run continues the instance that has the id, with the input of that instance (G3)."""
        if before is None or self.input is not None or self.policy is IdPolicy.TERMINATE_EXISTING:
            return False
        return self.policy is IdPolicy.IDEMPOTENT or before.closed_at_ms is None

    @property
    def again(self) -> str:
        """The command that continues the instance."""
        words = ["holdfast", *self.command, "--id", self.id]  # without the policy, which could start a new instance
        if self.payload_limit != PAYLOAD_LIMIT_BYTES:
            words += ["--payload-limit", str(self.payload_limit)]
        if self.store is not None:
            words += ["--store", display_name(self.path)]
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
    request = parse_request(
        ("run", target),
        application,
        input_json=input_json,
        instance_id=instance_id,
        policy=policy,
        payload_limit=payload_limit,
        store=store,
    )
    execute(request, as_json=as_json)


def parse_request(
    command: tuple[str, ...],
    application: Application,
    *,
    input_json: str | None,
    instance_id: str | None,
    policy: str,
    payload_limit: int,
    store: str | None,
) -> RunRequest:
    """Checks the arguments of a run, before a store is created."""
    named = SystemClockAndIds().unique_text() if instance_id is None else checked_name(instance_id, "an instance")
    checked = parse_enum(IdPolicy, policy, "policy for ids")
    request = RunRequest(command, application, input_json, named, store_path(store), store, checked, payload_limit)
    is_new = instance_id is None or input_json is not None or checked is IdPolicy.TERMINATE_EXISTING
    if is_new or not is_there(request.path):
        bind_input(application.workflow, input_json)
    return request


def execute(request: RunRequest, *, as_json: bool) -> None:
    """Runs the workflow, shows its steps, and prints the result."""
    console = standard_output()
    if not as_json:
        _leave_out_of_the_log(request.id)
    try:
        result = asyncio.run(_run_until_signal(request, console, as_json=as_json))
    except (KeyboardInterrupt, asyncio.CancelledError):
        click.echo(f"Stopped. Everything up to here is recorded; continue with:\n{safe(request.again)}", err=True)
        raise SystemExit(EXIT_INTERRUPTED) from None
    encoded = request.application.workflow.signature.encode_result(result)
    if as_json:
        click.echo(visible_json(encoded.decode()))
    else:
        console.print(Text.assemble(("result ", "bold green"), safe(encoded.decode())), soft_wrap=True)


async def _run_until_signal(request: RunRequest, console: Console, *, as_json: bool) -> Any:
    """SIGTERM cancels the run, as Ctrl-C does in asyncio, and the engine releases its lease as it closes.

    A second SIGTERM has the default action and ends the process.
    """
    running = asyncio.create_task(_run(request, console, as_json=as_json))
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_signal_handler(signal.SIGTERM)
        running.cancel()

    loop.add_signal_handler(signal.SIGTERM, stop)
    return await running


async def _run(request: RunRequest, console: Console, *, as_json: bool) -> Any:
    application = request.application
    engine = Engine(
        request.path, modules=application.modules, flows=application.flows, payload_limit=request.payload_limit
    )
    async with engine:
        store = store_of(engine)
        before = await store.find_instance(InstanceId(request.id))
        handle = await _begin(engine, request, before)
        if as_json:
            return await handle.result()
        record = None if handle.number is None else await store.read_instance(handle.number)
        if record is None:
            record = await require_instance(store, request.id)
        _print_headline(console, request, before, is_new=handle.is_new)
        try:
            return await _follow(store, handle, record, Lines(console, resumes=not handle.is_new))
        finally:
            await _print_last_line(console, store, record)


def _leave_out_of_the_log(instance_id: str) -> None:
    """Keeps failures of this instance, which the display shows, out of the log, unless the program set up logging."""
    logger = logging.getLogger("holdfast")
    if not logger.hasHandlers():
        logger.addFilter(
            lambda record: not hasattr(record, FAILED) or getattr(record, "holdfast_instance", None) != instance_id
        )


async def _begin(engine: Engine, request: RunRequest, before: InstanceRecord | None) -> Handle[Any]:
    """Starts the instance, or continues the one that has the id."""
    workflow = request.application.workflow
    if before is None or not request.continues(before):
        return await engine.start(bind_input(workflow, request.input), id=request.id, policy=request.policy)
    if before.workflow != workflow.name:
        raise InstanceConflict(
            f"the id {request.id!r} is taken by an instance of {before.workflow!r}, not {workflow.name!r}"
        )
    return engine.get(request.id)


async def _follow(store: Store, handle: Handle[Any], record: InstanceRecord, progress: Lines) -> Any:
    """Shows the steps until the result is there, and returns it."""
    loop = asyncio.get_running_loop()
    pause = REFRESH_SECONDS
    with progress:
        result = asyncio.ensure_future(handle.result())
        try:
            while not result.done():
                began = loop.time()
                progress.show(await read_execution(store, record), store.now_ms())
                pause = max(REFRESH_SECONDS, (loop.time() - began) * PAUSE_FACTOR)
                await asyncio.wait({result}, timeout=pause)
        finally:
            result.cancel()
        progress.show(await read_execution(store, record), store.now_ms())
    return result.result()


def _print_headline(console: Console, request: RunRequest, before: InstanceRecord | None, *, is_new: bool) -> None:
    how = ""
    if before is not None and is_new:
        how = " (a new instance; the earlier one is kept)"
    elif before is not None:
        how = " (continued)" if before.closed_at_ms is None else " (ended before)"
    line = Text.assemble(
        (safe(request.application.workflow.name), "bold"),
        " ",
        (safe(request.id), "cyan"),
        f" in {safe(display_name(request.path))}{how}",
    )
    print_line(console, line)


async def _print_last_line(console: Console, store: Store, started: InstanceRecord) -> None:
    """Prints the final state and the time since the start, which may have been in another process."""
    record = await store.read_instance(started.number)
    if record is None or record.closed_at_ms is None:
        return
    took = seconds_text((record.closed_at_ms - record.created_at_ms) / 1000)
    turns = count_text(record.turn, "turn")
    print_line(console, Text(f"{str(record.state).lower()} after {took}, {turns}", "dim"))
