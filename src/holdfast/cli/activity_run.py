"""``holdfast activity run``: claims external activities and runs a program for each (C4).

The command reports QUEUED, RUNNING, heartbeats, and the result or the failure of the program. It stops the program when
the activity is cancelled, and when the claim is lost. The first SIGTERM drains: the command claims nothing more and
waits for the program; the second one, or the end of the drain time, stops the program. During an outage of the store
the program continues, and its reports are sent when the store can be used again.
"""

import asyncio
import os
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import click
from rich.text import Text

from holdfast.authoring.validation import checked_duration_ms, checked_integer
from holdfast.cli.activity import (
    checked_activities,
    checked_queues,
    checked_source,
    claim_of,
    environment_of,
    exec_id_of,
)
from holdfast.cli.console import json_text, print_line, print_message, safe, safe_lines, standard_output
from holdfast.cli.exits import EXIT_LOST, EXIT_NEGATIVE, EXIT_UNANSWERED
from holdfast.cli.program import Command, OutputKind, ProgramError, ProgramRun
from holdfast.cli.steady_reports import SteadyReports
from holdfast.cli.store_option import StoreName, existing_store, use_client
from holdfast.client.activity_reports import ActivityReports, Answered, OpenActivity, error_text
from holdfast.client.client import Client, calls_of
from holdfast.core.activity_events import ReportKind, ReportState
from holdfast.core.deadlines import MILLISECONDS
from holdfast.core.lifecycle import AttemptState
from holdfast.errors import StoreError, UsageError
from holdfast.payloads.limits import LEAST_PAYLOAD_LIMIT_BYTES, MOST_PAYLOAD_LIMIT_BYTES, PAYLOAD_LIMIT_BYTES

GRACE_SECONDS: Final = 10.0
"""The time from SIGTERM to SIGKILL."""
DRAIN_SECONDS: Final = 25.0
"""Five seconds less than supervisors usually wait before SIGKILL."""
BEATS: Final = 3
"""Heartbeats in the heartbeat time of an activity."""
LONGEST_BEAT_SECONDS: Final = 10.0
"""The heartbeat interval of an activity without a heartbeat time."""
LOOK_SECONDS: Final = 1.0
"""The time between two reads of the attempt, for a cancel or a lost claim, and between two searches for activities."""
FINAL_SECONDS: Final = 60.0
"""How long the command waits for the answer to its last report."""
MOST_TRIED: Final = 100
SPREAD: Final = 8
"""Concurrent executors begin with different ones of the oldest open activities."""
MOST_UNANSWERED: Final = 100
"""Responses whose answers the command has not read. The program waits while there are more."""
PROGRAM_FAILED: Final = "ProgramFailed"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The checked arguments of the command."""

    command: Command
    queues: list[str] | None
    names: list[str] | None
    exec_id: str | None
    claim: str | None
    is_loop: bool
    wait_seconds: float
    drain_seconds: float
    source: str | None
    path: StoreName
    as_json: bool


class ProgramStop(Enum):
    """Why a program is stopped."""

    CANCELLED = "the activity was cancelled"
    LOST = "the claim was lost"
    INTERRUPTED = "the executor was shut down"


def run(
    program: Sequence[str],
    *,
    queues: Sequence[str] = (),
    names: Sequence[str] = (),
    loop: bool = False,
    wait: float = 0.0,
    text: bool = False,
    responses: bool = False,
    grace: float = GRACE_SECONDS,
    drain_timeout: float = DRAIN_SECONDS,
    payload_limit: int = PAYLOAD_LIMIT_BYTES,
    source: str | None = None,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Claim an external activity and run a program for it."""
    if text and responses:
        raise UsageError("--text and --responses exclude each other: a response is a JSON value")
    if shutil.which(program[0]) is None:
        raise UsageError(f"there is no program {program[0]!r}")
    of_queues = checked_queues(queues)
    of_names = checked_activities(names)
    is_given = of_queues is None and of_names is None
    if is_given and (loop or "HOLDFAST_ACTIVITY_EXEC_ID" not in os.environ):
        raise UsageError("name the activities to run with --queue or --name, or one in HOLDFAST_ACTIVITY_EXEC_ID")
    output = OutputKind.TEXT if text else OutputKind.RESPONSES if responses else OutputKind.JSON
    limit = checked_integer(
        payload_limit, "--payload-limit", least=LEAST_PAYLOAD_LIMIT_BYTES, most=MOST_PAYLOAD_LIMIT_BYTES
    )
    options = RunOptions(
        command=Command(tuple(program), output, limit, checked_duration_ms(grace, "--grace") / MILLISECONDS),
        queues=of_queues,
        names=of_names,
        exec_id=exec_id_of(None) if is_given else None,
        claim=claim_of(None) if is_given else None,
        is_loop=loop,
        wait_seconds=checked_duration_ms(wait, "--wait") / MILLISECONDS,
        drain_seconds=checked_duration_ms(drain_timeout, "--drain-timeout") / MILLISECONDS,
        source=checked_source(source),
        path=existing_store(store),
        as_json=as_json,
    )
    code = use_client(store, lambda client: ProgramRunner(client, options).serve())
    raise SystemExit(code)


