"""Goes through a store, instance by instance, in one snapshot."""

from pathlib import Path
from typing import TypeVar

from holdfast.audit.instances import InstanceTables, check_instance
from holdfast.audit.problems import Problem, Report, Rule
from holdfast.core.liveness import WorkerState
from holdfast.storage.places import is_address
from holdfast.storage.relational.audit import Raw, RawInstance, RawTables, Unreadable
from holdfast.storage.sqlite.audit import SqliteTables

Row = TypeVar("Row", bound=Raw)


def audit(path: str | Path) -> list[Problem]:
    """Every rule that a store breaks; none if it is sound. Nothing in it is changed; others may go on using it."""
    return list(inspect(path).problems)


def inspect(path: str | Path) -> Report:
    """The same, with counts of what was looked at."""
    tables = open_tables(path)
    try:
        return _Auditor(tables).run()
    finally:
        tables.close()


def open_tables(store: str | Path) -> RawTables:
    """The tables of the store that a path or URL names."""
    if not is_address(store):
        return SqliteTables(Path(store))
    from holdfast.storage.postgres.audit import PostgresTables  # noqa: PLC0415 - it needs a library of its own

    return PostgresTables(str(store))


class _Auditor:
    def __init__(self, tables: RawTables) -> None:
        self._tables = tables
        self._problems: list[Problem] = []
        self._turns = 0
        self._attempts = 0

    def run(self) -> Report:
        damage = self._tables.damage()
        for line in damage:
            self._add("", Rule.FILE_SOUND, line)
        if damage or not self._tables.are_there():
            return Report(0, 0, 0, tuple(self._problems))  # what a broken file says proves nothing
        workers = self._workers()
        count = 0
        for row in self._tables.instances():
            count += 1
            if isinstance(row, Unreadable):
                self._unreadable("", row)
            else:
                self._instance(row, workers)
        for instance, current, newest in self._tables.shared_ids():
            text = f"of its instances {current} have the id, and it should be number {newest} alone, the newest"
            self._add(instance, Rule.ONE_CURRENT, text)
        for table, number, rows in self._tables.orphans():
            self._add("", Rule.ROWS_BELONG, f"{rows} rows of {table} hang on instance number {number}, which is gone")
        return Report(count, self._turns, self._attempts, tuple(self._problems))

    def _instance(self, row: RawInstance, workers: set[str]) -> None:
        number = row.number
        turns = self._readable(row.id, self._tables.turns(number))
        attempts = self._readable(row.id, self._tables.attempts(number))
        self._turns += len(turns)
        self._attempts += len(attempts)
        tables = InstanceTables(
            row=row,
            turns=turns,
            attempts=attempts,
            messages=self._readable(row.id, self._tables.messages(number)),
            timers=self._readable(row.id, self._tables.timers(number)),
            updates=self._readable(row.id, self._tables.updates(number)),
            payloads=self._tables.payloads(number),
            children=self._readable(row.id, self._tables.children(number)),
            closings=self._tables.closings(number),
            flow=self._tables.flow,
        )
        for rule, text in check_instance(tables, workers):
            self._add(row.id, rule, text)

    def _workers(self) -> set[str]:
        workers = self._readable("", self._tables.workers())
        for worker in workers:
            if worker.state not in set(WorkerState):
                self._add(
                    "", Rule.ROWS_READABLE, f"worker {worker.key!r} has the state {worker.state!r}, which is none"
                )
        return {worker.key for worker in workers}

    def _readable(self, instance: str, rows: list[Row | Unreadable]) -> list[Row]:
        readable: list[Row] = []
        for row in rows:
            if isinstance(row, Unreadable):
                self._unreadable(instance, row)
            else:
                readable.append(row)
        return readable

    def _unreadable(self, instance: str, row: Unreadable) -> None:
        self._add(instance, Rule.ROWS_READABLE, f"a row of {row.table} ({row.row}) cannot be read: {row.reason}")

    def _add(self, instance: str, rule: Rule, text: str) -> None:
        self._problems.append(Problem(instance, rule, text))
