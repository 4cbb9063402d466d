"""Progress on screen while a workflow runs: steps that ended as lines, steps that are open below them, ticking.

On a terminal the open steps are drawn again and again; anywhere else only the lines are printed.
"""

from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from holdfast.cli.steps import InstanceSteps, StepState, StepView, attempt_seconds, failure_of_attempt
from holdfast.cli.texts import print_line, safe, seconds_text
from holdfast.client.views import short_failure
from holdfast.core.lifecycle import AttemptState
from holdfast.storage.contract import AttemptRecord

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

    def _ended(self, step: StepView, now_ms: int) -> Text:
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

    def _repeated(self, step: StepView, attempt: AttemptRecord, now_ms: int) -> Text:
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

    def _ticking(self, step: StepView, now_ms: int) -> Text:
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
