"""``holdfast verify``: a store after real runs is sound, and every kind of damage is found and named."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.crash.killed import was_killed
from tests.forking.processes import Outcome, run
from tests.scenarios import stores
from tests.scenarios.contract_damage import CONTRACT_DAMAGE
from tests.scenarios.damage import CHILD_DAMAGE, DAMAGE
from tests.scenarios.flow_damage import FLOW_DAMAGE
from tests.unit.cli.commands import sql

import holdfast as hf
from holdfast.audit.auditor import audit, inspect
from holdfast.audit.problems import Rule
from holdfast.errors import UsageError

Events = list[dict[str, Any]]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "sound.db"
    asyncio.run(stores.make_store(path))
    return path


@pytest.fixture
def store(sound: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    copy = tmp_path / "copy.db"
    for suffix in ("", "-wal"):
        if (source := Path(f"{sound}{suffix}")).exists():
            shutil.copy(source, f"{copy}{suffix}")
    return copy


def test_a_store_with_instances_in_every_phase_is_sound(sound: Path) -> None:
    report = inspect(sound)
    assert report.problems == ()
    assert report.instances == 12
    assert report.attempts == 18
    states: dict[str, str] = dict(sql(sound, "SELECT id, state FROM instances"))
    assert states.pop("again") == "COMPLETED"
    assert states == {
        "done": "COMPLETED",
        "failed": "FAILED",
        "large": "COMPLETED",
        "large-input": "COMPLETED",
        "given-up": "COMPLETED",
        "ended": "TERMINATED",
        "sleeping": "RUNNING",
        "overdue": "FAILED",
        "hanging": "RUNNING",
        "requested": "REQUESTED",
    }


def test_every_rule_has_a_line_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "verify.md").read_text(encoding="utf-8")
    assert [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")] == list(Rule)


def test_every_rule_is_broken_by_a_test() -> None:
    assert {rule for rule, *_ in (*DAMAGE, *EDITS, *CHILD_DAMAGE, *FLOW_DAMAGE, *CONTRACT_DAMAGE)} | {
        Rule.FILE_SOUND
    } == set(Rule)


def number_of(store: Path, instance: str) -> int:
    number: int = sql(store, "SELECT number FROM instances WHERE id = ?", instance)[0][0]
    return number


@pytest.mark.parametrize(("rule", "instance", "statement"), DAMAGE)
def test_damage_of_a_row_is_found_and_named(store: Path, rule: Rule, instance: str, statement: str) -> None:
    sql(store, statement, number_of(store, instance or "done"))
    problems = audit(store)
    assert (instance, rule) in {(problem.instance, problem.rule) for problem in problems}, problems
    assert {problem.instance for problem in problems} <= {instance, ""}, "others are not blamed"


def find(events: Events, kind: str) -> dict[str, Any]:
    return next(event for event in events if event["event"] == kind)


def without(kind: str) -> Callable[[Events], Events]:
    return lambda events: [event for event in events if event["event"] != kind]


def twice(kind: str) -> Callable[[Events], Events]:
    return lambda events: [*events, find(events, kind)]


def changed(kind: str, **fields: Any) -> Callable[[Events], Events]:
    return lambda events: [event | fields if event["event"] == kind else event for event in events]


EDITS: list[tuple[Rule, str, Callable[[Events], Events]]] = [
    (Rule.STARTED_ONCE, "sleeping", without("started")),
    (Rule.STARTED_ONCE, "sleeping", lambda events: [events[1], events[0], *events[2:]]),
    (Rule.STARTED_ONCE, "done", twice("started")),
    (Rule.STARTED_ONCE, "done", changed("started", workflow="other")),
    (Rule.TERMINAL_LAST, "done", without("workflow_completed")),
    (Rule.TERMINAL_LAST, "ended", without("workflow_terminated")),
    (Rule.TERMINAL_LAST, "ended", twice("workflow_terminated")),
    (Rule.TERMINAL_LAST, "done", lambda events: [*events, {"event": "workflow_terminated", "time_ms": 1}]),
    (Rule.TERMINAL_LAST, "done", twice("workflow_completed")),
    (Rule.TERMINAL_LAST, "done", twice("activity_completed")),
    (Rule.TERMINAL_LAST, "done", changed("workflow_completed", result={"data": 77})),
    (Rule.TERMINAL_LAST, "sleeping", lambda events: [*events, {"event": "workflow_completed", "result": {}}]),
    (Rule.ONE_OUTCOME, "sleeping", twice("activity_completed")),
    (Rule.ONE_OUTCOME, "sleeping", changed("activity_completed", activity=9)),
    (Rule.ONE_OUTCOME, "sleeping", changed("activity_scheduled", activity=9)),
    (Rule.ONE_OUTCOME, "sleeping", twice("timer_started")),
    (Rule.ONE_OUTCOME, "done", twice("timer_fired")),
    (Rule.ONE_OUTCOME, "done", changed("timer_fired", timer=9)),
    (Rule.ONE_OUTCOME, "given-up", twice("activity_abandoned")),
    (
        Rule.ONE_OUTCOME,
        "done",
        lambda events: [*events[:-1], {"event": "timer_cancelled", "timer": find(events, "timer_fired")["timer"]}],
    ),
    (
        Rule.ONE_OUTCOME,
        "sleeping",
        lambda events: [*events, {"event": "event_set_aside", "wait": 0, "name": "approval"}],
    ),
    (
        Rule.ONE_OUTCOME,
        "sleeping",
        lambda events: [
            *events,
            {"event": "event_awaited", "wait": 0, "name": "approval"},
            {"event": "event_received", "time_ms": 1, "name": "approval", "value": {"data": 1}},
            {"event": "event_set_aside", "wait": 1, "name": "approval"},
        ],
    ),
    (Rule.TIMER_NOT_EARLY, "done", changed("timer_fired", time_ms=1)),
    (Rule.REAL_RESULT, "sleeping", changed("activity_completed", attempt=4)),
    (Rule.REAL_RESULT, "failed", changed("activity_failed", attempt=1)),
    (Rule.REAL_RESULT, "failed", changed("activity_failed", failure={"data": {"type": "x", "message": "y"}})),
    (Rule.ATTEMPTS_COMPLETE, "sleeping", without("activity_completed")),
    (Rule.ATTEMPTS_COMPLETE, "done", changed("activity_scheduled", name="other")),
    (Rule.TIMERS_AGREE, "sleeping", without("timer_started")),
    (Rule.PAYLOADS_THERE, "done", changed("activity_completed", result={"reference": "abc"})),
]


@pytest.mark.parametrize(("rule", "instance", "edit"), EDITS)
def test_damage_of_the_history_is_found_and_named(
    store: Path, rule: Rule, instance: str, edit: Callable[[Events], Events]
) -> None:
    """The events of all turns, edited and put into as many turns again."""
    number = number_of(store, instance)
    rows = sql(store, "SELECT turn, events FROM history WHERE number = ? ORDER BY turn", number)
    events = [event for _, data in rows for event in json.loads(data)]
    edited = edit(events)
    assert edited != events
    last = len(rows) - 1
    for turn in range(len(rows)):
        part = edited[turn : turn + 1] if turn < last else edited[last:]
        sql(
            store,
            "UPDATE history SET events = ? WHERE number = ? AND turn = ?",
            json.dumps(part).encode(),
            number,
            turn,
        )
    problems = audit(store)
    assert (instance, rule) in {(problem.instance, problem.rule) for problem in problems}, problems


def test_an_unchanged_history_put_into_other_turns_is_no_problem(store: Path) -> None:
    """The edit above is what is found, not the way it is written back."""
    for (number,) in sql(store, "SELECT number FROM instances"):
        rows = sql(store, "SELECT turn, events FROM history WHERE number = ? ORDER BY turn", number)
        for turn, data in rows:
            again = json.dumps(json.loads(data)).encode()
            sql(store, "UPDATE history SET events = ? WHERE number = ? AND turn = ?", again, number, turn)
    assert {problem.rule for problem in audit(store)} <= {Rule.TERMINAL_LAST, Rule.STARTED_ONCE}


def test_a_damaged_page_is_found(store: Path) -> None:
    sql(store, "PRAGMA journal_mode = DELETE")
    page = sql(store, "SELECT rootpage FROM sqlite_schema WHERE name = 'instances_claimable'")[0][0]
    size = sql(store, "PRAGMA page_size")[0][0]
    data = bytearray(store.read_bytes())
    data[(page - 1) * size + 8 : page * size] = bytes(size - 8)
    store.write_bytes(data)
    assert {problem.rule for problem in audit(store)} == {Rule.FILE_SOUND}


MIXED = "tests.crash.mixed"


@pytest.mark.slow
@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
@pytest.mark.parametrize("at", [1, 2, 3, 5, 8])
def test_a_store_is_sound_after_kill_9_and_after_going_on(tmp_path: Path, point: str, at: int) -> None:
    store = tmp_path / "killed.db"
    assert was_killed(MIXED, store, "first", point, at), "a run in which the fault never happened is void"
    assert audit(store) == []
    assert not was_killed(MIXED, store, "first")
    assert audit(store) == []
    report = inspect(store)
    assert report.instances == 6
    assert sql(store, "SELECT count(*) FROM instances WHERE closed_at_ms IS NULL") == [(0,)]


def test_an_audit_beside_a_busy_engine_sees_one_moment(tmp_path: Path) -> None:
    async def audit_meanwhile() -> None:
        async with hf.Engine(tmp_path / "busy.db", modules=[stores]) as engine:
            running = asyncio.gather(*(engine.run(stores.completes, n, id=str(n)) for n in range(50)))
            looks = 0
            while not running.done():
                assert audit(tmp_path / "busy.db") == []
                looks += 1
                await asyncio.sleep(0)
            assert await running == [n + 1 for n in range(50)]
            assert looks > 1

    asyncio.run(audit_meanwhile())
    assert inspect(tmp_path / "busy.db").instances == 50


def verify(path: Path, *options: str) -> Outcome:
    return run("holdfast.cli:main", "verify", "--store", path, *options)


@pytest.mark.slow
def test_the_command_says_what_is_wrong_and_ends_with_1(store: Path) -> None:
    done = verify(store)
    assert (done.code, done.complaints) == (0, "")
    assert "is sound: 12 instances" in done.said
    sql(store, "UPDATE instances SET turn = turn + 1 WHERE id IN ('done', 'failed')")
    done = verify(store)
    assert done.code == 1
    lines = done.said.splitlines()
    assert lines[0] == "done  history-gap-free  it counts 5 turns, and the history has 4"
    assert len(lines) == 3
    assert lines[2].startswith("2 problems in 2 of 12 instances")
    fields = json.loads(verify(store, "--json").said)
    assert fields["instances"] == 12
    assert [problem["instance"] for problem in fields["problems"]] == ["done", "failed"]
    assert fields["problems"][0]["rule"] == "history-gap-free"


def test_a_file_without_tables_breaks_no_rule_and_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    sql(tmp_path / "wal.db", "PRAGMA journal_mode = WAL")
    for path in (tmp_path / "empty.db", tmp_path / "wal.db"):
        assert audit(path) == []
        with pytest.raises(UsageError, match="has no tables, so it is not a Holdfast store"):
            inspect(path)


def test_a_store_that_is_not_there_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(hf.StoreError, match="there is no store"):
        audit(tmp_path / "gone.db")
    assert list(tmp_path.iterdir()) == []


def test_an_audit_changes_nothing(store: Path) -> None:
    sql(store, "PRAGMA wal_checkpoint(TRUNCATE)")
    before = store.read_bytes()
    audit(store)
    assert store.read_bytes() == before
