"""Audits a store instance by instance, in one snapshot and one pass over each table."""

from collections.abc import Callable, Container, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from holdfast import compose
from holdfast.audit.contract_rows import check_contract_rows
from holdfast.audit.flows import read_definition
from holdfast.audit.instances import Execution, InstanceTables, check_instance
from holdfast.audit.payloads import Payloads
from holdfast.audit.problems import LONGEST_TEXT, MOST_PROBLEMS, Finding, Problem, Report, Rule
from holdfast.audit.scans import Scan, key_of, number_of, parent_of
from holdfast.core.flow.definition import FlowDefinition
from holdfast.core.leases import WorkerState
from holdfast.errors import UsageError
from holdfast.storage.relational.raw_tables import RawInstance, RawTables, RawWorker, Unreadable

MOST_DEFINITIONS: Final = 64
"""Decoded flows in the cache."""
PROGRESS_EVERY: Final = 500
"""Instances between two reports of the progress."""

Progress = Callable[[int, int], None]
"""Receives the number of instances that were checked, and of those that there are."""


def audit(path: str | Path) -> list[Problem]:
    """Every rule that a store breaks. Nothing is changed, and workers may run meanwhile.

    A store without tables, which a process leaves that died while it created the store, breaks none.
    """
    return list(_inspect(path, None, may_be_empty=True).problems)


def inspect(path: str | Path, progress: Progress | None = None) -> Report:
    """Like `audit`, with the numbers of rows; `UsageError` for a file or schema without tables."""
    return _inspect(path, progress, may_be_empty=False)


def _inspect(path: str | Path, progress: Progress | None, *, may_be_empty: bool) -> Report:
    tables = compose.open_tables(path)
    try:
        auditor = _Auditor(tables, progress)
        report = auditor.run()
    finally:
        tables.close()
    if auditor.has_no_tables and not may_be_empty:
        name = compose.display_name(path) if compose.is_address(path) else path
        raise UsageError(f"{name} has no tables, so it is not a Holdfast store")
    return report


