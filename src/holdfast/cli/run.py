"""``holdfast run``: run a workflow here, with its steps on screen. The same id again goes on, or gives the result.

Progress on screen while a workflow runs: steps that ended as lines, steps that are open below them, ticking.

On a terminal the open steps are drawn again and again; anywhere else only the lines are printed.
"""

import asyncio
import logging
import shlex
import signal
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Protocol, Self

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from holdfast.authoring.validation import checked_name
from holdfast.cli.application import Application, bind_input, load_application
from holdfast.cli.console import count_text, print_line, safe, seconds_text, visible_json
from holdfast.cli.exits import EXIT_INTERRUPTED
from holdfast.cli.steps import InstanceSteps, StepReport, StepState, attempt_seconds, failure_of_attempt, read_steps_of
from holdfast.cli.store_option import StoreName, is_there, store_path
from holdfast.client.client import store_of
from holdfast.client.engine import Engine
from holdfast.client.handle import Handle
from holdfast.client.views.instances import short_failure
from holdfast.compose import display_name
from holdfast.core.admission import IdPolicy
from holdfast.core.checks import parse_enum
from holdfast.core.lifecycle import AttemptState
from holdfast.errors import InstanceConflict, InstanceNotFound
from holdfast.payloads.limits import PAYLOAD_LIMIT_BYTES
from holdfast.runtime.platform import SystemClockAndIds
from holdfast.runtime.signals import FAILED
from holdfast.storage.contract import Store
from holdfast.storage.records import AttemptRecord, InstanceId, InstanceRecord

MOST_OPEN: Final = 12
"""Open steps that are drawn; of the others only the number."""
MOST_EARLIER: Final = 10
"""Steps of an earlier run that are shown one by one."""
LONGEST_NOTE: Final = 160
REFRESH_PER_SECOND: Final = 10

MARKS: Final = {
    StepState.DONE: ("✓", "+", "bold green"),
    StepState.FAILED: ("✗", "x", "bold red"),
    StepState.CANCELLED: ("-", "-", "magenta"),
    StepState.OPEN: ("·", ".", "yellow"),
}


class ProgressDisplay(Protocol):
    """Shows pictures of an instance as they come."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
    def show(self, picture: InstanceSteps, now_ms: int) -> None: ...


class Silent:
    """Shows nothing: for ``--json``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        del kind, error, traceback

    def show(self, picture: InstanceSteps, now_ms: int) -> None:
        del picture, now_ms


