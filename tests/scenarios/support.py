"""Small tools of the scenarios: an engine from a list of definitions, one bounded event loop, and raw tables."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import apsw
from tests.scenarios.kinds import are_files, rows_of, snapshot_of

import holdfast as hf
from holdfast.core.activity_options import decode_options
from holdfast.core.history import (
    FROM_OUTSIDE,
    ActivityCompleted,
    ActivityFailed,
    ActivityYielded,
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    HistoryEvent,
    Started,
    TimerFired,
    decode_event,
    decode_events,
)
from holdfast.core.ledger import read_ledger
from holdfast.core.lifecycle import ATTEMPT_FINAL, INSTANCE_FINAL, AttemptState, InstanceState, disagreement
from holdfast.runtime.platform import Platform, SystemClockAndIds
from holdfast.testing.environment import Environment

T = TypeVar("T")
Definition = hf.Workflow[..., Any] | hf.Activity[..., Any]
BOUND_SECONDS = 30.0


class SleepingMachine(SystemClockAndIds):
    """A machine whose clock CLOCK_BOOTTIME can jump, as it does while a process is stopped or a laptop sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.slept_ms = 0

    def elapsed_ms(self) -> int:
        return super().elapsed_ms() + self.slept_ms


def together(coroutine: Coroutine[Any, Any, T], seconds: float = BOUND_SECONDS) -> T:
    """Run a scenario on an event loop of its own, within a bound."""

    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await coroutine

    return asyncio.run(bounded())


def engine_of(store: str | Path, *definitions: Definition, **options: Any) -> hf.Engine:
    """An engine that knows these workflows and activities, and nothing else."""
    known = ("fault_hook", "detect_local_deaths", "providers", "turn_limit_ms")
    world = {name: options.pop(name) for name in known if name in options}
    if world:
        options["_platform"] = Platform(**world)
    return hf.Engine(
        store,
        workflows=[definition for definition in definitions if isinstance(definition, hf.Workflow)],
        activities=[definition for definition in definitions if isinstance(definition, hf.Activity)],
        **options,
    )


def skipping(*definitions: Definition, **options: Any) -> Environment:
    """The same, with time that skips."""
    return Environment(
        workflows=[definition for definition in definitions if isinstance(definition, hf.Workflow)],
        activities=[definition for definition in definitions if isinstance(definition, hf.Activity)],
        **options,
    )


def finish(
    workflow: hf.Workflow[..., Any], *definitions: Definition, store: str | Path = ":memory:", **options: Any
) -> Any:
    """Run a workflow without arguments to its end, and check the tables it leaves behind."""

    async def scenario() -> Any:
        async with engine_of(store, workflow, *definitions, **options) as engine:
            try:
                return await engine.run(workflow, id="it")
            finally:
                check_tables(path_of(engine))

    return together(scenario())


async def until(condition: Callable[[], object]) -> None:
    """Wait until something is so. For what no signal tells of."""
    while not condition():  # noqa: ASYNC110 - that is what it is for
        await asyncio.sleep(0.002)


def path_of(engine: hf.Client) -> Path:
    return engine._session.store.companion_path


def rows(path: Path, statement: str, *bindings: Any) -> list[tuple[Any, ...]]:
    """Rows as they are on disk. By apsw: two SQLite libraries in one process would break each other's locks."""
    elsewhere = rows_of(path, statement, *bindings)
    if elsewhere is not None:
        return elsewhere
    connection: Any = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(5_000)
    try:
        found: list[tuple[Any, ...]] = connection.execute(statement, bindings).fetchall()
        return found
    finally:
        connection.close()


def history_of(path: Path, number: int) -> list[HistoryEvent]:
    stored = rows(path, "SELECT events FROM history WHERE number = ? ORDER BY execution, turn", number)
    return [event for (events,) in stored for event in decode_events(events)]


def _is_retried(event: HistoryEvent) -> bool:
    """Whether it ends an execution that the next one follows (G18)."""
    return isinstance(event, ExecutionFailed) and event.retry_at_ms is not None


