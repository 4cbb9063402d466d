"""Progress on a terminal: what ended stays as a line, what is open ticks below; and texts made safe."""

import re
from io import StringIO

import msgspec
import pytest
from rich.console import Console

from holdfast.cli.console import moment_text, safe, safe_lines, seconds_text
from holdfast.cli.run import MOST_OPEN, Lines
from holdfast.client.views.report import ExecutionReport
from holdfast.client.views.steps import join_steps
from holdfast.core import history as ev
from holdfast.core.history import HistoryEvent, Payload
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.core.steps import read_steps
from holdfast.storage.records import AttemptKey, AttemptRecord, Fence, InstanceId, InstanceNumber, InstanceRecord

NUMBER = InstanceNumber(1)
RECORD = InstanceRecord(
    number=NUMBER,
    id=InstanceId("a"),
    workflow="shop",
    version="",
    state=InstanceState.RUNNING,
    execution=1,
    turn=1,
    fence=Fence(1),
    owner=None,
    claimable_at_ms=None,
    stamp_ms=0,
    input=b"{}",
    input_hash=b"",
    outcome=None,
    blocked=None,
    created_at_ms=0,
    closed_at_ms=None,
)
FAILURE = msgspec.json.encode({"type": "shop.Declined", "message": "no\x1b[2J [b]money"})


def attempt(activity: int, number: int, state: AttemptState, **fields: object) -> AttemptRecord:
    record = AttemptRecord(
        key=AttemptKey(NUMBER, 1, activity, number),
        name="charge",
        queue="default",
        state=state,
        ledger=889000000000000,
        input=b"{}",
        options=b"{}",
        available_at_ms=0,
        scheduled_at_ms=0,
    )
    return msgspec.structs.replace(record, **fields)


def execution(events: list[HistoryEvent], *attempts: AttemptRecord) -> ExecutionReport:
    return ExecutionReport(RECORD, attempts, events, None, join_steps(read_steps(events), attempts))


def shown(*executions: ExecutionReport, resumes: bool = False, now_ms: int = 2_000) -> str:
    """Everything that was written to the terminal, without colours and cursor movements."""
    screen = StringIO()
    console = Console(file=screen, force_terminal=True, no_color=True, width=200, highlight=False)
    with Lines(console, resumes=resumes) as lines:
        for each in executions:
            lines.show(each, now_ms)
            if lines._live is not None:
                lines._live.refresh()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())


SCHEDULED = ev.ActivityScheduled(activity=0, name="charge")
RUNNING = attempt(0, 1, AttemptState.RUNNING, started_at_ms=500)
DONE = attempt(0, 1, AttemptState.COMPLETED, started_at_ms=500, closed_at_ms=900)


def test_an_open_activity_ticks_and_becomes_a_line_once() -> None:
    completed = ev.ActivityCompleted(time_ms=900, activity=0, result=Payload())
    ended = execution([SCHEDULED, completed], DONE)
    text = shown(execution([SCHEDULED], RUNNING), ended, ended)
    assert "· charge  running 1.5 s" in text
    assert text.count("✓ charge  400 ms") == 1


def test_a_timer_counts_down() -> None:
    started = ev.TimerStarted(timer=1, due_at_ms=14_300)
    assert "timer 1  12.3 s left" in shown(execution([started]))
    assert "timer 1  0 ms left" in shown(execution([started]), now_ms=99_000)
    assert "✓ timer 1" in shown(execution([started, ev.TimerFired(time_ms=1, timer=1)]))
    assert "- timer 1  cancelled" in shown(execution([started, ev.TimerCancelled(timer=1)]))


def test_an_attempt_that_is_repeated_says_why_and_when() -> None:
    failed = attempt(0, 1, AttemptState.FAILED, started_at_ms=1, closed_at_ms=2, failure=FAILURE)
    waiting = attempt(0, 2, AttemptState.READY, available_at_ms=5_000)
    text = shown(execution([SCHEDULED], failed, waiting), execution([SCHEDULED], failed, waiting))
    assert text.count(r"attempt 1: Declined: no\x1b[2J [b]money; tried again") == 1
    assert "charge  again in 3.0 s  attempt 2" in text


def test_an_attempt_that_nobody_has_taken_waits_for_a_worker() -> None:
    assert "waiting for a worker" in shown(execution([SCHEDULED], attempt(0, 1, AttemptState.READY)))


def test_a_failure_for_good_is_a_line_with_its_message() -> None:
    failed = ev.ActivityFailed(time_ms=1, activity=0, failure=Payload())
    last = attempt(0, 1, AttemptState.FAILED, started_at_ms=1, closed_at_ms=2, failure=FAILURE)
    assert r"✗ charge  1 ms  Declined: no\x1b[2J [b]money" in shown(execution([SCHEDULED, failed], last))


def test_a_failure_that_cannot_be_decoded_says_so() -> None:
    broken = attempt(0, 1, AttemptState.FAILED, closed_at_ms=2, failure=b"{")
    failed = ev.ActivityFailed(time_ms=1, activity=0, failure=Payload())
    assert "the stored failure cannot be decoded" in shown(execution([SCHEDULED, failed], broken))


def test_many_open_steps_are_counted_not_listed() -> None:
    events: list[HistoryEvent] = [ev.TimerStarted(timer=n, due_at_ms=9_000) for n in range(MOST_OPEN + 30)]
    text = shown(execution(events))
    assert "and 30 more" in text
    assert f"timer {MOST_OPEN} " not in text


@pytest.mark.parametrize(("steps", "lines"), [(3, 3), (40, 1)])
def test_what_was_recorded_before_is_told_in_few_lines(steps: int, lines: int) -> None:
    events: list[HistoryEvent] = [ev.TimerStarted(timer=n, due_at_ms=1) for n in range(steps)]
    events += [ev.TimerFired(time_ms=1, timer=n) for n in range(steps)]
    text = shown(execution(events), resumes=True)
    assert text.count("recorded before") == lines
    assert text.count("not run again") == lines if steps == lines else f"{steps} steps were recorded before" in text


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("plain", "plain"),
        ("Zürich ✓", "Zürich ✓"),
        ("a\nb\tc\x00", r"a\nb\tc\x00"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\u202eback\u2066", r"\u202eback\u2066"),
        ("\ud800", r"\ud800"),
        ("[bold]x[/]", "[bold]x[/]"),
        ("x" * 3_000, "x" * 2_000 + "... (3,000 characters)"),
    ],
)
def test_what_is_not_plainly_visible_is_shown_escaped(text: str, printed: str) -> None:
    assert safe(text) == printed


def test_lines_stay_lines() -> None:
    assert safe_lines("one\ntwo\x1b") == "one\ntwo\\x1b"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.4, "400 ms"),
        (2.44, "2.4 s"),
        (75, "1 min 15 s"),
        (3_600, "1 h 00 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations_are_said_as_people_say_them(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_times_beyond_the_calendar_are_numbers() -> None:
    assert moment_text(0) == "1970-01-01 00:00:00"
    assert moment_text(10**18) == f"{10**18} ms"