class Lines:
    """Prints a line for every step that ended and every attempt that will be repeated."""

    def __init__(self, console: Console, *, resumes: bool) -> None:
        self._console = console
        self._resumes = resumes
        self._told: set[tuple[str, int, int]] = set()
        self._live: Live | None = None
        if console.is_terminal:
            self._live = Live(console=console, refresh_per_second=REFRESH_PER_SECOND, transient=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        del kind, error, traceback
        if self._live is not None:
            self._live.update(Text())
            self._live.stop()

    def show(self, picture: InstanceSteps, now_ms: int) -> None:
        """Print what is new since the last picture, and draw what is open."""
        if self._resumes:
            self._resumes = False
            self._tell_earlier(picture)
        for step in picture.steps:
            for attempt in step.attempts[:-1]:
                if self._is_new("attempt", step.number, attempt.key.attempt):
                    self._print(self._repeated(step, attempt, now_ms))
            if step.state is not StepState.OPEN and self._is_new(step.kind, step.number, 0):
                self._print(self._ended(step, now_ms))
        if self._live is not None:
            self._live.update(self._open(picture, now_ms))

    def _tell_earlier(self, picture: InstanceSteps) -> None:
        """What an earlier run did is recorded and not run again."""
        ended = [step for step in picture.steps if step.state is not StepState.OPEN]
        for step in picture.steps:
            for attempt in step.attempts[:-1]:
                self._is_new("attempt", step.number, attempt.key.attempt)
        for step in ended:
            self._is_new(step.kind, step.number, 0)
        if len(ended) > MOST_EARLIER:
            self._print(Text(f"  {len(ended)} steps were recorded before and are not run again", "dim"))
            return
        for step in ended:
            self._print(Text(f"  {self._mark(step.state)} {safe(step.title)}  recorded before, not run again", "dim"))

    def _is_new(self, kind: str, number: int, attempt: int) -> bool:
        key = (kind, number, attempt)
        if key in self._told:
            return False
        self._told.add(key)
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

    def _repeated(self, step: StepReport, attempt: AttemptRecord, now_ms: int) -> Text:
        line = Text.assemble("  ", (self._mark(StepState.FAILED), "yellow"), " ", safe(step.title))
        if (seconds := attempt_seconds(attempt, now_ms)) is not None:
            line.append(f"  {seconds_text(seconds)}", "dim")
        failure = failure_of_attempt(attempt)
        why = attempt.state if failure is None else safe(short_failure(failure), LONGEST_NOTE)
        line.append(f"  attempt {attempt.key.attempt}: {why}; tried again", "yellow")
        return line

    def _open(self, picture: InstanceSteps, now_ms: int) -> Text:
        open_steps = [step for step in picture.steps if step.state is StepState.OPEN]
        lines = [self._ticking(step, now_ms) for step in open_steps[:MOST_OPEN]]
        if len(open_steps) > MOST_OPEN:
            lines.append(Text(f"    and {len(open_steps) - MOST_OPEN} more", "dim"))
        return Text("\n").join(lines)

    def _ticking(self, step: StepReport, now_ms: int) -> Text:
        line = Text.assemble("  ", (self._mark(StepState.OPEN), "yellow"), " ", safe(step.title))
        if step.due_at_ms is not None:
            line.append(f"  {seconds_text(max(0, step.due_at_ms - now_ms) / 1000)} left", "yellow")
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
    if attempt.state is AttemptState.READY and attempt.available_at_ms > now_ms:
        return f"again in {seconds_text((attempt.available_at_ms - now_ms) / 1000)}"
    return "waiting for a worker" if attempt.state is AttemptState.READY else str(attempt.state)


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
    wish = parse_request(
        ("run", target),
        application,
        input_json=input_json,
        instance_id=instance_id,
        policy=policy,
        payload_limit=payload_limit,
        store=store,
    )
    execute(wish, as_json=as_json)


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
    """What was asked for, checked. What does not fit is told before a store is made."""
    named = SystemClockAndIds().unique_text() if instance_id is None else checked_name(instance_id, "an instance")
    taken = parse_enum(IdPolicy, policy, "policy for ids")
    wish = RunRequest(command, application, input_json, named, store_path(store), store, taken, payload_limit)
    is_new = instance_id is None or input_json is not None or taken is IdPolicy.TERMINATE_EXISTING
    if is_new or not is_there(wish.path):
        bind_input(application.workflow, input_json)
    return wish


def execute(wish: RunRequest, *, as_json: bool) -> None:
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
        store = store_of(engine)
        before = await store.find_instance(InstanceId(wish.id))
        handle = await _begin(engine, wish, before)
        record = await (
            store.find_instance(InstanceId(wish.id)) if handle.number is None else store.read_instance(handle.number)
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
    if not logger.hasHandlers():
        logger.addFilter(
            lambda record: not hasattr(record, FAILED) or getattr(record, "holdfast_instance", None) != instance_id
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
                progress.show(await read_steps_of(store, record), store.now_ms())
                pause = max(REFRESH_SECONDS, (loop.time() - began) * MOST_OF_THE_TIME)
                await asyncio.wait({result}, timeout=pause)
        finally:
            result.cancel()
        progress.show(await read_steps_of(store, record), store.now_ms())
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
        f" in {safe(display_name(wish.path))}{how}",
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