def check_tables(path: Path) -> None:
    """The invariants of reliability.md section 2 that can be read off the tables of a store at any moment."""
    problems: list[str] = []
    assert not are_files() or rows(path, "PRAGMA integrity_check") == [("ok",)]
    with snapshot_of(path):
        for number, name, state, turn, owner, closed_at in rows(
            path, "SELECT number, id, state, turn, owner, closed_at_ms FROM instances"
        ):
            problems += [f"{name}: {problem}" for problem in _of_instance(path, number, state, turn, owner, closed_at)]
        problems += _of_attempts(path)
    assert not problems, problems


def _of_instance(path: Path, number: int, state: str, turn: int, owner: str | None, closed_at: int | None) -> list[str]:
    problems: list[str] = []
    of_last = "number = ? AND execution = (SELECT execution FROM instances WHERE instances.number = history.number)"
    turns = [row[0] for row in rows(path, f"SELECT turn FROM history WHERE {of_last} ORDER BY turn", number)]  # noqa: S608
    if turns != list(range(turn)):
        problems.append(f"the turns of the history are {turns}, and the instance is at turn {turn}")
    events = history_of(path, number)
    decided: list[tuple[int, str, int]] = []
    execution = 0
    for event in events:
        if isinstance(event, Started):
            execution = event.execution
        elif isinstance(event, ActivityCompleted | ActivityFailed):
            decided.append((execution, "activity", event.activity))
        elif isinstance(event, TimerFired):
            decided.append((execution, "timer", event.timer))
    if len(decided) != len(set(decided)):
        problems.append(f"something has two outcomes: {decided}")
    terminal = (ExecutionCompleted, ExecutionFailed, ExecutionCancelled, *FROM_OUTSIDE)
    ends = [at for at, event in enumerate(events) if isinstance(event, terminal) and not _is_retried(event)]
    is_closed = InstanceState(state) in INSTANCE_FINAL
    if is_closed and ends != [len(events) - 1]:
        problems.append(f"closed, with terminal events at {ends} of {len(events)}")
    if is_closed and (owner is not None or closed_at is None):
        problems.append("closed, but owned or without a time")
    if not is_closed and ends:
        problems.append("open, with a terminal event")
    if is_closed:
        problems += [
            f"closed, with rows in {table}"
            for table in ("inbox", "timers")
            if rows(path, f"SELECT 1 FROM {table} WHERE number = ?", number)  # noqa: S608 - a name from above
        ]
        pending = rows(
            path,
            "SELECT activity, state FROM attempts WHERE number = ? "
            "AND state IN ('REQUESTED', 'READY', 'QUEUED', 'PREPARING', 'RUNNING')",
            number,
        )
        if pending:
            problems.append(f"closed, with pending attempts {pending}")
    return problems


def _of_attempts(path: Path) -> list[str]:
    waiting: dict[tuple[int, int, int], int] = {}
    values: dict[tuple[int, int, int], int] = {}
    for number, event in rows(path, "SELECT number, event FROM inbox"):
        message = decode_event(event)
        if isinstance(message, ActivityCompleted | ActivityFailed):
            key = (number, message.activity, message.attempt)
            waiting[key] = waiting.get(key, 0) + 1
        elif isinstance(message, ActivityYielded):
            key = (number, message.activity, message.attempt)
            values[key] = values.get(key, 0) + len(message.numbers)
    problems: list[str] = []
    answered: dict[tuple[int, int, int], int] = {}
    for number, execution, activity, attempt, state, ledger, owner, closed_at, options in rows(
        path, "SELECT number, execution, activity, attempt, state, ledger, owner, closed_at_ms, options FROM attempts"
    ):
        which = f"attempt {attempt} of activity {activity} of instance {number}"
        unapplied = (
            0
            if state in (AttemptState.TIMED_OUT, AttemptState.CANCELLED) or not read_ledger(ledger).leg1_concluded
            else waiting.get((number, activity, attempt), 0)
        )
        unapplied += values.get((number, activity, attempt), 0)
        external = decode_options(options).external is not None
        why = disagreement(state, ledger, owned=owner is not None, unapplied=unapplied, external=external)
        if why is not None:
            problems.append(f"{which}: {why}")
        if (AttemptState(state) in ATTEMPT_FINAL) != (closed_at is not None):
            problems.append(f"{which}: {state}, closed at {closed_at}")
        if state == AttemptState.COMPLETED:
            key = (number, execution, activity)
            answered[key] = answered.get(key, 0) + 1
    problems += [f"activity {key} has {count} results" for key, count in answered.items() if count > 1]
    return problems