class ProgramRunner:
    """Runs the program for one activity after the other."""

    def __init__(self, client: Client, options: RunOptions) -> None:
        self._calls = calls_of(client)
        self._options = options
        self._reports = SteadyReports(self._calls, source=options.source, is_over=self._is_over)
        self._drains = asyncio.Event()
        self._interrupted = asyncio.Event()
        self._is_running = False

    async def serve(self) -> int:
        """Run until there is nothing to do, or until a signal. Returns the exit code."""
        options = self._options
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        try:
            if options.exec_id is not None:
                return await self._run_given(options.exec_id)
            while True:
                try:
                    taken = await self._take()
                except StoreError:
                    if not self._drains.is_set():
                        raise
                    return 0
                if taken is None:
                    if self._drains.is_set():
                        return 0
                    what = "stream" if options.command.output is OutputKind.RESPONSES else "activity"
                    print_message(f"there is no open {what}; --wait and --loop wait for one")
                    return EXIT_NEGATIVE
                code = await self._run(*taken)
                if not options.is_loop:
                    return code
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _is_over(self) -> bool:
        """Whether the command ends instead of waiting for the store."""
        return self._interrupted.is_set() or (self._drains.is_set() and not self._is_running)

    def _signalled(self, number: signal.Signals) -> None:
        if self._drains.is_set():
            self._interrupted.set()
            return
        self._drains.set()
        asyncio.get_running_loop().call_later(self._options.drain_seconds, self._interrupted.set)
        name = signal.Signals(number).name
        print_message(f"{name}: claims nothing more, and waits for the program; another signal stops it")

    # ------------------------------------------------------------ claims

    async def _run_given(self, exec_id: str) -> int:
        """Run the activity that the environment names, which a launcher has claimed for this process."""
        found = await self._reports.find(exec_id)
        if found is None:
            raise UsageError(f"no activity has the exec id {exec_id!r} of HOLDFAST_ACTIVITY_EXEC_ID in this store")
        if self._options.command.output is OutputKind.RESPONSES and found.activity.responses is None:
            await self._reports.release(exec_id, claim=self._options.claim)
            raise UsageError(f"{found.activity.activity_name} is not a stream, so it has no --responses")
        return await self._run(found.activity, self._options.claim or self._reports.new_claim())

    async def _take(self) -> tuple[OpenActivity, str] | None:
        """Claim an open activity. None if there is none within the time, or the command drains."""
        options = self._options
        clock = asyncio.get_running_loop()
        ends_at = clock.time() + options.wait_seconds
        while not self._drains.is_set():
            for activity in await self._open():
                claim = self._reports.new_claim()
                if await self._claim(activity, claim):
                    return activity, claim
                if self._drains.is_set():
                    return None
            left = LOOK_SECONDS if options.is_loop else min(LOOK_SECONDS, ends_at - clock.time())
            if left <= 0:
                return None
            await self._pause(left)
        return None

    async def _open(self) -> list[OpenActivity]:
        options = self._options
        found = await self._reports.open_activities(limit=MOST_TRIED, queues=options.queues, names=options.names)
        if options.command.output is OutputKind.RESPONSES:
            found = [activity for activity in found if activity.responses is not None]
        oldest = found[:SPREAD]
        at = int(self._reports.new_claim(), 16) % len(oldest) if oldest else 0
        return [*oldest[at:], *oldest[:at], *found[SPREAD:]]

    async def _claim(self, activity: OpenActivity, claim: str) -> bool:
        """Claim one activity. A claim whose answer is not awaited is returned by a RELEASE behind it."""
        exec_id = activity.activity_exec_id
        event_id = await self._reports.insert(exec_id, ReportKind.QUEUED, claim=claim)
        while (answer := await self._reports.answer(event_id, LOOK_SECONDS)).state is ReportState.NEW:
            if self._drains.is_set():
                await self._reports.insert(exec_id, ReportKind.RELEASE, claim=claim)
                return False
        return answer.is_applied

    async def _pause(self, seconds: float) -> None:
        """Wait for a change in the store or for the drain, at most for `seconds`."""
        changes = self._calls.session.changes.rounds()
        await anext(changes)
        waits: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(anext(changes)),
            asyncio.ensure_future(self._drains.wait()),
        ]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
            await changes.aclose()

    # ------------------------------------------------------------ one activity

    async def _run(self, activity: OpenActivity, claim: str) -> int:
        """Run the program for a claimed activity and report its end. Returns the exit code."""
        exec_id = activity.activity_exec_id
        event_id = await self._reports.insert(exec_id, ReportKind.RUNNING, claim=claim)
        while (begun := await self._reports.answer(event_id, FINAL_SECONDS)).state is ReportState.NEW:
            if self._interrupted.is_set():
                await self._reports.insert(exec_id, ReportKind.FAILED, claim=claim, error=_interrupted_error())
                return EXIT_UNANSWERED
        if not begun.is_applied:
            return self._lost(activity, begun.refusal)
        if not self._options.as_json:
            print_line(standard_output(), _line("runs", activity))
        sender = ResponseSender(self._reports, exec_id, claim)
        program = ProgramRun(self._options.command, sender.send)
        environment = environment_of(activity, claim, self._options.path)
        heart = Heart(self._reports, activity, claim)
        beating = asyncio.create_task(heart.beat())
        self._is_running = True
        try:
            running = asyncio.create_task(program.run(bytes(activity.input), environment))
            reason = await self._supervise(program, running, heart)
            try:
                payload = await running
                await sender.finish()
            except ProgramError as error:
                return await self._end(activity, claim, reason, error)
            return await self._end(activity, claim, reason, payload)
        finally:  # until the last report is answered: a report counts only before the deadlines of the attempt
            self._is_running = False
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)

    async def _supervise(
        self, program: ProgramRun, running: "asyncio.Task[str | None]", heart: "Heart"
    ) -> ProgramStop | None:
        """Wait for the end of the program. Returns why it was stopped; None if it ended by itself."""
        watching = asyncio.create_task(self._watch(heart))
        try:
            await asyncio.wait({running, watching}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                return None
            reason = watching.result()
            print_message(f"{reason.value}: stops {self._options.command.name}")
            program.stop()
            await asyncio.wait({running})
            return reason
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self, heart: "Heart") -> ProgramStop:
        """Returns when the activity is cancelled, the claim is lost, or the executor has to end."""
        while not self._interrupted.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._interrupted.wait()
            with suppress(StoreError):  # it was printed, and the command ends by its signal
                reason = await self._stop_reason(heart)
                if reason is not None:
                    return reason
        return ProgramStop.INTERRUPTED

    async def _stop_reason(self, heart: "Heart") -> ProgramStop | None:
        """The reason to stop, by the answer to the last heartbeat and by the state of the attempt."""
        if heart.last is not None:
            answer = await self._reports.answer(heart.last, 0)
            if answer.is_refused:
                return ProgramStop.LOST
            if answer.cancel_requested:
                return ProgramStop.CANCELLED
        found = await self._reports.find(heart.exec_id)
        if found is None or not found.is_current:
            return ProgramStop.LOST
        return ProgramStop.CANCELLED if found.state is AttemptState.CANCELLED_RUNNING else None

    # ------------------------------------------------------------ the end

    async def _end(
        self, activity: OpenActivity, claim: str, reason: ProgramStop | None, ended: str | ProgramError | None
    ) -> int:
        """Report the end of the program, and print it."""
        exec_id = activity.activity_exec_id
        match reason:
            case ProgramStop.LOST:
                return self._lost(activity, None)
            case ProgramStop.CANCELLED:
                answer = await self._reports.stopped(exec_id, claim=claim, seconds=FINAL_SECONDS)
                return self._ended(activity, "stopped", answer, "it was cancelled")
            case ProgramStop.INTERRUPTED:
                answer = await self._reports.fail(
                    exec_id, claim=claim, error=_interrupted_error(), seconds=FINAL_SECONDS
                )
                return self._ended(activity, "failed", answer, ProgramStop.INTERRUPTED.value)
            case None:
                pass
        if isinstance(ended, ProgramError):
            return await self._fail(activity, claim, ended)
        answer = await self._reports.complete(exec_id, claim=claim, payload=ended, seconds=FINAL_SECONDS)
        if answer.is_refused:  # a result of the wrong type leaves the attempt RUNNING; else this is refused as well
            refused = ProgramError(
                f"the result of {self._options.command.name} was refused: {answer.refusal}", retryable=False
            )
            return await self._fail(activity, claim, refused)
        return self._ended(activity, "completed", answer, None)

    async def _fail(self, activity: OpenActivity, claim: str, error: ProgramError) -> int:
        text = error_text(str(error), type=PROGRAM_FAILED, retryable=error.retryable)
        answer = await self._reports.fail(activity.activity_exec_id, claim=claim, error=text, seconds=FINAL_SECONDS)
        if answer.is_refused:
            return self._lost(activity, answer.refusal)
        return self._ended(activity, "failed", answer, str(error))

    def _ended(self, activity: OpenActivity, how: str, answer: Answered, why: str | None) -> int:
        if self._options.as_json:
            self._print_json(activity, how.upper(), why)
        else:
            print_line(standard_output(), _line(how, activity))
        if why is not None:
            print_message(f"{safe(activity.activity_name)} {how}: {safe_lines(why)}")
        if answer.state is ReportState.NEW:
            print_message("the report is stored and not handled yet: no live worker has the activity")
            return EXIT_UNANSWERED
        return 0 if why is None else EXIT_NEGATIVE

    def _lost(self, activity: OpenActivity, refusal: str | None) -> int:
        why = refusal or "it was released or has ended"
        if self._options.as_json:
            self._print_json(activity, "LOST", why)
        print_message(f"the claim on {safe(activity.activity_name)} {activity.activity_exec_id} is lost: {safe(why)}")
        return EXIT_LOST

    def _print_json(self, activity: OpenActivity, state: str, why: str | None) -> None:
        fields = {
            "activity_exec_id": activity.activity_exec_id,
            "activity_name": activity.activity_name,
            "workflow_exec_id": activity.workflow_exec_id,
            "state": state,
            "reason": why,
        }
        click.echo(json_text(fields, indented=False))


