"""``holdfast verify`` on large stores: one pass over each table, work in proportion to the rows, bounded reports."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios import stores
from tests.scenarios.support import rows

import holdfast as hf
from holdfast import compose
from holdfast.audit import auditor, problems
from holdfast.audit.auditor import inspect
from holdfast.audit.problems import Rule
from holdfast.storage.relational.raw_tables import RawTables

COPIED = ("instances", "history", "attempts")


@hf.workflow
async def many(count: int) -> int:
    for number in range(count):
        await stores.step(number)
    return count


@hf.workflow
async def again(left: int) -> int:
    await stores.step(left)
    if left:
        hf.continue_as_new(left - 1)
    return left


def make(path: Path, *, count: int = 3, executions: int = 3) -> None:
    async def scenario() -> None:
        async with hf.Engine(path, workflows=[many, again], activities=[stores.step]) as engine:
            await engine.run(many, count, id="1")
            await engine.run(again, executions, id="2")

    asyncio.run(scenario())


def multiply(path: Path, count: int) -> None:
    """Copies of the first instance, under other numbers and ids."""
    for table in COPIED:
        columns = [name for _, name, *_ in rows(path, f"SELECT * FROM pragma_table_info('{table}')")]  # noqa: S608
        copied = ["n.value" if name == "number" else "n.value || ''" if name == "id" else name for name in columns]
        rows(
            path,
            f"""INSERT INTO {table} ({", ".join(columns)}) SELECT {", ".join(copied)}
            FROM (SELECT value FROM json_each(?)) AS n JOIN {table} ON number = 1 ORDER BY n.value""",  # noqa: S608
            str([*range(3, count + 1)]),
        )


def statements(monkeypatch: pytest.MonkeyPatch, path: Path) -> int:
    """How many statements an audit runs."""
    asked: list[str] = []
    open_tables = compose.open_tables

    def opened(store: str | Path) -> RawTables:
        tables = open_tables(store)
        for name in ("_rows", "_stream"):
            monkeypatch.setattr(tables, name, counted(getattr(tables, name)))
        return tables

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def noting(statement: str, *bindings: Any) -> Any:
            asked.append(statement)
            return call(statement, *bindings)

        return noting

    with monkeypatch.context() as patch:
        patch.setattr(compose, "open_tables", opened)
        assert inspect(path).problems == ()
    return len(asked)


def test_an_audit_reads_each_table_once_however_many_instances_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "it.db"
    make(path)
    few = statements(monkeypatch, path)
    multiply(path, 300)
    assert inspect(path).instances == 300
    assert statements(monkeypatch, path) == few


def calls(path: Path) -> int:
    """How many calls of functions, and of generators, an audit takes."""
    count = 0

    def profile(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(profile)
    try:
        report = inspect(path)
    finally:
        sys.setprofile(None)
    assert report.problems == ()
    return count


@pytest.mark.parametrize("kind", ["count", "executions"])
def test_the_work_of_an_audit_grows_with_the_steps_and_executions_of_an_instance(tmp_path: Path, kind: str) -> None:
    for number in (40, 80, 160):
        make(tmp_path / f"{number}.db", **{kind: number})
        calls(tmp_path / f"{number}.db")  # imports and caches
    few, more, most = (calls(tmp_path / f"{number}.db") for number in (40, 80, 160))
    assert (most - more) < 2.2 * (more - few)


def test_G4_an_execution_of_which_nothing_is_there_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "it.db"
    make(path, executions=5)
    for table in ("history", "attempts"):
        rows(path, f"DELETE FROM {table} WHERE number = 2 AND execution IN (2, 3)")  # noqa: S608
    assert [(problem.instance, problem.rule, problem.text) for problem in inspect(path).problems] == [
        ("2", Rule.ONE_SUCCESSOR, "executions 2 to 3 have a successor and no history")
    ]


def test_a_report_keeps_a_bounded_number_of_problems_and_counts_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "it.db"
    make(path)
    multiply(path, 30)
    rows(path, "UPDATE instances SET turn = turn + 1")
    monkeypatch.setattr(auditor, "MOST_PROBLEMS", 10)
    report = inspect(path)
    assert (len(report.problems), report.left_out) == (10, 20)
    monkeypatch.setattr(auditor, "MOST_PROBLEMS", problems.MOST_PROBLEMS)
    rows(path, "UPDATE history SET events = CAST(replace(hex(zeroblob(5000)), '0', 'x') AS BLOB) WHERE number = 1")
    assert max(len(problem.text) for problem in inspect(path).problems) <= problems.LONGEST_TEXT + len("...")


def test_an_audit_tells_how_far_it_has_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "it.db"
    make(path)
    multiply(path, 30)
    monkeypatch.setattr(auditor, "PROGRESS_EVERY", 10)
    told: list[tuple[int, int]] = []
    inspect(path, lambda done, total: told.append((done, total)))
    assert told == [(0, 30), (10, 30), (20, 30), (30, 30)]