class _Auditor:
    def __init__(self, tables: RawTables, progress: Progress | None) -> None:
        self._tables = tables
        self._progress = progress
        self._problems: list[Problem] = []
        self._left_out = 0
        self._instances = 0
        self._turns = 0
        self._attempts = 0
        self._definition = lru_cache(MOST_DEFINITIONS)(self._read_definition)
        self.has_no_tables = False

    def run(self) -> Report:
        damage = self._tables.damage()
        for line in damage:
            self._add("", Rule.FILE_SOUND, line)
        if not damage:  # the rows of a damaged file prove nothing
            self.has_no_tables = not self._tables.are_there()
            if not self.has_no_tables:
                self._check_all()
        return Report(self._instances, self._turns, self._attempts, tuple(self._problems), self._left_out)

    def _check_all(self) -> None:
        tables = self._tables
        workers = self._workers()
        total = tables.count() if self._progress is not None else 0
        scans = _Scans(tables, self._unreadable, self._orphaned)
        for row in tables.instances():
            if self._progress is not None and self._instances % PROGRESS_EVERY == 0:
                self._progress(self._instances, total)
            self._instances += 1
            if isinstance(row, Unreadable):
                self._unreadable(row)
            else:
                self._check(row, scans, workers)
        scans.finish()
        for instance, current, newest in tables.shared_ids():
            text = f"{current} of its instances have the id, instead of the newest alone, number {newest}"
            self._add(instance, Rule.ONE_CURRENT, text)
        for table, number, rows in tables.orphans():
            self._orphaned(table, number, rows)
        for row_finding in check_contract_rows(tables, workers.values()):
            if isinstance(row_finding, Unreadable):
                self._unreadable(row_finding)
            else:
                self._add("", *row_finding)
        if self._progress is not None:
            self._progress(self._instances, total)

    def _check(self, row: RawInstance, scans: "_Scans", workers: Container[str]) -> None:
        number = row.number
        scans.seek(number)
        found = InstanceTables(
            row,
            Payloads(number, self._tables.payload),
            self._definition,
            scans.messages.take(number),
            scans.timers.take(number),
            scans.updates.take(number),
            scans.attributes.take(number),
        )
        for rule, text in check_instance(found, self._counted(scans.executions(number)), workers):
            self._add(row.id, rule, text)

    def _counted(self, executions: Iterator[Execution]) -> Iterator[Execution]:
        for execution in executions:
            self._turns += len(execution.turns)
            self._attempts += len(execution.attempts)
            yield execution

    def _read_definition(self, digest: str) -> FlowDefinition | Finding:
        return read_definition(digest, self._tables.flow(digest))

    def _workers(self) -> dict[str, RawWorker]:
        workers: dict[str, RawWorker] = {}
        for worker in self._tables.workers():
            if isinstance(worker, Unreadable):
                self._unreadable(worker)
                continue
            workers[worker.key] = worker
            if worker.state not in set(WorkerState):
                text = f"worker {worker.key!r} has the unknown state {worker.state!r}"
                self._add("", Rule.ROWS_READABLE, text)
        return workers

    def _unreadable(self, row: Unreadable) -> None:
        instance = None if row.number is None else self._tables.id_of(row.number)
        text = f"a row of {row.table} ({row.row}) cannot be read: {row.reason}"
        self._add(instance or "", Rule.ROWS_READABLE, text)

    def _orphaned(self, table: str, number: int, rows: int) -> None:
        """Reports rows without an instance. The rows of an unreadable instance, which is reported, have one."""
        if self._tables.id_of(number) is None:
            text = f"{rows} rows of {table} belong to instance number {number}, which does not exist"
            self._add("", Rule.ROWS_BELONG, text)

    def _add(self, instance: str, rule: Rule, text: str) -> None:
        if len(self._problems) >= MOST_PROBLEMS:
            self._left_out += 1
            return
        if len(text) > LONGEST_TEXT:
            text = f"{text[:LONGEST_TEXT]}..."
        self._problems.append(Problem(instance, rule, text))


class _Scans:
    """The tables that are read instance by instance."""

    def __init__(
        self,
        tables: RawTables,
        unreadable: Callable[[Unreadable], None],
        orphaned: Callable[[str, int, int], None],
    ) -> None:
        report: dict[str, Any] = {"unreadable": unreadable, "orphaned": orphaned}
        self.turns = Scan("history", tables.turns(), key_of, **report)
        self.attempts = Scan("attempts", tables.attempts(), key_of, **report)
        self.children = Scan("children", tables.children(), parent_of, **report)
        self.offers = Scan("offers", tables.offers(), key_of, **report)
        self.closings = Scan("closings", tables.closings(), key_of, **report)
        self.messages = Scan("inbox", tables.messages(), number_of, **report)
        self.timers = Scan("timers", tables.timers(), number_of, **report)
        self.updates = Scan("updates", tables.updates(), number_of, **report)
        self.attributes = Scan("attributes", tables.attributes(), number_of, **report)
        self._by_execution: tuple[Scan[Any], ...] = (
            self.turns,
            self.attempts,
            self.children,
            self.offers,
            self.closings,
        )
        self._all = (*self._by_execution, self.messages, self.timers, self.updates, self.attributes)

    def seek(self, number: int) -> None:
        for scan in self._all:
            if scan.number < number:
                scan.seek(number)

    def finish(self) -> None:
        for scan in self._all:
            scan.finish()

    def executions(self, number: int) -> Iterator[Execution]:
        """The executions of an instance that have rows, in order."""
        while present := [scan.execution for scan in self._by_execution if scan.number == number]:
            execution = min(present)
            yield Execution(
                execution,
                self.turns.take(number, execution),
                self.attempts.take(number, execution),
                self.children.take(number, execution),
                self.offers.take(number, execution),
                bool(self.closings.take(number, execution)),
            )