class Heart:
    """Sends the heartbeats of one activity."""

    def __init__(self, reports: ActivityReports, activity: OpenActivity, claim: str) -> None:
        self._reports = reports
        self._claim = claim
        self._interval = LONGEST_BEAT_SECONDS
        if activity.heartbeat_ms is not None:
            self._interval = activity.heartbeat_ms / MILLISECONDS / BEATS
        self.exec_id = activity.activity_exec_id
        self.last: str | None = None
        """The id of the last heartbeat, whose answer carries the cancel request (A6)."""

    async def beat(self) -> None:
        """Send heartbeats until cancelled."""
        while True:
            await asyncio.sleep(self._interval)
            self.last = await self._reports.insert(self.exec_id, ReportKind.HEARTBEAT, claim=self._claim)


class ResponseSender:
    """Sends the lines of a program as responses, in order. Their answers are read later, so that lines are not slow."""

    def __init__(self, reports: ActivityReports, exec_id: str, claim: str) -> None:
        self._reports = reports
        self._exec_id = exec_id
        self._claim = claim
        self._unanswered: list[str] = []

    async def send(self, value: str) -> None:
        """Insert a response. `ProgramError` if an earlier one was refused."""
        event_id = await self._reports.insert(self._exec_id, ReportKind.RESPONSE, claim=self._claim, payload=value)
        self._unanswered.append(event_id)
        if len(self._unanswered) > MOST_UNANSWERED:
            await self._check(self._unanswered.pop(0))

    async def finish(self) -> None:
        """Wait for the answers that are missing."""
        while self._unanswered:
            await self._check(self._unanswered.pop(0))

    async def _check(self, event_id: str) -> None:
        answer = await self._reports.answer(event_id, FINAL_SECONDS)
        if answer.is_refused:
            raise ProgramError(f"a response was refused: {answer.refusal}", retryable=False)


def _interrupted_error() -> str:
    return error_text(ProgramStop.INTERRUPTED.value, type=PROGRAM_FAILED)


def _line(how: str, activity: OpenActivity) -> Text:
    return Text.assemble(
        f"{how} ", (safe(activity.activity_name), "bold"), " ", (safe(activity.activity_exec_id), "cyan")
    )
